package admission_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/gang"
	"lockstep.dev/lockstep/internal/lws/admission"
)

func tied(pod *corev1.Pod) { gang.Tie(pod, gang.NameOf(pod)) }

func TestAGangIsWholeOrItIsNone(t *testing.T) {
	leader := func(edits ...func(*corev1.Pod)) *corev1.Pod {
		pod := mutate(t, newLeader("w-0"))
		for _, edit := range edits {
			edit(pod)
		}
		return pod
	}
	older := leader(tied)
	older.Labels[lwsv1.RevisionKey] = "older"
	says := func(name string) *lwsv1.LeaderWorkerSet {
		set := newSet()
		set.Annotations = map[string]string{lwsv1.GangSchedulerAnnotationKey: name}
		return set
	}
	tests := []struct {
		name      string
		pod       *corev1.Pod
		leader    *corev1.Pod
		set       *lwsv1.LeaderWorkerSet
		otherwise bool
		want      bool
	}{
		{"a leader goes where its set says", newLeader("w-0"), nil, says("volcano"), false, true},
		{"a leader of a set that wants none", newLeader("w-0"), nil, says("none"), true, false},
		{"a leader of a set that does not say", newLeader("w-0"), nil, newSet(), true, true},
		{"a leader of a set nobody finds", newLeader("w-0"), nil, nil, true, true},
		{"a worker follows its leader", newWorker("w-0-1"), leader(tied), says("none"), false, true},
		{"a worker follows its leader that is in no gang", newWorker("w-0-1"), leader(), says("volcano"), true, false},
		{"a worker whose template is tied", newWorker("w-0-1", tied), leader(), says("none"), false, true},
		{"a worker of another revision than the leader", newWorker("w-0-1"), older, says("none"), false, false},
		{"a worker without a leader goes where its set says", newWorker("w-0-1"), nil, says("volcano"), false, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := admission.InGang(tt.pod, tt.leader, tt.set, tt.otherwise); got != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

func TestAGangSchedulerNobodyKnowsIsRefused(t *testing.T) {
	for name, refused := range map[string]bool{"": false, "volcano": false, "none": false, "Volcano": true, "kueue": true} {
		set := newSet()
		set.Annotations = map[string]string{lwsv1.GangSchedulerAnnotationKey: name}
		faults := admission.ValidateCreate(set).ToAggregate()
		if (faults != nil) != refused {
			t.Errorf("%q: %v", name, faults)
		}
		if refused && !strings.Contains(faults.Error(), `metadata.annotations[lockstep.dev/gang-scheduler]: Unsupported value: "`+name+`": supported values: "volcano", "none"`) {
			t.Errorf("%q: %v", name, faults)
		}
	}
}

func TestPodsThatTheGangSchedulerDoesNotSeeAreWarnedOf(t *testing.T) {
	set := newSet()
	set.Annotations = map[string]string{lwsv1.GangSchedulerAnnotationKey: "volcano"}
	if got := strings.Join(admission.Warnings(set, nil), "\n"); !strings.Contains(got, `spec.schedulerName: is not "volcano", so these pods are placed one by one`) {
		t.Errorf("got %q", got)
	}
	set.Spec.LeaderWorkerTemplate.WorkerTemplate.Spec.SchedulerName = "volcano"
	if got := strings.Join(admission.Warnings(set, nil), "\n"); strings.Contains(got, "one by one") {
		t.Errorf("got %q", got)
	}
}
