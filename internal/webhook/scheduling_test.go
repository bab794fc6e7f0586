package webhook

import (
	"testing"

	schedulingv1alpha3 "k8s.io/api/scheduling/v1alpha3"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/test/fakeapi"
)

func TestUnionsOfSchedulingAreChecked(t *testing.T) {
	set := func(policy *schedulingv1alpha3.WorkloadCompositePodGroupSchedulingPolicy) *lwsv1.LeaderWorkerSet {
		set := fakeapi.Set("w", 1, 4)
		set.Spec.Scheduling = &lwsv1.Scheduling{SchedulingPolicy: policy}
		return set
	}
	basic := &schedulingv1alpha3.WorkloadCompositePodGroupBasicSchedulingPolicy{}
	gang := &schedulingv1alpha3.WorkloadCompositePodGroupGangSchedulingPolicy{}
	none := set(&schedulingv1alpha3.WorkloadCompositePodGroupSchedulingPolicy{})
	for want, tt := range map[string]struct{ is, was *lwsv1.LeaderWorkerSet }{
		"spec.scheduling.schedulingPolicy: Invalid value: \"\": must specify one of: `basic`, `gang`": {none, nil},
		"spec.scheduling.schedulingPolicy: Invalid value: \"{basic, gang}\": must specify exactly one of: `basic`, `gang`": {
			set(&schedulingv1alpha3.WorkloadCompositePodGroupSchedulingPolicy{Basic: basic, Gang: gang}), none,
		},
	} {
		faults := checkUnits(t.Context(), tt.is, tt.was)
		if len(faults) != 1 || faults[0].Error() != want {
			t.Errorf("got %v, want %s", faults, want)
		}
	}
	for _, tt := range []struct{ is, was *lwsv1.LeaderWorkerSet }{
		{none, none}, {fakeapi.Set("w", 1, 4), nil}, {set(&schedulingv1alpha3.WorkloadCompositePodGroupSchedulingPolicy{Gang: gang}), nil},
	} {
		if faults := checkUnits(t.Context(), tt.is, tt.was); len(faults) > 0 {
			t.Errorf("got %v", faults)
		}
	}
}
