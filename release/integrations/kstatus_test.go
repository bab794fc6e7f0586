package integrations

import (
	"testing"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// verdicts are what kstatus is to find of each recorded set.
var verdicts = map[string]status.Status{
	"being-created": status.InProgressStatus, "one-group-down": status.InProgressStatus, "scaled-up": status.InProgressStatus,
	"rolling-out": status.InProgressStatus, "canary-down": status.InProgressStatus, "backing-off": status.InProgressStatus,
	"previous": status.InProgressStatus, "webhook-unreachable": status.InProgressStatus,
	"gang-scheduler-missing": status.InProgressStatus, "paused": status.InProgressStatus,

	"ready": status.CurrentStatus, "without-groups": status.CurrentStatus, "canary": status.CurrentStatus,
	"paused-at-rest": status.CurrentStatus, "service-name-conflict": status.CurrentStatus, "service-refused": status.FailedStatus,

	"previous-stuck": status.FailedStatus, "name-conflict": status.FailedStatus, "refused": status.FailedStatus,
	"update-refused": status.FailedStatus, "workers-refused": status.FailedStatus, "other-claims": status.FailedStatus,
	"unsupported": status.FailedStatus, "budget-exceeded": status.FailedStatus,
}

func judged(t *testing.T, set *unstructured.Unstructured) status.Status {
	t.Helper()
	result, err := status.Compute(set)
	if err != nil {
		t.Fatal(err)
	}
	return result.Status
}

// Helm and Flux wait by this library. A set without any status is current to it: the definition gives
// new sets the status that no operator has seen them.
func TestKstatusJudgesSets(t *testing.T) {
	for _, name := range names(t) {
		if got := judged(t, recorded(t, name)); got != verdicts[name] {
			t.Errorf("%s is %s, want %q", name, got, verdicts[name])
		}
	}
	for name, want := range map[string]status.Status{
		"new": status.InProgressStatus, "not observed": status.InProgressStatus, "being deleted": status.TerminatingStatus,
	} {
		if got := judged(t, edited(t, name)); got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
}
