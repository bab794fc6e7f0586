package cluster

import (
	"fmt"
	"strings"
	"testing"

	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
)

// ours are the labels that this API defines.
func ours(labels map[string]string) map[string]string {
	out := map[string]string{}
	for key, value := range labels {
		if strings.HasPrefix(key, "leaderworkerset.sigs.k8s.io/") {
			out[key] = value
		}
	}
	return out
}

// status checks what a settled set says: the conditions it went through keep
// their words when they no longer hold.
func (s *scene) status(t *testing.T, set *lwsv1.LeaderWorkerSet) {
	same(t, "hpaPodSelector", "leaderworkerset.sigs.k8s.io/name=a,leaderworkerset.sigs.k8s.io/worker-index=0", set.Status.HPAPodSelector)
	same(t, "readyReplicas", 2, set.Status.ReadyReplicas)
	same(t, "updatedReplicas", 2, set.Status.UpdatedReplicas)
	same(t, "replicas", 2, set.Status.Replicas)
	same(t, "observedGeneration", set.Generation, set.Status.ObservedGeneration)
	for _, want := range []metav1.Condition{
		{Type: "Available", Status: metav1.ConditionTrue, Reason: "AllGroupsReady", Message: "All replicas are ready"},
		{Type: "Progressing", Status: metav1.ConditionFalse, Reason: "GroupsProgressing", Message: "Replicas are progressing"},
	} {
		have := meta.FindStatusCondition(set.Status.Conditions, want.Type)
		if have == nil {
			t.Errorf("condition %s is not there: %+v", want.Type, set.Status.Conditions)
			continue
		}
		want.LastTransitionTime, want.ObservedGeneration = have.LastTransitionTime, set.Generation
		same(t, "condition "+want.Type, want, *have)
	}
	same(t, "conditions", 2, len(set.Status.Conditions))
}

// firstEvents checks what is told about a set that comes up.
func (s *scene) firstEvents(t *testing.T, set *lwsv1.LeaderWorkerSet, key string) {
	for _, want := range []telling{
		{"CreatingRevision", "Create", "ControllerRevision", fmt.Sprintf("Creating revision with key %s for a newly created LeaderWorkerSet", key)},
		{"GroupsProgressing", "Create", "ControllerRevision", "Created leader statefulset a"},
		{"GroupsProgressing", "Create", "Pod", "Created worker statefulset for leader pod a-0"},
		{"GroupsProgressing", "Create", "Pod", "Created worker statefulset for leader pod a-1"},
		{"GroupsProgressing", "Update", "", "Replicas are progressing, with 0 groups ready of total 2 groups"},
		{"AllGroupsReady", "Update", "", "All replicas are ready, with 2 groups ready of total 2 groups"},
	} {
		s.awaitTold(set, want)
	}
	for _, event := range s.events(set, "") {
		same(t, "type of "+event.Note, "Normal", event.Type)
		same(t, "reporting controller of "+event.Note, "leaderworkerset", event.ReportingController)
	}
}

// telling is an event, as far as its words are the API's.
type telling struct{ reason, action, related, note string }

func tellingOf(event *eventsv1.Event) telling {
	told := telling{reason: event.Reason, action: event.Action, note: event.Note}
	if event.Related != nil {
		told.related = event.Related.Kind
	}
	return told
}

// awaitTold waits for an event about one life of a set.
func (s *scene) awaitTold(set *lwsv1.LeaderWorkerSet, want telling) {
	s.Helper()
	s.eventually(fmt.Sprintf("there is an event %+v", want), func() error {
		var have []telling
		for _, event := range s.events(set, "") {
			if tellingOf(event) == want {
				return nil
			}
			have = append(have, tellingOf(event))
		}
		return fmt.Errorf("events: %+v", have)
	})
}
