package cli

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestNamesOfObjects(t *testing.T) {
	for _, tt := range []struct {
		kind  kind
		args  string
		want  []string
		fails string
	}{
		{sets, "llama", []string{"llama"}, ""},
		{sets, "lws/llama", []string{"llama"}, ""},
		{sets, "leaderworkerset/llama", []string{"llama"}, ""},
		{sets, "leaderworkersets.leaderworkerset.x-k8s.io/llama", []string{"llama"}, ""},
		{sets, "LWS/llama", []string{"llama"}, ""},
		{sets, "lws llama", []string{"llama"}, ""},
		{sets, "lws", []string{"lws"}, ""},
		{sets, "LWS lws", []string{"lws"}, ""},
		{sets, "llama qwen", []string{"llama", "qwen"}, ""},
		{sets, "lws/llama qwen llama", []string{"llama", "qwen"}, ""},
		{sets, "deployment/llama", nil, `"deployment/llama" is no LeaderWorkerSet: give NAME, lws/NAME or leaderworkerset/NAME`},
		{sets, "lws/", nil, `"lws/" is no LeaderWorkerSet: give NAME, lws/NAME or leaderworkerset/NAME`},
		{claims, "pvc/a", []string{"a"}, ""},
		{claims, "pvc a b", []string{"a", "b"}, ""},
		{claims, "PVC/a persistentvolumeclaims/b pvc/a", []string{"a", "b"}, ""},
		{claims, "pvc", nil, ""},
		{claims, "a", nil, `"a" is no PersistentVolumeClaim: give pvc/NAME`},
		{claims, "pod/a", nil, `"pod/a" is no PersistentVolumeClaim: give pvc/NAME`},
		{claims, "pvc/", nil, `"pvc/" is no PersistentVolumeClaim: give pvc/NAME`},
		{claims, "pvc/a/b", nil, `"pvc/a/b" is no PersistentVolumeClaim: give pvc/NAME`},
	} {
		t.Run(tt.kind.words[0]+" "+tt.args, func(t *testing.T) {
			got, err := tt.kind.names(strings.Fields(tt.args))
			if (err != nil) != (tt.fails != "") || err != nil && err.Error() != tt.fails {
				t.Errorf("got %v", err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

func TestCompletionOfNames(t *testing.T) {
	for _, tt := range []struct {
		kind        kind
		args, typed string
		want        []string
	}{
		{sets, "", "", []string{"a", "b"}},
		{sets, "a", "", []string{"b"}},
		{sets, "", "lws/", []string{"lws/a", "lws/b"}},
		{sets, "", "pod/", nil},
		{claims, "", "", []string{"pvc/a", "pvc/b"}},
		{claims, "", "persistentvolumeclaim/", []string{"persistentvolumeclaim/a", "persistentvolumeclaim/b"}},
		{claims, "PVC", "", []string{"a", "b"}},
		{claims, "pvc a", "", []string{"b"}},
		{claims, "pvc/a", "", []string{"pvc/b"}},
		{claims, "", "pod/", nil},
	} {
		if diff := cmp.Diff(tt.want, tt.kind.offers([]string{"a", "b"}, strings.Fields(tt.args), tt.typed)); diff != "" {
			t.Errorf("%s %q then %q (-want +got)\n%s", tt.kind.words[0], tt.args, tt.typed, diff)
		}
	}
}
