package bundle

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	dsv1 "lockstep.dev/lockstep/api/disaggregatedset/v1"
	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws/revision"
	"lockstep.dev/lockstep/internal/pvc"
	"lockstep.dev/lockstep/internal/pvc/workloads"
)

// selection keeps what belongs to sets, what uses their PVCs, and the owners of both.
type selection struct {
	// sets and claims are names. Without sets, every PVC of the namespace is kept.
	sets, claims sets.Set[string]
	allClaims    bool
	found        []client.Object
	wants        []workloads.Want
	byUID        map[types.UID]client.Object
	keep         sets.Set[types.UID]
}

func newSelection(of []client.Object, allClaims bool) *selection {
	s := &selection{
		sets: sets.New[string](), claims: sets.New[string](), allClaims: allClaims,
		byUID: map[types.UID]client.Object{}, keep: sets.New[types.UID](),
	}
	for _, set := range of {
		s.sets.Insert(set.GetName())
	}
	return s
}

// add adds objects, and the PVCs that each wants if they are workloads.
func (s *selection) add(objects []client.Object, wants func(object any) workloads.Want) {
	for _, object := range objects {
		s.found, s.byUID[object.GetUID()] = append(s.found, object), object
		if wants != nil {
			s.wants = append(s.wants, wants(object))
		}
	}
}

// kept returns the objects of a namespace to keep.
func (s *selection) kept(namespace string) []client.Object {
	for _, object := range s.found {
		if s.belongs(object) {
			s.take(object)
			s.claims.Insert(claimsOf(object)...)
		}
	}
	for _, object := range s.found {
		if s.claims.HasAny(claimsOf(object)...) {
			s.take(object)
		}
	}
	desire := workloads.NewDesire(namespace, s.wants)
	for name := range s.claims {
		for _, match := range desire.Of(name) {
			s.take(s.byUID[match.Want.Workload.UID])
		}
	}
	return slices.DeleteFunc(s.found, func(object client.Object) bool { return !s.keep.Has(object.GetUID()) })
}

// take keeps an object and the owners above it.
func (s *selection) take(object client.Object) {
	if object == nil || s.keep.Has(object.GetUID()) {
		return
	}
	s.keep.Insert(object.GetUID())
	for _, owner := range object.GetOwnerReferences() {
		s.take(s.byUID[owner.UID])
	}
}

// belongs reports whether an object has the label of a set, or a name that a set needs.
func (s *selection) belongs(object client.Object) bool {
	if _, isClaim := object.(*corev1.PersistentVolumeClaim); isClaim && s.allClaims {
		return true
	}
	above, _ := identity.ParentAndOrdinal(object.GetName())
	top, _ := identity.ParentAndOrdinal(above)
	labels := object.GetLabels()
	return s.sets.HasAny(object.GetName(), above, top, labels[lwsv1.SetNameLabelKey], labels[revision.HistoryLabelKey], labels[dsv1.SetNameLabelKey])
}

// claimsOf names the PVC that an object is, or those that a pod uses.
func claimsOf(object client.Object) []string {
	switch o := object.(type) {
	case *corev1.PersistentVolumeClaim:
		return []string{o.Name}
	case *corev1.Pod:
		return pvc.ClaimsOf(o)
	}
	return nil
}
