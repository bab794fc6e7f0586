package admission_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/lws/admission"
)

const workerPath = "spec.leaderWorkerTemplate.workerTemplate."

func TestWarnings(t *testing.T) {
	gangs := withAnnotation(lwsv1.GangSchedulerAnnotationKey, "volcano")
	rack := withAnnotation(lwsv1.ExclusiveKeyAnnotationKey, "rack")
	byVolcano := func(p *corev1.PodTemplateSpec) { p.Spec.SchedulerName = "volcano" }
	const (
		moved = "metadata.annotations[leaderworkerset.sigs.k8s.io/exclusive-topology]: changing it replaces every group, within maxUnavailable and from the partition on"
		alone = workerPath + `spec.schedulerName: is not "volcano", so these pods are placed one by one`
	)
	tests := []struct {
		name     string
		old, set *lwsv1.LeaderWorkerSet
		want     []string
	}{
		{"nothing", nil, newSet(), nil},
		{"pods of another scheduler", nil, newSet(gangs), []string{alone}},
		{"pods of Volcano", nil, newSet(gangs, withWorkers(byVolcano)), nil},
		{"template that is not used", nil, newSet(withSize(1), gangs, withLeaderTemplate(byVolcano)), nil},
		{"told before", newSet(gangs), newSet(gangs, withReplicas(3)), nil},
		{"new in an update", newSet(), newSet(gangs), []string{alone}},
		{"placement added", newSet(), newSet(rack), []string{moved}},
		{"placement removed", newSet(rack), newSet(), []string{moved}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := admission.Warnings(tt.set, tt.old)
			if diff := cmp.Diff(tt.want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			for _, warning := range got {
				if len(warning) > 256 {
					t.Errorf("the API server cuts %d characters: %s", len(warning), warning)
				}
			}
		})
	}
}

// An update that makes a name too long is refused.
func TestAScaleThatMakesANameTooLongIsRefused(t *testing.T) {
	name := withName(strings.Repeat("a", 50))
	before := newSet(name, withReplicas(10))
	for text, after := range map[string]*lwsv1.LeaderWorkerSet{
		"replicas": newSet(name, withReplicas(11)), "surge": newSet(name, withReplicas(10), withBudget("1", "1")),
	} {
		if faults := (admission.Scheduling{}).ValidateUpdate(after, before); len(faults) != 1 || faults[0].Field != "metadata.name" {
			t.Errorf("%s: %v", text, faults)
		}
	}
}

// The limit is 63 characters less "-" and ten of hash, less the longest index.
func TestANameWithWhichNoPodStartsIsRefused(t *testing.T) {
	tests := []struct {
		name    string
		limit   int
		changes []change
	}{
		{"without workers", 52, []change{withSize(1)}},
		{"ten groups", 50, []change{withReplicas(10)}},
		{"eleven groups", 49, []change{withReplicas(11)}},
		{"ten and one to spare", 49, []change{withReplicas(10), withBudget("0", "1%")}},
		{"surge beyond replicas", 50, []change{withReplicas(2), withBudget("0", "1000")}},
		{"a million", 45, []change{withReplicas(1000000)}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			fits := newSet(append(tt.changes, withName(strings.Repeat("a", tt.limit)))...)
			checkFaults(t, admission.Scheduling{}.ValidateCreate(fits), nil)
			exceeds := newSet(append(tt.changes, withName(strings.Repeat("a", tt.limit+1)))...)
			faults := admission.Scheduling{}.ValidateCreate(exceeds)
			if len(faults) != 1 || faults[0].Field != "metadata.name" || !strings.Contains(faults[0].Error(), fmt.Sprintf("use at most %d ", tt.limit)) {
				t.Errorf("%d characters: %v", tt.limit+1, faults)
			}
			// A stored set is changed and scaled all the same, with a warning.
			for _, change := range []change{func(*lwsv1.LeaderWorkerSet) {}, withReplicas(2_000), withReplicas(0)} {
				after := newSet(append(tt.changes, withName(exceeds.Name), withBudget("1", "0"), change)...)
				checkFaults(t, admission.Scheduling{}.ValidateUpdate(after, exceeds), nil)
			}
			if got := admission.Warnings(exceeds, exceeds); len(got) != 1 || !strings.HasPrefix(got[0], "metadata.name: has ") {
				t.Errorf("%d characters: got %q, want one warning", tt.limit+1, got)
			}
		})
	}
}
