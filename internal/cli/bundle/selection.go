package bundle

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws/revision"
	"lockstep.dev/lockstep/internal/pvc"
	"lockstep.dev/lockstep/internal/pvc/workloads"
)

// selection keeps what belongs to sets, what uses their PVCs, and the owners of both.
type selection struct {
	sets, claims map[string]bool
	// allClaims keeps every PVC of the namespace.
	allClaims bool
	found     []candidate
	keep      map[types.UID]bool
}

// candidate is an object, and what finds the PVCs that it uses or wants.
type candidate struct {
	client.Object
	wants func(object any) workloads.Want
}

func newSelection(sets []*lwsv1.LeaderWorkerSet, allClaims bool) *selection {
	s := &selection{allClaims: allClaims, sets: map[string]bool{}, claims: map[string]bool{}, keep: map[types.UID]bool{}}
	for _, set := range sets {
		s.sets[set.Name] = true
	}
	return s
}

func (s *selection) add(objects []client.Object, wants func(object any) workloads.Want) {
	for _, object := range objects {
		s.found = append(s.found, candidate{object, wants})
	}
}

// kept returns the objects to keep.
func (s *selection) kept() (objects []client.Object) {
	for _, c := range s.found {
		if s.belongs(c) {
			s.keep[c.GetUID()] = true
			s.note(c.Object)
		}
	}
	for _, c := range s.found {
		if s.uses(c) {
			s.keep[c.GetUID()] = true
		}
	}
	for range s.found { // as long as owners are found
		before := len(s.keep)
		s.keepOwners()
		if len(s.keep) == before {
			break
		}
	}
	for _, c := range s.found {
		if s.keep[c.GetUID()] {
			objects = append(objects, c.Object)
		}
	}
	return objects
}

// belongs reports whether an object has the label of a set, or a name that a set needs.
func (s *selection) belongs(c candidate) bool {
	if _, isClaim := c.Object.(*corev1.PersistentVolumeClaim); isClaim && s.allClaims {
		return true
	}
	labels, name := c.GetLabels(), c.GetName()
	if s.sets[labels[lwsv1.SetNameLabelKey]] || s.sets[labels[revision.HistoryLabelKey]] {
		return true
	}
	above, _ := identity.ParentAndOrdinal(name)
	top, _ := identity.ParentAndOrdinal(above)
	return s.sets[name] || s.sets[above] || s.sets[top]
}

// note remembers the PVCs of what belongs to a set.
func (s *selection) note(object client.Object) {
	switch o := object.(type) {
	case *corev1.PersistentVolumeClaim:
		s.claims[o.Name] = true
	case *corev1.Pod:
		for _, name := range pvc.ClaimsOf(o) {
			s.claims[name] = true
		}
	}
}

// uses reports whether an object is one of the PVCs, or uses or wants one.
func (s *selection) uses(c candidate) bool {
	switch o := c.Object.(type) {
	case *corev1.PersistentVolumeClaim:
		return s.claims[o.Name]
	case *corev1.Pod:
		for _, name := range pvc.ClaimsOf(o) {
			if s.claims[name] {
				return true
			}
		}
		return false
	}
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

func (s *selection) keepOwners() {
	for _, c := range s.found {
		if !s.keep[c.GetUID()] {
			continue
		}
		for _, owner := range c.GetOwnerReferences() {
			s.keep[owner.UID] = true
		}
	}
}
