package status_test

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/lws/status"
	"lockstep.dev/lockstep/test/expect"
)

var (
	then = time.Unix(1_000_000, 0)
	now  = then.Add(time.Hour)
)

func is(conditionType string, status metav1.ConditionStatus, reason string, at time.Time, generation int64) metav1.Condition {
	return metav1.Condition{
		Type: conditionType, Status: status, Reason: reason, Message: "about " + reason,
		LastTransitionTime: metav1.NewTime(at), ObservedGeneration: generation,
	}
}

func says(message string, c metav1.Condition) metav1.Condition {
	c.Message = message
	return c
}

func TestMerge(t *testing.T) {
	const yes, no = metav1.ConditionTrue, metav1.ConditionFalse
	other := is("Other", yes, "Untouched", then, 1)
	for _, tt := range []struct {
		name       string
		have, want []metav1.Condition
		merged     []metav1.Condition
		turned     bool
	}{
		{"nothing wanted", []metav1.Condition{other}, nil, []metav1.Condition{is("Other", yes, "Untouched", then, 2)}, false},
		{
			"a new one", []metav1.Condition{other}, []metav1.Condition{is("A", yes, "R", time.Time{}, 0)},
			[]metav1.Condition{is("Other", yes, "Untouched", then, 2), is("A", yes, "R", now, 2)}, true,
		},
		{
			"the same again", []metav1.Condition{is("A", yes, "R", then, 1)}, []metav1.Condition{is("A", yes, "R", time.Time{}, 0)},
			[]metav1.Condition{is("A", yes, "R", then, 2)}, false,
		},
		{
			"another message", []metav1.Condition{is("A", yes, "R", then, 1)}, []metav1.Condition{says("another", is("A", yes, "R", time.Time{}, 0))},
			[]metav1.Condition{says("another", is("A", yes, "R", then, 2))}, false,
		},
		{
			"another status", []metav1.Condition{is("A", yes, "R", then, 1)}, []metav1.Condition{is("A", no, "R", time.Time{}, 0)},
			[]metav1.Condition{is("A", no, "R", now, 2)}, true,
		},
		{
			"another reason", []metav1.Condition{is("A", yes, "R", then, 1)}, []metav1.Condition{is("A", yes, "S", time.Time{}, 0)},
			[]metav1.Condition{is("A", yes, "S", then, 2)}, true,
		},
	} {
		before := append([]metav1.Condition(nil), tt.have...)
		merged := status.Merge(tt.have, tt.want, 2, now)
		expect.Equalf(t, tt.merged, merged, "%s", tt.name)
		told, want := lwsv1.LeaderWorkerSetStatus{Conditions: tt.have}, lwsv1.LeaderWorkerSetStatus{Conditions: merged}
		expect.Equalf(t, tt.turned, status.Due(&told, &want, 1, now).IsZero(), "%s: written at once", tt.name)
		expect.Equalf(t, before, tt.have, "%s: the input was changed", tt.name)
	}
}
