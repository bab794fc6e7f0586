package main

import (
	"context"
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
func release(ctx context.Context, b *bed) (f figures, err error) {
	l := releaseLoad{claims: b.part(1000), users: 10, crowd: b.part(10000), trickle: b.part(200)}
	s, err := b.newClaimStage(ctx, map[string]string{modeLabel: "off"})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.restore(ctx)) }()
	for _, part := range []func(context.Context, releaseLoad, *figures) error{s.inPlace, s.builtIn, s.beside} {
		if err := part(ctx, l, &f); err != nil {
			return f, err
		}
	}
	return f, nil
}

func (s *claimStage) inPlace(ctx context.Context, l releaseLoad, f *figures) error {
	err := s.plane.Restart(drill.ControllerManager, "--kcm-controllers", "*,-persistentvolumeclaim-protection-controller")
	if err != nil {
		return err
	}
	flags, err := s.limited(true)
	if err != nil {
		return err
	}
	if err := s.rerun(ctx, flags); err != nil {
		return err
	}
	idle := usageOf(s.operator.PID()).rss
	if err := errors.Join(s.nodes(ctx), s.crowd(ctx, l.crowd), s.heldClaims(ctx, "own", l.claims, l.users), s.rest(ctx)); err != nil {
		return err
	}
	full := usageOf(s.operator.PID()).rss
	resetPeak(s.operator.PID())
	cpu, profiled := cpuOf(s.operator.PID()), s.profiles.take(load{groups: l.claims, size: l.users})
	freed, err := s.free(ctx, "own", l, drill.ByLockstep)
	profiled()
	if err != nil {
		return err
	}
	if err := s.rest(ctx); err != nil {
		return err
	}
	f.add("release-1000.claims-per-second", freed.rate())
	f.add("release-1000.cpu-ms-per-claim", milliseconds(cpuOf(s.operator.PID())-cpu)/float64(l.claims))
	f.add("release-1000.rss-mib-idle", idle)
	f.add("release-1000.rss-mib-above-idle", usageOf(s.operator.PID()).peak-idle)
	f.add("release-1000.rss-mib-above-full", usageOf(s.operator.PID()).peak-full)
	if err := s.tellReads(f); err != nil {
		return err
	}
	if err := s.inMode(ctx, "barrier"); err != nil {
		return err
	}
	lags, err := s.trickle(ctx, "single", l.trickle, 50*time.Millisecond)
	if err != nil {
		return err
	}
	f.add("release-1000.after-last-user-ms-median", milliseconds(percentile(lags, 50)))
	f.add("release-1000.after-last-user-ms-p99", milliseconds(percentile(lags, 99)))
	return nil
}

// builtIn measures the floor: the claims bear both finalizers, and one is taken.
func (s *claimStage) builtIn(ctx context.Context, l releaseLoad, f *figures) error {
	if err := s.operator.Kill(); err != nil {
		return err
	}
	err := s.plane.Restart(drill.ControllerManager, "--kcm-controllers", "*", "--kcm-qps", fmt.Sprint(clientLimit))
	if err != nil {
		return err
	}
	if err := s.heldClaims(ctx, "both", l.claims, l.users); err != nil {
		return err
	}
	freed, err := s.free(ctx, "both", l, byBuiltIn)
	if err != nil {
		return err
	}
	f.add("release-1000.built-in-claims-per-second", freed.rate())
	return nil
}

// beside has the operator come to the claims that what is built in has let go of, and
// then work beside it.
func (s *claimStage) beside(ctx context.Context, l releaseLoad, f *figures) error {
	left, err := s.claimsBearing(ctx, "both", barrier)
	if err == nil && left != l.claims {
		err = fmt.Errorf("%w: %d of %d claims wait for the operator", errInvalid, left, l.claims)
	}
	if err != nil {
		return err
	}
	flags, err := s.limited(false)
	if err != nil {
		return err
	}
	if err := s.remark(); err != nil {
		return err
	}
	if err := s.operator.Start(flags...); err != nil {
		return err
	}
	freed, err := s.taken(ctx, l.claims, drill.ByLockstep)
	if err != nil {
		return err
	}
	freed.begun = freed.first
	f.add("release-1000.beside-claims-per-second", freed.rate())
	if err := s.rest(ctx); err != nil {
		return err
	}
	lags, err := s.trickle(ctx, "beside", l.trickle/2, 200*time.Millisecond)
	if err != nil {
		return err
	}
	f.add("release-1000.beside-after-last-user-ms-median", milliseconds(percentile(lags, 50)))
	f.add("release-1000.beside-after-last-user-ms-p99", milliseconds(percentile(lags, 99)))
	return nil
}

// restore puts everything back for other scenarios.
func (s *claimStage) restore(ctx context.Context) error {
	if s.last {
		return nil
	}
	return errors.Join(
		s.plane.Restart(drill.ControllerManager, "--kcm-controllers", "*", "--kcm-qps", fmt.Sprint(s.plane.QPS)),
		s.strike(ctx), s.rerun(ctx, s.flags))
}

// freed is how claims went: from the first user's going on, one write a claim.
type freed struct {
	begun, first, last time.Time
	claims             int
}

func (f freed) rate() float64 { return float64(f.claims) / f.last.Sub(f.begun).Seconds() }

// free has all users go at once, and waits for one write on each of the claims.
func (s *claimStage) free(ctx context.Context, prefix string, l releaseLoad, by func(drill.Request) bool) (freed, error) {
	if err := s.remark(); err != nil {
		return freed{}, err
	}
	err := together(numbers(l.users), func(i int) error { return s.letGo(ctx, userOf(prefix, i)) })
	if err != nil {
		return freed{}, err
	}
	f, err := s.taken(ctx, l.claims, by)
	if err != nil {
		return freed{}, err
	}
	left := s.since(func(r drill.Request) bool { return r.Verb == "delete" && r.Resource == "pods" && r.Agent == benchAgent })
	if len(left) != l.users {
		return freed{}, fmt.Errorf("%w: %d of %d users went", errInvalid, len(left), l.users)
	}
	f.begun = slices.MinFunc(left, func(a, b drill.Request) int { return a.Begun.Compare(b.Begun) }).Begun
	bearing, err := s.claimsBearing(ctx, prefix, "kubernetes.io/pvc-protection")
	if err == nil && bearing > 0 {
		err = fmt.Errorf("%w: %d claims still wait for their users", errInvalid, bearing)
	}
	return f, err
}

// taken waits until each of the claims was written onto, and tells when.
func (s *claimStage) taken(ctx context.Context, claims int, by func(drill.Request) bool) (freed, error) {
	f := freed{claims: claims}
	err := s.until(ctx, "the claims go", claims, func() (int, error) {
		writes := s.since(func(r drill.Request) bool { return changesClaim(r) && by(r) })
		last := lastWrites(writes)
		f.first, f.last = span(writes)
		return len(last), nil
	})
	return f, err
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
func (s *claimStage) tellReads(f *figures) error {
	if err := s.audit.Sync(); err != nil {
		return err
	}
	full, probes := 0, 0
	for _, r := range s.since(drill.ByLockstep) {
		all, one := readsPods(r)
		if all {
			full++
		}
		if one {
			probes++
		}
	}
	f.add("release-1000.full-reads", float64(full))
	f.add("release-1000.batches", float64(probes))
	f.add("release-1000.full-reads-per-batch", float64(full)/float64(max(probes, 1)))
	f.add("release-1000.events", float64(len(s.since(func(r drill.Request) bool { return drill.ByLockstep(r) && r.Resource == "events" }))))
	return nil
}

// trickle has claims that are deleted let go of one by one, each by a pod of its own,
// and tells how long after its pod each was gone, by the API server's clock.
func (s *claimStage) trickle(ctx context.Context, prefix string, claims int, pace time.Duration) ([]time.Duration, error) {
	if err := s.heldClaims(ctx, prefix, claims, claims); err != nil {
		return nil, err
	}
	if err := errors.Join(s.rest(ctx), s.remark()); err != nil {
		return nil, err
	}
	tick := time.NewTicker(pace)
	defer tick.Stop()
	for i := range claims {
		if err := s.letGo(ctx, userOf(prefix, i)); err != nil {
			return nil, err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	err := s.until(ctx, "the claims are gone", 1, func() (int, error) {
		n, err := s.claimsBearing(ctx, prefix, "")
		if n > 0 {
			return 0, err
		}
		return 1, err
	})
	if err != nil {
		return nil, err
	}
	if err := s.audit.Sync(); err != nil {
		return nil, err
	}
	return lagsOf(s.since(func(drill.Request) bool { return true }), prefix, claims)
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

// percentile is one of values that are in order: the least that so many in a hundred
// do not exceed.
func percentile(sorted []time.Duration, p int) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[max((len(sorted)*p+99)/100-1, 0)]
}
