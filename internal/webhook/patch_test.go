package webhook

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1alpha3 "k8s.io/api/scheduling/v1alpha3"
	"pgregory.net/rapid"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/test/fakeapi"
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

// The patch of a decimal leaves all else as it is, also beside an undo, which replaces the container.
func TestUnquotedDecimalBecomesAText(t *testing.T) {
	decimal := func(set string) string {
		return strings.Replace(set, `"image":"i"`, `"image":"i","newer":0.5,"resources":{"newer":0.5,"limits":{"cpu":0.5,"memory":"0.5Gi","a":1}}`, 1)
	}
	asked := decimal(goodSet)
	after := string(patched(t, []byte(asked), post(t, PathMutateSet, review(admissionv1.Create, setKind, asked, "")).Patch))
	for _, want := range []string{`"cpu":"500m"`, `"memory":"0.5Gi"`, `"a":1`, `"newer":0.5,"resources"`} {
		if !strings.Contains(after, want) {
			t.Errorf("the set lacks %s: %s", want, after)
		}
	}
	asked = decimal(undone("0"))
	after = string(patched(t, []byte(asked), post(t, PathMutateSet, review(admissionv1.Update, setKind, asked, goodSet)).Patch))
	if !strings.Contains(after, `"image":"before"`) || strings.Contains(after, `"cpu"`) {
		t.Errorf("the undo of decimals: %s", after)
	}
}

func TestMistypedQuantityIsInvalid(t *testing.T) {
	asked := strings.Replace(goodSet, `"image":"i"`, `"image":"i","resources":{"limits":{"cpu":"half"}}`, 1)
	for _, path := range []string{PathMutateSet, PathValidateSet} {
		answer := post(t, path, review(admissionv1.Create, setKind, asked, ""))
		if answer.Allowed || answer.Result.Code != http.StatusUnprocessableEntity || !strings.Contains(answer.Result.Message, "containers[0].resources.limits[cpu]") {
			t.Errorf("%s: %+v", path, answer.Result)
		}
	}
}

func TestUnionsOfSchedulingAreChecked(t *testing.T) {
	set := func(policy *schedulingv1alpha3.WorkloadCompositePodGroupSchedulingPolicy) *lwsv1.LeaderWorkerSet {
		set := fakeapi.Set("w", 1, 4)
		set.Spec.Scheduling = &lwsv1.Scheduling{SchedulingPolicy: policy}
		return set
	}
	basic := &schedulingv1alpha3.WorkloadCompositePodGroupBasicSchedulingPolicy{}
	gang := &schedulingv1alpha3.WorkloadCompositePodGroupGangSchedulingPolicy{}
	none := set(&schedulingv1alpha3.WorkloadCompositePodGroupSchedulingPolicy{})
	for want, tt := range map[string]struct{ is, was *lwsv1.LeaderWorkerSet }{
		"spec.scheduling.schedulingPolicy: Invalid value: \"\": must specify one of: `basic`, `gang`": {none, nil},
		"spec.scheduling.schedulingPolicy: Invalid value: \"{basic, gang}\": must specify exactly one of: `basic`, `gang`": {
			set(&schedulingv1alpha3.WorkloadCompositePodGroupSchedulingPolicy{Basic: basic, Gang: gang}), none,
		},
	} {
		faults := checkUnits(t.Context(), tt.is, tt.was)
		if len(faults) != 1 || faults[0].Error() != want {
			t.Errorf("got %v, want %s", faults, want)
		}
	}
	for _, tt := range []struct{ is, was *lwsv1.LeaderWorkerSet }{
		{none, none}, {fakeapi.Set("w", 1, 4), nil}, {set(&schedulingv1alpha3.WorkloadCompositePodGroupSchedulingPolicy{Gang: gang}), nil},
	} {
		if faults := checkUnits(t.Context(), tt.is, tt.was); len(faults) > 0 {
			t.Errorf("got %v", faults)
		}
	}
}
