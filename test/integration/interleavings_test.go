package integration

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/kube-scheduler/framework"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/operator"
	"lockstep.dev/lockstep/internal/pvc"
	"lockstep.dev/lockstep/scheduling"
	"lockstep.dev/lockstep/test/delay"
	"lockstep.dev/lockstep/test/expect"
	"lockstep.dev/lockstep/test/history"
	"lockstep.dev/lockstep/test/kubelet"
)

const (
	// roundsInCI is the default number of rounds of each arrangement.
	roundsInCI = 100
	// further bounds how often the rounds are repeated until each event was seen often enough.
	// A slow machine shows other events than a fast one.
	further = 5
	// untilLost bounds the rounds of a control, in multiples of roundsInCI. The rarest loss occurs
	// about once in a hundred rounds, and on a busy machine once in four hundred.
	untilLost = 60
	// side is how many rounds run at a time.
	side = 4
)

// TestInterleavings plays rounds against a real API server: the operator, the built-in controller,
// kubelets, a scheduler and users act behind proxies that delay and fail requests. The test judges
// the history of the API server.
//
//	LOCKSTEP_INTERLEAVINGS=N  rounds of each arrangement (default 100)
//	LOCKSTEP_SEED=N           the seed, as a run printed it
//
// The controls must lose a PVC: otherwise the test could not see a loss.
func TestInterleavings(t *testing.T) {
	rounds, seed := setting(t, "LOCKSTEP_INTERLEAVINGS", roundsInCI), setting(t, "LOCKSTEP_SEED", uint64(time.Now().UnixNano()%1e6))
	t.Logf("LOCKSTEP_SEED=%d, %d rounds of each arrangement", seed, rounds)
	g := newGround(t, seed)
	builtIn := g.builtIn(seed)
	g.part("the built-in controller alone loses a PVC", func() { g.loses(rounds, today, anyhow) })

	g.guards()
	stop := g.ourOperator(false, seed+1)
	g.part("beside the built-in controller no PVC is lost", func() { g.keeps(rounds, anyhow, anyhow, gated, plugged) })
	stopSecond := g.ourOperator(false, seed+2)
	g.part("two operators beside the built-in controller lose no PVC", func() { g.keeps(rounds/2, anyhow, gated) })
	stopSecond()
	g.part("beside it, kubelets that refuse nothing lose a PVC without a record", func() { g.loses(rounds, careless, anyhow) })
	stop()

	g.must(builtIn.cmd.Process.Kill())
	stop = g.ourOperator(true, seed+3)
	g.part("alone the operator loses no PVC", func() { g.keeps(rounds, anyhow, anyhow, gated, plugged) })
	stop()
}

func setting[T int | uint64](t *testing.T, name string, otherwise T) T {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(text, 10, 63)
	expect.Must(t, err == nil, "%s=%q: give a number", name, text)
	return T(n)
}

var (
	today    = []kubelet.Kind{kubelet.Today}
	honest   = []kubelet.Kind{kubelet.Today, kubelet.Old}
	careless = []kubelet.Kind{kubelet.Careless}
)

// ground is the API server on which rounds are played.
type ground struct {
	*cluster
	seed    uint64
	history *history.History
	plugin  *scheduling.Plugin
	tally   *tally
	// slack is the additional time for a pod that must be recorded on its PVCs first.
	slack time.Duration
}

// tally counts the events without which rounds show nothing.
type tally struct {
	sync.Mutex
	seen map[string]int
}

func newGround(t *testing.T, seed uint64) *ground {
	t.Helper()
	klog.SetLogger(logr.Discard()) // broken watches and truncated bodies are logged
	t.Cleanup(klog.ClearLogger)
	g := &ground{cluster: newCluster(t), seed: seed, tally: &tally{seen: map[string]int{}}, slack: 500 * time.Millisecond}
	client := g.clientset(g.cfg)
	h := expect.Value(history.Begin(t.Context(), client))(g.t)
	g.history = h
	g.startScheduler()
	return g
}

// guards creates the admission policies of all modes.
func (g *ground) guards() {
	g.t.Helper()
	policies := &guarded{cluster: g.cluster}
	for _, file := range []string{"barrier.yaml", "refuse.yaml", "strict.yaml"} {
		policies.apply(file)
	}
	ns := g.space(gated)
	g.until("PVCs get a barrier", func() bool {
		claim := newClaim(ns, "probe")
		return g.Create(g.t.Context(), claim, client.DryRunAll) == nil && slices.Contains(claim.Finalizers, pvc.BarrierFinalizer)
	})
	g.until("pods are gated", func() bool {
		pod := podWith(ns, "probe", "data")
		return g.Create(g.t.Context(), pod, client.DryRunAll) == nil && pvc.Gated(pod)
	})
}

// space creates a namespace for rounds of a kind.
func (g *ground) space(start string) string {
	g.t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "round-"}}
	if start == gated {
		ns.Labels = map[string]string{pvc.ModeKey: pvc.Strict.String()}
	}
	g.create(ns)
	g.must(g.Create(g.t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: ns.Name, Name: "default"}}))
	return ns.Name
}

// play plays rounds until all are over or one stops the run, and returns their number.
func (g *ground) play(from, rounds int, kinds []kubelet.Kind, starts []string, over func(error) bool) int {
	g.t.Helper()
	ctx, cancel := context.WithCancel(g.t.Context())
	defer cancel()
	var playing sync.WaitGroup
	var mu sync.Mutex
	begun, played := atomic.Int64{}, 0
	for range side {
		spaces := map[string]string{}
		for _, start := range starts {
			if spaces[start] == "" {
				spaces[start] = g.space(start)
			}
		}
		playing.Go(func() {
			for n := int(begun.Add(1)) - 1; n < rounds && ctx.Err() == nil; n = int(begun.Add(1)) - 1 {
				start := starts[(from+n)%len(starts)]
				err := g.round(from+n, spaces[start], start, kinds).play(ctx)
				mu.Lock()
				played++
				if ctx.Err() == nil && over(err) {
					cancel()
				}
				mu.Unlock()
			}
		})
	}
	playing.Wait()
	return played
}

func (g *ground) round(n int, namespace, start string, kinds []kubelet.Kind) *round {
	random := rand.New(rand.NewPCG(g.seed, uint64(n)))
	if start != anyhow {
		kinds = careless // no promise depends on kubelets there
	}
	r := &round{ground: g, number: n, namespace: namespace, start: start, random: random}
	for range 2 {
		r.kubelets = append(r.kubelets, kinds[random.IntN(len(kinds))])
	}
	return r
}

// keeps checks that no PVC is lost, and that every event occurs often enough.
func (g *ground) keeps(rounds int, starts ...string) {
	g.t.Helper()
	g.tally.seen = map[string]int{}
	begun := time.Now()
	played := 0
	for range further {
		played += g.play(played, rounds, honest, starts, func(err error) bool {
			expect.That(g.t, err == nil, "LOCKSTEP_SEED=%d: %v", g.seed, err)
			return err != nil
		})
		if g.t.Failed() || len(g.seldom(rounds)) == 0 {
			break
		}
		g.slack *= 2
	}
	g.t.Logf("%d rounds in %s: %v", played, time.Since(begun).Round(time.Second), g.tally.seen)
	for _, what := range g.seldom(rounds) {
		g.t.Errorf("%s: %d times in %d rounds, which is too rare to show anything", what, g.tally.seen[what], played)
	}
}

// seldom returns the events that were rarer than once in fifty rounds.
func (g *ground) seldom(rounds int) (seldom []string) {
	for _, what := range []string{history.MountedOnce, history.MountedLate, history.OnRecord} {
		if g.tally.seen[what] < max(1, rounds/50) {
			seldom = append(seldom, what)
		}
	}
	return seldom
}

// loses is a control: a PVC must be lost.
func (g *ground) loses(rounds int, kinds []kubelet.Kind, starts ...string) {
	g.t.Helper()
	var lost error
	played := g.play(0, max(rounds, untilLost*roundsInCI), kinds, starts, func(err error) bool {
		if errors.Is(err, history.ErrLost) || errors.Is(err, history.ErrStray) {
			lost = err
		}
		return lost != nil
	})
	expect.Must(g.t, lost != nil,
		"LOCKSTEP_SEED=%d: no PVC is lost in %d rounds: the test cannot see a loss", g.seed, played)
	g.t.Logf("after %d rounds: %v", played, lost)
}

// trouble is how often requests, answers and watches are late or fail. The second key is true for writes.
type trouble map[delay.Stage]map[bool]delay.Odds

var (
	reads, changes = false, true

	slow = trouble{
		delay.Requests: {reads: {Late: 0.3, Most: 30 * time.Millisecond}, changes: {Late: 0.8, Most: 150 * time.Millisecond}},
		delay.Answers:  {reads: {Late: 0.4, Most: 50 * time.Millisecond}, changes: {Late: 0.2, Most: 20 * time.Millisecond}},
		delay.Streams:  {reads: {Late: 0.4, Most: 80 * time.Millisecond}},
	}
	// brisk is for the built-in controller, whose one worker serves all rounds. If it were slower, it
	// would list pods only after all of them are bound.
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
			changes: {Fail: 0.04, Statuses: []int{http.StatusGatewayTimeout}}, // the write succeeds, and its answer is lost
		},
		delay.Streams: {reads: {Fail: 0.0003, Statuses: []int{http.StatusGone}}},
	}
)

func (c *cluster) clientset(config *rest.Config) kubernetes.Interface {
	c.t.Helper()
	config = rest.CopyConfig(config)
	config.QPS = -1
	return expect.Value(kubernetes.NewForConfig(config))(c.t)
}

// disturbed returns the configuration of a component whose requests for PVCs and pods are late and fail.
func (g *ground) disturbed(component string, seed uint64, kinds ...trouble) *rest.Config {
	g.t.Helper()
	all := &delay.Trouble{}
	for i, kind := range kinds {
		for stage, byKind := range kind {
			for writes, odds := range byKind {
				all.Add(stage, seed*64+uint64(i)*8+uint64(stage), odds, func(r *apirequest.RequestInfo) bool {
					written := r.Verb == "update" || r.Verb == "patch" || r.Verb == "create"
					return (r.Resource == "persistentvolumeclaims" || r.Resource == "pods") && written == writes
				})
			}
		}
	}
	config := g.user(component)
	config.Wrap(all.Wrap)
	g.t.Cleanup(func() { expect.Equalf(g.t, true, all.Met.Load(), "whether requests of %s waited or failed", component) })
	return config
}

// builtIn starts the PVC protection controller of the controller manager.
func (g *ground) builtIn(seed uint64) *process {
	g.t.Helper()
	server := expect.Value(delay.Serve(g.disturbed("system:kube-controller-manager", seed, brisk)))(g.t)
	g.t.Cleanup(server.Close)
	return g.startControllerManager(&rest.Config{Host: server.URL}, "persistentvolumeclaim-protection-controller")
}

// ourOperator starts an operator that only protects PVCs.
func (g *ground) ourOperator(alone bool, seed uint64) (stop func()) {
	g.t.Helper()
	return g.replica(func(o *operator.Options) {
		o.REST, o.Controllers, o.Webhooks = g.disturbed("lockstep", seed, slow, failing), []string{operator.Protection}, false
		o.Config.LeaderElection.LeaderElect, o.Config.Metrics.BindAddress, o.Config.Protection.Alone = new(bool), "0", alone
	}).start().untilReady().shut
}

// handle is the part of a scheduler that the plugin uses.
type handle struct {
	framework.Handle // methods that the plugin does not call
	client           kubernetes.Interface
	factory          informers.SharedInformerFactory
}

func (h handle) ClientSet() kubernetes.Interface                        { return h.client }
func (h handle) SharedInformerFactory() informers.SharedInformerFactory { return h.factory }

// startScheduler starts the plugin and its caches.
func (g *ground) startScheduler() {
	g.t.Helper()
	client := g.clientset(g.disturbed("scheduler", g.seed+9, slow, failing))
	h := handle{client: client, factory: informers.NewSharedInformerFactory(client, 0)}
	made := expect.Value(scheduling.New(g.t.Context(), nil, h))(g.t)
	g.plugin = made.(*scheduling.Plugin)
	h.factory.Core().V1().PersistentVolumeClaims().Informer()
	h.factory.Start(g.t.Context().Done())
	h.factory.WaitForCacheSync(g.t.Context().Done())
}
