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
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/cli/fleet"
	clilws "lockstep.dev/lockstep/internal/cli/lws"
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

// made creates an object of a set under a controller.
func (c *cluster) made(set, name string, owner client.Object, kind schema.GroupVersionKind, object client.Object) error {
	object.SetNamespace("default")
	object.SetName(name)
	labels := object.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	labels[lwsv1.SetNameLabelKey], labels[lwsv1.RevisionKey] = set, "key"
	object.SetLabels(labels)
	object.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(owner, kind)})
	return c.Create(c.t.Context(), object)
}

// populate creates a set of two groups of two pods, each with a GPU, as if controllers had created it.
func (c *cluster) populate(name string) error {
	set := fakeapi.Set(name, 2, 2, fakeapi.Annotation(workload.DisruptionBudgetAnnotationKey, workload.DisruptionByGroup))
	set.ObjectMeta = metav1.ObjectMeta{Namespace: "default", Name: name, Annotations: set.Annotations}
	if err := c.Create(c.t.Context(), set); err != nil {
		return err
	}
	statefulSet := func(labels map[string]string) *appsv1.StatefulSet {
		return &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: appsv1.StatefulSetSpec{
			ServiceName: name, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: set.Spec.LeaderWorkerTemplate.WorkerTemplate.Spec},
		}}
	}
	pod := func(index string) *corev1.Pod {
		gpu := corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("1")}
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{lwsv1.WorkerIndexLabelKey: index}}}
		pod.Spec = *set.Spec.LeaderWorkerTemplate.WorkerTemplate.Spec.DeepCopy()
		pod.Spec.NodeName, pod.Spec.Containers[0].Resources = "node", corev1.ResourceRequirements{Limits: gpu}
		return pod
	}
	leaders := statefulSet(workload.LeaderSelector(name))
	err := c.made(name, name, set, lwsv1.GroupVersion.WithKind("LeaderWorkerSet"), leaders)
	for i := 0; i < 2 && err == nil; i++ {
		group, leader := fmt.Sprintf("%s-%d", name, i), pod("0")
		workers := statefulSet(map[string]string{lwsv1.SetNameLabelKey: name, lwsv1.GroupIndexLabelKey: fmt.Sprint(i)})
		if err = c.made(name, group, leaders, appsv1.SchemeGroupVersion.WithKind("StatefulSet"), leader); err != nil {
			break
		}
		if err = c.made(name, group, leader, corev1.SchemeGroupVersion.WithKind("Pod"), workers); err == nil {
			err = c.made(name, group+"-1", workers, appsv1.SchemeGroupVersion.WithKind("StatefulSet"), pod("1"))
		}
	}
	return err
}

// lister counts list requests by resource.
type lister struct {
	http.RoundTripper
	mu    sync.Mutex
	lists map[string]int
}

func (l *lister) RoundTrip(r *http.Request) (*http.Response, error) {
	if query := r.URL.Query(); r.Method == http.MethodGet && (query.Get("watch") == "" || query.Get("sendInitialEvents") == "true") {
		l.mu.Lock()
		l.lists[path.Base(r.URL.Path)]++
		l.mu.Unlock()
	}
	return l.RoundTripper.RoundTrip(r)
}

// One look at all sets costs as many lists as a look at one, and about a second.
func TestAFleetOfManySets(t *testing.T) {
	c := withDefinition(t)
	names := make([]string, manySets)
	for i := range names {
		names[i] = fmt.Sprintf("set-%d", i)
	}
	expect.OK(t, drill.Together(names, c.populate))
	counted := &lister{lists: map[string]int{}}
	config := rest.CopyConfig(c.cfg)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		counted.RoundTripper = next
		return counted
	})
	begin := time.Now()
	session := expect.Value(clilws.Open(t.Context(), config, "", io.Discard))(t)
	opened := time.Since(begin)
	found := expect.Value(session.Fleet(t.Context(), fleet.Question{Everywhere: true}, time.Now()))(t)
	t.Logf("%d sets: %s to list, %s in all; lists: %v", len(found.Items), opened, time.Since(begin), counted.lists)
	expect.That(t, len(found.Items) == manySets && found.Total.Accelerators[0] == fleet.Accelerator{Resource: "nvidia.com/gpu", Held: 4 * manySets, Idle: 4 * manySets},
		"got %d sets, %+v", len(found.Items), found.Total)
	for _, kind := range []string{"leaderworkersets", "statefulsets", "deployments", "replicasets", "controllerrevisions", "services", "pods", "persistentvolumeclaims", "poddisruptionbudgets"} {
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
	ask("no LeaderWorkerSets in namespace default; look everywhere with -A\n")
	expect.OK(t, c.populate("llama"))
	elsewhere := fakeapi.Set("other", 0, 1)
	elsewhere.ObjectMeta = metav1.ObjectMeta{Namespace: c.namespace(), Name: "other", Labels: map[string]string{"team": "a"}}
	c.create(elsewhere)
	ask("leaderworkerset.leaderworkerset.x-k8s.io/llama\n", "-o", "name")
	ask("1 set, 1 not ready; 4 nvidia.com/gpu held, 4 idle\n")
	ask("EXISTING", "-A", "-o", "wide")
	ask("llama", "-A", "--not-ready", "-o", "jsonpath={.items[0].name}")
	ask("1 set, ", "-A", "-l", "team=a")
	_, _, err := p.run(t, "nobody", "status", "-A")
	expect.ErrorSays(t, err, "ask about one namespace with -n")
	_, _, err = p.run(t, "", "status", "llama", "-A")
	expect.ErrorSays(t, err, "are about all sets")
}
