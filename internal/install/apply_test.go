package install

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Run again, an install says that nothing had to be changed.
func TestWhatNobodyAskedForIsNoChange(t *testing.T) {
	policy := func(version string, more map[string]any) *unstructured.Unstructured {
		u := &unstructured.Unstructured{Object: map[string]any{
			"metadata": map[string]any{"name": "p", "resourceVersion": version}, "spec": map[string]any{"failurePolicy": "Fail"},
		}}
		for key, value := range more {
			u.Object[key] = value
		}
		return u
	}
	before := policy("1", nil)
	for name, c := range map[string]struct {
		after *unstructured.Unstructured
		same  bool
	}{
		"a version":           {policy("2", nil), true},
		"a status":            {policy("2", map[string]any{"status": map[string]any{"observedGeneration": int64(1)}}), true},
		"what was asked for":  {policy("2", map[string]any{"spec": map[string]any{"failurePolicy": "Ignore"}}), false},
		"more than there was": {policy("2", map[string]any{"data": map[string]any{}}), false},
	} {
		if got := same(before, c.after); got != c.same {
			t.Errorf("%s: got %t", name, got)
		}
	}
}

// What is taken away is a change as well.
func TestASummaryCountsWhatWasDeleted(t *testing.T) {
	for want, got := range map[string]string{
		"nothing had to be changed":                                Options{}.summary(map[change]int{unchanged: 9}, 0),
		"0 created, 0 configured, 9 unchanged, 3 deleted":          Options{}.summary(map[change]int{unchanged: 9}, 3),
		"would be installed: 1 created, 2 configured, 9 unchanged": Options{DryRun: true}.summary(map[change]int{created: 1, configured: 2, unchanged: 9}, 0),
	} {
		if !strings.HasSuffix(got, want) {
			t.Errorf("got %q, want it to end with %q", got, want)
		}
	}
}
