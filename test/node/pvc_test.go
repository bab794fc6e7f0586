//go:build linux

package node

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/test/delay"
	"lockstep.dev/lockstep/test/drill"
)

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

// A kubelet refuses a terminating PVC that has only the barrier. A pod that is bound to such a PVC keeps
// the barrier, and the data, until the pod is gone.
func TestWhatAKubeletRefuses(t *testing.T) {
	s := newScene(t)
	claim := s.newClaim("b")
	s.Check("kill the operator", bed.Operator.Kill())
	t.Cleanup(func() {
		if bed.Operator.Ready() != nil {
			s.Check("start the operator", bed.Operator.Start())
		}
	})
	s.Remove(claim)
	s.AwaitFinalizers(claim, drill.Barrier)
	pod := s.bound("user", claim.Name)
	s.AwaitEvent(pod.Name, "FailedMount", "PVC is being deleted")
	if err := s.running(pod.Name); err == nil {
		t.Error("the pod runs with a terminating PVC")
	}
	s.Check("start the operator", bed.Operator.Start())
	s.Eventually("why names the pod that keeps the barrier", func() error { return lacks(s.say("why", "pvc/b"), pod.Name) })
	s.AwaitFinalizers(claim, drill.Barrier)
	s.Remove(pod)
	s.AwaitGone(claim)
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

// A pod is bound, and starts, between the list of pods by the built-in controller and its write. The
// controller then removes its finalizer from a PVC that the pod mounts. The barrier keeps the PVC until
// the pod has ended.
func TestABuiltInRace(t *testing.T) {
	s := newScene(t)
	proxy := s.delayBuiltIn()
	claim := s.newClaim("data")
	write := proxy.Hold(delay.Requests, delay.WritesPVC(s.Namespace, claim.Name))
	defer write.Release()
	s.Remove(claim)
	ctx, cancel := context.WithTimeout(s.Context(), drill.Patience)
	defer cancel()
	_, err := write.Reached(ctx)
	s.Check("the built-in controller is about to remove its finalizer", err)
	pod := s.bound("late", claim.Name)
	s.Eventually("the kubelet starts the pod: the PVC is terminating and still protected", func() error { return s.running(pod.Name) })
	write.Release()

	s.AwaitFinalizers(claim, drill.Barrier)
	s.Check("the pod still runs", s.running(pod.Name))
	s.AwaitEvent(claim.Name, "UsedWithoutProtection")
	s.Remove(pod)
	s.AwaitGone(claim)
	if s.Of(pod.UID).Died == 0 {
		t.Error("lost: the PVC was removed before its pod")
	}
	if records := s.recordsOn(claim); !slices.Contains(records, "ended "+string(pod.UID)+" "+pod.Name) {
		t.Errorf("the disk has no record of the end of the pod: %q", records)
	}
}

// delayBuiltIn runs the built-in controller behind a proxy until the test ends.
func (s *scene) delayBuiltIn() *delay.Proxy {
	controllers := func(which string) error {
		return bed.Plane.Restart(drill.ControllerManager, "--kcm-controllers", which)
	}
	s.Check("switch the built-in controller off", controllers("*,-"+builtIn))
	s.Cleanup(func() {
		if err := controllers("*"); err != nil {
			s.Errorf("switch the built-in controller on: %v", err)
		}
	})
	proxy, err := delay.Start(bed.Rest)
	s.Check("start the proxy", err)
	s.Cleanup(proxy.Close)
	kubeconfig := filepath.Join(s.TempDir(), "kubeconfig")
	s.Check("write the kubeconfig", proxy.WriteKubeconfig(kubeconfig))
	cmd := exec.Command(bed.Plane.Program, drill.ControllerManager, "--kubeconfig", kubeconfig, "--secure-port=0",
		"--leader-elect=false", "--controllers="+builtIn)
	s.Check("start the built-in controller", cmd.Start())
	s.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	s.Until("the built-in controller watches pods", func() bool { return len(proxy.Seen(delay.Watches("pods"))) != 0 })
	return proxy
}

// bound creates a pod past every scheduler.
func (s *scene) bound(name, claim string) *corev1.Pod {
	pod := s.newUser(name, claim)
	pod.Spec.NodeName = nodeName
	s.Create(pod)
	return pod
}
