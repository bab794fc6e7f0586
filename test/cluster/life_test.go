package cluster

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
)

// life is a set from the deletion of its predecessor on.
type life struct {
	set     *lwsv1.LeaderWorkerSet
	before  *lwsv1.LeaderWorkerSet // the predecessor
	mark    int                    // changes seen before the deletion
	audited int                    // the audit log's position before the deletion
	began   time.Time
}

// recreate deletes a set and creates the next one under its name as soon as the
// API server allows.
func (s *scene) recreate(old, next *lwsv1.LeaderWorkerSet, policy metav1.DeletionPropagation) life {
	s.Helper()
	l := s.endFor(old, next, policy)
	l.set = s.beginNext(l)
	return l
}

// endFor deletes a set to make room for the next one.
func (s *scene) endFor(old, next *lwsv1.LeaderWorkerSet, policy metav1.DeletionPropagation) life {
	s.Helper()
	s.check("read the audit log", bed.audit.sync())
	l := life{set: next, before: old, mark: s.changes(), audited: bed.audit.position(), began: time.Now()}
	s.persist("delete set "+old.Name, func() error {
		here := client.Preconditions{UID: &old.UID}
		return client.IgnoreNotFound(s.client.Delete(s.Context(), old.DeepCopy(), client.PropagationPolicy(policy), here))
	})
	return l
}

// beginNext creates the set of a life as soon as its name is free, and returns it
// as it was created.
func (s *scene) beginNext(l life) *lwsv1.LeaderWorkerSet {
	s.Helper()
	s.awaitNameFree(l.before)
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

// awaitNameFree waits until a deleted set is gone. Deleted in the background it is
// gone at once, and not even the watch is waited for.
func (s *scene) awaitNameFree(old *lwsv1.LeaderWorkerSet) {
	s.Helper()
	s.eventually("set "+old.Name+" is gone", func() error {
		var now lwsv1.LeaderWorkerSet
		err := s.client.Get(s.Context(), client.ObjectKeyFromObject(old), &now)
		if client.IgnoreNotFound(err) != nil || (err == nil && now.UID == old.UID) {
			return errors.Join(err, fmt.Errorf("finalizers %v", now.Finalizers))
		}
		return nil
	})
}

// judge holds all that came into being in a life against what the life needed.
func (s *scene) judge(l life, want births) {
	s.Helper()
	s.check("pods of the new life", s.misborn(l))
	if diff := cmp.Diff(want, s.bornInto(l.set.UID, l.mark)); diff != "" {
		s.dump()
		s.Fatalf("created in the new life (-want +have):\n%s", diff)
	}
	if found := s.strangers(l.set.UID, l.mark); len(found) > 0 {
		s.dump()
		s.Fatalf("created for the life that was over: %s", names(found))
	}
	born := bornSince[*corev1.Pod](s.recorder, l.mark)
	if _, late := s.ownedBy(l.set.UID, born); len(late) > 0 {
		s.Logf("pods the StatefulSet controller still created for the life that was over: %s", names(late))
	}
	s.check("read the audit log", bed.audit.sync())
	s.eventually("what was created is seen", func() error { return s.unseen(l) })
}

// misborn says which pod or revision of a new life carries the old template.
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

// unseen guards the recorder: the API server must not have created a pod that it
// does not come to see.
func (s *scene) unseen(l life) error {
	seen := len(bornSince[*corev1.Pod](s.recorder, l.mark))
	created := bed.audit.writes(l.audited, func(r request) bool { return createsPod(r) && r.Namespace == s.namespace })
	if len(created) > seen {
		return fmt.Errorf("%d pods were created, %d were seen", len(created), seen)
	}
	return nil
}

// judgeApart checks that a life has taken nothing over from its predecessor.
func (s *scene) judgeApart(l life) {
	s.Helper()
	if taken := s.adopted(l.set.UID, l.mark); len(taken) > 0 {
		s.dump()
		s.Fatalf("adopted from the previous life: %s", names(taken))
	}
}

// lastGone is when the last pod born before a mark went.
func (s *scene) lastGone(mark int) time.Time {
	var last time.Time
	for _, r := range s.pick(func(r *record) bool { return r.kind == "Pod" && r.born <= mark }) {
		if r.gone.After(last) {
			last = r.gone
		}
	}
	return last
}
