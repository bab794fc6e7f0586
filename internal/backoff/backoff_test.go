package backoff_test

import (
	"strings"
	"testing"

	"lockstep.dev/lockstep/internal/backoff"
	"lockstep.dev/lockstep/test/expect"
)

func TestParse(t *testing.T) {
	for value, want := range map[string]string{
		"off": "", "first=1s": "", "first=1m,max=2m,reset=1h": "", "\tmax=1h , first=2s": "",
		"": "none of", "on": "none of", "first": "duration", "first=0s": "duration", "first=25h": "duration",
		"first=1s,first=2s": "none of", "first=10m": "must not be longer", "off,first=1s": "none of", "10s": "none of",
	} {
		_, err := backoff.Parse(value)
		expect.That(t, (err == nil) == (want == "") && (err == nil || strings.Contains(err.Error(), want)),
			"%q: got %v, want %q", value, err, want)
	}
}
