package interleave

import (
	"fmt"
	"slices"
	"testing/synctest"
	"time"
)

// plan is one interleaving: how eager each actor is, phase after phase, and one choice for each
// step. An actor that is not eager at all moves when no other one can.
type plan struct {
	eager   [phases][]int
	choices []uint16
	faults  faults
}

const phases = 4

// atLeast and atMost bound the length of a plan.
const atLeast, atMost = 30, 90

// eagerness is how much likelier one actor moves than another. In most phases some hardly ever do: a
// cache that lags, a request that takes for ever.
var eagerness = []int{0, 0, 1, 4, 16}

// rare is one in how many plans has what takes away from the others.
const rare = 6

// newPlan draws a plan. draw returns a number below n.
func newPlan(draw func(n int, what string) int) plan {
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

// play takes the steps of a plan, and returns the first law that is broken.
func (w *world) play(p plan, tell func(string, ...any)) error {
	for n, choice := range p.choices {
		synctest.Wait()
		if err := w.lost(); err != nil {
			return err
		}
		steps := w.steps()
		if len(steps) == 0 {
			time.Sleep(time.Second)
			continue
		}
		chosen := p.next(n, steps)
		tell("%s", chosen.says)
		chosen.do()
		if choice&0xc000 == 0xc000 {
			time.Sleep(60 * time.Millisecond) // a batch is gathered, and failed requests are sent again
		}
	}
	synctest.Wait()
	if err := w.lost(); err != nil {
		return err
	}
	return w.settle()
}

// settle ends all users and faults: then every terminating PVC must go.
//
// The built-in controller starts anew, because it needs to: it keeps a PVC for a pod that a list
// showed. If its watch never shows that pod, no event reports that the pod is gone.
func (w *world) settle() error {
	if w.builtIn != nil {
		w.builtIn.crash()
		w.startBuiltIn()
	}
	for _, name := range sorted(w.store.pods()) {
		w.store.endPod(name)
	}
	const patience = 5 * time.Minute // in the time of the bubble, which passes at once
	for begun := time.Now(); time.Since(begun) < patience; {
		synctest.Wait()
		if len(w.store.claims()) == 0 {
			return nil
		}
		w.deleteAll()
		if !w.proceed() {
			time.Sleep(time.Second)
		}
	}
	return fmt.Errorf("no pod uses them, and yet there are PVCs with finalizers %v", w.left())
}

// deleteAll deletes every PVC, held or not, and removes the foreign finalizer.
func (w *world) deleteAll() {
	for name, claim := range w.store.claims() {
		if claim.DeletionTimestamp == nil {
			w.store.deleteClaim(name)
		} else if slices.Contains(claim.Finalizers, foreign) {
			w.touch(name)
		}
	}
}

// proceed lets one request or event arrive.
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

func (w *world) left() map[string][]string {
	left := map[string][]string{}
	for name, claim := range w.store.claims() {
		left[name] = claim.Finalizers
	}
	return left
}
