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
		decision := restart.Group{Set: set, Leader: leader}.Decide(&restart.Failure{Code: restart.CodePodEnded}, fakeapi.Epoch.Add(time.Minute))
		tt.edit(decision)
		leader.Annotations = map[string]string{restart.AnnotationKey: decision.Annotation()}
		if got := restart.Of(set, leader); (got != nil) != tt.want {
			t.Errorf("%s: got %+v", name, got)
		}
	}
}

// A group starts under the policy of its leader's revision, whatever its set says by now. The
// annotation is in no revision.
func TestAGroupStartsUnderThePolicyOfItsRevision(t *testing.T) {
	since := metav1.NewTime(fakeapi.Epoch)
	leader := fakeapi.Pod("w-0", "w", 0)
	leader.CreationTimestamp = since
	for _, policy := range []lwsv1.RestartPolicyType{lwsv1.NoneRestartPolicy, lwsv1.RecreateGroupOnPodRestart, lwsv1.RecreateGroupAfterStart} {
		set := fakeapi.Set("w", 1, 2)
		set.Status.RestartsSince = &since
		for _, now := range []lwsv1.RestartPolicyType{lwsv1.RecreateGroupOnPodRestart, lwsv1.RecreateGroupAfterStart} {
			set.Spec.LeaderWorkerTemplate.RestartPolicy = now
			if got := restart.ForgivesStart(set, policy, leader); got != (policy != lwsv1.RecreateGroupOnPodRestart) {
				t.Errorf("%s, now %s: forgives %t", policy, now, got)
			}
		}
		fakeapi.Annotation(lwsv1.RecreateGroupAfterStartAnnotationKey, "")(set)
		if !restart.ForgivesStart(set, policy, leader) {
			t.Errorf("%s: the annotation does not hold", policy)
		}
	}
}
