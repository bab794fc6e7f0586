package install

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	"lockstep.dev/lockstep/internal/operator"
	"lockstep.dev/lockstep/internal/pvc"
)

const header = "apiVersion: config.lws.x-k8s.io/v1alpha1\nkind: Configuration\n"

func with(text string) Options { return Options{Config: []byte(header + text)} }

// policies names the admission policies and webhooks for claims among all.
func policies(all []*unstructured.Unstructured) (names []string) {
	for _, u := range all {
		if ofProtection(u) && u.GroupVersionKind().Group == "admissionregistration.k8s.io" && !strings.HasSuffix(u.GetKind(), "Binding") {
			names = append(names, strings.TrimSuffix(u.GetName(), ".protection.lockstep.dev"))
		}
	}
	slices.Sort(names)
	return names
}

func TestEachClusterGetsThePoliciesItKnows(t *testing.T) {
	refusing := []string{"gated", "guard", "guard-namespace", "refuse-delete", "refuse-namespace", "warn-delete"}
	for name, c := range map[string]struct {
		options Options
		lacks   []string
		want    []string
	}{
		"beside the built-in": {want: append([]string{"barrier", "barrier-chosen", "forged", "forged-namespace", "gate"}, refusing...)},
		"alone": {options: with("protection: {alone: true}"),
			want: append([]string{"barrier", "barrier-chosen", "forged", "forged-namespace", "gate", "pod-protection", "volume-protection"}, refusing...)},
		"held from birth": {options: with("protection: {initialHold: Pending}"),
			want: append([]string{"barrier", "barrier-chosen", "forged", "forged-namespace", "gate", "initial-hold", "initial-hold-chosen"}, refusing...)},
		"before 1.36": {lacks: []string{operator.MutatingPolicy},
			want: append([]string{"refuse-forged"}, refusing[1:]...)},
		"before 1.30":  {lacks: []string{operator.MutatingPolicy, operator.ValidatingPolicy}},
		"disabled":     {options: with("protection: {enabled: false}")},
		"switched off": {options: Options{NoProtection: true}},
		"by itself":    {options: Options{ProtectOnly: true}, want: append([]string{"barrier", "barrier-chosen", "forged", "forged-namespace", "gate"}, refusing...)},
	} {
		got := policies(loadFor(t, c.options, c.lacks...))
		slices.Sort(c.want)
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// A switch of the configuration is a variable of a policy, with its default in the file.
func TestPolicyVariablesFollowTheConfiguration(t *testing.T) {
	for text, want := range map[string]string{
		"":                                   "forged initialHold=false",
		"protection: {initialHold: Pending}": "forged initialHold=true",
	} {
		var got []string
		for _, u := range load(t, with(text)) {
			variables, _, _ := unstructured.NestedSlice(u.Object, "spec", "variables")
			for _, v := range variables {
				v := v.(map[string]any)
				if name := v["name"].(string); name == "initialHold" {
					got = append(got, fmt.Sprintf("%s %s=%s", strings.TrimSuffix(u.GetName(), ".protection.lockstep.dev"), name, v["expression"]))
				}
			}
		}
		if slices.Sort(got); strings.Join(got, ", ") != want {
			t.Errorf("%q: %q", text, got)
		}
	}
}

// selected returns the modes of the namespaces that a selector matches.
func selected(t *testing.T, selector *metav1.LabelSelector) (modes []string) {
	t.Helper()
	s, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		t.Fatal(err)
	}
	for _, mode := range []string{"", "nonsense", "off", "observe", "barrier", "hold", "strict"} {
		set := labels.Set{corev1.LabelMetadataName: "prod"}
		if mode != "" {
			set[pvc.ModeKey] = mode
		}
		if s.Matches(set) {
			modes = append(modes, mode)
		}
	}
	return modes
}

// A namespace without a mode, or with an unknown one, has the mode of the cluster.
func TestNamespacesAreSelectedByMode(t *testing.T) {
	protected, others := []string{"barrier", "hold", "strict"}, []string{"off", "observe"}
	undecided := []string{"", "nonsense"}
	for mode, byDefault := range map[string]bool{"Off": false, "Observe": false, "Barrier": true, "Hold": true, "Strict": true} {
		want := map[string][]string{"barrier": protected, "barrier-chosen": slices.Concat(undecided, others), "gate": {"strict"}}
		if byDefault {
			want["barrier"], want["barrier-chosen"] = slices.Concat(undecided, protected), others
		}
		if mode == "Strict" {
			want["gate"] = append(undecided, "strict")
		}
		got := map[string][]string{}
		for _, u := range load(t, with("protection: {mode: "+mode+"}")) {
			name := strings.TrimSuffix(u.GetName(), ".protection.lockstep.dev")
			if u.GetKind() == "MutatingAdmissionPolicyBinding" && want[name] != nil {
				got[name] = selected(t, convert[admissionv1.MutatingAdmissionPolicyBinding](t, u).Spec.MatchResources.NamespaceSelector)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("default %s (-want +got):\n%s", mode, diff)
		}
	}
}

func TestNamespacesAreExemptedAsConfigured(t *testing.T) {
	for _, c := range []struct {
		options Options
		want    []any
	}{
		{Options{}, []any{"kube-system", "lws-system"}},
		{with("protection: {exemptNamespaces: []}"), []any{"lws-system"}},
		{with("protection: {exemptNamespaces: [a, b]}"), []any{"a", "b", "lws-system"}},
		{Options{ProtectOnly: true}, []any{"kube-system", "lockstep-system"}},
	} {
		seen := 0
		for _, lacks := range [][]string{nil, {operator.MutatingPolicy}} {
			for _, u := range loadFor(t, c.options, lacks...) {
				if !givesFinalizers(u) {
					continue
				}
				for e := range mapsOf(u.Object) {
					if e["key"] != corev1.LabelMetadataName {
						continue
					}
					seen++
					if diff := cmp.Diff(c.want, e["values"]); diff != "" {
						t.Errorf("%s (-want +got):\n%s", title(u), diff)
					}
				}
			}
		}
		if seen < 3 {
			t.Errorf("only %d selectors were compared", seen)
		}
	}
}

// With --protect-only, no name is one that an implementation for LeaderWorkerSets has.
func TestProtectOnlyHasNamesOfItsOwn(t *testing.T) {
	var others []string
	for _, u := range load(t, Options{Image: "i", NoProtection: true}) {
		others = append(others, u.GetNamespace()+" "+title(u))
	}
	for _, lacks := range [][]string{nil, {operator.MutatingPolicy}} {
		all := loadFor(t, Options{Image: "i", ProtectOnly: true}, lacks...)
		for _, u := range all {
			if slices.Contains(others, u.GetNamespace()+" "+title(u)) {
				t.Errorf("%s is also installed for sets", title(u))
			}
			if strings.Contains(string(must(u.MarshalJSON())), "lws-system") {
				t.Errorf("%s has lws-system in it", title(u))
			}
		}
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func TestDeploymentFollowsTheOptions(t *testing.T) {
	mark := func(o Options) (args []string, volumes int, marked string) {
		o.Image = "i"
		for _, u := range load(t, o) {
			if u.GetKind() == "Deployment" {
				template := convert[appsv1.Deployment](t, u).Spec.Template
				if got := template.Spec.Containers[0]; got.Image != "i" || got.Name != "manager" {
					t.Errorf("container %s has image %q", got.Name, got.Image)
				}
				return template.Spec.Containers[0].Args, len(template.Spec.Volumes), template.Labels[configLabel]
			}
		}
		t.Fatal("no Deployment")
		return nil, 0, ""
	}
	plain, volumes, marked := mark(Options{})
	if volumes != 0 || marked != "" || slices.ContainsFunc(plain, func(arg string) bool { return strings.Contains(arg, "protect") }) {
		t.Errorf("by default: %q, %d volumes, %q", plain, volumes, marked)
	}
	marks := map[string]bool{}
	for name, c := range map[string]struct {
		options Options
		args    []string
		volumes int
	}{
		"configured":      {with("protection: {mode: Hold}"), []string{"--config=/etc/lockstep/config.yaml"}, 1},
		"configured anew": {with("protection: {mode: Observe}"), []string{"--config=/etc/lockstep/config.yaml"}, 1},
		"by itself":       {Options{ProtectOnly: true}, []string{"--protect-only"}, 0},
		"switched off":    {Options{NoProtection: true}, []string{"--protection=false"}, 0},
	} {
		args, volumes, marked := mark(c.options)
		if diff := cmp.Diff(slices.Concat(plain, c.args), args); diff != "" || volumes != c.volumes || marked == "" {
			t.Errorf("%s: %d volumes, marked %q, arguments (-want +got):\n%s", name, volumes, marked, diff)
		}
		marks[marked] = true
	}
	if len(marks) != 4 {
		t.Errorf("two configurations have one mark: %v", slices.Collect(maps.Keys(marks)))
	}
}

func TestConfigurationsThatCannotWorkAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		options Options
		want    string
	}{
		"fault":                {with("protection: {mode: Bolt}"), "configuration: protection.mode: Unsupported value"},
		"unknown field":        {with("protection: {mod: Hold}"), `unknown field "protection.mod"`},
		"nothing left":         {Options{ProtectOnly: true, NoProtection: true}, "leaves nothing to install"},
		"port of its own":      {Options{Image: "i", Config: []byte(header + "webhook: {port: 1234}")}, "webhook.port: the Deployment and the Services of install go with the default"},
		"disabled by the file": {Options{ProtectOnly: true, Config: []byte(header + "protection: {enabled: false}")}, "drop one of them"},
	} {
		if _, err := c.options.shape(nil); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
}

func TestPrintedManifestsAreThoseApplied(t *testing.T) {
	var out bytes.Buffer
	o := with("protection: {mode: Hold}")
	o.Image, o.Print, o.Out = "i", true, &out
	if err := Install(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	printed := must(read(fstest.MapFS{"all.yaml": {Data: out.Bytes()}}))
	asJSON := cmp.Transformer("JSON", func(u *unstructured.Unstructured) string { return string(must(u.MarshalJSON())) })
	if diff := cmp.Diff(load(t, o), printed, asJSON); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// In the core group, a configured kind gives access to ReplicationControllers alone: the
// group has Secrets as well.
func TestConfiguredKindsCanBeRead(t *testing.T) {
	o := with("protection: {kinds: [{apiVersion: a.example.com/v1, kind: A, podTemplates: [spec.t]}, " +
		"{apiVersion: v1, kind: ReplicationController, podTemplates: [spec.template], replicas: spec.replicas}]}")
	may := grantsOf(t, o, "lws-controller-manager")
	for resource, want := range map[string]string{
		"a.example.com *": "get list watch", "jobset.x-k8s.io *": "get list watch", " replicationcontrollers": "get list watch", " *": "",
	} {
		if got := may["lockstep-protection-role "+resource+" []"]; got != want {
			t.Errorf("%s: %q, want %q", resource, got, want)
		}
	}
	secrets := with("protection: {kinds: [{apiVersion: v1, kind: Secret, podTemplates: [spec.template]}]}")
	if _, err := secrets.shape(nil); err == nil || !strings.Contains(err.Error(), "no workload") {
		t.Errorf("a Secret as a workload: %v", err)
	}
}

func TestInstallReportsWhatTheAPIServerLacks(t *testing.T) {
	for _, tt := range []struct {
		name, config string
		lacks        []string
		reports      string
	}{
		{"1.36", "protection: {mode: Hold}", nil, ""},
		{"before 1.36", "protection: {mode: Hold}", []string{operator.MutatingPolicy}, "1.36"},
		{"before 1.36, switched off", "protection: {enabled: false}", []string{operator.MutatingPolicy}, ""},
		{"before 1.30", "protection: {mode: Hold}", []string{operator.MutatingPolicy, operator.ValidatingPolicy}, "barrier works"},
	} {
		var out bytes.Buffer
		o := with(tt.config)
		o.Out = &out
		s, err := o.shape(tt.lacks)
		if err != nil {
			t.Fatal(err)
		}
		s.reportLacks()
		if got := out.String(); !strings.Contains(got, tt.reports) || (got == "") != (tt.reports == "") {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.reports)
		}
	}
}
