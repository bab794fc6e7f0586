package cluster

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"lockstep.dev/lockstep/internal/pvc"
)

const (
	stockScheduler = corev1.DefaultSchedulerName
	ourScheduler   = "lockstep-scheduler"
)

// schedules reports whether a scheduler wrote to a PVC or bound a pod.
func schedules(r request) bool {
	return strings.HasPrefix(r.Agent, "kube-scheduler/") &&
		(r.Resource == "persistentvolumeclaims" || r.Resource == "pods" && r.Subresource == "binding")
}

// boundClaim creates a PVC and waits for its volume. A foreign finalizer keeps it after a deletion.
func (s *scene) boundClaim(name string) *corev1.PersistentVolumeClaim {
	s.Helper()
	s.classClaim(name, "local", foreign)
	return s.awaitClaim(name, "is bound", func(claim *corev1.PersistentVolumeClaim) error {
		return lacking("phase", corev1.ClaimBound, claim.Status.Phase)
	})
}

// recordOf returns the use record of a PVC.
func (s *scene) recordOf(name string) string {
	s.Helper()
	return s.awaitClaim(name, "is there", func(*corev1.PersistentVolumeClaim) error { return nil }).Annotations[pvc.UsersAnnotation]
}

// awaitScheduled waits until a pod has a node.
func (s *scene) awaitScheduled(name string) *corev1.Pod {
	s.Helper()
	var pod *corev1.Pod
	s.eventually("pod "+name+" is scheduled", func() (err error) {
		pod, err = s.pod(name)
		if err == nil && pod.Spec.NodeName == "" {
			err = fmt.Errorf("it is not: %s", refusal(pod))
		}
		return err
	})
	return pod
}

// awaitRefused waits until a pod has a reason for its missing node.
func (s *scene) awaitRefused(name, why string) {
	s.Helper()
	s.eventually("pod "+name+" is refused: "+why, func() error {
		pod, err := s.pod(name)
		switch {
		case err != nil:
			return err
		case pod.Spec.NodeName != "":
			s.Fatalf("pod %s is bound to %s", name, pod.Spec.NodeName)
		case !strings.Contains(refusal(pod), why):
			return fmt.Errorf("it says: %s", refusal(pod))
		}
		return nil
	})
}

func (s *scene) pod(name string) (*corev1.Pod, error) {
	pod, ok := find[*corev1.Pod](s.recorder, name)
	if !ok {
		return nil, errStill
	}
	return pod, nil
}

// refusal returns the reason and message of PodScheduled.
func refusal(pod *corev1.Pod) string {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return c.Reason + ": " + c.Message
		}
	}
	return "nothing"
}

// TestPodsWaitForClaimsOnTheirWayOut: a pod with a terminating PVC waits, names it, and is scheduled
// with the next PVC.
func TestPodsWaitForClaimsOnTheirWayOut(t *testing.T) {
	s := asideScene(t)
	claim := s.boundClaim("data")
	s.remove(claim)
	s.user("web", []string{"data"}, by(ourScheduler))
	s.awaitRefused("web", `persistentvolumeclaim "data" is being deleted`)
	s.vanish(claim)
	s.awaitRefused("web", `persistentvolumeclaim "data" not found`)
	s.classClaim("data", "local")
	s.checkRecorded(s.awaitScheduled("web"), "data")
}

// checkRecorded checks that PVCs had the use record of a pod before it was bound.
func (s *scene) checkRecorded(pod *corev1.Pod, claims ...string) {
	s.Helper()
	for _, name := range claims {
		s.check("claim "+name, lacking("use record", pod.Name+"="+string(pod.UID), s.recordOf(name)))
	}
	s.check("read the audit log", bed.audit.Sync())
	wrote := bed.audit.Kept(s.audited, func(r request) bool { return schedules(r) && r.Namespace == s.namespace && r.Code < 300 })
	bound := slices.IndexFunc(wrote, func(r request) bool { return r.Resource == "pods" && r.Name == pod.Name })
	if bound < 0 {
		s.Fatalf("the scheduler bound nothing: %v", wrote)
	}
	for _, name := range claims {
		on := slices.IndexFunc(wrote, func(r request) bool {
			return r.Resource == "persistentvolumeclaims" && r.Verb == "patch" && r.Name == name
		})
		if on < 0 || on > bound || wrote[on].Done.After(wrote[bound].Begun) {
			s.Errorf("claim %s was not written on before pod %s was bound: %v", name, pod.Name, wrote)
		}
	}
}

// TestNoPodIsBoundToAClaimThatWentAfterANodeWasChosen deletes a PVC while the scheduler waits for the
// volume of another one. The stock scheduler binds the pod all the same.
func TestNoPodIsBoundToAClaimThatWentAfterANodeWasChosen(t *testing.T) {
	s := asideScene(t)
	slow := s.slowClass()
	for _, scheduler := range []string{stockScheduler, ourScheduler} {
		web, data, late := scheduler, "data-"+scheduler, "late-"+scheduler
		claim := s.boundClaim(data)
		s.classClaim(late, slow)
		s.user(web, []string{data, late}, by(scheduler))
		waiting := s.awaitClaim(late, "waits for a volume at a node", func(c *corev1.PersistentVolumeClaim) error {
			if c.Annotations["volume.kubernetes.io/selected-node"] == "" {
				return errStill
			}
			return nil
		})
		s.remove(claim)
		s.provision(waiting)
		if scheduler == stockScheduler {
			s.awaitScheduled(web) // or the drill shows nothing
			s.let(claim)
			continue
		}
		s.awaitRefused(web, fmt.Sprintf("persistentvolumeclaim %q is being deleted", data))
		s.check("the pod was not bound", lacking("use record of claim "+late, "", s.recordOf(late)))
		s.vanish(claim)
		s.classClaim(data, "local")
		s.checkRecorded(s.awaitScheduled(web), data, late)
	}
}

// slowClass creates a StorageClass whose volumes the drill provides.
func (s *scene) slowClass() string {
	s.Helper()
	class := &storagev1.StorageClass{
		ObjectMeta:        metav1.ObjectMeta{Name: "slow-" + s.namespace},
		Provisioner:       "drill.lockstep.dev/by-hand",
		VolumeBindingMode: new(storagev1.VolumeBindingWaitForFirstConsumer),
	}
	s.create(class)
	s.Cleanup(func() { _ = bed.client.Delete(context.Background(), class) })
	return class.Name
}

// provision creates the volume of a PVC.
func (s *scene) provision(claim *corev1.PersistentVolumeClaim) {
	s.Helper()
	s.create(&corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: claim.Namespace + "-" + claim.Name},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:               claim.Spec.Resources.Requests,
			AccessModes:            claim.Spec.AccessModes,
			StorageClassName:       *claim.Spec.StorageClassName,
			PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/none"}},
			ClaimRef: &corev1.ObjectReference{
				APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID,
			},
		},
	})
}
