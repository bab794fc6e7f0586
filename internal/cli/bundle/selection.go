package bundle

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

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
	found        []candidate
	owners       map[types.UID]client.Object
	keep         sets.Set[types.UID]
}

// candidate is an object, and what finds the PVCs that it wants.
type candidate struct {
	client.Object
	wants func(object any) workloads.Want
}

func newSelection(of []*lwsv1.LeaderWorkerSet, allClaims bool) *selection {
	s := &selection{
		sets: sets.New[string](), claims: sets.New[string](), allClaims: allClaims,
		owners: map[types.UID]client.Object{}, keep: sets.New[types.UID](),
	}
	for _, set := range of {
		s.sets.Insert(set.Name)
	}
	return s
}

func (s *selection) add(objects []client.Object, wants func(object any) workloads.Want) {
	for _, object := range objects {
		s.found = append(s.found, candidate{object, wants})
		s.owners[object.GetUID()] = object
	}
}

// kept returns the objects to keep.
func (s *selection) kept() (objects []client.Object) {
	for _, c := range s.found {
		if s.belongs(c.Object) {
			s.take(c.Object)
			s.claims.Insert(claimsOf(c.Object)...)
		}
	}
	for _, c := range s.found {
		if s.claims.HasAny(claimsOf(c.Object)...) || s.wanted(c) {
			s.take(c.Object)
		}
	}
	for _, c := range s.found {
		if s.keep.Has(c.GetUID()) {
			objects = append(objects, c.Object)
		}
	}
	return objects
}

// take keeps an object and the owners above it.
func (s *selection) take(object client.Object) {
	if object == nil || s.keep.Has(object.GetUID()) {
		return
	}
	s.keep.Insert(object.GetUID())
	for _, owner := range object.GetOwnerReferences() {
		s.take(s.owners[owner.UID])
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
	return s.sets.HasAny(object.GetName(), above, top, labels[lwsv1.SetNameLabelKey], labels[revision.HistoryLabelKey])
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

// wanted reports whether a workload wants one of the PVCs.
func (s *selection) wanted(c candidate) bool {
	if c.wants == nil {
		return false
	}
	desire := workloads.NewDesire(c.GetNamespace(), []workloads.Want{c.wants(c.Object)})
	for name := range s.claims {
		if len(desire.Of(name)) > 0 {
			return true
		}
	}
	return false
}
