package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"lockstep.dev/lockstep/internal/pvc"
)

const (
	stockScheduler = corev1.DefaultSchedulerName
	ourScheduler   = "lockstep-scheduler"
)

// schedules tells what a scheduler does for pods with claims.
func schedules(r request) bool {
	return strings.HasPrefix(r.Agent, "kube-scheduler/") &&
		(r.Resource == "persistentvolumeclaims" || r.Resource == "pods" && r.Subresource == "binding")
}

// by leaves a pod to a scheduler.
func by(scheduler string) podEdit {
	return func(pod *corev1.Pod) { pod.Spec.NodeName, pod.Spec.SchedulerName = "", scheduler }
}

// classClaim makes a claim of a class.
func (s *scene) classClaim(name, class string, finalizers ...string) *corev1.PersistentVolumeClaim {
	s.Helper()
	bed.hasSet(s.namespace) // the operator may write here
	claim := s.newClaim(name, finalizers...)
	claim.Spec.StorageClassName = &class
	s.create(claim)
	return claim
}

// boundClaim makes a claim and waits for its volume. When it is deleted it goes on
// terminating until the drill lets it go.
func (s *scene) boundClaim(name string) *corev1.PersistentVolumeClaim {
	s.Helper()
	s.classClaim(name, "local", foreign)
	return s.awaitClaim(name, "is bound", func(claim *corev1.PersistentVolumeClaim) error {
		return lacking("phase", corev1.ClaimBound, claim.Status.Phase)
	})
}

// awaitClaim waits until a claim lacks nothing.
func (s *scene) awaitClaim(name, what string, lacks func(*corev1.PersistentVolumeClaim) error) *corev1.PersistentVolumeClaim {
	s.Helper()
	var claim *corev1.PersistentVolumeClaim
	s.eventually("claim "+name+" "+what, func() error {
		found, err := s.claims()
		if claim = found[name]; err != nil || claim == nil {
			return errors.Join(err, errors.New("it is not there"))
		}
		return lacks(claim)
	})
	return claim
}

// recordOf is what a claim says of its users.
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

// awaitRefused waits until a pod is told why it has no node.
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
		return nil, errors.New("not there")
	}
	return pod, nil
}

// refusal is what a scheduler says of a pod.
func refusal(pod *corev1.Pod) string {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return c.Reason + ": " + c.Message
		}
	}
	return "nothing"
}

// vanish lets a claim go that was deleted, and waits until it is gone.
func (s *scene) vanish(claim *corev1.PersistentVolumeClaim) {
	s.Helper()
	s.eventually("claim "+claim.Name+" is let go", func() error {
		found, err := s.claims()
		now := found[claim.Name]
		if err != nil || now == nil || !slices.Contains(now.Finalizers, foreign) {
			return err
		}
		now.Finalizers = slices.DeleteFunc(now.Finalizers, func(f string) bool { return f == foreign })
		if err := s.client.Update(s.Context(), now); !apierrors.IsNotFound(err) {
			return err
		}
		return nil
	})
	s.awaitGone(claim)
}

// TestPodsWaitForClaimsOnTheirWayOut: such a claim is as good as missing, the pod
// says which it is, and is scheduled as soon as there is another.
func TestPodsWaitForClaimsOnTheirWayOut(t *testing.T) {
	aside(t)
	s := newScene(t)
	claim := s.boundClaim("data")
	s.remove(claim)
	s.user("web", []string{"data"}, by(ourScheduler))
	s.awaitRefused("web", `persistentvolumeclaim "data" is being deleted`)
	s.vanish(claim)
	s.awaitRefused("web", `persistentvolumeclaim "data" not found`)
	s.classClaim("data", "local")
	s.checkRecorded(s.awaitScheduled("web"), "data")
}

// checkRecorded checks that a pod stands on its claims, and was written there
// before it was bound.
func (s *scene) checkRecorded(pod *corev1.Pod, claims ...string) {
	s.Helper()
	for _, name := range claims {
		s.check("claim "+name, lacking("use record", pod.Name+"="+string(pod.UID), s.recordOf(name)))
	}
	s.check("read the audit log", bed.audit.sync())
	wrote := bed.audit.writes(s.audited, func(r request) bool { return schedules(r) && r.Namespace == s.namespace && r.Code < 300 })
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

// TestNoPodIsBoundToAClaimThatWentAfterANodeWasChosen: the scheduler has looked at
// a pod's claims, has chosen a node and waits for one of them to get its volume.
// Meanwhile another is deleted. As released it binds the pod all the same.
func TestNoPodIsBoundToAClaimThatWentAfterANodeWasChosen(t *testing.T) {
	aside(t)
	s := newScene(t)
	slow := s.slowClass()
	for _, scheduler := range []string{stockScheduler, ourScheduler} {
		web, data, late := scheduler, "data-"+scheduler, "late-"+scheduler
		claim := s.boundClaim(data)
		s.classClaim(late, slow)
		s.user(web, []string{data, late}, by(scheduler))
		waiting := s.awaitClaim(late, "waits for a volume at a node", func(c *corev1.PersistentVolumeClaim) error {
			if c.Annotations["volume.kubernetes.io/selected-node"] == "" {
				return errors.New("no node was chosen")
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

// slowClass makes a class whose volumes come when the drill provides them, once a
// pod has a node.
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

// provision makes the volume that a claim waits for.
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
