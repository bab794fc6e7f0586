package process

import (
	"errors"
	"testing"
)

func TestStartTicks(t *testing.T) {
	const rest = " 1 2 3 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 202354 0 0"
	const threads = " 1 2 3 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 12 0 202354 0 0"
	for name, stat := range map[string]string{
		"plain":                     "77 (etcd) S" + rest,
		"brackets in the name":      "77 (x) Z 1 2) S" + rest,
		"leader ended, threads run": "77 (etcd) Z" + threads,
	} {
		got, err := startTicks([]byte(stat))
		if err != nil || got != "202354" {
			t.Errorf("%s: start %q, error %v; want 202354", name, got, err)
		}
	}
	for _, state := range []string{"Z", "X"} {
		if _, err := startTicks([]byte("77 (etcd) " + state + rest)); !errors.Is(err, errGone) {
			t.Errorf("state %s: error %v, want %v", state, err, errGone)
		}
	}
	for _, broken := range []string{"", "77", "77 (etcd", "77 (etcd) S 1 2"} {
		if got, err := startTicks([]byte(broken)); err == nil {
			t.Errorf("%q: start %q, want an error", broken, got)
		}
	}
}
