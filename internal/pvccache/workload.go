package pvccache

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/pvc"
)

// workload is all that is kept in memory of an object that may want claims: which
// ones, and who controls it. One that wants none is kept for its place in a chain.
type workload struct {
	metav1.ObjectMeta
	want  pvc.Want
	owner identity.Ref
}

// workloadOf turns what the API server sends into what is kept. What is kept already
// stays as it is.
func workloadOf(of func(any) (pvc.Want, error)) func(any) (any, error) {
	return func(object any) (any, error) {
		source, ok := object.(metav1.Object)
		if _, kept := object.(*workload); kept || !ok {
			return object, nil
		}
		want, err := of(object)
		if err != nil {
			return nil, err
		}
		w := &workload{ObjectMeta: bareMeta(source), want: internWant(want)}
		if owner := metav1.GetControllerOfNoCopy(source); owner != nil {
			w.owner = ownerKept(source.GetNamespace(), owner)
		}
		return w, nil
	}
}

func ownerKept(namespace string, owner *metav1.OwnerReference) identity.Ref {
	return identity.Ref{
		Kind: identity.Kind(one(owner.Kind)), APIVersion: one(owner.APIVersion),
		Namespace: one(namespace), Name: one(owner.Name), UID: owner.UID,
	}
}

// bareMeta is what a cache needs to know an object by.
func bareMeta(object metav1.Object) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: one(object.GetNamespace()), Name: object.GetName(), UID: object.GetUID(), ResourceVersion: object.GetResourceVersion(),
	}
}

// internWant has workloads share the words that they have in common.
func internWant(want pvc.Want) pvc.Want {
	want.Workload.Kind, want.Workload.APIVersion = identity.Kind(one(string(want.Workload.Kind))), one(want.Workload.APIVersion)
	want.Workload.Namespace, want.Released, want.Idle = one(want.Workload.Namespace), one(want.Released), one(want.Idle)
	want.Named = internMap(want.Named)
	for i := range want.Series {
		want.Series[i].Path = one(want.Series[i].Path)
	}
	return want
}

// builtIn tells what a workload of a kind that is always served wants.
func builtIn(object any) (pvc.Want, error) {
	switch o := object.(type) {
	case *appsv1.StatefulSet:
		return pvc.OfStatefulSet(o), nil
	case *appsv1.Deployment:
		return pvc.OfDeployment(o), nil
	case *appsv1.ReplicaSet:
		return pvc.OfReplicaSet(o), nil
	case *appsv1.DaemonSet:
		return pvc.OfDaemonSet(o), nil
	case *batchv1.Job:
		return pvc.OfJob(o), nil
	case *batchv1.CronJob:
		return pvc.OfCronJob(o), nil
	}
	return pvc.Want{}, fmt.Errorf("%T is no workload", object)
}

// ofKind tells what a workload of a configured kind wants.
func ofKind(kind pvc.Kind) func(any) (pvc.Want, error) {
	return func(object any) (pvc.Want, error) {
		found, ok := object.(*unstructured.Unstructured)
		if !ok {
			return pvc.Want{}, fmt.Errorf("%T is no %s", object, kind.Kind)
		}
		return kind.Of(found), nil
	}
}

// Indexes of workloads.
const (
	indexNamed  = "named"  // by claims that a pod template names
	indexSeries = "series" // by what names of numbered claims begin with
)

func namedBy(object any) ([]string, error) {
	w, ok := object.(*workload)
	if !ok {
		return nil, nil
	}
	keys := make([]string, 0, len(w.want.Named))
	for claim := range w.want.Named {
		keys = append(keys, w.Namespace+"/"+claim)
	}
	return keys, nil
}

func seriesOf(object any) ([]string, error) {
	w, ok := object.(*workload)
	if !ok {
		return nil, nil
	}
	var keys []string
	for _, series := range w.want.Series {
		keys = append(keys, w.Namespace+"/"+series.Prefix)
	}
	return keys, nil
}
