package cluster

import (
	"fmt"
	"net/http"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
)

// nameConflict is the condition that a foreign object has a name of the set.
const nameConflict = "NameConflict"

// The worker StatefulSet of group 1 of set "a" has the name of the leader StatefulSet of set "a-1".
func TestTwoSetsThatWantOneName(t *testing.T) {
	t.Run("the group was first", func(t *testing.T) {
		s := asideScene(t)
		group := s.newSet("a", 2, 2, imageA, uniquePerReplica)
		s.create(group)
		s.awaitSettled(group)
		theirs := s.versions()
		later := s.newSet("a-1", 2, 2, imageB)
		s.create(later)
		s.awaitConflict(later, "a-1")
		s.unharmed(theirs)
		s.remove(group.DeepCopy())
		s.awaitSettled(later)
		s.awaitNoConflict(later)
	})
	t.Run("the set was first", func(t *testing.T) {
		s := asideScene(t)
		set := s.settled(s.newSet("a-1", 2, 2, imageA))
		theirs := s.versions()
		later := s.newSet("a", 3, 2, imageB)
		s.create(later)
		s.awaitConflict(later, "a-1")
		s.awaitGroupReady(later, 0)
		s.awaitGroupReady(later, 2)
		s.unharmed(theirs)
		s.remove(set.DeepCopy())
		s.awaitSettled(later)
		s.awaitNoConflict(later)
	})
}

// A foreign object under a name that the set needs is never written. Groups that do
// not need the name become ready.
func TestForeignObjectsAreNeverTouched(t *testing.T) {
	for name, c := range map[string]struct {
		foreign  client.Object
		replicas int32
		ready    []int
		edits    []edit
		service  string // that the set makes once its name is free
	}{
		"leader StatefulSet": {foreign: foreignStatefulSet("a"), replicas: 2},
		"worker StatefulSet": {foreign: foreignStatefulSet("a-1"), replicas: 3, ready: []int{0, 2}},
		"shared Service":     {foreign: foreignService("a"), replicas: 2, ready: []int{0, 1}, service: "a"},
		"Service of a group": {foreign: foreignService("a-1"), replicas: 2, ready: []int{0}, edits: []edit{uniquePerReplica}, service: "a-1"},
		// It stops the StatefulSet controller at its ordinal.
		"leader pod": {
			foreign:  &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a-1"}, Spec: template(imageB).Spec},
			replicas: 4, ready: []int{0, 2, 3},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := asideScene(t)
			foreign := s.squat(c.foreign)
			set := s.newSet("a", c.replicas, 2, imageA, c.edits...)
			s.create(set)
			s.awaitConflict(set, foreign.GetName())
			for _, index := range c.ready {
				s.awaitGroupReady(set, index)
			}
			s.heals(set, foreign)
			if c.service != "" {
				s.awaitService(set, c.service)
			}
		})
	}
}

// foreignStatefulSet belongs to no set, and has no pods.
func foreignStatefulSet(name string) *appsv1.StatefulSet {
	labels := map[string]string{"app": "another"}
	pods := template(imageB)
	pods.Labels = labels
	return &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.StatefulSetSpec{Replicas: new(int32), ServiceName: name,
			Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: pods},
	}
}

func foreignService(name string) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone, Selector: map[string]string{"app": "another"}},
	}
}

// squat creates a foreign object and waits until the controller of its kind is done with it.
func (s *scene) squat(o client.Object) client.Object {
	s.Helper()
	o.SetNamespace(s.namespace)
	s.create(o)
	s.eventually("the foreign object is at rest", func() error {
		switch now := s.now(o).(type) {
		case nil:
			return errStill
		case *appsv1.StatefulSet:
			if now.Status.ObservedGeneration != now.Generation || now.Status.CurrentRevision == "" {
				return errStill
			}
		case *corev1.Pod:
			if !podReady(now) {
				return errStill
			}
		}
		return nil
	})
	return s.now(o)
}

// now returns an object as last seen, or nil if it is gone.
func (s *scene) now(o client.Object) client.Object {
	for _, rec := range s.pick(func(r *record) bool { return r.died == 0 && r.last.GetUID() == o.GetUID() }) {
		return rec.last
	}
	return nil
}

// heals checks that a foreign object was never written, deletes it, and waits for the
// set to take the name.
func (s *scene) heals(set *lwsv1.LeaderWorkerSet, foreign client.Object) {
	s.Helper()
	now := s.now(foreign)
	if now == nil || now.GetResourceVersion() != foreign.GetResourceVersion() {
		s.dump()
		s.Fatalf("the foreign object was written: was %v, is %v", foreign, now)
	}
	for _, w := range s.lockstepWrote(s.audited) {
		refused := w.Verb == "create" && w.Code == http.StatusConflict // the first write finds the name taken
		if w.Name == foreign.GetName() && w.Resource == resourceOf(foreign) && !refused {
			s.Fatalf("lockstep tried to write the foreign object: %s", w)
		}
	}
	s.remove(foreign.DeepCopyObject().(client.Object))
	s.awaitSettled(set)
	s.awaitNoConflict(set)
}

func resourceOf(o client.Object) string {
	switch o.(type) {
	case *appsv1.StatefulSet:
		return "statefulsets"
	case *corev1.Service:
		return "services"
	case *corev1.Pod:
		return "pods"
	}
	return ""
}

func (s *scene) awaitConflict(want *lwsv1.LeaderWorkerSet, name string) {
	s.Helper()
	s.eventually(fmt.Sprintf("set %s reports that the name %s is taken", want.Name, name), func() error {
		set, ok := find[*lwsv1.LeaderWorkerSet](s.recorder, want.Name)
		if !ok {
			return errStill
		}
		c := meta.FindStatusCondition(set.Status.Conditions, nameConflict)
		if c == nil || c.Status != metav1.ConditionTrue || !mentions(c.Message, name) {
			return fmt.Errorf("conditions: %+v", set.Status.Conditions)
		}
		return nil
	})
}

func (s *scene) awaitNoConflict(want *lwsv1.LeaderWorkerSet) {
	s.Helper()
	s.eventually("set "+want.Name+" reports no conflict", func() error {
		set, _ := find[*lwsv1.LeaderWorkerSet](s.recorder, want.Name)
		if meta.IsStatusConditionTrue(set.Status.Conditions, nameConflict) {
			return fmt.Errorf("conditions: %+v", set.Status.Conditions)
		}
		return nil
	})
}

// awaitService waits for a headless Service of the set's own.
func (s *scene) awaitService(set *lwsv1.LeaderWorkerSet, name string) {
	s.Helper()
	s.eventually("the set has its own service "+name, func() error {
		service, ok := find[*corev1.Service](s.recorder, name)
		if !ok || s.root(service.UID) != set.UID {
			return errStill
		}
		return nil
	})
}

// versions returns the records of all objects.
func (s *scene) versions() []record {
	s.Helper()
	return s.pick(func(r *record) bool { return r.died == 0 && r.kind != "Event" })
}

// unharmed checks that no write changed the spec of objects, or deleted them.
func (s *scene) unharmed(before []record) {
	s.Helper()
	for _, rec := range before {
		now := s.now(rec.last)
		if now == nil || now.GetGeneration() != rec.last.GetGeneration() || now.GetDeletionTimestamp() != nil ||
			s.root(now.GetUID()) != s.root(rec.last.GetUID()) || len(now.GetOwnerReferences()) != len(rec.last.GetOwnerReferences()) {
			s.dump()
			s.Fatalf("harmed: %s/%s", rec.kind, rec.last.GetName())
		}
	}
}
