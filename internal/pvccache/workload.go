package pvccache

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/pvc/workloads"
)

// workload is what the cache keeps of an object that may want PVCs: which ones, and its controller.
// An object that wants none is kept as a link of chains.
type workload struct {
	metav1.ObjectMeta
	want  workloads.Want
	owner identity.Ref
}

// workloadOf returns a transform that reduces objects to workloads. A workload stays as it is.
func workloadOf(of wants) func(any) (any, error) {
	return func(object any) (any, error) {
		source, ok := object.(metav1.Object)
		if _, kept := object.(*workload); kept || !ok {
			return object, nil
		}
		want, err := of(object)
		if err != nil {
			return nil, err
		}
		w := &workload{want: want, ObjectMeta: metav1.ObjectMeta{
			Namespace: source.GetNamespace(), Name: source.GetName(), UID: source.GetUID(), ResourceVersion: source.GetResourceVersion(),
		}}
		if owner := metav1.GetControllerOfNoCopy(source); owner != nil {
			w.owner = identity.OwnerRef(source.GetNamespace(), *owner)
		}
		return w, nil
	}
}

// wants returns which PVCs an object wants.
type wants = func(object any) (workloads.Want, error)

// untyped returns what a workload wants that is read field by field.
func untyped(of func(*unstructured.Unstructured) workloads.Want) wants {
	return func(object any) (workloads.Want, error) {
		found, ok := object.(*unstructured.Unstructured)
		if !ok {
			return workloads.Want{}, fmt.Errorf("%T is not untyped", object)
		}
		return of(found), nil
	}
}

// ofLeaderWorkerSet returns what a set wants, whose groups have the size started.
func ofLeaderWorkerSet(started workloads.GroupSize) wants {
	return untyped(func(set *unstructured.Unstructured) workloads.Want { return workloads.OfLeaderWorkerSet(set, started) })
}
