package cluster

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/test/drill"
	"lockstep.dev/lockstep/test/volcano"
)

const (
	gangMissing = "GangSchedulerMissing"
	tiedTo      = "scheduling.k8s.io/group-name"
	beGangs     = `{"metadata":{"annotations":{"lockstep.dev/gang-scheduler":"volcano"}}}`
)

// podGroupDefinition returns the CRD of PodGroups.
func (s *scene) podGroupDefinition() client.Object {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(volcano.Definition())
	s.Check("write the definition", err)
	definition := &unstructured.Unstructured{Object: fields}
	definition.SetAPIVersion("apiextensions.k8s.io/v1")
	definition.SetKind("CustomResourceDefinition")
	return definition
}

// podGroups returns the PodGroups of the scene by name.
func (s *scene) podGroups() (map[string]*unstructured.Unstructured, error) {
	list := volcano.PodGroups()
	if err := s.Client.List(s.Context(), list, client.InNamespace(s.Namespace)); err != nil {
		return nil, err
	}
	all := map[string]*unstructured.Unstructured{}
	for i := range list.Items {
		all[list.Items[i].GetName()] = &list.Items[i]
	}
	return all, nil
}

// notGangs names the first leader without a PodGroup of its own, or pod without its name.
func (s *scene) notGangs(set *lwsv1.LeaderWorkerSet, groups ...int) error {
	all, err := s.podGroups()
	if err != nil {
		return err
	}
	for _, index := range groups {
		leader := s.Pod(fmt.Sprintf("%s-%d", set.Name, index))
		if leader == nil {
			return fmt.Errorf("group %d has no leader", index)
		}
		name := leader.Name + "-" + leader.Labels[lwsv1.RevisionKey]
		object := all[name]
		if object == nil || !metav1.IsControlledBy(object, leader) {
			return fmt.Errorf("leader %s (%s) has no PodGroup %s: %v", leader.Name, leader.UID, name, object)
		}
		for _, pod := range s.podsOf(set) {
			if pod.Labels[lwsv1.GroupIndexLabelKey] == fmt.Sprint(index) && pod.Annotations[tiedTo] != name {
				return fmt.Errorf("pod %s is tied to %q, not %q", pod.Name, pod.Annotations[tiedTo], name)
			}
		}
	}
	return drill.Lacking("PodGroups", len(groups), len(all))
}

// A running set becomes a gang, its scheduler comes later, groups restart, and so does the operator.
func TestGangs(t *testing.T) {
	s := newScene(t)
	set := s.settled(s.newSet("a", 2, 3, imageA))
	born := s.bornInto(set.UID, 0)

	s.Patch(set, beGangs)
	s.awaitGangMissing(metav1.ConditionTrue)
	s.Lend(s.podGroupDefinition())
	s.awaitGangMissing(metav1.ConditionFalse)
	s.Check("groups from before are left alone", s.notGangs(set))
	same(t, "born since gangs were switched on", born, s.bornInto(set.UID, 0))

	s.restartGroup(set, "a-0")
	s.restartGroup(set, "a-1")
	s.Eventually("both groups are gangs", func() error { return s.notGangs(set, 0, 1) })
	set = s.awaitSettled(set)
	before, err := s.podGroups()
	s.Check("list PodGroups", err)

	s.restartGroup(set, "a-0")
	s.Eventually("the next leader has a PodGroup of its own", func() error { return s.notGangs(set, 0, 1) })
	after, err := s.podGroups()
	s.Check("list PodGroups", err)
	for name, object := range before {
		was, is := object.GetUID(), after[name].GetUID()
		if mine := after[name].GetLabels()[lwsv1.GroupIndexLabelKey] == "0"; mine == (was == is) {
			t.Errorf("PodGroup %s was %s and is %s", name, was, is)
		}
	}

	s.toldAndUntold(set)
	s.comesAndGoes(set)
	s.awaitSettled(set)
	untouched := s.Pod("a-0")
	mark := bed.Position()
	s.RestartOperator()
	s.restartGroup(set, "a-1")
	s.Eventually("the group is a gang again", func() error { return s.notGangs(set, 0, 1) })
	s.awaitSettled(set)
	for _, w := range s.LockstepWrote(mark) {
		if w.Resource == "podgroups" && w.Name == untouched.Annotations[tiedTo] {
			t.Errorf("a restart of the operator and of another group touched %s", w)
		}
	}

	s.Remove(set)
	s.awaitNothing(set.UID)
	s.Eventually("no PodGroup is left", func() error { return s.notGangs(set) })
}

// comesAndGoes deletes a PodGroup, and then the kind. A group starts without the kind, and all have
// PodGroups once it is defined again.
func (s *scene) comesAndGoes(set *lwsv1.LeaderWorkerSet) {
	all, err := s.podGroups()
	s.Check("list PodGroups", err)
	s.Remove(slices.Collect(maps.Values(all))[0])
	s.Eventually("a PodGroup that was deleted comes again", func() error { return s.notGangs(set, 0, 1) })
	s.Remove(s.podGroupDefinition())
	s.awaitGangMissing(metav1.ConditionTrue)
	s.restartGroup(set, "a-0")
	s.Eventually("PodGroups can be defined again", func() error { return s.Client.Create(s.Context(), s.podGroupDefinition()) })
	s.awaitGangMissing(metav1.ConditionFalse)
	s.Eventually("all groups are gangs again", func() error { return s.notGangs(set, 0, 1) })
}

// toldAndUntold sets annotations for Volcano on the set and removes them. Annotations of others stay.
func (s *scene) toldAndUntold(set *lwsv1.LeaderWorkerSet) {
	told := func(queue, note string) func() error {
		return func() error {
			all, err := s.podGroups()
			for name, object := range all {
				have, _, _ := unstructured.NestedString(object.Object, "spec", "queue")
				err = errors.Join(err, drill.Lacking("queue of "+name, queue, have),
					drill.Lacking("note of "+name, note, object.GetAnnotations()["volcano.sh/note"]))
			}
			return err
		}
	}
	s.Patch(set, `{"metadata":{"annotations":{"scheduling.volcano.sh/queue-name":"night","volcano.sh/note":"x"}}}`)
	s.Eventually("PodGroups that stand say what the set has come to say", told("night", "x"))
	all, err := s.podGroups()
	s.Check("list PodGroups", err)
	for _, object := range all {
		s.Patch(object, `{"metadata":{"annotations":{"volcano.sh/theirs":"stays"}}}`)
	}
	s.Patch(set, `{"metadata":{"annotations":{"scheduling.volcano.sh/queue-name":null,"volcano.sh/note":null}}}`)
	s.Eventually("PodGroups that stand do not say it any more", told("", ""))
	all, err = s.podGroups()
	s.Check("list PodGroups", err)
	for name, object := range all {
		same(s.T, "what others say in "+name, map[string]string{"volcano.sh/theirs": "stays"}, object.GetAnnotations())
	}
}

// awaitGangMissing waits until the set says whether its gang scheduler is missing.
func (s *scene) awaitGangMissing(status metav1.ConditionStatus) {
	s.Until(gangMissing+" is "+string(status), func() bool {
		return meta.IsStatusConditionPresentAndEqual(s.Set("a").Status.Conditions, gangMissing, status)
	})
}
