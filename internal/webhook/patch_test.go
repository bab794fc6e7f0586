package webhook

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"
)

// diff decodes raw as a pod, changes it, and returns the patch as text and raw
// with the patch applied.
func diff(t testing.TB, raw string, change func(*corev1.Pod)) (patch, patched string) {
	t.Helper()
	var before, after corev1.Pod
	for _, pod := range []*corev1.Pod{&before, &after} {
		if err := json.Unmarshal([]byte(raw), pod); err != nil {
			t.Fatal(err)
		}
	}
	change(&after)
	operations, err := Diff([]byte(raw), &before, &after)
	if err != nil {
		t.Fatal(err)
	}
	text := make([]string, len(operations))
	for i, o := range operations {
		text[i] = o.Json()
	}
	all := "[" + strings.Join(text, ",") + "]"
	decoded, err := jsonpatch.DecodePatch([]byte(all))
	if err != nil {
		t.Fatal(err)
	}
	out, err := decoded.Apply([]byte(raw))
	if err != nil {
		t.Fatalf("the API server could not apply %s: %v", all, err)
	}
	return all, string(out)
}

func TestDiff(t *testing.T) {
	for name, c := range map[string]struct {
		raw    string
		change func(*corev1.Pod)
		want   string
	}{
		"nothing": {`{"metadata":{"name":"a"},"spec":{}}`, func(*corev1.Pod) {}, `[]`},
		"a label beside others": {
			`{"metadata":{"labels":{"a":"1"}}}`,
			func(p *corev1.Pod) { p.Labels["b/c~d"] = "2" },
			`[{"op":"add","path":"/metadata/labels/b~1c~0d","value":"2"}]`,
		},
		"a field whose parent is not in the object": {
			`{"metadata":{}}`,
			func(p *corev1.Pod) { p.Spec.Subdomain = "s" },
			`[{"op":"add","path":"/spec","value":{"containers":null,"subdomain":"s"}}]`,
		},
		"a field whose parent is null": {
			`{"metadata":{"labels":null}}`,
			func(p *corev1.Pod) { p.Labels = map[string]string{"a": "1"} },
			`[{"op":"add","path":"/metadata/labels","value":{"a":"1"}}]`,
		},
		"a field that goes": {
			`{"spec":{"subdomain":"s"}}`,
			func(p *corev1.Pod) { p.Spec.Subdomain = "" },
			`[{"op":"remove","path":"/spec/subdomain"}]`,
		},
		"a variable of the user's that is overridden": {
			`{"spec":{"containers":[{"name":"c","env":[{"name":"A"},{"name":"X","value":"mine"},{"name":"B"}]}]}}`,
			func(p *corev1.Pod) {
				p.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "X", Value: "9"}, {Name: "A"}, {Name: "B"}}
			},
			`[{"op":"add","path":"/spec/containers/0/env/0","value":{"name":"X","value":"9"}},{"op":"remove","path":"/spec/containers/0/env/2"}]`,
		},
		"an element without a name": {
			`{"spec":{"tolerations":[{"key":"a"}]}}`,
			func(p *corev1.Pod) { p.Spec.Tolerations = append(p.Spec.Tolerations, corev1.Toleration{Key: "b"}) },
			`[{"op":"add","path":"/spec/tolerations/1","value":{"key":"b"}}]`,
		},
		"a large number": {
			`{"spec":{"activeDeadlineSeconds":1}}`,
			func(p *corev1.Pod) { *p.Spec.ActiveDeadlineSeconds = 1<<62 + 1 },
			`[{"op":"replace","path":"/spec/activeDeadlineSeconds","value":4611686018427387905}]`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got, _ := diff(t, c.raw, c.change); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

// A patch, applied to the raw object, results in the changed object, for any change of lists.
func TestAppliedPatchIsTheChangedObject(t *testing.T) {
	names := rapid.SliceOfN(rapid.SampledFrom([]string{"A", "B", "C", "D", "E"}), 0, 8)
	rapid.Check(t, func(rt *rapid.T) {
		var env []string
		for i, name := range names.Draw(rt, "before") {
			env = append(env, fmt.Sprintf(`{"name":%q,"value":"%d"}`, name, i))
		}
		raw := `{"spec":{"containers":[{"name":"c","env":[` + strings.Join(env, ",") + `]}]}}`
		var want []corev1.EnvVar
		_, patched := diff(t, raw, func(p *corev1.Pod) {
			for i, name := range names.Draw(rt, "after") {
				want = append(want, corev1.EnvVar{Name: name, Value: rapid.SampledFrom([]string{fmt.Sprint(i), "new"}).Draw(rt, "value")})
			}
			p.Spec.Containers[0].Env = want
		})
		var got corev1.Pod
		if err := json.Unmarshal([]byte(patched), &got); err != nil {
			rt.Fatal(err)
		}
		if diff := cmp.Diff(want, got.Spec.Containers[0].Env, cmpopts.EquateEmpty()); diff != "" {
			rt.Fatalf("from %s (-want +got):\n%s", raw, diff)
		}
	})
}
