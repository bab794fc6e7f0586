package integration

import (
	"fmt"
	"io"
	"net/http"
	"path"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	dsv1 "lockstep.dev/lockstep/api/disaggregatedset/v1"
	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	clicluster "lockstep.dev/lockstep/internal/cli/cluster"
	clidisaggregated "lockstep.dev/lockstep/internal/cli/disaggregated"
	"lockstep.dev/lockstep/internal/cli/fleet"
	"lockstep.dev/lockstep/internal/disaggregated"
	"lockstep.dev/lockstep/internal/lws/workload"
	"lockstep.dev/lockstep/test/drill"
	"lockstep.dev/lockstep/test/expect"
	"lockstep.dev/lockstep/test/fakeapi"
)

const (
	manySets = 500
	// mostLists is how many list requests of a kind a fleet may cost.
	mostLists = 3
)

// populate creates a set of four groups, and their leaders as its controllers would, each with a GPU on a node.
func (c *cluster) populate(name string) error {
	set := fakeapi.Set(name, 4, 1)
	set.ObjectMeta = metav1.ObjectMeta{
		Namespace: "default", Name: name, Annotations: map[string]string{workload.DisruptionBudgetAnnotationKey: workload.DisruptionByGroup},
	}
	if err := c.Create(c.t.Context(), set); err != nil {
		return err
	}
	labels, template := workload.LeaderSelector(name), set.Spec.LeaderWorkerTemplate.WorkerTemplate.DeepCopy()
	template.Labels, template.Spec.NodeName = labels, "node"
	template.Spec.Containers[0].Resources.Limits = fakeapi.Resources("nvidia.com/gpu", "1")
	leaders := &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: labels, OwnerReferences: workload.OwnedBySet(set)},
		Spec:       appsv1.StatefulSetSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: *template},
	}
	err := c.Create(c.t.Context(), leaders)
	for i := 0; i < 4 && err == nil; i++ {
		owner := *metav1.NewControllerRef(leaders, appsv1.SchemeGroupVersion.WithKind("StatefulSet"))
		err = c.Create(c.t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: fmt.Sprintf("%s-%d", name, i), Labels: labels, OwnerReferences: []metav1.OwnerReference{owner},
		}, Spec: *template.Spec.DeepCopy()})
	}
	return err
}

// populateRoles creates a set of one role, and its LeaderWorkerSet, whose name it returns.
func (c *cluster) populateRoles(name string) (child string) {
	set := &dsv1.DisaggregatedSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{"team": "b"}}}
	set.Spec.Roles = []dsv1.DisaggregatedRole{{Name: "prefill", Spec: fakeapi.Set("x", 2, 1).Spec}}
	c.create(set)
	place := disaggregated.Place{Revision: expect.Value(disaggregated.RevisionOf(set.Spec.Roles))(c.t), Role: "prefill"}
	made := disaggregated.Child(set, &set.Spec.Roles[0], place, 1, 2)
	c.create(made)
	return made.Name
}

// lister counts list requests by resource.
type lister struct {
	http.RoundTripper
	mu    sync.Mutex
	lists map[string]int
}

func (l *lister) RoundTrip(r *http.Request) (*http.Response, error) {
	if query := r.URL.Query(); query.Get("watch") == "" || query.Get("sendInitialEvents") == "true" {
		l.mu.Lock()
		l.lists[path.Base(r.URL.Path)]++
		l.mu.Unlock()
	}
	return l.RoundTripper.RoundTrip(r)
}

// One look at all sets costs as many lists as a look at one. The log says how long it took.
func TestAFleetOfManySets(t *testing.T) {
	c := withDefinition(t)
	names := make([]string, manySets)
	for i := range names {
		names[i] = fmt.Sprintf("set-%d", i)
	}
	expect.OK(t, drill.Together(names, c.populate))
	c.populateRoles("pd")
	counted := &lister{lists: map[string]int{}}
	config := rest.CopyConfig(c.cfg)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		counted.RoundTripper = next
		return counted
	})
	begin := time.Now()
	flags := &clicluster.Flags{ConfigFlags: genericclioptions.NewConfigFlags(true), Warn: io.Discard}
	session := expect.Value((&clicluster.Cluster{Flags: flags, Config: config}).Open(t.Context(), ""))(t)
	listed := time.Since(begin)
	all := clidisaggregated.NewFleet(t.Context(), session)
	found := expect.Value(all.Read(t.Context(), fleet.Question{Everywhere: true}))(t)
	expect.Equal(t, manySets+1, len(found.Items))
	t.Logf("%d sets: %s to list, %s in all; lists: %v", len(found.Items), listed, time.Since(begin), counted.lists)
	const gpus = 4 * manySets
	expect.Equal(t, fleet.Accelerators{{Resource: "nvidia.com/gpu", Held: gpus, Idle: gpus}}, found.Total.Accelerators)
	for _, kind := range []string{"leaderworkersets", "statefulsets", "controllerrevisions", "services", "pods", "poddisruptionbudgets", "disaggregatedsets"} {
		expect.That(t, counted.lists[kind] > 0 && counted.lists[kind] <= mostLists, "%s: %d list requests", kind, counted.lists[kind])
	}
}

// The plugin as a user runs it, against a real API server.
func TestStatusWithoutAName(t *testing.T) {
	c := withDefinition(t)
	p := newPlugin(t, c.cfg, "default")
	ask := func(want string, args ...string) {
		t.Helper()
		out, errOut, err := p.run(t, "", append([]string{"status"}, args...)...)
		expect.That(t, err == nil, "%v: %v %s", args, err, errOut)
		expect.Says(t, out, want, args)
	}
	ask("no LeaderWorkerSets or DisaggregatedSets in namespace default; look everywhere with -A\n")
	expect.OK(t, c.populate("waits"))
	empty := &lwsv1.LeaderWorkerSet{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace(), Name: "empty", Labels: map[string]string{"team": "a"}}}
	empty.Spec = fakeapi.Set("empty", 0, 1).Spec
	c.create(empty)
	ask("leaderworkerset.leaderworkerset.x-k8s.io/waits\n", "-o", "name")
	ask("waits Updating 0 of 4 groups are ready, 0 are up to date", "-A", "-o", "jsonpath={.items[0].name} {.items[0].state} {.items[0].message}")
	ask("2 sets, 1 not ready; 4 nvidia.com/gpu held, 4 idle\n", "-A", "--not-ready")
	ask("empty Ready", "-A", "-l", "team=a", "-o", "jsonpath={.items[*].name} {.items[*].state}")
	child := c.populateRoles("pd")
	ask("dset/pd ", "-A")
	ask("disaggregatedset.disaggregatedset.x-k8s.io/pd\n", "-o", "name")
	ask("3 sets, 2 not ready; 4 nvidia.com/gpu held, 4 idle\n", "-A")
	ask("pd 2 2", "-A", "-l", "team=b", "-o", "jsonpath={.items[*].name} {.items[0].groups.wanted} {.items[0].pods.wanted}")
	ask(child+" LeaderWorkerSet", "-A", "-l", dsv1.SetNameLabelKey+"=pd", "-o", "jsonpath={.items[*].name} {.items[*].kind}")
	all := []string{"*"}
	c.grant("readers", []string{"vera"}, rbacv1.PolicyRule{
		APIGroups: []string{"", "apps", "policy", "scheduling.k8s.io", lwsv1.GroupVersion.Group}, Resources: all, Verbs: []string{"get", "list", "watch"},
	})
	for part, args := range map[string][]string{
		"DisaggregatedSets are not shown: you need the right to list and watch disaggregatedsets\n": {"status"}, child: {"status", "-o", "name"},
	} {
		out, errOut, err := p.run(t, "vera", args...)
		expect.OKf(t, err, "%s", errOut)
		expect.Says(t, out, part)
	}
	definition := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: rolesCRD}}
	c.must(c.Delete(t.Context(), definition))
	c.until("the definition is gone", func() bool {
		return apierrors.IsNotFound(c.Get(t.Context(), client.ObjectKeyFromObject(definition), definition))
	})
	ask("leaderworkerset.leaderworkerset.x-k8s.io/"+child+"\n", "-o", "name")
	_, _, err := p.run(t, "nobody", "status", "-A")
	expect.ErrorSays(t, err, "ask about one namespace with -n")
}
