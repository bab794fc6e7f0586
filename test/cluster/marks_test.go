package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
)

// mark is what somebody takes or changes by hand of one object of a set.
type mark struct {
	of          func(s *scene, set string) client.Object
	labels      map[string]any
	annotations map[string]any
	owner       bool
}

// tampering is done to a set of one group of two, all at once.
type tampering struct {
	marks []mark
	// told is what the set says to put back, or empty.
	told string
	// stays is set where nobody needs what was taken.
	stays bool
	edits []edit
}

const (
	setName  = lwsv1.SetNameLabelKey
	revision = lwsv1.RevisionKey
	index    = lwsv1.GroupIndexLabelKey
	groupKey = lwsv1.GroupUniqueHashLabelKey
	worker   = lwsv1.WorkerIndexLabelKey
)

func off(keys ...string) map[string]any {
	labels := map[string]any{}
	for _, key := range keys {
		labels[key] = nil
	}
	return labels
}

func tamperings() map[string]tampering {
	leaders, workers := child[*appsv1.StatefulSet](""), child[*appsv1.StatefulSet]("-0")
	leaderPod, workerPod := child[*corev1.Pod]("-0"), child[*corev1.Pod]("-0-1")
	shared, own := child[*corev1.Service](""), child[*corev1.Service]("-0")
	names, otherNames := off(setName), map[string]any{setName: "else"}
	return map[string]tampering{
		"names":          {marks: []mark{{of: leaders, labels: names}, {of: workers, labels: names}, {of: shared, labels: names}}},
		"other-names":    {marks: []mark{{of: leaders, labels: otherNames}, {of: workers, labels: otherNames}, {of: shared, labels: otherNames}}},
		"revisions":      {marks: []mark{{of: leaders, labels: off(revision)}, {of: workers, labels: off(revision)}}},
		"other-revision": {marks: []mark{{of: leaders, labels: map[string]any{revision: "else"}}, {of: workers, labels: map[string]any{revision: "else"}}}},
		"group":          {marks: []mark{{of: workers, labels: off(index, groupKey)}}},
		"wanted":         {marks: []mark{{of: leaders, annotations: map[string]any{lwsv1.ReplicasAnnotationKey: "99"}}}},
		"owner-set":      {marks: []mark{{of: leaders, owner: true}, {of: shared, owner: true}, {of: currentRevision, owner: true}}},
		"owner-leader":   {marks: []mark{{of: workers, owner: true}}},
		"owner-pods":     {marks: []mark{{of: leaderPod, owner: true}, {of: workerPod, owner: true}}},
		"own-service":    {marks: []mark{{of: own, labels: names}}, edits: []edit{uniquePerReplica}},
		"own-owner":      {marks: []mark{{of: own, owner: true}}, edits: []edit{uniquePerReplica}},
		"leader-name":    {marks: []mark{{of: leaderPod, labels: names}}, told: setName},
		"leader-index":   {marks: []mark{{of: leaderPod, labels: off(worker)}}, told: worker},
		"leader-revise":  {marks: []mark{{of: leaderPod, labels: map[string]any{revision: "else"}}}, told: revision},
		"worker-name":    {marks: []mark{{of: workerPod, labels: otherNames}}, told: setName},
		"worker-group":   {marks: []mark{{of: workerPod, labels: off(index, groupKey)}}, told: index},
		"unused": {stays: true, marks: []mark{
			{of: leaderPod, labels: off(index, groupKey), annotations: off(lwsv1.SizeAnnotationKey)},
			{of: workerPod, labels: off(worker, revision), annotations: off(lwsv1.LeaderPodNameAnnotationKey)},
		}},
	}
}

// child is what bears the set's name and a suffix, of one kind.
func child[T client.Object](suffix string) func(*scene, string) client.Object {
	return func(s *scene, set string) client.Object {
		if object, ok := find[T](s.recorder, set+suffix); ok {
			return object
		}
		return nil
	}
}

func currentRevision(s *scene, set string) client.Object {
	for _, r := range live[*appsv1.ControllerRevision](s.recorder) {
		if r.Labels[setName] == set && strings.HasPrefix(r.Name, set+"-"+r.Labels[revision]+"-") {
			return r
		}
	}
	return nil
}

// Whoever takes off a mark that an object of a set is known by, or changes it, has it
// put back; where that is for Kubernetes to mind, is told how to. No pod is made anew.
func TestMarksThatSomebodyTookOrChanged(t *testing.T) {
	aside(t)
	s := newScene(t)
	all, sets := tamperings(), map[string]*lwsv1.LeaderWorkerSet{}
	for name, x := range all {
		sets[name] = s.newSet(name, 1, 2, imageA, x.edits...)
		s.create(sets[name])
	}
	before := map[string][]client.Object{}
	for name, x := range all {
		sets[name] = s.awaitSettled(sets[name])
		s.eventually("what "+name+" is made of is written down", func() error { return s.unwritten(name, x) })
		for _, m := range x.marks {
			before[name] = append(before[name], m.of(s, name).DeepCopyObject().(client.Object))
		}
	}
	pods, changes := s.uids(), s.changes()
	for name, x := range all {
		for i, m := range x.marks {
			s.tamper(before[name][i], m)
		}
	}
	for name, x := range all {
		switch {
		case x.told != "":
			s.eventually(name+" is told what to put back", func() error { return s.untold(name, x.told) })
			for _, object := range before[name] {
				s.merge(object, map[string]any{"labels": object.GetLabels()})
			}
		case !x.stays:
			s.eventually(name+" has its marks again", func() error { return s.unmarked(before[name]) })
		}
	}
	for _, set := range sets {
		s.awaitSettled(set)
		if have := s.bornInto(set.UID, changes); have != (births{}) {
			s.dump()
			t.Errorf("%s: created: %+v", set.Name, have)
		}
	}
	same(t, "pods", pods, s.uids())
}

// unwritten says what a set lacks that has yet to be seen whole.
func (s *scene) unwritten(name string, x tampering) error {
	set, _ := find[*lwsv1.LeaderWorkerSet](s.recorder, name)
	missing := slices.ContainsFunc(x.marks, func(m mark) bool { return m.of(s, name) == nil })
	if missing || len(set.Status.Started) == 0 {
		return errStill
	}
	return nil
}

func (s *scene) tamper(object client.Object, m mark) {
	s.Helper()
	metadata := map[string]any{"labels": m.labels, "annotations": m.annotations}
	if m.owner {
		metadata["ownerReferences"] = nil
	}
	s.merge(object, metadata)
}

// merge merges metadata into an object.
func (s *scene) merge(object client.Object, metadata map[string]any) {
	s.Helper()
	maps.DeleteFunc(metadata, func(key string, value any) bool { return key != "ownerReferences" && fmt.Sprint(value) == "map[]" })
	document, err := json.Marshal(map[string]any{"metadata": metadata})
	s.check("write a patch", err)
	s.patch(object, string(document))
}

// untold is an error unless a set says that a label is to be put back.
func (s *scene) untold(name, label string) error {
	set, _ := find[*lwsv1.LeaderWorkerSet](s.recorder, name)
	c := meta.FindStatusCondition(set.Status.Conditions, "NameConflict")
	if c == nil || c.Status != metav1.ConditionTrue || !strings.Contains(c.Message, "kubectl label pod "+name+"-0") || !strings.Contains(c.Message, label+"=") {
		return fmt.Errorf("it says %+v", c)
	}
	return nil
}

// unmarked says which of the objects, as they were, is not as it was.
func (s *scene) unmarked(were []client.Object) error {
	var errs []error
	for _, was := range were {
		is := was.DeepCopyObject().(client.Object)
		if err := s.client.Get(s.Context(), client.ObjectKeyFromObject(was), is); err != nil {
			return err
		}
		owner, now := metav1.GetControllerOf(was), metav1.GetControllerOf(is)
		if is.GetUID() != was.GetUID() || !maps.Equal(is.GetLabels(), was.GetLabels()) || now == nil || now.UID != owner.UID ||
			is.GetAnnotations()[lwsv1.ReplicasAnnotationKey] != was.GetAnnotations()[lwsv1.ReplicasAnnotationKey] {
			errs = append(errs, fmt.Errorf("%T %s: labels %v, annotations %v, owner %v", is, is.GetName(), is.GetLabels(), is.GetAnnotations(), now))
		}
	}
	return errors.Join(errs...)
}
