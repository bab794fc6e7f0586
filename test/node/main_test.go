//go:build linux

package node

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/test/drill"
	"lockstep.dev/lockstep/test/fakeapi"
)

// bed is the control plane and the node of every test.
var bed *testbed

func TestMain(m *testing.M) {
	switch {
	case os.Getenv(relayEnv) != "":
		drill.Exit((&relay{dir: os.Args[1], port: os.Args[2]}).run())
	case os.Getenv(drill.ReaperEnv) != "": // drill.Main then acts as the reaper
	case os.Getenv(askedFor) == "":
		fmt.Println("the drills on a real node need \"make node\"")
		os.Exit(0)
	case os.Getenv(askedFor) == "needs": // before make builds the binaries
		drill.Exit(needs())
	}
	bed = &testbed{}
	drill.Main(m, func(dir string, reaper *drill.Reaper) error {
		err := needs()
		if err == nil {
			err = bed.raise(dir, reaper)
		}
		return err
	}, func() error { return bed.leave() })
}

// networkPlugins is the directory of the network plugins on Debian.
const networkPlugins = "/usr/lib/cni"

// askedFor is the variable that "make node" sets. Without it no drill runs, because of their needs.
const askedFor = "LOCKSTEP_NODE"

// errInstead names the alternative on machines that cannot run a real node.
var errInstead = errors.New("no real node can run here; make test runs the same operator with simulated kubelets, and needs none of this")

// needs returns an error that names everything that is missing, and how to install it.
func needs() error {
	var missing []error
	if os.Geteuid() != 0 {
		missing = append(missing, errors.New("not root: the test creates control groups, mounts and networks. Run: sudo -E make node"))
	}
	for program, from := range map[string]string{"containerd": "containerd", "ctr": "containerd", "runc": "runc", "ip": "iproute2",
		"iptables": "iptables", "nsenter": "util-linux", "unshare": "util-linux"} {
		if _, err := exec.LookPath(program); err != nil {
			missing = append(missing, fmt.Errorf("%s is not installed. On Debian: apt-get install --no-install-recommends %s", program, from))
		}
	}
	for _, plugin := range []string{"bridge", "host-local", "loopback"} {
		if _, err := os.Stat(filepath.Join(networkPlugins, plugin)); err != nil {
			missing = append(missing, fmt.Errorf("network plugin %s: %w. On Debian: apt-get install --no-install-recommends containernetworking-plugins", plugin, err))
		}
	}
	if mounts, err := os.ReadFile("/proc/self/mounts"); err != nil || !strings.Contains(string(mounts), " cgroup") {
		missing = append(missing, errors.Join(errors.New("no control groups are mounted"), err))
	}
	if len(missing) == 0 {
		return nil
	}
	return errors.Join(append(missing, errInstead)...)
}

// scene is the namespace of one test.
type scene struct{ *drill.Scene }

func newScene(t *testing.T) *scene { return &scene{drill.NewScene(t, bed.Bed)} }

// tell logs an observation with its time since the start of the scene.
func (s *scene) tell(form string, values ...any) {
	s.Logf("%6.1fs  %s", time.Since(s.Began).Seconds(), fmt.Sprintf(form, values...))
}

// mustPod reads a pod that must exist.
func (s *scene) mustPod(name string) *corev1.Pod {
	pod := &corev1.Pod{}
	s.Check("pod "+name, s.Get(name, pod))
	return pod
}

// say runs kubectl-lockstep, which must succeed, and returns what it prints.
func (s *scene) say(args ...string) string {
	out, errOut, err := s.Plugin("", args...)
	s.Check(fmt.Sprintf("kubectl-lockstep %v: %s%s", args, out, errOut), err)
	return out
}

// wantCreated checks how many pods of each name were ever created.
func (s *scene) wantCreated(want func(name string) int) {
	count := map[string]int{}
	for _, rec := range s.Pick(func(r *drill.Record) bool { return r.Kind == "Pod" }) {
		count[rec.Last.GetName()]++
	}
	for name, have := range count {
		s.Want("created pods "+name, drill.Lacking("pods", want(name), have))
	}
}

// ourScheduler is the scheduler profile with the plugin of Lockstep.
const ourScheduler = "lockstep-scheduler"

// linger is how long a container runs on after SIGTERM.
const linger = 2 * time.Second

type edit = func(*lwsv1.LeaderWorkerSet)

// newSet returns a set whose pods run until SIGTERM.
func (s *scene) newSet(name string, replicas, size int32, edits ...edit) *lwsv1.LeaderWorkerSet {
	edits = append([]edit{fakeapi.Policy(lwsv1.RecreateGroupOnPodRestart)}, edits...)
	return drill.NewSet(s.Namespace, name, replicas, size, containerSpec("--linger", linger.String()), edits...)
}

// containerSpec returns the spec of a pod with one container, which gets the UID and name of the pod.
func containerSpec(args ...string) corev1.PodSpec {
	field := func(name, path string) corev1.EnvVar {
		return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}}}
	}
	return corev1.PodSpec{
		SchedulerName:                 ourScheduler,
		TerminationGracePeriodSeconds: new(int64(20)),
		AutomountServiceAccountToken:  new(false),
		Containers: []corev1.Container{{
			Name: "serve", Image: containerImage, Args: args, ImagePullPolicy: corev1.PullNever,
			Env: []corev1.EnvVar{field("POD_UID", "metadata.uid"), field("POD_NAME", "metadata.name")},
		}},
	}
}

func args(args ...string) edit {
	return func(set *lwsv1.LeaderWorkerSet) {
		set.Spec.LeaderWorkerTemplate.WorkerTemplate.Spec.Containers[0].Args = args
	}
}

// withDisks gives every pod a PVC called data, to which its container writes.
func withDisks(set *lwsv1.LeaderWorkerSet) {
	template := &set.Spec.LeaderWorkerTemplate
	template.VolumeClaimTemplates = []corev1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: "data"}, Spec: diskSpec()}}
	container := &template.WorkerTemplate.Spec.Containers[0]
	container.VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}
	container.Args = append(container.Args, "--data", "/data")
}

func diskSpec() corev1.PersistentVolumeClaimSpec {
	spec := drill.ClaimSpec()
	spec.StorageClassName = new(diskStorage)
	return spec
}

// awaitAvailable waits until all pods of a set exist and the set is Available.
func (s *scene) awaitAvailable(set *lwsv1.LeaderWorkerSet) {
	want := int(*set.Spec.Replicas * *set.Spec.LeaderWorkerTemplate.Size)
	s.Eventually("set "+set.Name+" is Available", func() error {
		if err := s.available(set); err != nil {
			return err
		}
		if have := len(s.Pods()); have != want {
			return fmt.Errorf("got %d pods, want %d", have, want)
		}
		return nil
	})
}

// available returns an error if a set is not Available, or another one has its name.
func (s *scene) available(set *lwsv1.LeaderWorkerSet) error {
	now := s.Set(set.Name)
	if now == nil || now.UID != set.UID {
		return drill.ErrStill
	}
	available := meta.IsStatusConditionTrue(now.Status.Conditions, string(lwsv1.LeaderWorkerSetAvailable))
	if !available || now.Status.ReadyReplicas != *set.Spec.Replicas || len(now.Status.Started) < int(*set.Spec.Replicas) {
		return fmt.Errorf("%d groups are ready, %+v", now.Status.ReadyReplicas, now.Status.Conditions)
	}
	return nil
}

// awaitAnother waits until these pods were recreated and the set is Available.
func (s *scene) awaitAnother(set *lwsv1.LeaderWorkerSet, before map[string]types.UID, names ...string) {
	s.Eventually(fmt.Sprintf("pods %v are recreated", names), func() error {
		now := s.UIDs()
		for _, name := range names {
			if now[name] == "" || now[name] == before[name] {
				return fmt.Errorf("pod %s was not recreated", name)
			}
		}
		return nil
	})
	s.awaitAvailable(set)
}

// recordsOn returns the lines that pods wrote to the volume of a PVC.
func (s *scene) recordsOn(claim *corev1.PersistentVolumeClaim) []string {
	text, err := os.ReadFile(filepath.Join(bed.node.disk(claim.Spec.VolumeName), "pods"))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	s.Check("read the disk", err)
	return strings.Split(strings.TrimSpace(string(text)), "\n")
}

// restarts returns the record of a failed group in the status of a set.
func (s *scene) restarts(set *lwsv1.LeaderWorkerSet, group int32) *lwsv1.GroupRestarts {
	now := s.Set(set.Name)
	if now == nil { // the watch has not seen it yet
		return nil
	}
	if i := slices.IndexFunc(now.Status.Restarts, func(r lwsv1.GroupRestarts) bool { return r.Index == group }); i >= 0 {
		return &now.Status.Restarts[i]
	}
	return nil
}
