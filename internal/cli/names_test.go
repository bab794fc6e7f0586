package cli

import (
	"strings"
	"testing"
)

func TestNames(t *testing.T) {
	for _, tt := range []struct {
		kind       kind
		args, want string // no names: an error
	}{
		{sets, "llama", "llama"},
		{sets, "lws/llama", "llama"},
		{sets, "leaderworkersets.leaderworkerset.x-k8s.io/llama", "llama"},
		{sets, "LWS llama", "llama"},
		{sets, "lws", "lws"},
		{sets, "LWS lws", "lws"},
		{sets, "lws/llama qwen llama", "llama qwen"},
		{sets, "deployment/llama", ""},
		{sets, "lws/", ""},
		{claims, "pvc/a", "a"},
		{claims, "pvc a b", "a b"},
		{claims, "PVC/a persistentvolumeclaims/b pvc/a", "a b"},
		{claims, "a", ""},
		{claims, "pod/a", ""},
		{claims, "pvc/", ""},
		{claims, "pvc/a/b", ""},
	} {
		got, err := tt.kind.names(strings.Fields(tt.args))
		if strings.Join(got, " ") != tt.want || (err == nil) != (tt.want != "") || err != nil && !strings.Contains(err.Error(), tt.kind.form) {
			t.Errorf("%s: got %q, %v", tt.args, got, err)
		}
	}
}

func TestCompletion(t *testing.T) {
	out, err := run(t, Args([]string{"/bin/kubectl_complete-lockstep", "rollout", "re"})...)
	if err != nil || !strings.Contains(out, "restart\t") || !strings.Contains(out, "resume\t") {
		t.Errorf("got %q, %v", out, err)
	}
}
