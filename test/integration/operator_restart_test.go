package integration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/operator"
	"lockstep.dev/lockstep/internal/pvc"
	"lockstep.dev/lockstep/test/delay"
	"lockstep.dev/lockstep/test/drill"
	"lockstep.dev/lockstep/test/expect"
)

// TestRestartBetweenWritesChangesNothing plays one scenario twice: with one operator that keeps running,
// and with operators that end after each write, before the answer arrives. No decision depends on what
// a process saw before, so both runs end with the same objects and restarts.
func TestRestartBetweenWritesChangesNothing(t *testing.T) {
	c := newCluster(t)
	hooks := c.replica(func(o *operator.Options) { o.Controllers = nil })
	c.install(hooks.called)
	hooks.start().untilReady()
	expect.Equalf(t, "", c.holder(), "a replica without controllers holds the lease")
	c.startControllerManager(c.cfg, "statefulset-controller", "garbage-collector-controller", "persistentvolumeclaim-protection-controller")
	pods := &podStatuses{cluster: c, seen: map[string]map[types.UID]bool{}}
	go pods.run(t.Context())

	stays := c.runOperators(0)
	c.playScenario("calm")
	stays.stop()
	ends := c.runOperators(1)
	c.playScenario("torn")

	c.eventually("both namespaces have the same objects", func() error {
		return drill.Lacking("difference", "", cmp.Diff(c.objectsOf("calm"), c.objectsOf("torn")))
	})
	ends.stop()
	expect.Equalf(t, pods.counts("calm"), pods.counts("torn"), "incarnations of each pod, calm and torn")
	t.Logf("%d operators", ends.count.Load())
	if least := int64(20); ends.count.Load() < least {
		t.Errorf("only %d operators ran, want %d", ends.count.Load(), least)
	}
}

// playScenario creates a set, rolls it, restarts a group, scales the set down, and deletes PVCs.
func (c *cluster) playScenario(namespace string) {
	c.t.Helper()
	c.create(namespaced(namespace))
	set := newSet(namespace, "a")
	template := &set.Spec.LeaderWorkerTemplate
	set.Spec.Replicas, template.Size = new(int32(2)), new(int32(2))
	template.VolumeClaimTemplates = []corev1.PersistentVolumeClaim{*newClaim("", "data")}
	template.PersistentVolumeClaimRetentionPolicy = &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{
		WhenDeleted: appsv1.DeletePersistentVolumeClaimRetentionPolicyType, WhenScaled: appsv1.DeletePersistentVolumeClaimRetentionPolicyType,
	}
	c.create(set)
	c.awaitAvailable(set)
	c.merge(set, `{"spec":{"leaderWorkerTemplate":{"workerTemplate":{"spec":{"containers":[{"name":"c","image":"next"}]}}}}}`)
	c.awaitAvailable(set)

	failing, leader := &corev1.Pod{}, &corev1.Pod{}
	c.read(failing, namespace, "a-1-1")
	c.read(leader, namespace, "a-1")
	c.must(c.Status().Patch(c.t.Context(), failing, merge(
		`{"status":{"containerStatuses":[{"name":"c","image":"i","imageID":"","restartCount":1,"ready":true,"state":{"running":{}},"lastState":{"terminated":{"exitCode":137,"reason":"OOMKilled"}}}]}}`)))
	c.until("the group is recreated", func() bool {
		now := &corev1.Pod{}
		return c.Get(c.t.Context(), client.ObjectKeyFromObject(leader), now) == nil && now.UID != leader.UID
	})
	c.awaitAvailable(set)

	c.merge(set, `{"spec":{"replicas":1}}`)
	c.awaitAvailable(set)
	c.awaitGone(newClaim(namespace, "data-a-1"))
	c.awaitGone(newClaim(namespace, "data-a-1-1"))

	used, free := c.claimIn(namespace, "used"), c.claimIn(namespace, "free")
	user := onNode(podWith(namespace, "user", used.Name))
	c.create(user)
	c.must(c.Delete(c.t.Context(), used))
	c.must(c.Delete(c.t.Context(), free))
	c.awaitGone(free)
	c.read(used, namespace, used.Name)
	expect.That(c.t, sameSet(used.Finalizers, []string{pvc.PodsFinalizer, pvc.BarrierFinalizer}),
		"the PVC in use has finalizers %v", used.Finalizers)
	c.must(c.Delete(c.t.Context(), user, client.GracePeriodSeconds(0)))
	c.awaitGone(used)
}

func (c *cluster) merge(object client.Object, patch string) {
	c.t.Helper()
	c.must(c.Patch(c.t.Context(), object, merge(patch)))
}

func (c *cluster) awaitGone(object client.Object) {
	c.t.Helper()
	c.until(object.GetName()+" is gone", func() bool {
		return apierrors.IsNotFound(c.Get(c.t.Context(), client.ObjectKeyFromObject(object), object))
	})
}

// awaitAvailable waits until the set is available and the status has a record of each group.
func (c *cluster) awaitAvailable(set *lwsv1.LeaderWorkerSet) {
	c.t.Helper()
	c.eventually("the set is available", func() error {
		ctx, now := c.t.Context(), &lwsv1.LeaderWorkerSet{}
		if err := c.Get(ctx, client.ObjectKeyFromObject(set), now); err != nil {
			return err
		}
		s, want := now.Status, *now.Spec.Replicas
		if s.ObservedGeneration == now.Generation && s.Replicas == want && s.ReadyReplicas == want && s.UpdatedReplicas == want &&
			c.recorded(ctx, now) && meta.IsStatusConditionTrue(s.Conditions, string(lwsv1.LeaderWorkerSetAvailable)) {
			return nil
		}
		return fmt.Errorf("%+v", s)
	})
}

// recorded reports whether the status has a record of each leader.
func (c *cluster) recorded(ctx context.Context, set *lwsv1.LeaderWorkerSet) bool {
	for _, started := range set.Status.Started {
		leader := &corev1.Pod{}
		key := client.ObjectKey{Namespace: set.Namespace, Name: fmt.Sprintf("%s-%d", set.Name, started.Index)}
		if c.Get(ctx, key, leader) != nil || leader.UID != started.Leader {
			return false
		}
	}
	return len(set.Status.Started) == int(*set.Spec.Replicas)
}

// startControllerManager runs controllers of Kubernetes until the test ends.
func (c *cluster) startControllerManager(config *rest.Config, controllers ...string) *process {
	c.t.Helper()
	path := filepath.Join(c.t.TempDir(), "controllers.kubeconfig")
	c.must(delay.WriteKubeconfig(config, path))
	return c.run(nil, "kube-controller-manager", "--kubeconfig", path, "--secure-port=0", "--leader-elect=false",
		"--controllers="+strings.Join(controllers, ","), "--kube-api-qps=200", "--kube-api-burst=300")
}

// operators counts the operators that run one after the other.
type operators struct {
	count atomic.Int64
	stop  context.CancelFunc
}

// runOperators runs operators without webhooks, one after the other. Each ends after so many
// writes. With 0 the first one keeps running.
func (c *cluster) runOperators(writes int64) *operators {
	c.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	c.t.Cleanup(cancel)
	all := &operators{stop: cancel}
	go func() {
		for ctx.Err() == nil {
			all.count.Add(1)
			c.runOperator(ctx, writes)
		}
	}()
	return all
}

func (c *cluster) runOperator(ctx context.Context, writes int64) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r := c.replica(func(o *operator.Options) {
		o.Webhooks = false
		o.Config.LeaderElection.LeaderElect = new(false)
		o.Config.Metrics.BindAddress, o.Config.Health.HealthProbeBindAddress = "0", "0"
		o.REST = rest.CopyConfig(o.REST)
		o.REST.Wrap(func(next http.RoundTripper) http.RoundTripper {
			return &mortal{RoundTripper: next, writes: writes, end: cancel}
		})
	})
	ended := make(chan error, 1)
	go func() { ended <- operator.Run(ctx, r.options) }()
	select {
	case <-ctx.Done(): // it may still be stopping: its requests fail
	case err := <-ended:
		expect.That(c.t, ctx.Err() != nil, "the operator ended: %v", err)
	}
}

// mortal ends an operator at its n-th write and drops the answer. Later requests of the
// operator fail.
type mortal struct {
	http.RoundTripper
	writes int64
	done   atomic.Int64
	end    func()
}

var errEnded = errors.New("the operator has ended")

func (m *mortal) RoundTrip(r *http.Request) (*http.Response, error) {
	if m.writes > 0 && m.done.Load() >= m.writes {
		return nil, errEnded
	}
	response, err := m.RoundTripper.RoundTrip(r)
	if err != nil || m.writes == 0 || !wrote(r, response) || m.done.Add(1) < m.writes {
		return response, err
	}
	m.end()
	_ = response.Body.Close()
	return nil, errEnded
}

// wrote reports whether a request changed an object that a decision may read.
func wrote(r *http.Request, answer *http.Response) bool {
	path := r.URL.Path
	return r.Method != http.MethodGet && answer.StatusCode < http.StatusMultipleChoices && r.URL.Query().Get("dryRun") == "" &&
		!strings.HasSuffix(path, "/events") && !strings.Contains(path, "/events/") && !strings.Contains(path, "authorization.k8s.io")
}

// podStatuses makes pods Ready and removes terminating ones, as a kubelet does. It records each
// incarnation.
type podStatuses struct {
	*cluster
	mu   sync.Mutex
	seen map[string]map[types.UID]bool
}

func (p *podStatuses) run(ctx context.Context) {
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		list := &corev1.PodList{}
		if p.List(ctx, list) != nil {
			return
		}
		for i := range list.Items {
			p.sync(ctx, &list.Items[i])
		}
	}, 20*time.Millisecond)
}

func (p *podStatuses) sync(ctx context.Context, pod *corev1.Pod) {
	switch {
	case pod.DeletionTimestamp != nil: // an API server may not complete a deletion whose client is gone
		_ = p.Delete(ctx, pod, client.GracePeriodSeconds(0), client.Preconditions{UID: &pod.UID})
		return
	case pod.Status.Phase == corev1.PodRunning:
		return
	}
	ready := fmt.Appendf(nil, `{"metadata":{"uid":%q},"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True","lastTransitionTime":%q}]}}`,
		pod.UID, time.Now().UTC().Format(time.RFC3339))
	if p.Status().Patch(ctx, pod.DeepCopy(), client.RawPatch(types.MergePatchType, ready)) != nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	key := pod.Namespace + "/" + pod.Name
	if p.seen[key] == nil {
		p.seen[key] = map[types.UID]bool{}
	}
	p.seen[key][pod.UID] = true
}

// counts returns how many incarnations each pod of a namespace had.
func (p *podStatuses) counts(namespace string) map[string]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	counts := map[string]int{}
	for key, uids := range p.seen {
		if name, ok := strings.CutPrefix(key, namespace+"/"); ok {
			counts[name] = len(uids)
		}
	}
	return counts
}

// incidental matches what differs between two equal objects: UIDs, times, and hashes of the name
// of a namespace.
var incidental = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|\d{4}-\d\d-\d\dT[0-9:.]+Z|[0-9a-f]{40}`)

// objectsOf returns the objects of a namespace as text.
func (c *cluster) objectsOf(namespace string) string {
	c.t.Helper()
	var all []string
	for _, kind := range []string{
		"leaderworkerset.x-k8s.io/v1 LeaderWorkerSet", "apps/v1 StatefulSet", "apps/v1 ControllerRevision", "v1 Service", "v1 Pod", "v1 PersistentVolumeClaim",
	} {
		list := &unstructured.UnstructuredList{}
		version, name, _ := strings.Cut(kind, " ")
		list.SetAPIVersion(version)
		list.SetKind(name + "List")
		c.must(c.List(c.t.Context(), list, client.InNamespace(namespace)))
		for _, object := range list.Items {
			if owners := object.GetOwnerReferences(); name == "ControllerRevision" && len(owners) > 0 && owners[0].Kind == "StatefulSet" {
				continue
			}
			all = append(all, describe(object, namespace))
		}
	}
	slices.Sort(all)
	return strings.Join(all, "\n")
}

func describe(object unstructured.Unstructured, namespace string) string {
	for _, field := range [][]string{
		{"metadata", "managedFields"}, {"metadata", "resourceVersion"}, {"metadata", "labels", "controller-revision-hash"},
		{"metadata", "annotations", "lockstep.dev/applied"}, {"status", "currentRevision"}, {"status", "updateRevision"},
	} {
		unstructured.RemoveNestedField(object.Object, field...)
	}
	switch object.GetKind() {
	case "StatefulSet": // one write may replace two
		unstructured.RemoveNestedField(object.Object, "metadata", "generation")
		unstructured.RemoveNestedField(object.Object, "status", "observedGeneration")
	case "LeaderWorkerSet": // a condition that is not True may describe a status that was never written
		conditions, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
		conditions = slices.DeleteFunc(conditions, func(c any) bool { return c.(map[string]any)["status"] != "True" })
		_ = unstructured.SetNestedSlice(object.Object, conditions, "status", "conditions")
		started, _, _ := unstructured.NestedSlice(object.Object, "status", "started")
		for _, group := range started { // pods are encoded with their UIDs
			unstructured.RemoveNestedField(group.(map[string]any), "pods")
		}
		_ = unstructured.SetNestedSlice(object.Object, started, "status", "started")
	}
	text, _ := json.MarshalIndent(object.Object, "", " ")
	return strings.ReplaceAll(incidental.ReplaceAllString(string(text), "?"), namespace, "NAMESPACE")
}
