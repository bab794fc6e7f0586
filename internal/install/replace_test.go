package install

import (
	"bytes"
	"strings"
	"testing"

	"lockstep.dev/lockstep/internal/operator"
)

// What was chosen and cannot be had on this API server is told by whoever installs it.
func TestInstallTellsOfWhatTheAPIServerLacks(t *testing.T) {
	pending := "protection: {mode: Hold, initialHold: Pending}"
	for _, tt := range []struct {
		name, config string
		lacks        []string
		tells        string
	}{
		{"of now", pending, nil, ""},
		{"before 1.36", pending, []string{operator.MutatingPolicy}, "1.36"},
		{"before 1.36, switched off", "protection: {enabled: false, initialHold: Pending}", []string{operator.MutatingPolicy}, ""},
		{"before 1.30", "protection: {mode: Hold}", []string{operator.MutatingPolicy, operator.ValidatingPolicy}, "barrier works"},
	} {
		var told bytes.Buffer
		o := with(tt.config)
		o.Out = &told
		s, err := o.shape(tt.lacks)
		if err != nil {
			t.Fatal(err)
		}
		s.reportLacks()
		if got := told.String(); !strings.Contains(got, tt.tells) || (got == "") != (tt.tells == "") {
			t.Errorf("%s: told %q, want %q", tt.name, got, tt.tells)
		}
	}
}
