package interleave

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
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
		if err := flag.Set(name, value); err != nil { // flags of the command line come later
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	klog.SetLogger(logr.Discard()) // reflectors log each watch that breaks off
	os.Exit(m.Run())
}

// run plays a plan on the fake API server, and returns the law that was broken.
func run(r rules, p plan, tell func(string, ...any)) (seen map[string]int, err error) {
	ctx, end := context.WithCancel(context.Background())
	defer func() {
		end()
		time.Sleep(time.Minute)
		synctest.Wait()
	}()
	w := newWorld(ctx, r, p.faults)
	return w.seen, w.play(p, tell)
}

var (
	today    = []kubelet.Kind{kubelet.Today, kubelet.Today}
	careless = []kubelet.Kind{kubelet.Careless, kubelet.Careless}
)

// TestNothingIsLost binds pods at any time, by schedulers that read no PVC.
func TestNothingIsLost(t *testing.T) {
	nothingIsLost(t, []start{anyhow}, kubelet.Today, kubelet.Old)
}

// TestNothingIsLostOnRecord records pods on their PVCs before they are bound: no kubelet has to refuse
// anything.
func TestNothingIsLostOnRecord(t *testing.T) {
	nothingIsLost(t, []start{gated, plugin}, kubelet.Careless, kubelet.Today)
}

// seldom is in how many interleavings each premise has to come about once.
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

// TestControlsLose shows that a loss is seen. What each rule of the operator is for, package model shows.
func TestControlsLose(t *testing.T) {
	for _, tt := range []struct {
		name  string
		rules rules
	}{
		{"the built-in by itself", rules{builtIn: true, kubelets: today}},
		{"beside: kubelets that refuse nothing, and no record", rules{builtIn: true, barrier: true, kubelets: careless}},
		{"alone: kubelets that refuse nothing, and no record", rules{barrier: true, kubelets: careless}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n, lost := lostWithin(t, tt.rules)
			if lost == nil {
				t.Fatalf("nothing is lost in %d runs: a loss could not be seen", n)
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
