package argument

import (
	"math"
	"strings"
	"testing"

	"lockstep.dev/lockstep/test/expect"
)

func TestNames(t *testing.T) {
	for _, tt := range []struct {
		kind       Kind
		args, want string // no names: an error
	}{
		{Sets, "llama", "llama"},
		{Sets, "lws/llama", "llama"},
		{Sets, "leaderworkersets.leaderworkerset.x-k8s.io/llama", "llama"},
		{Sets, "LWS llama", "llama"},
		{Sets, "lws", "lws"},
		{Sets, "LWS lws", "lws"},
		{Sets, "lws/llama qwen llama", "llama qwen"},
		{Sets, "deployment/llama", ""},
		{Sets, "lws/", ""},
		{DisaggregatedSets, "dset/llama disaggregatedset/qwen dset/llama", "llama qwen"},
		{DisaggregatedSets, "DSET llama", "llama"},
		{DisaggregatedSets, "llama", ""},
		{DisaggregatedSets, "lws/llama", ""},
		{Sets, "dset/llama", ""},
		{Claims, "pvc/a", "a"},
		{Claims, "pvc a b", "a b"},
		{Claims, "PVC/a persistentvolumeclaims/b pvc/a", "a b"},
		{Claims, "a", ""},
		{Claims, "pod/a", ""},
		{Claims, "pvc/", ""},
		{Claims, "pvc/a/b", ""},
	} {
		got, err := tt.kind.Names(strings.Fields(tt.args))
		if strings.Join(got, " ") != tt.want || (err == nil) != (tt.want != "") || err != nil && !strings.Contains(err.Error(), tt.kind.Form) {
			t.Errorf("%s: got %q, %v", tt.args, got, err)
		}
	}
}

// What may stand next is completed in the form that is typed, and never twice.
func TestNamesFitWhatIsTyped(t *testing.T) {
	found := []string{"a", "b"}
	for _, tt := range []struct {
		kind        Kind
		args, typed string
		most        int
		want        string
	}{
		{Sets, "", "", 1, "a b"},
		{Sets, "", "lws/", 1, "lws/a lws/b"},
		{Sets, "a", "", 1, ""},
		{Sets, "a", "", math.MaxInt, "b"},
		{Sets, "lws/a", "", math.MaxInt, "b"},
		{Sets, "lws", "", 1, "a b"},
		{Sets, "pod/a", "", math.MaxInt, ""},
		{Claims, "", "", math.MaxInt, "pvc/a pvc/b"},
		{Claims, "", "persistentvolumeclaim/", math.MaxInt, "persistentvolumeclaim/a persistentvolumeclaim/b"},
		{Claims, "pvc", "", math.MaxInt, "a b"},
		{Claims, "pvc/a", "", math.MaxInt, "pvc/b"},
		{Claims, "pvc/a", "", 1, ""},
		{Namespaces, "", "ns/", 1, "ns/a ns/b"},
		{Claims, "ns", "", 1, ""},
	} {
		expect.Equalf(t, tt.want, strings.Join(tt.kind.Fit(strings.Fields(tt.args), tt.typed, found, tt.most), " "), "%q, then %q", tt.args, tt.typed)
	}
}

func TestWhichKindIsGiven(t *testing.T) {
	for args, want := range map[string]bool{
		"dset/a": true, "DisaggregatedSets.disaggregatedset.x-k8s.io/a": true, "dset a": true, "dset/": true, "dset": false, "a": false, "a dset/b": false, "lws/a": false, "": false,
	} {
		expect.Equalf(t, want, DisaggregatedSets.IsGiven(strings.Fields(args)), "%q", args)
	}
}
