package interleave

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	"pgregory.net/rapid"

	"lockstep.dev/lockstep/test/kubelet"
)

// runs is how many interleavings are tried, of each test.
const runs = 10000

func TestMain(m *testing.M) {
	for name, value := range map[string]string{"rapid.checks": strconv.Itoa(runs), "rapid.nofailfile": "true"} {
		if err := flag.Set(name, value); err != nil { // what the command line says comes after, and wins
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	klog.SetLogger(logr.Discard()) // reflectors tell of every watch that breaks off
	os.Exit(m.Run())
}

// plan is one interleaving: how eager everybody is, in one phase after the other,
// and one choice for each step. Who is not eager at all moves when nobody else can.
type plan struct {
	eager   [phases][]int
	choices []uint16
	faults  faults
}

const phases = 4

// next chooses a step.
func (p plan) next(n int, steps []step) step {
	choice, eager := p.choices[n], p.eager[n*phases/len(p.choices)]
	total := 0
	for _, s := range steps {
		total += eager[s.by]
	}
	if total == 0 {
		return steps[int(choice)%len(steps)]
	}
	at := int(choice) % total
	for _, s := range steps {
		if at -= eager[s.by]; at < 0 {
			return s
		}
	}
	panic("no step")
}

// run plays a plan, and returns what went wrong.
func run(r rules, p plan, tell func(string, ...any)) (seen map[string]int, err error) {
	ctx, end := context.WithCancel(context.Background())
	defer func() {
		end()
		time.Sleep(time.Minute)
		synctest.Wait()
	}()
	w := newWorld(ctx, r, p.faults)
	for n, choice := range p.choices {
		synctest.Wait()
		steps := w.steps()
		if len(steps) == 0 {
			time.Sleep(time.Second)
			continue
		}
		chosen := p.next(n, steps)
		tell("%s", chosen.says)
		chosen.do()
		if err := w.lost(); err != nil {
			return w.seen, err
		}
		if choice&0xf000 == 0xf000 {
			time.Sleep(30 * time.Millisecond) // and what failed is tried again
		}
	}
	return w.seen, w.settle()
}

// settle ends all users and all misfortune: then nothing that is terminating may
// remain.
//
// The built-in controller starts anew, because it needs to: it keeps a claim for a pod
// that a list showed, and if its watch never shows that pod, nothing tells it that the
// pod has gone.
func (w *world) settle() error {
	synctest.Wait()
	if w.builtIn != nil {
		w.builtIn.crash()
		w.startBuiltIn()
	}
	for _, name := range sorted(w.store.pods()) {
		w.store.endPod(name)
	}
	for _, name := range sorted(w.store.claims()) {
		claim := w.store.claims()[name]
		if claim.DeletionTimestamp == nil {
			w.store.deleteClaim(name)
		}
		if claim := w.store.claims()[name]; claim != nil && strings.Contains(strings.Join(claim.Finalizers, " "), foreign) {
			w.touch(name)
		}
	}
	const patience = 5 * time.Minute // in the time of the bubble, which passes at once
	for begun := time.Now(); time.Since(begun) < patience; {
		synctest.Wait()
		if len(w.store.claims()) == 0 {
			return nil
		}
		if !w.proceed() {
			time.Sleep(time.Second)
		}
	}
	return fmt.Errorf("nobody uses them, and yet there are claims %v with finalizers %v", sorted(w.store.claims()), w.left())
}

// proceed lets everything arrive.
func (w *world) proceed() bool {
	var next []step
	add := func(by actor, do func(), says string, _ ...any) { next = append(next, step{by, says, do}) }
	w.underWay(add)
	w.informers(add)
	if len(next) == 0 {
		return false
	}
	next[0].do()
	return true
}

func (w *world) left() (all [][]string) {
	for _, name := range sorted(w.store.claims()) {
		all = append(all, w.store.claims()[name].Finalizers)
	}
	return all
}

// steps is how long a schedule is.
const atLeast, atMost = 30, 90

// eagerness is how much likelier somebody moves than another. In most phases there
// are some who hardly ever do: a cache that lags, a request that takes for ever.
var eagerness = []int{0, 0, 1, 4, 16}

// rare is one in how many plans has what takes away from the others.
const rare = 6

// source is where plans are drawn from: a number below n.
type source func(n int, what string) int

func newPlan(draw source) plan {
	p := plan{choices: make([]uint16, atLeast+draw(atMost-atLeast, "steps"))}
	most := faults{crashes: 2, replicas: 1, lost: 2, claims: 1, pods: 3, ends: 2, writes: 1, strips: 1}
	p.faults.pods = most.pods - draw(2, "pods")
	for _, f := range []struct{ is, most *int }{
		{&p.faults.crashes, &most.crashes}, {&p.faults.lost, &most.lost}, {&p.faults.claims, &most.claims},
		{&p.faults.ends, &most.ends}, {&p.faults.writes, &most.writes},
	} {
		*f.is = *f.most * draw(2, "fault")
	}
	for _, f := range []struct{ is, most *int }{{&p.faults.replicas, &most.replicas}, {&p.faults.strips, &most.strips}} {
		if draw(rare, "rare fault") == 0 { // each takes away from what the others can show
			*f.is = *f.most
		}
	}
	for i := range p.eager {
		p.eager[i] = make([]int, actors)
		for by := range p.eager[i] {
			p.eager[i][by] = eagerness[draw(len(eagerness), "eager")]
		}
	}
	for i := range p.choices {
		p.choices[i] = uint16(draw(1<<16, "choice"))
	}
	return p
}

var (
	today    = []kubelet.Kind{kubelet.Today, kubelet.Today}
	careless = []kubelet.Kind{kubelet.Careless, kubelet.Careless}
)

// TestNothingIsLost has pods bound by whoever likes, whenever they like.
func TestNothingIsLost(t *testing.T) {
	nothingIsLost(t, []start{anyhow}, kubelet.Today, kubelet.Old)
}

// TestNothingIsLostOnRecord has pods written on their claims before they are bound: no
// kubelet has to refuse anything.
func TestNothingIsLostOnRecord(t *testing.T) {
	nothingIsLost(t, []start{gated, plugin}, kubelet.Careless, kubelet.Today)
}

// seldom is in how many interleavings what matters has to happen once, on the average.
const seldom = 1000

func nothingIsLost(t *testing.T, starts []start, kinds ...kubelet.Kind) {
	seen, played := map[string]int{}, 0
	rapid.Check(t, func(t *rapid.T) {
		r := rules{
			barrier: true, builtIn: rapid.Bool().Draw(t, "beside the built-in"),
			kubelets: rapid.SliceOfN(rapid.SampledFrom(kinds), 2, 2).Draw(t, "kubelets"), start: rapid.SampledFrom(starts).Draw(t, "start"),
		}
		p := newPlan(func(n int, what string) int { return rapid.IntRange(0, n-1).Draw(t, what) })
		rapid.SyncTest(t, func(t *rapid.T) {
			what, err := run(r, p, t.Logf)
			if err != nil {
				t.Fatal(err)
			}
			for what, n := range what {
				seen[what] += n
			}
		})
		played++
	})
	t.Logf("%d interleavings: %v", played, seen)
	expected := premises
	for _, s := range starts {
		expected = append(expected, premisesOf[s]...)
	}
	for _, what := range expected {
		if seen[what] < played/seldom {
			t.Errorf("%s: %d times in %d interleavings, which is too seldom to show anything", what, seen[what], played)
		}
	}
}

// TestWhatIsLostWithoutARule takes one rule away at a time: each loses a claim within
// as many runs as show that nothing is lost with all of them.
func TestWhatIsLostWithoutARule(t *testing.T) {
	for _, tt := range []struct {
		name  string
		rules rules
	}{
		{"the built-in by itself", rules{builtIn: true}},
		{"beside: kubelets that refuse nothing, and no record", rules{builtIn: true, barrier: true, kubelets: careless}},
		{"alone: kubelets that refuse nothing, and no record", rules{barrier: true, kubelets: careless}},
		{"gated: the record is not read", rules{barrier: true, start: gated, kubelets: careless, ignoresRecords: true}},
		{"gated: a pod is taken off the record before it is bound", rules{barrier: true, start: gated, kubelets: careless, forgetsUnbound: true}},
		{"gated: writes without preconditions", rules{barrier: true, start: gated, kubelets: careless, anyVersion: true}},
		{"plugin: the record is not read", rules{builtIn: true, barrier: true, start: plugin, kubelets: careless, ignoresRecords: true}},
		{"plugin: a pod is taken off the record before it is bound", rules{barrier: true, start: plugin, kubelets: careless, forgetsUnbound: true}},
		{"plugin: writes without preconditions", rules{barrier: true, start: plugin, kubelets: careless, anyVersion: true}},
		{"plugin: written down after the bind", rules{barrier: true, start: plugin, kubelets: careless, recordsLate: true}},
		{"beside: a reading shared by claims that began terminating after it", rules{builtIn: true, barrier: true, sharedReads: true}},
		{"beside: by the cache alone", rules{builtIn: true, barrier: true, byCache: true}},
		{"beside: B judged while P is there", rules{builtIn: true, barrier: true, ignoresP: true}},
		{"alone: a reading shared by claims that began terminating after it", rules{barrier: true, sharedReads: true}},
		{"alone: by the cache alone", rules{barrier: true, byCache: true}},
		{"alone: writes without preconditions", rules{barrier: true, anyVersion: true}},
		{"alone: an error taken for no user", rules{barrier: true, errorsMeanNone: true}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.rules.kubelets == nil {
				tt.rules.kubelets = today
			}
			n, lost := lostWithin(t, tt.rules)
			if lost == nil {
				t.Fatalf("nothing is lost in %d runs: what would be lost cannot be seen", n)
			}
			t.Logf("run %d: %v", n, lost)
		})
	}
}

func lostWithin(t *testing.T, r rules) (n int, lost error) {
	random := rand.New(rand.NewPCG(1, 2))
	for n < runs && lost == nil {
		n++
		p := newPlan(func(n int, _ string) int { return random.IntN(n) })
		synctest.Test(t, func(*testing.T) {
			if _, err := run(r, p, func(string, ...any) {}); errors.Is(err, errGone) {
				lost = err
			}
		})
	}
	return n, lost
}
