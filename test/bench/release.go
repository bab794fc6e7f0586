package main

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"lockstep.dev/lockstep/test/drill"
)

// releaseLoad is what release measures with.
type releaseLoad struct {
	claims, users, crowd int // freed at once by their users, among other pods
	trickle              int // freed one by one
}

// release measures how fast claims go that their users let go of, all at once and one
// by one, in a namespace with many other pods:
//
//   - in place of what is built in, which is switched off: one write a claim, as it does;
//   - what is built in, with the operator gone: the floor. The claims bear the barrier, too;
//   - beside it, which has let go of these claims: one write a claim again.
//
// One by one, the claims bear both finalizers, and both have to go.
func release(b *bed) {
	l := releaseLoad{claims: 1000, users: 10, crowd: 10000, trickle: 200}
	p := b.newPlace(map[string]string{modeLabel: "off"})
	defer p.restore()
	p.inPlace(l)
	p.builtIn(l)
	p.beside(l)
}

func (p *place) inPlace(l releaseLoad) {
	must(p.Plane.Restart(drill.ControllerManager, "--kcm-controllers", "*,-persistentvolumeclaim-protection-controller"))
	p.rerun(p.limited(true))
	idle := p.used().rss
	p.createNodes()
	p.crowd(l.crowd)
	p.heldClaims("own", l.claims, l.users)
	p.rest()
	full := p.used().rss
	p.resetPeak()
	cpu := p.used().cpu
	freed := p.free("own", l, drill.ByLockstep)
	p.rest()
	p.tell("claims-per-second", freed.rate())
	p.tell("cpu-ms-per-claim", milliseconds(p.used().cpu-cpu)/float64(l.claims))
	p.tell("rss-mib-idle", idle)
	p.tell("rss-mib-above-idle", p.used().peak-idle)
	p.tell("rss-mib-above-full", p.used().peak-full)
	p.tellReads()
	p.inMode("barrier")
	p.tellLags("", p.trickle("single", l.trickle, 50*time.Millisecond))
}

// builtIn measures the floor: the claims bear both finalizers, and one is taken.
func (p *place) builtIn(l releaseLoad) {
	must(p.Operator.Kill())
	must(p.Plane.Restart(drill.ControllerManager, "--kcm-controllers", "*", "--kcm-qps", fmt.Sprint(clientLimit)))
	p.heldClaims("both", l.claims, l.users)
	p.tell("built-in-claims-per-second", p.free("both", l, byBuiltIn).rate())
}

// beside has the operator come to the claims that what is built in has let go of, and
// then work beside it.
func (p *place) beside(l releaseLoad) {
	left := p.claimsBearing("both", drill.Barrier)
	valid(left == l.claims, "%d of %d claims wait for the operator", left, l.claims)
	flags := p.limited(false)
	p.remark()
	must(p.Operator.Start(flags...))
	freed := p.taken(l.claims, drill.ByLockstep)
	freed.begun = freed.first
	p.tell("beside-claims-per-second", freed.rate())
	p.rest()
	p.tellLags("beside-", p.trickle("beside", l.trickle/2, 200*time.Millisecond))
}

func (p *place) tellLags(prefix string, lags []time.Duration) {
	p.tell(prefix+"after-last-user-ms-median", milliseconds(percentile(lags, 50)))
	p.tell(prefix+"after-last-user-ms-p99", milliseconds(percentile(lags, 99)))
}

// restore puts everything back for other scenarios.
func (p *place) restore() {
	if !p.last {
		p.left = errors.Join(
			p.Plane.Restart(drill.ControllerManager, "--kcm-controllers", "*", "--kcm-qps", fmt.Sprint(p.Plane.QPS)),
			p.strike(), attempt(func() { p.rerun(p.flags) }))
	}
}

// freed is how claims went: from the first user's going on, one write a claim.
type freed struct {
	begun, first, last time.Time
	claims             int
}

func (f freed) rate() float64 { return float64(f.claims) / f.last.Sub(f.begun).Seconds() }

// free has all users go at once, and waits for one write on each of the claims.
func (p *place) free(prefix string, l releaseLoad, by func(drill.Request) bool) freed {
	p.remark()
	must(drill.Together(numbers(l.users), func(i int) error { return p.kill(userOf(prefix, i)) }))
	f := p.taken(l.claims, by)
	left := p.since(func(r drill.Request) bool { return r.Verb == "delete" && r.Resource == "pods" && r.Agent == benchAgent })
	valid(len(left) == l.users, "%d of %d users went", len(left), l.users)
	f.begun, _ = span(left)
	bearing := p.claimsBearing(prefix, drill.PodProtection)
	valid(bearing == 0, "%d claims still wait for their users", bearing)
	return f
}

// taken waits until each of the claims was written onto, and tells when.
func (p *place) taken(claims int, by func(drill.Request) bool) freed {
	f := freed{claims: claims}
	p.reach("the claims go", claims, func() int {
		writes := p.since(func(r drill.Request) bool { return changesClaim(r) && by(r) })
		f.first, f.last = span(writes)
		return len(lastWrites(writes))
	})
	return f
}

// lastWrites is when the last of the writes onto each object was done.
func lastWrites(writes []drill.Request) map[string]time.Time {
	last := map[string]time.Time{}
	for _, r := range writes {
		if r.Done.After(last[r.Name]) {
			last[r.Name] = r.Done
		}
	}
	return last
}

// span is when the first of the requests began and the last was done.
func span(requests []drill.Request) (first, last time.Time) {
	for _, r := range requests {
		if first.IsZero() || r.Begun.Before(first) {
			first = r.Begun
		}
		if r.Done.After(last) {
			last = r.Done
		}
	}
	return first, last
}

// tellReads tells what the operator read since the mark. Each batch of claims begins
// with a probe, so that there were as many as probes.
func (p *place) tellReads() {
	must(p.Audit.Sync())
	full, probes, events := 0, 0, 0
	for _, r := range p.since(drill.ByLockstep) {
		all, one := readsPods(r)
		switch {
		case all:
			full++
		case one:
			probes++
		case r.Resource == "events":
			events++
		}
	}
	p.tell("full-reads", float64(full))
	p.tell("batches", float64(probes))
	p.tell("full-reads-per-batch", float64(full)/float64(max(probes, 1)))
	p.tell("events", float64(events))
}

// trickle has claims that are deleted let go of one by one, each by a pod of its own,
// and tells how long after its pod each was gone, by the API server's clock.
func (p *place) trickle(prefix string, claims int, pace time.Duration) []time.Duration {
	p.heldClaims(prefix, claims, claims)
	p.rest()
	p.remark()
	tick := time.NewTicker(pace)
	defer tick.Stop()
	for i := range claims {
		must(p.kill(userOf(prefix, i)))
		<-tick.C
		must(p.ctx.Err())
	}
	p.until("the claims are gone", func() bool { return p.claimsBearing(prefix, "") == 0 })
	must(p.Audit.Sync())
	lags, err := lagsOf(p.since(func(drill.Request) bool { return true }), prefix, claims)
	must(err)
	return lags
}

// lagsOf is how long after the end of its pod's deletion each claim's last change was
// done, shortest first.
func lagsOf(requests []drill.Request, prefix string, claims int) ([]time.Duration, error) {
	went, writes := map[string]time.Time{}, []drill.Request{}
	for _, r := range requests {
		if r.Verb == "delete" && r.Resource == "pods" {
			went[r.Name] = r.Done
		}
		if changesClaim(r) {
			writes = append(writes, r)
		}
	}
	last := lastWrites(writes)
	var lags []time.Duration
	for i, claim := range claimNames(prefix, claims) {
		end, changed := last[claim]
		begin, left := went[userOf(prefix, i)]
		if !changed || !left {
			return nil, fmt.Errorf("%w: the audit log lacks the release of PVC %s", errInvalid, claim)
		}
		lags = append(lags, end.Sub(begin))
	}
	slices.Sort(lags)
	return lags, nil
}
