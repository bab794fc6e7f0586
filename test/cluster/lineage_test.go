package cluster

import (
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// root follows the controllers by UID to the end of the chain, through deleted objects. An object that
// was created for a deleted owner ends the chain: the StatefulSet controller does that from a late cache.
func (r *recorder) root(uid types.UID) types.UID {
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		rec, known := r.records[uid]
		if !known {
			return uid
		}
		owner := metav1.GetControllerOf(rec.last)
		if owner == nil {
			return uid
		}
		uid = owner.UID
		if above, known := r.records[uid]; known && above.died > 0 && above.died < rec.born {
			return uid
		}
	}
}

// bornSince returns the records of one type that were first seen after a mark.
func bornSince[T client.Object](r *recorder, mark int) []record {
	return r.pick(func(rec *record) bool { _, ok := rec.last.(T); return ok && rec.born > mark })
}

// ownedBy divides records by whether their chain ends in a UID.
func (r *recorder) ownedBy(uid types.UID, records []record) (own, others []record) {
	for _, rec := range records {
		if r.root(rec.last.GetUID()) == uid {
			own = append(own, rec)
		} else {
			others = append(others, rec)
		}
	}
	return own, others
}

// births counts the objects that a set created, without the revisions of StatefulSets.
type births struct {
	Pods, StatefulSets, Services, Revisions int
}

// bornInto counts the objects of a set that were created since a mark.
func (r *recorder) bornInto(uid types.UID, mark int) births {
	number := func(records []record) int { own, _ := r.ownedBy(uid, records); return len(own) }
	return births{
		Pods: number(bornSince[*corev1.Pod](r, mark)), StatefulSets: number(bornSince[*appsv1.StatefulSet](r, mark)),
		Services: number(bornSince[*corev1.Service](r, mark)), Revisions: number(r.revisionsSince(mark)),
	}
}

// revisionsSince returns the revisions of sets that were created since a mark.
func (r *recorder) revisionsSince(mark int) []record {
	return slices.DeleteFunc(bornSince[*appsv1.ControllerRevision](r, mark), func(rec record) bool {
		owner := metav1.GetControllerOf(rec.last)
		return owner != nil && owner.Kind == "StatefulSet"
	})
}

// strangers returns the objects since a mark that do not belong to uid, without pods. Only the operator
// creates them here.
func (r *recorder) strangers(uid types.UID, mark int) []record {
	_, others := r.ownedBy(uid, slices.Concat(bornSince[*appsv1.StatefulSet](r, mark),
		bornSince[*corev1.Service](r, mark), r.revisionsSince(mark)))
	return others
}

// adopted returns the objects from before a mark that uid came to control.
func (r *recorder) adopted(uid types.UID, mark int) []record {
	return r.pick(func(rec *record) bool {
		for _, owner := range rec.owners {
			if owner == uid && rec.born <= mark {
				return true
			}
		}
		return false
	})
}

// names returns the kinds and names of records.
func names(records []record) string {
	var text []string
	for _, rec := range records {
		text = append(text, fmt.Sprintf("%s/%s", rec.kind, rec.last.GetName()))
	}
	return strings.Join(text, " ")
}
