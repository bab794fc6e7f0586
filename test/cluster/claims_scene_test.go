package cluster

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	podProtection = "kubernetes.io/pvc-protection"
	barrier       = "protection.lockstep.dev/barrier"
	foreign       = "example.com/keep"
)

// newClaim is a claim that nothing provisions.
func (s *scene) newClaim(name string, finalizers ...string) *corev1.PersistentVolumeClaim {
	none := ""
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name, Finalizers: finalizers},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: &none,
			AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:        corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		},
	}
}

// claim makes a claim and waits until it is protected.
func (s *scene) claim(name string, finalizers ...string) *corev1.PersistentVolumeClaim {
	s.Helper()
	bed.hasSet(s.namespace) // the operator may write here
	claim := s.newClaim(name, finalizers...)
	s.create(claim)
	s.awaitDressed(name)
	return claim
}

// awaitDressed waits until claims have both finalizers.
func (s *scene) awaitDressed(names ...string) {
	s.Helper()
	s.eventually("claims are protected", func() error {
		found, err := s.claims()
		for _, name := range names {
			claim := found[name]
			if claim == nil || !slices.Contains(claim.Finalizers, podProtection) || !slices.Contains(claim.Finalizers, barrier) {
				err = errors.Join(err, fmt.Errorf("claim %s lacks finalizers", name))
			}
		}
		return err
	})
}

// A podEdit changes a pod before it is created.
type podEdit func(*corev1.Pod)

// user makes a pod on a node that names claims.
func (s *scene) user(name string, claims []string, edits ...podEdit) *corev1.Pod {
	s.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name},
		Spec: corev1.PodSpec{
			NodeName:                      s.aNode(),
			TerminationGracePeriodSeconds: new(int64(1)),
			Containers:                    []corev1.Container{{Name: "c", Image: imageA}},
		},
	}
	for i, claim := range claims {
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: fmt.Sprintf("v%d", i), VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
		}})
	}
	for _, edit := range edits {
		edit(pod)
	}
	s.create(pod)
	return pod
}

// aNode is the name of a node that is there.
func (s *scene) aNode() string {
	s.Helper()
	nodes := &corev1.NodeList{}
	s.check("list nodes", s.client.List(s.Context(), nodes, client.Limit(1)))
	if len(nodes.Items) == 0 {
		s.Fatal("there are no nodes")
	}
	return nodes.Items[0].Name
}

func unbound(pod *corev1.Pod)     { pod.Spec.NodeName, pod.Spec.SchedulerName = "", "nobody" }
func hostNetwork(pod *corev1.Pod) { pod.Spec.HostNetwork = true }
func pinned(pod *corev1.Pod)      { pod.Finalizers = []string{foreign} }

// awaitPhase waits until a pod is in a phase.
func (s *scene) awaitPhase(pod *corev1.Pod, phase corev1.PodPhase) {
	s.Helper()
	s.eventually(fmt.Sprintf("pod %s is %s", pod.Name, phase), func() error {
		now, ok := find[*corev1.Pod](s.recorder, pod.Name)
		if !ok {
			return errors.New("it is not there")
		}
		return lacking("phase", phase, now.Status.Phase)
	})
}

// awaitGone waits until an incarnation of a claim is gone.
func (s *scene) awaitGone(claim *corev1.PersistentVolumeClaim) {
	s.Helper()
	s.eventually("claim "+claim.Name+" is gone", func() error {
		found, err := s.claims()
		if now := found[claim.Name]; now != nil && now.UID == claim.UID {
			return errors.Join(err, fmt.Errorf("it has %v", now.Finalizers))
		}
		return err
	})
}

// stays checks that a claim on its way out is still there, with both finalizers,
// once the operator has looked at it: it has then looked at a witness that was
// deleted after it, and let that go.
func (s *scene) stays(claims ...*corev1.PersistentVolumeClaim) {
	s.Helper()
	witness := s.claim("witness-" + s.unique())
	s.remove(witness)
	s.awaitGone(witness)
	found, err := s.claims()
	s.check("list claims", err)
	for _, claim := range claims {
		now := found[claim.Name]
		if now == nil || now.UID != claim.UID {
			s.Fatalf("claim %s is lost", claim.Name)
		}
		if now.DeletionTimestamp == nil || !slices.Contains(now.Finalizers, podProtection) || !slices.Contains(now.Finalizers, barrier) {
			s.Fatalf("claim %s: deleted %v, finalizers %v", claim.Name, now.DeletionTimestamp, now.Finalizers)
		}
	}
}

// unique is a word that nothing of the scene bears yet.
func (s *scene) unique() string { s.words++; return fmt.Sprint(s.words) }

// finalizersOf are those of a claim that must be there.
func (s *scene) finalizersOf(name string) []string {
	s.Helper()
	claim := &corev1.PersistentVolumeClaim{}
	s.check("read claim "+name, s.client.Get(s.Context(), types.NamespacedName{Namespace: s.namespace, Name: name}, claim))
	return claim.Finalizers
}

// let takes the foreign finalizer off.
func (s *scene) let(o client.Object) {
	s.Helper()
	now := o.DeepCopyObject().(client.Object)
	err := s.client.Get(s.Context(), client.ObjectKeyFromObject(o), now)
	if apierrors.IsNotFound(err) {
		return
	}
	s.check("read "+o.GetName(), err)
	now.SetFinalizers(slices.DeleteFunc(now.GetFinalizers(), func(f string) bool { return f == foreign }))
	s.check("let go of "+o.GetName(), s.client.Update(s.Context(), now))
}

// succeed ends a pod as its kubelet would when its containers have ended.
func (s *scene) succeed(pod *corev1.Pod) {
	s.Helper()
	now := pod.DeepCopy()
	s.check("end pod "+pod.Name, s.client.Status().Patch(s.Context(), now, client.RawPatch("application/merge-patch+json",
		[]byte(`{"status":{"phase":"Succeeded","containerStatuses":null}}`))))
	s.awaitPhase(pod, corev1.PodSucceeded)
}

// awaitWord waits until an event tells something of a claim.
func (s *scene) awaitWord(claim *corev1.PersistentVolumeClaim, reason, part string) {
	s.Helper()
	s.eventually(reason+" is told of claim "+claim.Name, func() error {
		for _, e := range live[*eventsv1.Event](s.recorder) {
			if e.Regarding.UID == claim.UID && e.Reason == reason && strings.Contains(e.Note, part) {
				return nil
			}
		}
		return errors.New("it is not")
	})
}

// awaitBarrier waits until a claim has our finalizer, or has it not.
func (s *scene) awaitBarrier(name string, want bool) {
	s.Helper()
	s.eventually(fmt.Sprintf("claim %s has the barrier: %t", name, want), func() error {
		found, err := s.claims()
		if found[name] == nil {
			return errors.Join(err, errors.New("it is not there"))
		}
		return lacking("barrier", want, slices.Contains(found[name].Finalizers, barrier))
	})
}
