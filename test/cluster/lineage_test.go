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

// root follows the chain of controllers by UID to its end, through objects that
// are gone too. What was made for an owner already gone belongs to nothing beyond
// it: the StatefulSet controller does that from a cache that lags, as after a
// restart of the API server.
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

// bornSince returns the records of one kind of objects that were first seen after
// a mark, gone ones too.
func bornSince[T client.Object](r *recorder, mark int) []record {
	return r.pick(func(rec *record) bool { _, ok := rec.last.(T); return ok && rec.born > mark })
}

// ownedBy keeps the records whose chain ends in a UID.
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

// births is what a life of a set brought into being. The revisions that the
// StatefulSet controller keeps for itself are not counted.
type births struct {
	Pods, StatefulSets, Services, Revisions int
}

// bornInto counts what was born since a mark into the life with this UID.
func (r *recorder) bornInto(uid types.UID, mark int) births {
	number := func(records []record) int { own, _ := r.ownedBy(uid, records); return len(own) }
	return births{
		Pods: number(bornSince[*corev1.Pod](r, mark)), StatefulSets: number(bornSince[*appsv1.StatefulSet](r, mark)),
		Services: number(bornSince[*corev1.Service](r, mark)), Revisions: number(r.revisionsSince(mark)),
	}
}

// revisionsSince returns the revisions born since a mark that are of a set.
func (r *recorder) revisionsSince(mark int) []record {
	return slices.DeleteFunc(bornSince[*appsv1.ControllerRevision](r, mark), func(rec record) bool {
		owner := metav1.GetControllerOf(rec.last)
		return owner != nil && owner.Kind == "StatefulSet"
	})
}

// strangers returns what was born since a mark and does not belong to uid, and is
// not a pod: nobody but the operator makes such objects here.
func (r *recorder) strangers(uid types.UID, mark int) []record {
	_, others := r.ownedBy(uid, slices.Concat(bornSince[*appsv1.StatefulSet](r, mark),
		bornSince[*corev1.Service](r, mark), r.revisionsSince(mark)))
	return others
}

// adopted returns what was there at the mark and came to be controlled by uid.
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

// names says which objects records speak of.
func names(records []record) string {
	var text []string
	for _, rec := range records {
		text = append(text, fmt.Sprintf("%s/%s", rec.kind, rec.last.GetName()))
	}
	return strings.Join(text, " ")
}
