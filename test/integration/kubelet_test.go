package integration

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"lockstep.dev/lockstep/internal/pvc"
	"lockstep.dev/lockstep/test/delay"
	"lockstep.dev/lockstep/test/expect"
	"lockstep.dev/lockstep/test/kubelet"
)

// node is the node of all pods.
const node = "n1"

// TestTheStandInAgreesWithTheKubelet compares the part of a real kubelet that decides which volumes a pod mounts
// with its stand-in, for every kind of PVC.
func TestTheStandInAgreesWithTheKubelet(t *testing.T) {
	c := newCluster(t)
	answers := c.startKubelet()
	ns := c.namespace()
	claims := map[types.UID]*corev1.PersistentVolumeClaim{} // by the UID of the pod that uses it
	for i, finalizers := range [][]string{
		{pvc.PodsFinalizer},
		{pvc.PodsFinalizer, pvc.BarrierFinalizer},
		{foreignFinalizer, pvc.PodsFinalizer},
		{pvc.BarrierFinalizer},
		{foreignFinalizer},
	} {
		for _, terminating := range []bool{false, true} {
			for _, phase := range []corev1.PersistentVolumeClaimPhase{corev1.ClaimBound, corev1.ClaimPending, corev1.ClaimLost} {
				name := fmt.Sprintf("%d-%t-%s", i, terminating, strings.ToLower(string(phase)))
				pod := podWith(ns, name, name)
				pod.Spec.NodeName = node
				pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: name, MountPath: "/data"}}
				claim := c.claimOnVolume(ns, name, terminating, phase, finalizers)
				c.create(pod)
				claims[pod.UID] = claim
			}
		}
	}
	refused := 0
	for pod, claim := range claims {
		var got kubeletAnswer
		c.until("the kubelet mounts or refuses "+claim.Name, func() bool {
			answer, found := answers.Load(pod)
			got, _ = answer.(kubeletAnswer)
			return found
		})
		err := kubelet.Today.Admits(claim)
		switch {
		case err == nil && (got.Refused != "" || got.Claim != claim.UID):
			t.Errorf("%s: the kubelet answers %+v, and the stand-in admits it", claim.Name, got)
		case err != nil:
			refused++
			if !strings.Contains(got.Refused, err.Error()) {
				t.Errorf("%s: the kubelet answers %+v, the stand-in %v", claim.Name, got, err)
			}
		}
		expect.That(t, claim.DeletionTimestamp == nil || kubelet.Old.Admits(claim) != nil,
			"%s: an old kubelet mounts a terminating PVC", claim.Name)
	}
	expect.That(t, refused != 0 && refused != len(claims), "%d of %d refused", refused, len(claims))
}

// claimOnVolume creates a PVC on its own volume with a phase and finalizers, terminating or not.
func (c *cluster) claimOnVolume(
	ns, name string, terminating bool, phase corev1.PersistentVolumeClaimPhase, finalizers []string,
) *corev1.PersistentVolumeClaim {
	c.t.Helper()
	claim := newClaim(ns, name)
	claim.Spec.VolumeName, claim.Spec.StorageClassName = ns+"-"+name, new(string)
	c.create(claim)
	claim.Finalizers = finalizers // without what admission adds
	c.must(c.Update(c.t.Context(), claim))
	data := newVolume(claim.Spec.VolumeName)
	data.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
	data.Spec.ClaimRef = &corev1.ObjectReference{Kind: "PersistentVolumeClaim", Namespace: ns, Name: name, UID: claim.UID}
	c.create(data)
	if terminating {
		c.must(c.Delete(c.t.Context(), claim))
	}
	c.must(c.Status().Patch(c.t.Context(), claim, merge(fmt.Sprintf(`{"status":{"phase":%q}}`, phase))))
	return claim
}

// kubeletAnswer is what a kubelet decides about the volume of a pod.
type kubeletAnswer struct {
	Pod, Claim types.UID
	Refused    string
}

// startKubelet starts the kubelet's own code, and returns its last answer for each pod.
func (c *cluster) startKubelet() *sync.Map {
	c.t.Helper()
	path := filepath.Join(c.t.TempDir(), "kubelet.kubeconfig")
	c.must(delay.WriteKubeconfig(c.user("system:node:"+node), path))
	out, in := io.Pipe()
	answers := &sync.Map{}
	go func() {
		for lines := json.NewDecoder(out); ; {
			var a kubeletAnswer
			if err := lines.Decode(&a); err != nil {
				c.t.Errorf("the kubelet printed no answer: %v", err)
				return
			}
			answers.Store(a.Pod, a)
		}
	}()
	c.run(in, "kubelet-volumes", "--kubeconfig", path, "--node", node)
	return answers
}

// user returns the config of a new user with all permissions.
func (c *cluster) user(name string) *rest.Config {
	c.t.Helper()
	u := expect.Value(c.env.AddUser(envtest.User{Name: name, Groups: []string{"system:masters"}}, nil))(c.t)
	return u.Config()
}

// process is a program of the local control plane.
type process struct {
	log string
	cmd *exec.Cmd
}

// run starts a program until the test ends. Its standard output goes to out, if not nil.
func (c *cluster) run(out io.Writer, name string, flags ...string) *process {
	c.t.Helper()
	program := expect.Value(filepath.Abs(filepath.Join(root, "bin", "lockstep-local")))(c.t)
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
