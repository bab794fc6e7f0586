package install

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

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

// An API server may load these policies from files, where nobody can delete them.
// Such policies have no parameters and call nobody.
func TestPoliciesUseNoParameters(t *testing.T) {
	seen := 0
	for _, u := range load(t, with("protection: {alone: true}")) {
		if !ofProtection(u) || !strings.Contains(u.GetKind(), "AdmissionPolicy") {
			continue
		}
		seen++
		for _, field := range []string{"paramKind", "paramRef"} {
			if _, found, _ := unstructured.NestedFieldNoCopy(u.Object, "spec", field); found {
				t.Errorf("%s has a %s", title(u), field)
			}
		}
	}
	if seen < 16 {
		t.Errorf("only %d were looked at", seen)
	}
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

// What is chosen by a switch is a variable of a policy, with its default in the file.
func TestPoliciesSayWhatWasChosen(t *testing.T) {
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

// selected tells which namespaces a selector picks, by the modes they choose.
func selected(t *testing.T, selector *metav1.LabelSelector) (modes []string) {
	t.Helper()
	s, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		t.Fatal(err)
	}
	for _, mode := range []string{"", "nonsense", "off", "observe", "barrier", "hold", "strict"} {
		set := labelSet{namespaceNameLabel: "prod"}
		if mode != "" {
			set[pvc.ModeKey] = mode
		}
		if s.Matches(set) {
			modes = append(modes, mode)
		}
	}
	return modes
}

type labelSet map[string]string

func (s labelSet) Has(label string) bool   { _, ok := s[label]; return ok }
func (s labelSet) Get(label string) string { return s[label] }
func (s labelSet) Lookup(label string) (string, bool) {
	v, ok := s[label]
	return v, ok
}

// A namespace that chooses a mode has its way; one that chooses none, or writes a
// word that is none, is of the cluster's.
func TestNamespacesAreSelectedByTheModeThatHolds(t *testing.T) {
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
				if err := eachMap(u.Object, func(e map[string]any) error {
					if e["key"] == namespaceNameLabel {
						seen++
						if diff := cmp.Diff(c.want, e["values"]); diff != "" {
							t.Errorf("%s (-want +got):\n%s", title(u), diff)
						}
					}
					return nil
				}); err != nil {
					t.Fatal(err)
				}
			}
		}
		if seen < 3 {
			t.Errorf("only %d selectors were looked at", seen)
		}
	}
}

// Protection by itself takes no name that an implementation for LeaderWorkerSets has.
func TestProtectionByItselfTakesNoOthersNames(t *testing.T) {
	var others []string
	for _, u := range load(t, Options{Image: "i", NoProtection: true}) {
		others = append(others, u.GetNamespace()+" "+title(u))
	}
	for _, lacks := range [][]string{nil, {operator.MutatingPolicy}} {
		all := loadFor(t, Options{Image: "i", ProtectOnly: true}, lacks...)
		for _, u := range all {
			if slices.Contains(others, u.GetNamespace()+" "+title(u)) {
				t.Errorf("%s is another's name", title(u))
			}
			if ofSets(u) && !ofProtection(u) {
				t.Errorf("%s is of no use", title(u))
			}
			if strings.Contains(string(must(u.MarshalJSON())), "lws-system") {
				t.Errorf("%s names another's namespace", title(u))
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

func TestTheOperatorIsStartedAsConfigured(t *testing.T) {
	mark := func(o Options) (args []string, volumes int, marked string) {
		o.Image = "i"
		for _, u := range load(t, o) {
			if u.GetKind() == "Deployment" {
				template := convert[appsv1.Deployment](t, u).Spec.Template
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

// What is printed is what is applied.
func TestPrintedManifestsAreThoseApplied(t *testing.T) {
	var out bytes.Buffer
	o := with("protection: {mode: Hold}")
	o.Image, o.Print, o.Out = "i", true, &out
	if err := Install(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	printed := must(readFile(fstest.MapFS{"all.yaml": {Data: out.Bytes()}}, "all.yaml"))
	if diff := cmp.Diff(load(t, o), printed); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestDescribedKindsCanBeRead(t *testing.T) {
	o := with("protection: {kinds: [{apiVersion: a.example.com/v1, kind: A, podTemplates: [spec.t]}]}")
	may := grantsOf(t, o, "lws-controller-manager")
	for _, group := range []string{"a.example.com", "jobset.x-k8s.io"} {
		if got := may["lockstep-protection-role "+group+" * []"]; got != "get list watch" {
			t.Errorf("%s: %q", group, got)
		}
	}
}

// Secrets are in the same group.
func TestADescribedKindOfTheCoreGroupOpensNothingElse(t *testing.T) {
	o := with("protection: {kinds: [{apiVersion: v1, kind: ReplicationController, podTemplates: [spec.template], replicas: spec.replicas}]}")
	may := grantsOf(t, o, "lws-controller-manager")
	if got := may["lockstep-protection-role  replicationcontrollers []"]; got != "get list watch" {
		t.Errorf("ReplicationControllers: %q of %v", got, may)
	}
	if got, all := may["lockstep-protection-role  * []"]; all {
		t.Errorf("all of the core group: %q", got)
	}
	secrets := with("protection: {kinds: [{apiVersion: v1, kind: Secret, podTemplates: [spec.template]}]}")
	if _, err := secrets.shape(nil); err == nil || !strings.Contains(err.Error(), "no workload") {
		t.Errorf("a Secret as a workload: %v", err)
	}
}

// server is a stand-in for an API server of another version, which cannot be had.
type server struct {
	kinds []string
	err   error
}

func (s server) ServerResourcesForGroupVersion(string) (*metav1.APIResourceList, error) {
	list := &metav1.APIResourceList{}
	for _, kind := range s.kinds {
		list.APIResources = append(list.APIResources, metav1.APIResource{Kind: kind})
	}
	return list, s.err
}

func (s server) ServerGroupsAndResources() ([]*metav1.APIGroup, []*metav1.APIResourceList, error) {
	return nil, nil, s.err
}
func (s server) ServerPreferredResources() ([]*metav1.APIResourceList, error) { return nil, s.err }
func (s server) ServerPreferredNamespacedResources() ([]*metav1.APIResourceList, error) {
	return nil, s.err
}

func TestWhatAnAPIServerLacksIsAskedOfIt(t *testing.T) {
	unknown := apierrors.NewNotFound(schema.GroupResource{}, "admissionregistration.k8s.io/v1")
	for name, c := range map[string]struct {
		server server
		want   []string
	}{
		"1.36":          {server: server{kinds: []string{"MutatingAdmissionPolicy", "ValidatingAdmissionPolicy", "MutatingWebhookConfiguration"}}},
		"1.35":          {server{kinds: []string{"ValidatingAdmissionPolicy", "MutatingWebhookConfiguration"}}, []string{operator.MutatingPolicy}},
		"1.29":          {server{kinds: []string{"MutatingWebhookConfiguration"}}, []string{operator.MutatingPolicy, operator.ValidatingPolicy}},
		"without group": {server{err: unknown}, []string{operator.MutatingPolicy, operator.ValidatingPolicy}},
	} {
		got, err := operator.Lacks(c.server)
		if diff := cmp.Diff(c.want, got); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", name, err, diff)
		}
	}
	if _, err := operator.Lacks(server{err: errors.New("down")}); err == nil {
		t.Error("a server that does not answer was taken for an old one")
	}
}
