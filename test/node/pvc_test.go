//go:build linux

package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/test/delay"
	"lockstep.dev/lockstep/test/drill"
)

// refusal is the error of a kubelet for a terminating PVC without the built-in finalizer.
const refusal = "PVC is being deleted"

// A PVC is deleted while its pod runs. The PVC and its data stay until the pod has ended, also over a
// restart of the kubelet. Then the PVC is removed.
func TestAClaimInUse(t *testing.T) {
	s := newScene(t)
	claim := s.newClaim("used")
	pod := s.newUser("user", claim.Name)
	s.Create(pod)
	s.Eventually("the pod runs", func() error { return s.running(pod.Name) })
	claim = s.PVC("used")
	s.Remove(claim)
	s.AwaitEvent("used", "DeletionPostponed", "pod user")
	s.Check("events", drill.Lacking("postponements", 1, len(s.events("DeletionPostponed", "used"))))
	s.AwaitFinalizers(claim, drill.PodProtection, drill.Barrier)

	container := s.mustPod("user").Status.ContainerStatuses[0].ContainerID
	s.Check("kill the kubelet", bed.node.killKubelet())
	s.Check("start the kubelet", bed.node.startKubelet())
	s.runs("witness")
	if now := s.mustPod("user").Status.ContainerStatuses[0]; now.ContainerID != container || now.State.Running == nil {
		t.Errorf("the restarted kubelet has another container: %+v", now)
	}
	s.AwaitFinalizers(claim, drill.PodProtection, drill.Barrier)
	s.Remove(pod)
	s.AwaitGone(claim)
	if s.Of(pod.UID).Died == 0 {
		t.Error("the PVC was removed before its pod")
	}
	want := []string{"born " + string(pod.UID) + " user", "ended " + string(pod.UID) + " user"}
	if have := s.recordsOn(claim); !slices.Equal(have, want) {
		t.Errorf("records on the disk: %q, want %q", have, want)
	}
}

// A kubelet starts a new pod by the finalizers of its PVC. It refuses a terminating PVC that has only
// the barrier. A pod that is bound to such a PVC keeps the barrier, and the data, until the pod is gone.
func TestWhatAKubeletRefuses(t *testing.T) {
	s := newScene(t)
	var claims []*corev1.PersistentVolumeClaim
	for _, name := range []string{"living", "p", "b", "other"} {
		claims = append(claims, s.newClaim(name))
	}
	p, b, other := claims[1], claims[2], claims[3]
	s.Check("kill the operator", bed.Operator.Kill())
	t.Cleanup(func() {
		if bed.Operator.Ready() != nil {
			s.Check("start the operator", bed.Operator.Start())
		}
	})
	s.finalize(p, drill.Foreign, drill.PodProtection)
	s.finalize(other, drill.Foreign)
	holder := s.newUser("holder", p.Name)
	s.Create(holder)
	s.Eventually("the first user of p runs", func() error { return s.running("holder") })
	for _, claim := range []*corev1.PersistentVolumeClaim{p, b, other} {
		s.Remove(claim)
	}
	s.AwaitFinalizers(b, drill.Barrier)
	s.AwaitFinalizers(other, drill.Foreign)
	s.AwaitFinalizers(p, drill.Foreign, drill.PodProtection)

	for _, claim := range claims {
		pod := s.newUser("of-"+claim.Name, claim.Name)
		pod.Spec.NodeName = nodeName // without a scheduler
		s.Create(pod)
	}
	for _, name := range []string{"of-living", "of-p"} {
		s.Eventually("the kubelet starts pod "+name, func() error { return s.running(name) })
	}
	for _, name := range []string{"b", "other"} {
		s.Eventually("the kubelet refuses pod of-"+name, func() error { return s.kubeletSays(name) })
		if err := s.running("of-" + name); err == nil {
			t.Errorf("pod of-%s runs with a terminating PVC", name)
		}
	}
	s.Check("start the operator", bed.Operator.Start())
	s.Eventually("why names the pod that keeps the barrier", func() error { return lacks(s.say("why", "pvc/b"), "of-b") })
	s.AwaitEvent("of-b", "FailedMount", refusal)
	s.AwaitFinalizers(b, drill.Barrier)
	s.Remove(s.mustPod("of-b"))
	s.AwaitGone(b)
	s.finalize(p, drill.PodProtection)
	s.finalize(other)
}

// newClaim creates a PVC on a disk of the node, and waits until it is bound and protected.
func (s *scene) newClaim(name string) *corev1.PersistentVolumeClaim {
	s.Check("make a disk", bed.addDisks(s.Context(), 1))
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: s.Meta(name), Spec: diskSpec()}
	claim.Spec.VolumeName = bed.lastDisk()
	s.Create(claim)
	return s.AwaitPVC(name, "is bound and protected", func(now *corev1.PersistentVolumeClaim) error {
		return errors.Join(drill.Lacking("phase", corev1.ClaimBound, now.Status.Phase), drill.Lacking("protected", true, drill.IsProtected(now)))
	})
}

// newUser returns a pod that uses a PVC.
func (s *scene) newUser(name, claim string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: s.Meta(name), Spec: containerSpec("--data", "/data")}
	pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}
	pod.Spec.Volumes = []corev1.Volume{drill.ClaimVolume("data", claim)}
	return pod
}

// runs creates a pod without a PVC and waits until it runs: the kubelet and the scheduler then work.
func (s *scene) runs(name string) {
	s.Create(&corev1.Pod{ObjectMeta: s.Meta(name), Spec: containerSpec()})
	s.Eventually("pod "+name+" runs", func() error { return s.running(name) })
}

// finalize sets the finalizers of a PVC.
func (s *scene) finalize(claim *corev1.PersistentVolumeClaim, finalizers ...string) {
	list := `[]`
	if len(finalizers) > 0 {
		list = `["` + strings.Join(finalizers, `","`) + `"]`
	}
	err := s.Client.Patch(s.Context(), claim.DeepCopy(), drill.Merge(fmt.Sprintf(`{"metadata":{"finalizers":%s}}`, list)))
	s.Check("set the finalizers of "+claim.Name, client.IgnoreNotFound(err))
}

// kubeletSays returns nil if the log of the kubelet refuses a PVC.
func (s *scene) kubeletSays(claim string) error {
	log, err := os.ReadFile(bed.node.log("kubelet"))
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(log)) {
		if strings.Contains(line, s.Namespace+"/"+claim+":") && strings.Contains(line, refusal) {
			s.Logf("kubelet: %s", strings.TrimSpace(line))
			return nil
		}
	}
	return errors.New("the log has no refusal")
}

// In mode strict, no pod reaches a kubelet before it is recorded on its PVCs. This holds for the pods
// of a recreated group as well.
func TestStrict(t *testing.T) {
	s := newScene(t)
	s.applyStrict()
	s.Check("make disks", bed.addDisks(t.Context(), 3))
	set := s.newSet("a", 1, 3, withDisks)
	s.Create(set)
	s.awaitAvailable(set)
	s.checkRecorded("a-0", "a-0-1", "a-0-2")
	before := s.UIDs()
	s.killContainerOf("a-0-1")
	s.awaitAnother(set, before, "a-0", "a-0-1", "a-0-2")
	s.checkRecorded("a-0", "a-0-1", "a-0-2")
	s.checkInherited(before, s.UIDs(), "a-0", "a-0-1", "a-0-2")

	if err := s.Client.Delete(t.Context(), s.PVC("data-a-0-1")); !apierrors.IsForbidden(err) {
		t.Errorf("a PVC in use was deleted: %v", err)
	}

	claim := s.newClaim("alone")
	s.Check("kill the operator", bed.Operator.Kill())
	pod := s.newUser("alone", claim.Name)
	s.Create(pod)
	s.Eventually("a pod is gated while no operator runs", func() error {
		return s.IsGated("alone")
	})
	s.runs("witness")
	s.Check("the pod is still gated", s.IsGated("alone"))
	s.Check("start the operator", bed.Operator.Start())
	s.Eventually("the pod runs", func() error { return s.running("alone") })
	s.WantRecorded(pod, claim.Name)
}

// applyStrict sets the namespace to mode strict, and waits until the policies apply.
func (s *scene) applyStrict() {
	out, err := exec.Command(bed.Plane.Program, "kubectl", "--kubeconfig", bed.Plane.Kubeconfig(), "apply", "-f", "../../config/protection/strict.yaml").CombinedOutput()
	if err != nil {
		s.Fatalf("apply the policies of mode strict: %v\n%s", err, out)
	}
	s.SetMode("strict")
	s.Eventually("a pod that names its node is refused", func() error {
		pod := s.newUser("probe", "none")
		pod.Spec.NodeName = nodeName
		if err := s.Client.Create(s.Context(), pod, client.DryRunAll); !apierrors.IsForbidden(err) {
			return fmt.Errorf("it is not refused: %w", err)
		}
		return nil
	})
}

// checkRecorded checks that pods were bound after they were recorded on their PVCs. The audit log has
// the order of the answers.
func (s *scene) checkRecorded(names ...string) {
	for _, name := range names {
		s.WantRecorded(s.mustPod(name), "data-"+name)
	}
	s.Check("read the audit log", bed.Audit.Sync())
	recorded := map[string]bool{}
	for _, r := range bed.Audit.Kept(s.Audited, func(r drill.Request) bool { return r.Namespace == s.Namespace && r.Code < 300 }) {
		switch {
		case r.Resource == "persistentvolumeclaims" && drill.ByLockstep(r):
			recorded[r.Name] = true
		case r.Resource == "pods" && r.Subresource == "binding" && !recorded["data-"+r.Name]:
			s.Check("order", errors.New("pod "+r.Name+" was bound before it was recorded on its PVC"))
		}
	}
}

// builtIn is the name of the PVC protection controller in the controller manager.
const builtIn = "persistentvolumeclaim-protection-controller"

// racing is a scene in which the built-in controller runs behind a proxy.
type racing struct {
	*scene
	proxy *delay.Proxy
	log   string
}

// The built-in controller is made to take P off a PVC that a pod has mounted, on a real
// kubelet, by both ways in which that is known to happen. The barrier keeps the PVC until
// the pod has ended.
func TestABuiltInRace(t *testing.T) {
	for name, replay := range map[string]func(*racing) (*corev1.PersistentVolumeClaim, *corev1.Pod){
		"R3: bound between the list and the write":  (*racing).boundAfterTheList,
		"R4: judged by the list of another's claim": (*racing).judgedByAnothersList,
	} {
		t.Run(name, func(t *testing.T) {
			r := newRacing(t)
			claim, pod := replay(r)
			r.AwaitFinalizers(claim, drill.Barrier)
			r.Check("the pod still runs", r.running(pod.Name))
			r.Until("an event says that the PVC is in use without protection", func() bool { return len(r.events("UsedWithoutProtection", claim.Name)) != 0 })
			r.Logf("UsedWithoutProtection: %q", r.events("UsedWithoutProtection", claim.Name))
			r.Remove(pod)
			r.AwaitGone(claim)
			if r.Of(pod.UID).Died == 0 {
				t.Error("lost: the PVC was removed before its pod")
			}
			if records := r.recordsOn(claim); !slices.Contains(records, "ended "+string(pod.UID)+" "+pod.Name) {
				t.Errorf("the disk has no record of the end of the pod: %q", records)
			}
		})
	}
}

func newRacing(t *testing.T) *racing {
	r := &racing{scene: newScene(t)}
	controllers := func(which string) error {
		return bed.Plane.Restart(drill.ControllerManager, "--kcm-controllers", which)
	}
	r.Check("switch the built-in controller off", controllers("*,-"+builtIn))
	t.Cleanup(func() {
		if err := controllers("*"); err != nil {
			t.Errorf("switch the built-in controller on: %v", err)
		}
	})
	var err error
	r.proxy, err = delay.Start(bed.Rest)
	r.Check("start the proxy", err)
	t.Cleanup(r.proxy.Close)
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	r.Check("write the kubeconfig", r.proxy.WriteKubeconfig(kubeconfig))
	r.log = filepath.Join(t.TempDir(), "built-in.log")
	r.runBuiltIn(kubeconfig)
	r.Until("the built-in controller watches pods", func() bool { return len(r.proxy.Seen(delay.Watches("pods"))) != 0 })
	return r
}

// runBuiltIn runs only the built-in controller behind the proxy.
func (r *racing) runBuiltIn(kubeconfig string) {
	log, err := os.Create(r.log)
	r.Check("make a log", err)
	cmd := exec.Command(bed.Plane.Program, drill.ControllerManager, "--kubeconfig", kubeconfig, "--secure-port=0",
		"--leader-elect=false", "--controllers="+builtIn, "--v=4")
	cmd.Stdout, cmd.Stderr = log, log
	r.Check("start the built-in controller", cmd.Start())
	r.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = log.Close()
	})
}

// boundAfterTheList has a pod bound, and started, between the controller's list of pods and
// its write.
func (r *racing) boundAfterTheList() (*corev1.PersistentVolumeClaim, *corev1.Pod) {
	claim := r.newClaim("data")
	write := r.proxy.Hold(delay.Requests, delay.WritesPVC(r.Namespace, "data"))
	defer write.Release()
	r.Remove(claim)
	r.reached("the controller is about to take P", write)
	pod := r.bound("late", "data")
	r.Eventually("the kubelet starts it: the PVC is terminating, and P is there", func() error { return r.running("late") })
	return claim, pod
}

// judgedByAnothersList has PVC b mounted, and then deleted, after pods were listed for
// PVC a: both are judged by that list.
func (r *racing) judgedByAnothersList() (*corev1.PersistentVolumeClaim, *corev1.Pod) {
	claimA, claimB := r.newClaim("a"), r.newClaim("b")
	first := r.newUser("first", "a")
	first.Spec.Volumes = append(first.Spec.Volumes, r.newUser("", "b").Spec.Volumes...)
	first.Spec.Volumes[1].Name = "more"
	first.Spec.NodeName = nodeName
	r.Create(first)
	r.Eventually("the first pod runs", func() error { return r.running("first") })
	r.Remove(claimA)
	r.awaitLog("Keeping PVC because it is being used", r.Namespace+"/a")

	// The one worker is busy elsewhere, so that both PVCs come into one batch.
	other := newScene(r.T)
	busy := r.proxy.Hold(delay.Requests, delay.ListsPods(other.Namespace))
	defer busy.Release()
	elsewhere := other.newClaim("c")
	other.Remove(elsewhere)
	r.reached("the controller is busy elsewhere", busy)
	r.Remove(first)
	r.Until("the first pod is gone", func() bool { return r.Of(first.UID).Died != 0 })
	marker := other.newUser("last", "none")
	marker.Spec.SchedulerName = "none"
	other.Create(marker)
	r.awaitLog("Enqueuing PVCs for Pod", string(marker.UID))
	lag := r.proxy.Hold(delay.Streams, delay.Watches("pods"))
	defer lag.Release()
	list := r.proxy.Hold(delay.Answers, delay.ListsPods(r.Namespace))
	defer list.Release()
	busy.Release()
	r.reached("pods were listed for PVC a", list)

	pod := r.bound("late", "b")
	r.Eventually("the kubelet starts it", func() error { return r.running("late") })
	r.Remove(claimB)
	other.Create(&corev1.PersistentVolumeClaim{ObjectMeta: other.Meta("last"), Spec: diskSpec()})
	r.awaitLog("Got event on PVC", other.Namespace+"/last")
	r.reached("it does not know the late pod", lag)
	list.Release()
	r.AwaitFinalizers(claimB, drill.Barrier) // before it hears of the late pod
	return claimB, pod
}

// bound creates a pod past every scheduler.
func (s *scene) bound(name, claim string) *corev1.Pod {
	pod := s.newUser(name, claim)
	pod.Spec.NodeName = nodeName
	s.Create(pod)
	return pod
}

func (r *racing) reached(what string, h *delay.Hold) {
	ctx, cancel := context.WithTimeout(r.Context(), drill.Patience)
	defer cancel()
	_, err := h.Reached(ctx)
	r.Check(what, err)
	r.tell("%s", what)
}

// awaitLog waits until the log of the built-in controller has a line with these texts.
func (r *racing) awaitLog(texts ...string) {
	r.Eventually(fmt.Sprintf("the built-in controller logs %q", texts), func() error {
		log, err := os.ReadFile(r.log)
		for line := range strings.Lines(string(log)) {
			if !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(line, text) }) {
				return nil
			}
		}
		return errors.Join(err, errors.New("no such line"))
	})
}
