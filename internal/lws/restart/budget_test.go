package restart_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws/restart"
)

// Another implementation counts a group with a key under its whole key, and one with an ordinal under that.
func TestCountsOfAnotherImplementationHaveTheKeyOfTheGroup(t *testing.T) {
	key, made := strings.Repeat("a", 40), metav1.NewTime(time.Unix(1000, 0))
	index := identity.HashIndex(key)
	leader := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: "w-r-a", CreationTimestamp: made,
		Labels:      map[string]string{lwsv1.RevisionKey: "r", lwsv1.GroupUniqueHashLabelKey: key, lwsv1.GroupIndexLabelKey: key},
		Annotations: map[string]string{lwsv1.GroupIdentityAnnotationKey: string(lwsv1.HashGroupIdentity)},
	}}
	ordinal := leader.DeepCopy()
	ordinal.Name, ordinal.Annotations = "w-3", nil
	for name, tt := range map[string]struct {
		leader   *corev1.Pod
		index    int
		counts   string
		exhausts bool
	}{
		"of its key":       {leader, index, fmt.Sprintf(`{"r/%s": 2}`, key), true},
		"of its number":    {leader, index, fmt.Sprintf(`{"r/%d": 2}`, index), false},
		"of another key":   {leader, index, `{"r/b": 2}`, false},
		"of its ordinal":   {ordinal, 3, `{"r/3": 2}`, true},
		"of no ordinal":    {ordinal, 3, fmt.Sprintf(`{"r/%s": 2}`, key), false},
		"of fewer than it": {leader, index, fmt.Sprintf(`{"r/%s": 1}`, key), false},
	} {
		set := &lwsv1.LeaderWorkerSet{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{lwsv1.GroupRestartCountsAnnotationKey: tt.counts}}}
		set.Spec.LeaderWorkerTemplate.MaxGroupRestarts = ptr.To[int32](2)
		set.Status.RestartsSince = &metav1.Time{Time: made.Add(time.Second)}
		decision := restart.Group{Set: set, Index: tt.index, Leader: tt.leader}.Decide(&restart.Failure{}, made.Time)
		if decision.Exhausted != tt.exhausts {
			t.Errorf("%s: exhausts %v", name, decision.Exhausted)
		}
	}
}
