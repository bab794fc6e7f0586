package integration

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"lockstep.dev/lockstep/internal/pvc"
	"lockstep.dev/lockstep/test/delay"
)

// node is the node of the pods of a race.
const node = "n1"

// course is the API server on which races run, with the part of a real kubelet that decides
// which volumes a pod mounts.
type course struct {
	*cluster
	kubelet *realKubelet
	// barrier makes PVC wait until the operator has added the barrier.
	barrier bool
}

func newCourse(t *testing.T) *course {
	t.Helper()
	c := &course{cluster: newCluster(t)}
	c.kubelet = c.startKubelet(node)
	return c
}

// user returns the config of a new user with all permissions.
func (c *course) user(name string) *rest.Config {
	c.t.Helper()
	u, err := c.env.AddUser(envtest.User{Name: name, Groups: []string{"system:masters"}}, nil)
	c.must(err)
	return u.Config()
}

// proxy starts a proxy of the API server for one component.
func (c *course) proxy(component string) *delay.Proxy {
	c.t.Helper()
	p, err := delay.Start(c.user(component))
	c.must(err)
	c.t.Cleanup(p.Close)
	return p
}

// claim creates a PVC that is bound to its own volume.
func (c *course) claim(namespace, name string) *corev1.PersistentVolumeClaim {
	c.t.Helper()
	claim := newClaim(namespace, name)
	volume := namespace + "-" + name
	claim.Spec.VolumeName, claim.Spec.StorageClassName = volume, new(string)
	c.must(c.Create(c.t.Context(), claim))
	data := newVolume(volume)
	data.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
	data.Spec.ClaimRef = &corev1.ObjectReference{Kind: "PersistentVolumeClaim", Namespace: namespace, Name: name, UID: claim.UID}
	c.create(data)
	c.must(c.Status().Patch(c.t.Context(), claim, merge(`{"status":{"phase":"Bound"}}`)))
	if c.barrier {
		c.until("PVC "+name+" has a barrier", func() bool { return c.hasFinalizer(claim, pvc.BarrierFinalizer) })
	}
	return claim
}

// now returns the current state of a PVC, or nil if it is gone.
func (c *course) now(claim *corev1.PersistentVolumeClaim) *corev1.PersistentVolumeClaim {
	c.t.Helper()
	now := &corev1.PersistentVolumeClaim{}
	err := c.Get(c.t.Context(), client.ObjectKeyFromObject(claim), now)
	if apierrors.IsNotFound(err) || err == nil && now.UID != claim.UID {
		return nil
	}
	c.must(err)
	return now
}

// hasFinalizer reports whether a PVC exists and has a finalizer.
func (c *course) hasFinalizer(claim *corev1.PersistentVolumeClaim, finalizer string) bool {
	c.t.Helper()
	now := c.now(claim)
	return now != nil && slices.Contains(now.Finalizers, finalizer)
}

// pod creates a pod that mounts PVCs, without a node.
func (c *course) pod(namespace, name string, claims ...string) *corev1.Pod {
	c.t.Helper()
	pod := podWith(namespace, name, claims...)
	for _, claim := range claims {
		pod.Spec.Containers[0].VolumeMounts = append(pod.Spec.Containers[0].VolumeMounts, corev1.VolumeMount{Name: claim, MountPath: "/" + claim})
	}
	c.must(c.Create(c.t.Context(), pod))
	return pod
}

// bind binds a pod, as a scheduler does.
func (c *course) bind(pod *corev1.Pod) {
	c.t.Helper()
	c.must(c.SubResource("binding").Create(c.t.Context(), pod, &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: node}}))
}

// end force-deletes a pod, because no kubelet does.
func (c *course) end(pod *corev1.Pod) {
	c.t.Helper()
	c.must(c.Delete(c.t.Context(), pod, client.GracePeriodSeconds(0)))
}

// lost reports whether data is lost: the PVC is gone while a pod mounts it.
func (c *course) lost(claim *corev1.PersistentVolumeClaim, pod *corev1.Pod) bool {
	c.t.Helper()
	c.must(c.Get(c.t.Context(), client.ObjectKeyFromObject(pod), &corev1.Pod{}))
	return c.kubelet.mounts(pod, claim) && c.now(claim) == nil
}

func (c *course) gone(claim *corev1.PersistentVolumeClaim) {
	c.t.Helper()
	c.until("PVC "+claim.Name+" is gone", func() bool { return c.now(claim) == nil })
}

// process is a program of the local control plane.
type process struct {
	log string
	cmd *exec.Cmd
}

// run starts a program until the test ends. Its standard output goes to out, if not nil.
func (c *cluster) run(out io.Writer, name string, flags ...string) *process {
	c.t.Helper()
	program, err := filepath.Abs(filepath.Join(root, "bin", "lockstep-local"))
	c.must(err)
	return c.runProgram(out, name, program, append([]string{name}, flags...)...)
}

// runProgram runs a program until the test ends.
func (c *cluster) runProgram(out io.Writer, name, program string, flags ...string) *process {
	c.t.Helper()
	log, err := os.Create(filepath.Join(c.t.TempDir(), name+".log"))
	c.must(err)
	cmd := exec.Command(program, flags...)
	cmd.Stdout, cmd.Stderr = out, log
	if out == nil {
		cmd.Stdout = log
	}
	_, err = cmd.StdinPipe() // closed when this test ends, however it ends
	c.must(err)
	c.must(cmd.Start())
	c.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = log.Close()
	})
	return &process{log: log.Name(), cmd: cmd}
}

// logged counts the log lines with all of these texts.
func (p *process) logged(texts ...string) int {
	log, _ := os.ReadFile(p.log)
	n := 0
line:
	for line := range strings.Lines(string(log)) {
		for _, text := range texts {
			if !strings.Contains(line, text) {
				continue line
			}
		}
		n++
	}
	return n
}

// realKubelet is the kubelet's own code that decides which volumes pods mount.
type realKubelet struct {
	*process
	mu      sync.Mutex
	rest    []byte
	mounted map[types.UID][]types.UID // PVCs by pod
	refused map[types.UID]string
}

func (c *course) startKubelet(node string) *realKubelet {
	c.t.Helper()
	path := filepath.Join(c.t.TempDir(), "kubelet.kubeconfig")
	c.must(delay.WriteKubeconfig(c.user("system:node:"+node), path))
	k := &realKubelet{mounted: map[types.UID][]types.UID{}, refused: map[types.UID]string{}}
	k.process = c.run(k, "kubelet-volumes", "--kubeconfig", path, "--node", node)
	return k
}

// Write takes the output of the program.
func (k *realKubelet) Write(text []byte) (int, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.rest = append(k.rest, text...)
	for {
		line, rest, found := strings.Cut(string(k.rest), "\n")
		if !found {
			return len(text), nil
		}
		k.rest = []byte(rest)
		if err := k.record(line); err != nil {
			return 0, err
		}
	}
}

func (k *realKubelet) record(line string) error {
	var event struct {
		Pod, Claim types.UID
		Refused    string
		Gone       bool
	}
	if err := json.Unmarshal([]byte(line), &event); err != nil {
		return fmt.Errorf("the kubelet printed %q: %w", line, err)
	}
	switch {
	case event.Gone:
		delete(k.mounted, event.Pod)
	case event.Refused != "":
		k.refused[event.Pod] = event.Refused
	case event.Claim == "":
		return errors.New("a volume without a PVC")
	default:
		k.mounted[event.Pod] = append(k.mounted[event.Pod], event.Claim)
	}
	return nil
}

func (k *realKubelet) mounts(pod *corev1.Pod, claim *corev1.PersistentVolumeClaim) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Contains(k.mounted[pod.UID], claim.UID)
}

// refuses returns the error with which the kubelet refuses a pod, or "".
func (k *realKubelet) refuses(pod *corev1.Pod) string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.refused[pod.UID]
}
