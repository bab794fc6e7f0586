package restart_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/lws/restart"
	"lockstep.dev/lockstep/test/fakeapi"
)

// startedSet is a set whose status has a record of group 0.
func startedSet(record lwsv1.StartedGroup) *lwsv1.LeaderWorkerSet {
	set := fakeapi.Set("w", 1, 1, fakeapi.Policy(lwsv1.RecreateGroupOnPodRestart))
	set.Status.RestartsSince = &metav1.Time{Time: fakeapi.Epoch}
	set.Status.Started = []lwsv1.StartedGroup{record}
	return set
}

func leaderAt(uid types.UID, revision string) *corev1.Pod {
	pod := fakeapi.Pod("w-0", "w", 0)
	pod.UID, pod.Labels[lwsv1.RevisionKey] = uid, revision
	return pod
}

// A field marks a group that is counted: another leader is no failure then. A record of the release before, and one
// whose field an older definition dropped, lack the revision instead.
func TestAGroupIsMarkedAsCountedByAField(t *testing.T) {
	for name, tt := range map[string]struct {
		record    lwsv1.StartedGroup
		isCounted bool
	}{
		"not counted":                     {lwsv1.StartedGroup{Leader: "a", Pods: "AA.r"}, false},
		"counted":                         {lwsv1.StartedGroup{Leader: "a", Pods: "AA.r", Counted: true}, true},
		"counted by the release before":   {lwsv1.StartedGroup{Leader: "a", Pods: "AA"}, true},
		"counted, for the release before": {lwsv1.StartedGroup{Leader: "a", Pods: "AA", Counted: true}, true},
	} {
		set := startedSet(tt.record)
		s := restart.Status{Started: set.Status.Started}
		s.Count(set, []*corev1.Pod{leaderAt("b", "r")}, fakeapi.Epoch)
		if isFailure := len(s.Failures) > 0; isFailure == tt.isCounted {
			t.Errorf("%s: another leader is a failure: %t", name, isFailure)
		}
		if isReplaced := restart.IsReplaced(set, 0, leaderAt("a", "r")); isReplaced != tt.isCounted {
			t.Errorf("%s: a rollout replaces the leader: %t", name, isReplaced)
		}
	}
}

// A rollout marks a record once, and takes the mark from a leader that stays.
func TestARolloutMarksARecordOnce(t *testing.T) {
	plain := lwsv1.StartedGroup{Leader: "a", Pods: "AA.r"}
	marked := lwsv1.StartedGroup{Leader: "a", Pods: "AA", Counted: true}
	pruned := lwsv1.StartedGroup{Leader: "a", Pods: "AA"} // by an older definition
	for _, tt := range []struct {
		record     lwsv1.StartedGroup
		isReplaced bool
		want       lwsv1.StartedGroup
	}{
		{plain, true, marked}, {marked, true, marked}, {pruned, true, pruned},
		{plain, false, plain}, {marked, false, plain}, {pruned, false, plain},
		{lwsv1.StartedGroup{Leader: "a", Pods: "AA.r", Counted: true}, false, plain},
	} {
		set := startedSet(tt.record)
		s := restart.Status{Started: set.Status.Started}
		s.Expect(set, []*corev1.Pod{leaderAt("a", "r")}, func(int) bool { return tt.isReplaced })
		if diff := cmp.Diff([]lwsv1.StartedGroup{tt.want}, s.Started); diff != "" {
			t.Errorf("%+v, replaced %t (-want +got)\n%s", tt.record, tt.isReplaced, diff)
		}
	}
}
