package install

import (
	"strings"
	"testing"
)

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
