package restart_test

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/lws/restart"
	"lockstep.dev/lockstep/test/fakeapi"
)

// A decision counts for the leader with its UID alone, and not if it is from before
// restartsSince.
func TestADecisionIsBoundToItsLeader(t *testing.T) {
	since := metav1.NewTime(fakeapi.Epoch)
	set := fakeapi.Set("w", 1, 2, fakeapi.Policy(lwsv1.RecreateGroupOnPodRestart))
	set.Status.RestartsSince = &since
	for name, tt := range map[string]struct {
		edit func(*restart.Decision)
		want bool
	}{
		"its own":        {func(*restart.Decision) {}, true},
		"another leader": {func(d *restart.Decision) { d.Leader = "former" }, false},
		"too old":        {func(d *restart.Decision) { d.At = metav1.NewTime(since.Add(-time.Hour)) }, false},
	} {
		leader := fakeapi.Pod("w-0", "w", 0)
		leader.UID = "leader"
		decision := restart.Decide(set, 0, leader, &restart.Failure{Code: restart.CodePodEnded}, fakeapi.Epoch.Add(time.Minute))
		tt.edit(decision)
		leader.Annotations = map[string]string{restart.AnnotationKey: decision.Annotation()}
		if got := restart.Of(set, leader); (got != nil) != tt.want {
			t.Errorf("%s: got %+v", name, got)
		}
	}
}
