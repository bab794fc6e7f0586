package pvccache

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
func workloadOf(wants func(object any) workloads.Want) func(any) (any, error) {
	return func(object any) (any, error) {
		source, ok := object.(metav1.Object)
		if _, kept := object.(*workload); kept || !ok {
			return object, nil
		}
		w := &workload{want: wants(object), ObjectMeta: metav1.ObjectMeta{
			Namespace: source.GetNamespace(), Name: source.GetName(), UID: source.GetUID(), ResourceVersion: source.GetResourceVersion(),
		}}
		if owner := metav1.GetControllerOfNoCopy(source); owner != nil {
			w.owner = identity.OwnerRef(source.GetNamespace(), *owner)
		}
		return w, nil
	}
}
