package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/pvc"
)

const (
	podProtection = "kubernetes.io/pvc-protection"
	barrier       = pvc.BarrierFinalizer
	foreign       = "example.com/keep"
)

func (s *scene) meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: s.namespace, Name: name}
}

func merge(document string) client.Patch {
	return client.RawPatch(types.MergePatchType, []byte(document))
}

// newClaim returns a PVC without a StorageClass.
func (s *scene) newClaim(name string, finalizers ...string) *corev1.PersistentVolumeClaim {
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: s.meta(name), Spec: claimSpec()}
	claim.Finalizers, claim.Spec.StorageClassName = finalizers, new(string)
	return claim
}

func claimSpec() corev1.PersistentVolumeClaimSpec {
	return corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
	}
}

// claim creates a PVC and waits for its finalizers.
func (s *scene) claim(name string, finalizers ...string) *corev1.PersistentVolumeClaim {
	s.Helper()
	bed.hasSet(s.namespace)
	claim := s.newClaim(name, finalizers...)
	s.create(claim)
	s.awaitProtected(name)
	return claim
}

// classClaim creates a PVC of a StorageClass.
func (s *scene) classClaim(name, class string, finalizers ...string) {
	s.Helper()
	bed.hasSet(s.namespace)
	claim := s.newClaim(name, finalizers...)
	claim.Spec.StorageClassName = &class
	s.create(claim)
}

// awaitProtected waits until PVCs have both finalizers.
func (s *scene) awaitProtected(names ...string) {
	s.Helper()
	s.eventually("PVCs are protected", func() error {
		found, err := s.claims()
		for _, name := range names {
			if claim := found[name]; claim == nil || !isProtected(claim) {
				err = errors.Join(err, fmt.Errorf("PVC %s lacks finalizers", name))
			}
		}
		return err
	})
}

func isProtected(claim *corev1.PersistentVolumeClaim) bool {
	return slices.Contains(claim.Finalizers, podProtection) && slices.Contains(claim.Finalizers, barrier)
}

// A podEdit changes a pod before it is created.
type podEdit func(*corev1.Pod)

// newUser returns a pod that uses PVCs, without a node.
func (s *scene) newUser(name string, claims []string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: s.meta(name), Spec: template(imageA).Spec}
	for _, claim := range claims {
		pod.Spec.Volumes = append(pod.Spec.Volumes, claimVolume(claim))
	}
	return pod
}

func claimVolume(claim string) corev1.Volume {
	return corev1.Volume{Name: claim, VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
	}}
}

// user creates a pod on a node that uses PVCs.
func (s *scene) user(name string, claims []string, edits ...podEdit) *corev1.Pod {
	s.Helper()
	pod := s.newUser(name, claims)
	pod.Spec.NodeName, pod.Spec.TerminationGracePeriodSeconds = s.aNode(), new(int64(1))
	for _, edit := range edits {
		edit(pod)
	}
	s.create(pod)
	return pod
}

// aNode returns the name of a node.
func (s *scene) aNode() string {
	s.Helper()
	nodes := &corev1.NodeList{}
	s.check("list nodes", s.client.List(s.Context(), nodes, client.Limit(1)))
	return nodes.Items[0].Name
}

func unbound(pod *corev1.Pod)     { pod.Spec.NodeName, pod.Spec.SchedulerName = "", "nobody" }
func hostNetwork(pod *corev1.Pod) { pod.Spec.HostNetwork = true }
func pinned(pod *corev1.Pod)      { pod.Finalizers = []string{foreign} }

// by leaves a pod to a scheduler.
func by(scheduler string) podEdit {
	return func(pod *corev1.Pod) { pod.Spec.NodeName, pod.Spec.SchedulerName = "", scheduler }
}

// awaitPhase waits until so many pods are in a phase.
func (s *scene) awaitPhase(n int, phase corev1.PodPhase) {
	s.Helper()
	s.eventually(fmt.Sprintf("%d pods are %s", n, phase), func() error {
		in := slices.DeleteFunc(live[*corev1.Pod](s.recorder), func(pod *corev1.Pod) bool { return pod.Status.Phase != phase })
		return lacking("pods", n, len(in))
	})
}

// claims returns the PVCs of the scene by name, terminating ones too.
func (s *scene) claims() (map[string]*corev1.PersistentVolumeClaim, error) {
	list := &corev1.PersistentVolumeClaimList{}
	if err := s.client.List(context.WithoutCancel(s.Context()), list, client.InNamespace(s.namespace)); err != nil {
		return nil, err
	}
	found := map[string]*corev1.PersistentVolumeClaim{}
	for i := range list.Items {
		found[list.Items[i].Name] = &list.Items[i]
	}
	return found, nil
}

// awaitClaim waits until a PVC lacks nothing, and returns it.
func (s *scene) awaitClaim(name, what string, lacks func(*corev1.PersistentVolumeClaim) error) (claim *corev1.PersistentVolumeClaim) {
	s.Helper()
	s.eventually("PVC "+name+" "+what, func() error {
		found, err := s.claims()
		if claim = found[name]; err != nil || claim == nil {
			return errors.Join(err, errStill)
		}
		return lacks(claim)
	})
	return claim
}

// awaitGone waits until an incarnation of a PVC is gone.
func (s *scene) awaitGone(claim *corev1.PersistentVolumeClaim) {
	s.Helper()
	s.eventually("PVC "+claim.Name+" is gone", func() error {
		found, err := s.claims()
		if now := found[claim.Name]; now != nil && now.UID == claim.UID {
			return errors.Join(err, fmt.Errorf("deleted %v, finalizers %v, annotations %v", now.DeletionTimestamp, now.Finalizers, now.Annotations))
		}
		return err
	})
}

// outlastClaim returns when the operator has released a PVC that was deleted now. It has then
// read all PVCs that were deleted before.
func (s *scene) outlastClaim() {
	s.Helper()
	witness := s.claim("witness-" + s.unique())
	s.remove(witness)
	s.awaitGone(witness)
}

// stays checks that the operator keeps both finalizers of terminating PVCs.
func (s *scene) stays(claims ...*corev1.PersistentVolumeClaim) {
	s.Helper()
	s.outlastClaim()
	found, err := s.claims()
	s.check("list PVCs", err)
	for _, claim := range claims {
		if now := found[claim.Name]; now == nil || now.UID != claim.UID || now.DeletionTimestamp == nil || !isProtected(now) {
			s.Fatalf("PVC %s is %+v", claim.Name, now)
		}
	}
}

// unique returns a text that the scene has not used yet.
func (s *scene) unique() string { s.words++; return fmt.Sprint(s.words) }

// awaitFinalizers waits until an object has exactly these finalizers.
func (s *scene) awaitFinalizers(o client.Object, want ...string) {
	s.Helper()
	s.eventually(fmt.Sprintf("%s has finalizers %v", o.GetName(), want), func() error {
		now := o.DeepCopyObject().(client.Object)
		err := s.client.Get(s.Context(), keyOf(o), now)
		return errors.Join(err, lacking("finalizers", fmt.Sprint(want), fmt.Sprint(now.GetFinalizers())))
	})
}

// awaitBarrier waits until a PVC has the barrier, or does not have it.
func (s *scene) awaitBarrier(name string, want bool) {
	s.Helper()
	s.awaitClaim(name, fmt.Sprintf("has the barrier: %t", want), func(claim *corev1.PersistentVolumeClaim) error {
		return lacking("barrier", want, slices.Contains(claim.Finalizers, barrier))
	})
}

// let removes the foreign finalizer of an object, if the object is there.
func (s *scene) let(o client.Object) {
	s.Helper()
	s.eventually(o.GetName()+" is let go", func() error {
		now := o.DeepCopyObject().(client.Object)
		if err := s.client.Get(s.Context(), keyOf(o), now); err != nil {
			return client.IgnoreNotFound(err)
		}
		now.SetFinalizers(slices.DeleteFunc(now.GetFinalizers(), func(f string) bool { return f == foreign }))
		return client.IgnoreNotFound(s.client.Update(s.Context(), now))
	})
}

// vanish removes the foreign finalizer of a terminating PVC and waits until the PVC is gone.
func (s *scene) vanish(claim *corev1.PersistentVolumeClaim) {
	s.Helper()
	s.let(claim)
	s.awaitGone(claim)
}
