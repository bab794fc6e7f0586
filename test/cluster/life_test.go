package cluster

import (
	"errors"
	"fmt"
	"strings"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/test/drill"
)

// life is a set from the deletion of its predecessor on.
type life struct {
	set     *lwsv1.LeaderWorkerSet
	before  *lwsv1.LeaderWorkerSet // the predecessor
	policy  metav1.DeletionPropagation
	mark    int // changes seen before the deletion
	audited int // position of the audit log before the deletion
}

// recreate deletes a set and creates the next one of its name as soon as the API server accepts it.
func (s *scene) recreate(old, next *lwsv1.LeaderWorkerSet, policy metav1.DeletionPropagation) life {
	s.Helper()
	l := s.endFor(old, next, policy)
	l.set = s.beginNext(l)
	return l
}

// endFor deletes a set to make room for the next one.
func (s *scene) endFor(old, next *lwsv1.LeaderWorkerSet, policy metav1.DeletionPropagation) life {
	s.Helper()
	l := life{set: next, before: old, policy: policy, audited: bed.position(), mark: s.changes()}
	s.persist("delete set "+old.Name, func() error {
		here := client.Preconditions{UID: &old.UID}
		return client.IgnoreNotFound(s.client.Delete(s.Context(), old.DeepCopy(), propagation(policy), here))
	})
	return l
}

// beginNext creates the set of a life as soon as its predecessor is gone, without waiting for a
// watch, and returns it as created.
func (s *scene) beginNext(l life) *lwsv1.LeaderWorkerSet {
	s.Helper()
	s.eventually("set "+l.before.Name+" is gone", func() error {
		var now lwsv1.LeaderWorkerSet
		err := s.client.Get(s.Context(), keyOf(l.before), &now)
		if client.IgnoreNotFound(err) != nil || (err == nil && now.UID == l.before.UID) {
			return errors.Join(err, fmt.Errorf("finalizers %v", now.Finalizers))
		}
		return nil
	})
	created := l.set
	s.persist("create set "+l.set.Name, func() error {
		attempt := l.set.DeepCopy()
		err := s.client.Create(s.Context(), attempt)
		if err == nil {
			created = attempt
		}
		return err
	})
	return created
}

// judge checks that a life created what it needed, of its own template, for itself alone.
func (s *scene) judge(l life, want births) {
	s.Helper()
	s.check("pods of the new life", s.misborn(l))
	s.wantBorn(l.set.UID, l.mark, want)
	if found := s.strangers(l.set.UID, l.mark); len(found) > 0 {
		s.dump()
		s.Fatalf("created for the previous life: %s", names(found))
	}
	if taken := s.adopted(l.set.UID, l.mark); len(taken) > 0 && l.policy != metav1.DeletePropagationOrphan {
		s.dump()
		s.Fatalf("adopted from the previous life: %s", names(taken))
	}
	s.check("read the audit log", bed.audit.Sync())
	s.eventually("the recorder has seen all pods", func() error { return s.unseen(l) })
}

// wantBorn checks what was created since a mark for the set with this UID.
func (s *scene) wantBorn(uid types.UID, mark int, want births) {
	s.Helper()
	if diff := cmp.Diff(want, s.bornInto(uid, mark)); diff != "" {
		s.dump()
		s.Fatalf("created (-want +have):\n%s", diff)
	}
}

// misborn names a pod or revision of a new life with the previous template.
func (s *scene) misborn(l life) error {
	image := l.set.Spec.LeaderWorkerTemplate.WorkerTemplate.Spec.Containers[0].Image
	pods, _ := s.ownedBy(l.set.UID, bornSince[*corev1.Pod](s.recorder, l.mark))
	revisions, _ := s.ownedBy(l.set.UID, s.revisionsSince(l.mark))
	for _, rec := range pods {
		if have := imageOf(rec.last.(*corev1.Pod)); have != image {
			return fmt.Errorf("pod %s has image %s, not %s", rec.last.GetName(), have, image)
		}
	}
	for _, rec := range revisions {
		if data := rec.last.(*appsv1.ControllerRevision).Data.Raw; !strings.Contains(string(data), image) {
			return fmt.Errorf("revision %s is not of image %s: %s", rec.last.GetName(), image, data)
		}
	}
	return nil
}

// unseen is an error while the API server has created a pod that the recorder has not seen.
func (s *scene) unseen(l life) error {
	created := bed.audit.Kept(l.audited, func(r request) bool { return drill.CreatesPod(r) && r.Namespace == s.namespace })
	if seen := len(bornSince[*corev1.Pod](s.recorder, l.mark)); len(created) > seen {
		return fmt.Errorf("%d pods were created, %d were seen", len(created), seen)
	}
	return nil
}
