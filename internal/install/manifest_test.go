package install

import (
	"bytes"
	"flag"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	"lockstep.dev/lockstep/internal/operator"
	"lockstep.dev/lockstep/internal/pvc"
	"lockstep.dev/lockstep/test/expect"
	"lockstep.dev/lockstep/test/fakeapi"
)

var update = flag.Bool("update", false, "write what is rendered and granted to testdata")

const header = "apiVersion: config.lws.x-k8s.io/v1alpha1\nkind: Configuration\n"

func with(text string) Options { return Options{Config: []byte(header + text)} }

// in adds an image to options.
func in(image string, o Options) Options {
	o.Image = image
	return o
}

func load(t *testing.T, o Options, lacks ...string) []*unstructured.Unstructured {
	t.Helper()
	return expect.Value(o.shape(lacks))(t).manifests()
}

func titles(all []*unstructured.Unstructured) (names []string) {
	return fakeapi.Each(all, title)
}

// golden compares lines with a file of testdata.
func golden(t *testing.T, name string, lines []string) {
	t.Helper()
	got := strings.Join(lines, "\n") + "\n"
	if *update {
		expect.OK(t, os.WriteFile("testdata/"+name, []byte(got), 0o600))
	}
	want := must(os.ReadFile("testdata/" + name))
	expect.Equal(t, string(want), got)
}

// leaves returns the values of objects by their paths.
func leaves(all []*unstructured.Unstructured) map[string]string {
	values := map[string]string{}
	var add func(path string, v any)
	add = func(path string, v any) {
		switch v := v.(type) {
		case map[string]any:
			for key, v := range v {
				add(path+"."+key, v)
			}
		case []any:
			for i, v := range v {
				add(fmt.Sprintf("%s[%d]", path, i), v)
			}
		default:
			values[path] = fmt.Sprint(v)
		}
	}
	for _, u := range all {
		add(title(u)+" ", u.Object)
	}
	return values
}

// Each form of an installation is shown by what differs from the default one.
func TestManifestsFollowOptions(t *testing.T) {
	var lines []string
	byDefault := load(t, Options{})
	for _, form := range []struct {
		name    string
		options Options
		lacks   []string
	}{
		{name: "called by URL", options: Options{WebhookURL: "https://127.0.0.1:1/"}},
		{name: "in the cluster", options: in("i", Options{})},
		{name: "in the cluster, by URL", options: in("i", Options{WebhookURL: "https://h"})},
		{name: "in the cluster, configured", options: in("i", with("protection: {mode: Hold}"))},
		{name: "in the cluster, configured anew", options: in("i", with("protection: {mode: Observe}"))},
		{name: "in the cluster, protection off", options: in("i", Options{NoProtection: true})},
		{name: "in the cluster, logs of crashes", options: in("i", Options{CrashLogLines: 20})},
		{name: "in the cluster, own certificates", options: in("i", with("internalCertManagement: {enable: false}"))},
		{name: "without the lease for users", options: Options{NoLeaseReader: true}},
		{name: "protection only", options: in("i", Options{ProtectOnly: true})},
		{name: "protection only, before 1.36", options: in("i", Options{ProtectOnly: true}), lacks: []string{operator.MutatingPolicy}},
		{name: "before 1.36", lacks: []string{operator.MutatingPolicy}},
		{name: "before 1.30", lacks: []string{operator.MutatingPolicy, operator.ValidatingPolicy}},
		{name: "disabled by the file", options: with("protection: {enabled: false}")},
		{name: "alone", options: with("protection: {alone: true}")},
		{name: "held from the creation on", options: with("protection: {initialHold: Pending}")},
		{name: "no exempt namespaces", options: with("protection: {exemptNamespaces: []}")},
		{name: "two exempt namespaces", options: with("protection: {exemptNamespaces: [a, b]}")},
		{name: "configured kinds", options: with("protection: {kinds: [{apiVersion: a.example.com/v1, kind: A, podTemplates: [spec.t]}, " +
			"{apiVersion: v1, kind: ReplicationController, podTemplates: [spec.template], replicas: spec.replicas}]}")},
	} {
		lines = append(lines, "", "# "+form.name)
		now := load(t, form.options, form.lacks...)
		for _, u := range byDefault {
			if !isIn(u, now) {
				lines = append(lines, "- "+title(u))
			}
		}
		for _, u := range now {
			if !isIn(u, byDefault) {
				lines = append(lines, "+ "+title(u)+" in "+u.GetNamespace())
			}
		}
		before, after := leaves(byDefault), leaves(now)
		for _, path := range slices.Sorted(maps.Keys(after)) {
			isNew := !slices.ContainsFunc(byDefault, func(u *unstructured.Unstructured) bool { return strings.HasPrefix(path, title(u)+" ") })
			if before[path] != after[path] && (!isNew || isChosen.MatchString(path)) {
				lines = append(lines, "~ "+path+" = "+after[path])
			}
		}
	}
	golden(t, "rendered.txt", lines)
}

// isChosen matches the fields of a Deployment that options set.
var isChosen = regexp.MustCompile(`^deployment.*(args|image|[vV]olume|lockstep.dev)`)

// Every verb of every role is in a table of docs/roles.md with its reason, and the table has no other.
func TestRolesAreDocumented(t *testing.T) {
	var granted, bound []string
	for _, u := range load(t, Options{CrashLogLines: 1}) {
		switch u.GetKind() {
		case "Role", "ClusterRole":
			for _, r := range convert[rbacv1.ClusterRole](t, u).Rules {
				granted = append(granted, verbsOf(u.GetName(), r)...)
			}
		case "RoleBinding", "ClusterRoleBinding":
			binding := convert[rbacv1.ClusterRoleBinding](t, u)
			for _, s := range binding.Subjects {
				bound = append(bound, fmt.Sprintf("%s is bound to %s %s/%s", binding.RoleRef.Name, s.Kind, s.Namespace, s.Name))
			}
		}
	}
	slices.Sort(granted)
	expect.Equalf(t, documentedVerbs(t), granted, "(-docs/roles.md +config/rbac)")
	slices.Sort(bound)
	golden(t, "bindings.txt", bound)
}

// verbsOf returns one line for each verb of a rule.
func verbsOf(role string, r rbacv1.PolicyRule) (all []string) {
	names := strings.Join(r.ResourceNames, " ")
	if len(r.ResourceNames) > 1 {
		names = "those of protection"
	}
	resources := slices.Clone(r.NonResourceURLs)
	for _, group := range r.APIGroups {
		for _, resource := range r.Resources {
			resources = append(resources, strings.TrimSuffix(resource+"."+group, "."))
		}
	}
	for _, resource := range resources {
		for _, verb := range r.Verbs {
			all = append(all, strings.Join([]string{role, resource, names, verb}, " | "))
		}
	}
	return all
}

var withNames = regexp.MustCompile(`^(.*) \((.*)\)$`)

// documentedVerbs returns the lines of the tables of docs/roles.md, one for each verb.
func documentedVerbs(t *testing.T) (all []string) {
	t.Helper()
	for line := range strings.Lines(string(must(os.ReadFile("../../docs/roles.md")))) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) != 4 || strings.Contains(line, "---") || strings.Contains(line, "| resources |") {
			continue
		}
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		role, resources, names, verbs, why := cells[0], cells[1], "", cells[2], cells[3]
		expect.That(t, why != "", "no reason in %s", line)
		if found := withNames.FindStringSubmatch(resources); found != nil {
			resources, names = found[1], found[2]
		}
		for _, resource := range strings.Split(resources, ", ") {
			for _, verb := range strings.Split(verbs, ", ") {
				all = append(all, strings.Join([]string{role, resource, names, verb}, " | "))
			}
		}
	}
	slices.Sort(all)
	return all
}

func convert[T any](t *testing.T, u *unstructured.Unstructured) *T {
	t.Helper()
	v := new(T)
	expect.OKf(t, runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(u.Object, v, true), "%s", title(u))
	return v
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
		expect.Equalf(t, want, got, "default %s", mode)
	}
}

// selected returns the modes of the namespaces that a selector matches.
func selected(t *testing.T, selector *metav1.LabelSelector) (modes []string) {
	t.Helper()
	s := must(metav1.LabelSelectorAsSelector(selector))
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

// With --protect-only, no name is one that an implementation for LeaderWorkerSets has.
func TestProtectOnlyHasNamesOfItsOwn(t *testing.T) {
	others := load(t, in("i", Options{NoProtection: true}))
	for _, lacks := range [][]string{nil, {operator.MutatingPolicy}} {
		for _, u := range load(t, in("i", Options{ProtectOnly: true}), lacks...) {
			expect.That(t, !isIn(u, others) && !strings.Contains(string(must(u.MarshalJSON())), "lws-system"),
				"%s is also installed for sets, or names lws-system", title(u))
		}
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
		"port of its own":      {Options{Image: "i", Config: []byte(header + "webhook: {port: 1234}")}, "webhook.port"},
		"disabled by the file": {Options{ProtectOnly: true, Config: []byte(header + "protection: {enabled: false}")}, "drop one of them"},
		"a Secret as workload": {with("protection: {kinds: [{apiVersion: v1, kind: Secret, podTemplates: [spec.template]}]}"), "no workload"},
	} {
		_, err := c.options.shape(nil)
		expect.That(t, err != nil && strings.Contains(err.Error(), c.want), "%s: got %v, want %q", name, err, c.want)
	}
}

func TestPrintedManifestsAreThoseApplied(t *testing.T) {
	var out bytes.Buffer
	o := in("i", with("protection: {mode: Hold}"))
	o.Print, o.Out = true, &out
	expect.OK(t, Install(t.Context(), o))
	printed := read(fstest.MapFS{"all.yaml": {Data: out.Bytes()}}, ".")
	expect.Equal(t, leaves(load(t, o)), leaves(printed))
}

// The definition and the namespace go last.
func TestOrderOfRemoval(t *testing.T) {
	var byPhase [phases][]string
	for _, u := range load(t, in("i", Options{})) {
		if p := phaseOf(u); !slices.Contains(byPhase[p], u.GetKind()) {
			byPhase[p] = append(byPhase[p], u.GetKind())
		}
	}
	for _, kinds := range byPhase {
		slices.Sort(kinds)
	}
	want := [phases][]string{
		labelsPhase:     {"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"},
		finalizersPhase: {"MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"},
		operatorPhase:   {"Deployment"},
		refusalsPhase:   {"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"},
		rolesPhase: {"ClusterRole", "ClusterRoleBinding", "ConfigMap", "MutatingWebhookConfiguration", "Role", "RoleBinding",
			"Service", "ServiceAccount", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding", "ValidatingWebhookConfiguration"},
		definitionPhase: {"CustomResourceDefinition"},
		namespacePhase:  {"Namespace"},
	}
	expect.Equal(t, want, byPhase)
}

// An upgrade finds everything of the version before by its labels.
func TestUpgradePrunesObsoleteObjects(t *testing.T) {
	kinds := map[string]bool{}
	for _, name := range titles(load(t, in("i", Options{}))) {
		kind, _, _ := strings.Cut(name, "/")
		kinds[kind] = true
	}
	compared := 0
	for line := range strings.Lines(string(must(os.ReadFile("testdata/before.txt")))) {
		object, labels, _ := strings.Cut(strings.TrimSpace(line), " name=")
		name, _, _ := strings.Cut(labels, " ")
		kind, _, _ := strings.Cut(object[strings.LastIndex(object, " ")+1:], "/")
		if strings.HasPrefix(line, "#") || strings.HasPrefix(kind, "customresourcedefinition") {
			continue
		}
		if compared++; !kinds[kind] || name != setsLabel && name != standaloneLabel {
			t.Errorf("%s would stay", object)
		}
	}
	expect.That(t, compared >= 50, "only %d objects were compared", compared)
}
