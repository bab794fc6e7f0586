package operator

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	fakediscovery "k8s.io/client-go/discovery/fake"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"lockstep.dev/lockstep/api/config/v1alpha1"
	"lockstep.dev/lockstep/internal/pvccache"
	"lockstep.dev/lockstep/internal/version"
)

func parse(t *testing.T, args ...string) Options {
	t.Helper()
	f := newFlags()
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	f.register(fs)
	if err := fs.Parse(args); err != nil {
		t.Fatal(err)
	}
	o, err := f.options(fs)
	if err != nil {
		t.Fatal(err)
	}
	o.REST = &rest.Config{Host: "https://nowhere.invalid"}
	return o
}

func TestErrorsNameTheFileAndTheField(t *testing.T) {
	file := write(t, header+"protection: {kinds: [{apiVersion: a/v1, kind: A, podTemplates: [spec..x]}]}")
	o := parse(t, "--config="+file)
	err := o.validate()
	for _, want := range []string{file, "protection.kinds[0].podTemplates[0]", "spec.jobs.*.template"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// Each line of flags of the file is followed by their fault, or by nothing.
func TestNotEverythingCanBeSwitchedOff(t *testing.T) {
	lines := strings.Split(string(must(os.ReadFile("testdata/flags.txt"))), "\n")
	for i := 0; i+1 < len(lines); i += 2 {
		args, want := lines[i], strings.TrimSpace(lines[i+1])
		o := parse(t, strings.Fields(args)...)
		err := o.validate()
		if (err == nil) != (want == "") || (err != nil && !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: got %v, want %q", args, err, want)
		}
	}
}

// What follows from flags, and from the environment.
func TestFlagsHaveConsequences(t *testing.T) {
	competes := func(o Options) any { return must(o.lease()) != nil }
	pprof := func(o Options) any { return o.Pprof }
	webhooks := func(o Options) any { return o.Webhooks }
	gangs := func(o Options) any {
		return *ptr.Deref(o.Config.GangSchedulingManagement, v1alpha1.GangSchedulingManagement{SchedulerProvider: new("")}).SchedulerProvider
	}
	dir := func(o Options) any {
		files := o
		files.Config.InternalCertManagement.Enable = new(false)
		return [2]string{o.certDir(), files.certDir()}
	}
	for _, tt := range []struct {
		environment, args string
		of                func(Options) any
		want              any
	}{
		{"", "", webhooks, true},
		{"false", "", webhooks, false},
		{"false", "--webhooks", webhooks, true},
		{"", "", competes, true},
		{"", "--leader-elect=false", competes, false},
		{"", "--controllers=", competes, false},
		{"", "--webhooks=false", competes, true},
		{"", "--protect-only", competes, true},
		{"", "--controllers=protection --protection=false", competes, false},
		{"", "", pprof, "0"},
		{"", "--pprof-bind-address=0", pprof, "0"},
		{"", "--pprof-bind-address=[::1]:1", pprof, "[::1]:1"},
		{"", "", gangs, ""},
		{"", "--gang-scheduler=", gangs, ""},
		{"", "--gang-scheduler=volcano", gangs, "volcano"},
		{"", "", dir, [2]string{"", v1alpha1.DefaultWebhookCertDir}},
		{"", "--webhook-cert-dir=d", dir, [2]string{"d", "d"}},
	} {
		t.Setenv("ENABLE_WEBHOOKS", tt.environment)
		if got := tt.of(parse(t, strings.Fields(tt.args)...)); got != tt.want {
			t.Errorf("%q with ENABLE_WEBHOOKS=%q: got %v, want %v", tt.args, tt.environment, got, tt.want)
		}
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func TestClientHasUserAgentAndRate(t *testing.T) {
	o := parse(t, "--kube-api-qps=7", "--kube-api-burst=8")
	c := o.restConfig()
	if c.UserAgent != "lockstep/"+version.Get().Version || c.QPS != 7 || c.Burst != 8 {
		t.Errorf("got %q, %v, %d", c.UserAgent, c.QPS, c.Burst)
	}
	if o.REST.UserAgent != "" {
		t.Error("the caller's own configuration was changed")
	}
}

func TestLacksNamesKindsThatAreNotServed(t *testing.T) {
	for name, c := range map[string]struct {
		served []string // nil: no such group
		want   []string
	}{
		"1.36":          {[]string{"MutatingAdmissionPolicy", "ValidatingAdmissionPolicy"}, nil},
		"1.35":          {[]string{"ValidatingAdmissionPolicy"}, []string{MutatingPolicy}},
		"1.29":          {[]string{"MutatingWebhookConfiguration"}, []string{MutatingPolicy, ValidatingPolicy}},
		"without group": {nil, []string{MutatingPolicy, ValidatingPolicy}},
	} {
		server := &fakediscovery.FakeDiscovery{Fake: &clienttesting.Fake{}}
		for _, kind := range c.served {
			server.Resources = append(server.Resources, &metav1.APIResourceList{GroupVersion: "admissionregistration.k8s.io/v1"})
			server.Resources[0].APIResources = append(server.Resources[0].APIResources, metav1.APIResource{Kind: kind})
		}
		if got, err := Lacks(server); err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

func TestTheOperatorNeedsItsNamespace(t *testing.T) {
	o := parse(t, "--namespace=here")
	here := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "here"}}
	if err := o.checkNamespace(t.Context(), fake.NewClientset(here)); err != nil {
		t.Error(err)
	}
	err := o.checkNamespace(t.Context(), fake.NewClientset())
	for _, part := range []string{`"here"`, "lockstep install"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("got %v, want %q", err, part)
		}
	}
}

// A cache has one selector for a kind, in whatever form it keeps the objects. If a kind is
// in it twice, the selector is one of the two at random.
func TestEachKindIsInACacheOnce(t *testing.T) {
	scheme, err := newScheme()
	if err != nil {
		t.Fatal(err)
	}
	o := parse(t)
	o.Config.Protection.Alone = true
	for name, objects := range map[string]map[client.Object]cache.ByObject{
		"the manager's": o.cacheOptions(nil).ByObject, "protection's": pvccache.ProtectionCaches(),
	} {
		seen := map[schema.GroupVersionKind]bool{}
		for object := range objects {
			kind, err := apiutil.GVKForObject(object, scheme)
			if err != nil {
				t.Fatal(err)
			}
			if seen[kind] {
				t.Errorf("%s is twice in the cache: %s", kind.Kind, name)
			}
			seen[kind] = true
		}
		if len(seen) == 0 {
			t.Errorf("the cache is empty: %s", name)
		}
	}
}

func TestGrowthLeavesTheSameRoomForEveryHeap(t *testing.T) {
	const mebibyte = 1 << 20
	for live, want := range map[uint64]int{0: 200, 4 * mebibyte: 200, 24 * mebibyte: 100, 48 * mebibyte: 50, 500 * mebibyte: 35} {
		if got := growthOf(live); got != want {
			t.Errorf("%d MiB live: GOGC %d, want %d", live/mebibyte, got, want)
		}
	}
}

func TestMemoryIsReturnedAfterWork(t *testing.T) {
	const mebibyte = 1 << 20
	for name, tt := range map[string]struct {
		lately, since, live uint64
		want                bool
	}{
		"at rest after work":          {1 << 10, 16 * mebibyte, 20 * mebibyte, true},
		"at work":                     {mebibyte, 16 * mebibyte, 20 * mebibyte, false},
		"after little work":           {0, 15 * mebibyte, 20 * mebibyte, false},
		"too little for a large heap": {0, 49 * mebibyte, 100 * mebibyte, false},
		"enough for a large heap":     {0, 50 * mebibyte, 100 * mebibyte, true},
	} {
		if got := isWorthReturning(tt.lately, tt.since, tt.live); got != tt.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
