//go:build linux

package node

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/test/drill"
	"lockstep.dev/lockstep/test/expect"
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
	s.Check("events", drill.Lacking("postponements", 1, len(s.Events(claim, "DeletionPostponed"))))
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
	expect.That(t, s.Of(pod.UID).Died != 0, "the PVC was removed before its pod")
	want := []string{"born " + string(pod.UID) + " user", "ended " + string(pod.UID) + " user"}
	expect.Equalf(t, want, s.recordsOn(claim), "records on the disk")
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
		expect.That(t, s.running("of-"+name) != nil, "pod of-%s runs with a terminating PVC", name)
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

	err := s.Client.Delete(t.Context(), s.PVC("data-a-0-1"))
	expect.That(t, apierrors.IsForbidden(err), "a PVC in use was deleted: %v", err)

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
	expect.Must(s, err == nil, "apply the policies of mode strict: %v\n%s", err, out)
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
