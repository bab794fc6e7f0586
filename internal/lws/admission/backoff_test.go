package admission_test

import (
	"strings"
	"testing"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	key "lockstep.dev/lockstep/internal/backoff"
	"lockstep.dev/lockstep/internal/lws/admission"
	"lockstep.dev/lockstep/test/fakeapi"
)

func TestABackoffThatCannotBeReadIsRefused(t *testing.T) {
	backoff := func(value string) *lwsv1.LeaderWorkerSet {
		return fakeapi.Set("w", 1, 1, fakeapi.Annotation(key.AnnotationKey, value), func(set *lwsv1.LeaderWorkerSet) {
			admission.Default(set)
		})
	}
	for value, want := range map[string]string{
		"off": "", "first=30s,max=10m": "", "first=30": `"first=30" must be a duration from 1s to 24h, such as first=30s`, "": "none of",
	} {
		faults := admission.ValidateCreate(backoff(value))
		if len(faults) > 1 || (len(faults) == 0) != (want == "") ||
			len(faults) == 1 && (!strings.Contains(faults[0].Detail, want) || faults[0].Field != "metadata.annotations[lockstep.dev/restart-backoff]") {
			t.Errorf("%q: got %v", value, faults)
		}
	}
	stored := backoff("first=30")
	next := stored.DeepCopy()
	next.Labels = map[string]string{"a": "b"}
	if faults := admission.ValidateUpdate(next, stored); len(faults) != 0 {
		t.Errorf("a set stored with it cannot be updated: %v", faults)
	}
}
