package integration

import (
	"net/http"
	"time"

	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/kube-scheduler/framework"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/scheduling"
	"lockstep.dev/lockstep/test/delay"
)

// dryRun asks what would be.
var dryRun = client.DryRunAll

// trouble is how often requests, answers and watches are late or fail, by whether they write.
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
			changes: {Fail: 0.04, Statuses: []int{http.StatusGatewayTimeout}}, // done, without an answer
		},
		delay.Streams: {reads: {Fail: 0.0003, Statuses: []int{http.StatusGone}}},
	}
)

// disturb delays and fails the requests of a component for PVCs and pods.
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

// handle is what the plugin asks of a scheduler.
type handle struct {
	framework.Handle // what is not asked for
	client           kubernetes.Interface
	factory          informers.SharedInformerFactory
}

func (h handle) ClientSet() kubernetes.Interface                        { return h.client }
func (h handle) SharedInformerFactory() informers.SharedInformerFactory { return h.factory }

// startScheduler starts the plugin and its caches.
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
	h.factory.Start(g.t.Context().Done())
	h.factory.WaitForCacheSync(g.t.Context().Done())
}
