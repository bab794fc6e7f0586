package integration

import (
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/pvc"
	"lockstep.dev/lockstep/test/delay"
)

// madeAgain deletes a released namespace and creates it again while the operator gets no events of
// namespaces. PVCs of the new namespace are held.
func (o *ourOperator) madeAgain() {
	name := o.namespace()
	before := o.space(name)
	o.label(name, "hold")
	old := o.heldByHand(name, "old")
	o.patch(before, `{"metadata":{"annotations":{"`+pvc.ReleaseAnnotation+`":"`+string(before.UID)+`"}}}`)
	o.must(o.Delete(o.t.Context(), before))
	o.gone(old) // the operator knows
	lag := o.deafToNamespaces()
	o.finalized(before)
	again := inMode(name, "hold")
	o.must(o.Create(o.t.Context(), again))
	if again.UID == before.UID {
		o.t.Fatal("this is the namespace before")
	}
	claim := o.heldByHand(name, "new")
	if now := o.now(claim); now.UID != claim.UID || now.DeletionTimestamp != nil {
		o.t.Error("the operator deleted a claim that is held, of a namespace that lives")
	}
	lag.Release()
}

// chosenJustNow gates a pod in a namespace that chose mode strict without an event for the operator.
func (o *ourOperator) chosenJustNow() {
	name := o.namespace()
	o.label(name, "off")
	seen := o.claimUnbound(name, "seen")
	o.until("the operator has seen mode off", func() bool { return !o.bears(seen, pvc.BarrierFinalizer) })
	lag := o.deafToNamespaces()
	o.label(name, "strict")
	claim := o.claimUnbound(name, "data")
	pod := gatedPod(name, "web", "data")
	o.must(o.Create(o.t.Context(), pod))
	o.until("the gate is lifted", func() bool {
		o.must(o.Get(o.t.Context(), client.ObjectKeyFromObject(pod), pod))
		return !pvc.Gated(pod)
	})
	if record := o.now(claim).Annotations[pvc.UsersAnnotation]; record != "web="+string(pod.UID) {
		o.t.Errorf("the pod may be scheduled, and its claim has on record %q", record)
	}
	lag.Release()
	o.must(o.Delete(o.t.Context(), pod))
}

// deafToNamespaces stops events of namespaces until the test is over.
func (o *ourOperator) deafToNamespaces() *delay.Hold {
	h := o.proxy.Hold(delay.Streams, watches("namespaces"))
	o.t.Cleanup(h.Release)
	return h
}

// heldByHand creates a PVC with a user's hold, and waits until the operator has read it.
func (o *ourOperator) heldByHand(namespace, name string) *corev1.PersistentVolumeClaim {
	o.t.Helper()
	claim := newClaim(namespace, name)
	claim.Annotations = map[string]string{pvc.HoldAnnotation: "mine"}
	claim.Finalizers = []string{pvc.PodsFinalizer, pvc.BarrierFinalizer}
	o.must(o.Create(o.t.Context(), claim))
	o.until("the operator has looked at claim "+name, func() bool {
		now := &corev1.PersistentVolumeClaim{}
		err := o.Get(o.t.Context(), client.ObjectKeyFromObject(claim), now)
		return err != nil || now.DeletionTimestamp != nil || now.Annotations[pvc.HoldersAnnotation] != ""
	})
	return claim
}

// claimUnbound creates a PVC with a barrier.
func (o *ourOperator) claimUnbound(namespace, name string) *corev1.PersistentVolumeClaim {
	o.t.Helper()
	claim := newClaim(namespace, name)
	claim.Finalizers = []string{pvc.PodsFinalizer, pvc.BarrierFinalizer}
	o.must(o.Create(o.t.Context(), claim))
	return claim
}

func gatedPod(namespace, name, claim string) *corev1.Pod {
	pod := podWith(namespace, name, claim)
	pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: pvc.UseGate}}
	return pod
}

func (o *ourOperator) space(name string) *corev1.Namespace {
	o.t.Helper()
	space := &corev1.Namespace{}
	o.must(o.Get(o.t.Context(), client.ObjectKey{Name: name}, space))
	return space
}

func (o *ourOperator) label(namespace, mode string) {
	o.t.Helper()
	o.patch(o.space(namespace), `{"metadata":{"labels":{"`+pvc.ModeKey+`":"`+mode+`"}}}`)
}

func (o *ourOperator) patch(object client.Object, patch string) {
	o.t.Helper()
	o.must(o.Patch(o.t.Context(), object, merge(patch)))
}

// finalized ends an empty namespace, as its controller does.
func (o *ourOperator) finalized(space *corev1.Namespace) {
	o.t.Helper()
	space = o.space(space.Name)
	space.Spec.Finalizers = nil
	o.must(o.SubResource("finalize").Update(o.t.Context(), space))
	o.until("the namespace is gone", func() bool {
		return apierrors.IsNotFound(o.Get(o.t.Context(), client.ObjectKeyFromObject(space), &corev1.Namespace{}))
	})
}
