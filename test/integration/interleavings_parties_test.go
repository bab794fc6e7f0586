package integration

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/kube-scheduler/framework"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/apply"
	"lockstep.dev/lockstep/internal/controller/pvcfinalizer"
	"lockstep.dev/lockstep/internal/pvc"
	"lockstep.dev/lockstep/internal/pvccache"
	"lockstep.dev/lockstep/scheduling"
	"lockstep.dev/lockstep/test/delay"
)

// dryRun asks what would be.
var dryRun = client.DryRunAll

// trouble is what one kind of trouble is for requests, answers and watches.
type trouble map[delay.Stage]map[bool]delay.Odds // by whether it writes

var (
	reads, changes = false, true

	slow = trouble{
		delay.Requests: {reads: {Late: 0.3, Most: 30 * time.Millisecond}, changes: {Late: 0.8, Most: 150 * time.Millisecond}},
		delay.Answers:  {reads: {Late: 0.4, Most: 50 * time.Millisecond}, changes: {Late: 0.2, Most: 20 * time.Millisecond}},
		delay.Streams:  {reads: {Late: 0.4, Most: 80 * time.Millisecond}},
	}
	// brisk is for the built-in, whose one worker sees to all rounds: were it slower, it
	// would list pods when all of them are long bound.
	brisk = trouble{
		delay.Requests: {reads: {Late: 0.3, Most: 10 * time.Millisecond}, changes: {Late: 0.7, Most: 100 * time.Millisecond}},
		delay.Answers:  {reads: {Late: 0.3, Most: 20 * time.Millisecond}},
		delay.Streams:  {reads: {Late: 0.4, Most: 40 * time.Millisecond}},
	}
	failing = trouble{
		delay.Requests: {
			reads:   {Fail: 0.02, Statuses: []int{http.StatusInternalServerError}},
			changes: {Fail: 0.04, Statuses: []int{http.StatusInternalServerError, http.StatusConflict}},
		},
		delay.Answers: {
			reads:   {Fail: 0.02, Statuses: []int{http.StatusServiceUnavailable}},
			changes: {Fail: 0.04, Statuses: []int{http.StatusGatewayTimeout}}, // done, and nobody was told
		},
		delay.Streams: {reads: {Fail: 0.0003, Statuses: []int{http.StatusGone}}},
	}
	blinding = trouble{delay.Requests: {reads: {Fail: 0.3, Statuses: []int{http.StatusInternalServerError}}}}
)

// disturb has what concerns claims and pods befall a component.
func disturb(p *delay.Proxy, seed uint64, troubles ...trouble) {
	for i, kind := range troubles {
		for stage, byKind := range kind {
			for writes, odds := range byKind {
				match := func(r delay.Request) bool {
					written := r.Verb == "update" || r.Verb == "patch" || r.Verb == "create"
					return (r.Resource == "persistentvolumeclaims" || r.Resource == "pods") && written == writes
				}
				p.Disturb(stage, delay.Erratic(seed*64+uint64(i)*8+uint64(stage), odds, match))
			}
		}
	}
}

func (c *course) clientset(config *rest.Config) kubernetes.Interface {
	c.t.Helper()
	config = rest.CopyConfig(config)
	config.QPS = -1
	set, err := kubernetes.NewForConfig(config)
	c.must(err)
	return set
}

// handle is what our plugin asks of a scheduler.
type handle struct {
	framework.Handle // what is not asked for
	client           kubernetes.Interface
	factory          informers.SharedInformerFactory
}

func (h handle) ClientSet() kubernetes.Interface                        { return h.client }
func (h handle) SharedInformerFactory() informers.SharedInformerFactory { return h.factory }

// startScheduler starts what there is of a scheduler: our plugin, and its caches.
func (g *ground) startScheduler() {
	g.t.Helper()
	proxy := g.proxy("scheduler")
	disturb(proxy, g.seed+9, slow, failing)
	client := g.clientset(proxy.Config())
	h := handle{client: client, factory: informers.NewSharedInformerFactory(client, 0)}
	made, err := scheduling.New(g.t.Context(), nil, h)
	g.must(err)
	g.plugin = made.(*scheduling.Plugin)
	h.factory.Core().V1().PersistentVolumeClaims().Informer()
	h.factory.Core().V1().Namespaces().Informer()
	h.factory.Start(g.t.Context().Done())
	h.factory.WaitForCacheSync(g.t.Context().Done())
}

// lax is which rule is taken away.
type lax struct {
	name        string
	sharedReads bool // a reading serves claims that began terminating after it
	errorsFree  bool // a list that fails shows no pods
	ignoresP    bool // B is judged while P is there
}

var (
	// Every rule is taken away in test/interleave. Here are those whose want shows soon.
	besideRules = []lax{{name: "B judged while P is there", ignoresP: true}}
	aloneRules  = []lax{
		{name: "a reading shared by claims that began terminating after it", sharedReads: true},
		{name: "an error taken for no user", errorsFree: true},
	}
)

// without plays rounds against our controller with one rule taken away at a time.
func (g *ground) without(rounds int, alone bool, rules []lax) {
	for _, rule := range rules {
		g.t.Run(rule.name, func(t *testing.T) {
			g := g.on(t)
			g.controller(rule, alone)
			g.loses(rounds, today, anyhow)
		})
	}
}

// controller runs our controller until the test is over, as the operator puts it
// together but for one rule.
func (g *ground) controller(rule lax, alone bool) {
	g.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	proxy := g.proxy("lax")
	troubles := []trouble{slow}
	if rule.errorsFree {
		troubles = append(troubles, blinding)
	}
	disturb(proxy, g.seed+5, troubles...)
	config := proxy.Config()
	config.QPS = -1
	caches, err := cache.New(config, cache.Options{Scheme: clientgoscheme.Scheme, ByObject: pvccache.ProtectionCaches()})
	g.must(err)
	direct, err := client.New(config, client.Options{Scheme: clientgoscheme.Scheme})
	g.must(err)
	api := &laxClient{Client: direct, rule: rule, shared: map[string]*sharedList{}}
	cached := &laxCache{Cache: caches, rule: rule}
	pods := pvccache.NewPods(pvccache.PodsOf(g.clientset(config)), nil)
	c := pvcfinalizer.New(pvcfinalizer.Options{
		Settings: pvc.Settings{Mode: pvc.Barrier, Alone: alone},
		Caches:   cached, Live: api, Pods: pods,
		Actor: apply.New(api, api), Recorder: &events.FakeRecorder{}, Log: logr.Discard(),
	})
	var running sync.WaitGroup
	running.Go(func() { _ = caches.Start(ctx) })
	running.Go(func() { pods.Run(ctx) })
	running.Go(func() { _ = c.Start(ctx) })
	g.t.Cleanup(func() { cancel(); running.Wait() })
	g.must(pods.AwaitSync(ctx))
}

// laxCache shows claims with a rule taken away.
type laxCache struct {
	cache.Cache
	rule lax
}

func (c *laxCache) Get(ctx context.Context, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
	if err := c.Cache.Get(ctx, key, into, options...); err != nil {
		return err
	}
	if claim, ok := into.(*corev1.PersistentVolumeClaim); ok && c.rule.ignoresP && claim.DeletionTimestamp != nil {
		claim.Finalizers = slices.DeleteFunc(slices.Clone(claim.Finalizers), isPods)
	}
	return nil
}

func isPods(finalizer string) bool { return finalizer == pvc.PodsFinalizer }

// laxClient reads and writes with a rule taken away.
type laxClient struct {
	client.Client
	rule lax

	mu     sync.Mutex
	shared map[string]*sharedList
}

type sharedList struct {
	pods corev1.PodList
	left int
}

// beyond is a version that no watch reaches: pods have to be listed.
const beyond = "9000000000000000000"

func (c *laxClient) List(ctx context.Context, into client.ObjectList, options ...client.ListOption) error {
	probe, probes := into.(*metav1.PartialObjectMetadataList)
	switch {
	case probes && (c.rule.sharedReads || c.rule.errorsFree):
		probe.ResourceVersion = beyond
		return nil
	case c.rule.sharedReads:
		return c.share(ctx, into.(*corev1.PodList), options)
	}
	err := c.Client.List(ctx, into, options...)
	if err != nil && ctx.Err() == nil && c.rule.errorsFree {
		return nil
	}
	return err
}

// share lists pods for a few.
func (c *laxClient) share(ctx context.Context, into *corev1.PodList, options []client.ListOption) error {
	o := (&client.ListOptions{}).ApplyOptions(options)
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.shared[o.Namespace]
	if s == nil || s.left == 0 {
		s = &sharedList{left: 3}
		if err := c.Client.List(ctx, &s.pods, options...); err != nil {
			return err
		}
		c.shared[o.Namespace] = s
	}
	s.left--
	s.pods.DeepCopyInto(into)
	return nil
}

func (c *laxClient) Patch(ctx context.Context, object client.Object, patch client.Patch, options ...client.PatchOption) error {
	data, err := patch.Data(object)
	if err != nil {
		return err
	}
	var whole struct {
		Metadata map[string]any `json:"metadata"`
	}
	if err := json.Unmarshal(data, &whole); err != nil {
		return err
	}
	if left, ok := whole.Metadata["finalizers"].([]any); ok && c.rule.ignoresP && !slices.Contains(left, any(pvc.PodsFinalizer)) {
		now := &corev1.PersistentVolumeClaim{}
		if err := c.Get(ctx, client.ObjectKeyFromObject(object), now); err != nil {
			return err
		}
		if slices.ContainsFunc(now.Finalizers, isPods) {
			whole.Metadata["finalizers"] = append(left, pvc.PodsFinalizer)
		}
	}
	if data, err = json.Marshal(whole); err != nil {
		return err
	}
	return c.Client.Patch(ctx, object, client.RawPatch(patch.Type(), data), options...)
}
