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
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/protect"
)

const (
	stockScheduler = "default-scheduler"
	ourScheduler   = "lockstep-scheduler"
	// keepsClaim is a finalizer of the drills' own: a claim that bears it stays
	// terminating until they take it off.
	keepsClaim = "drill.lockstep.dev/keep"
)

// schedules tells what a scheduler does for pods with claims.
func schedules(r request) bool {
	return strings.HasPrefix(r.Agent, "kube-scheduler/") &&
		(r.Resource == "persistentvolumeclaims" || r.Resource == "pods" && r.Subresource == "binding")
}

// newClaim is a claim of a class that stays when it is deleted.
func (s *scene) newClaim(name, class string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name, Finalizers: []string{keepsClaim}},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:        corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
			StorageClassName: &class,
		},
	}
}

// newPod is a pod of one container that uses claims.
func (s *scene) newPod(name, scheduler string, claims ...string) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name},
		Spec:       corev1.PodSpec{SchedulerName: scheduler, Containers: []corev1.Container{{Name: "c", Image: imageA}}},
	}
	for _, claim := range claims {
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: claim, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
		}})
	}
	return pod
}

// claim reads a claim.
func (s *scene) claim(name string) (*corev1.PersistentVolumeClaim, error) {
	claim := &corev1.PersistentVolumeClaim{}
	return claim, s.client.Get(s.Context(), client.ObjectKey{Namespace: s.namespace, Name: name}, claim)
}

// boundClaim makes a claim and waits for its volume.
func (s *scene) boundClaim(name string) *corev1.PersistentVolumeClaim {
	s.Helper()
	s.create(s.newClaim(name, "local"))
	return s.awaitClaim(name, "is bound", func(claim *corev1.PersistentVolumeClaim) error {
		return lacking("phase", corev1.ClaimBound, claim.Status.Phase)
	})
}

func (s *scene) awaitClaim(name, what string, lacks func(*corev1.PersistentVolumeClaim) error) *corev1.PersistentVolumeClaim {
	s.Helper()
	var claim *corev1.PersistentVolumeClaim
	s.eventually("claim "+name+" "+what, func() (err error) {
		if claim, err = s.claim(name); err != nil {
			return err
		}
		return lacks(claim)
	})
	return claim
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

// releaseClaim takes the drill's finalizer off a claim that was deleted, and waits until
// it is gone.
func (s *scene) releaseClaim(name string) {
	s.Helper()
	s.eventually("claim "+name+" is gone", func() error {
		claim, err := s.claim(name)
		switch {
		case apierrors.IsNotFound(err):
			return nil
		case err != nil:
			return err
		case !slices.Contains(claim.Finalizers, keepsClaim):
			return fmt.Errorf("finalizers: %q", claim.Finalizers)
		}
		claim.Finalizers = slices.DeleteFunc(claim.Finalizers, func(f string) bool { return f == keepsClaim })
		return errors.Join(errors.New("just let go"), client.IgnoreNotFound(s.client.Update(s.Context(), claim)))
	})
}

// TestPodsWaitForClaimsOnTheirWayOut: such a claim is as good as missing, the pod
// says which it is, and is scheduled as soon as there is another.
func TestPodsWaitForClaimsOnTheirWayOut(t *testing.T) {
	aside(t)
	s := newScene(t)
	s.remove(s.boundClaim("data"))
	s.create(s.newPod("web", ourScheduler, "data"))
	s.awaitRefused("web", `persistentvolumeclaim "data" is being deleted`)
	s.releaseClaim("data")
	s.awaitRefused("web", `persistentvolumeclaim "data" not found`)
	s.create(s.newClaim("data", "local"))
	pod := s.awaitScheduled("web")
	s.checkRecorded(pod, "data")
}

// checkRecorded checks that a pod stands on its claims, and was written there
// before it was bound.
func (s *scene) checkRecorded(pod *corev1.Pod, claims ...string) {
	s.Helper()
	for _, name := range claims {
		claim, err := s.claim(name)
		if err == nil {
			err = lacking("use record", pod.Name+"="+string(pod.UID), claim.Annotations[protect.UsersAnnotation])
		}
		s.check("claim "+name, err)
	}
	s.check("read the audit log", bed.audit.sync())
	wrote := bed.audit.writes(s.audited, func(r request) bool { return schedules(r) && r.Namespace == s.namespace && r.Code < 300 })
	bound := slices.IndexFunc(wrote, func(r request) bool { return r.Resource == "pods" && r.Name == pod.Name })
	if bound < 0 {
		s.Fatalf("the scheduler bound nothing: %v", wrote)
	}
	for _, name := range claims {
		on := slices.IndexFunc(wrote, func(r request) bool { return r.Resource == "persistentvolumeclaims" && r.Verb == "patch" && r.Name == name })
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
		s.create(s.newClaim(late, slow))
		s.create(s.newPod(web, scheduler, data, late))
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
			continue
		}
		s.awaitRefused(web, fmt.Sprintf("persistentvolumeclaim %q is being deleted", data))
		if late, err := s.claim(late); err != nil || late.Annotations[protect.UsersAnnotation] != "" {
			t.Errorf("the pod was not bound, and claim %s names it: %v, %v", late.Name, late.Annotations, err)
		}
		s.releaseClaim(data)
		s.create(s.newClaim(data, "local"))
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
		VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer),
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
