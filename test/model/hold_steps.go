package model

// holdWorld is the rules and the faults.
type holdWorld struct {
	rules     HoldRules
	faults    HoldFaults
	decisions memo[holdQuestion, holdAnswer]
}

// holdSteps collects what may happen next.
type holdSteps struct {
	from  holdState
	steps []step[holdState]
}

func (h *holdSteps) add(says string, then holdState, maybe bool) {
	if then = then.renumbered(); then != h.from {
		h.steps = append(h.steps, step[holdState]{says: says, then: then, maybe: maybe})
	}
}

// surely adds a step that happens in the end, and maybe a step that may never happen.
func (h *holdSteps) surely(says string, then holdState) { h.add(says, then, false) }
func (h *holdSteps) maybe(says string, then holdState)  { h.add(says, then, true) }

func (w holdWorld) next(s holdState) []step[holdState] {
	h := &holdSteps{from: s}
	if !s.pvc.exists && s.pvc.uid >= w.faults.PVCs {
		return nil
	}
	w.workload(s, h)
	w.time(s, h)
	w.users(s, h)
	w.deletions(s, h)
	w.keeper(s, "operator", func(s *holdState) *keeper { return &s.ours }, h)
	if w.faults.Another {
		w.keeper(s, "another operator", func(s *holdState) *keeper { return &s.another }, h)
	}
	return h.steps
}

// workload is the workload's deletion and creation.
func (w holdWorld) workload(s holdState, h *holdSteps) {
	then := s
	switch {
	case s.workload == present:
		then.workload = away
		h.maybe("workload: deleted", then)
	case s.comings < w.faults.Comings:
		then.comings++
		then.workload = present
		h.maybe("workload: created", then)
	}
}

// time passes: a deleted workload is not created again, and the grace ends. An operator reads and
// writes faster than the grace.
func (w holdWorld) time(s holdState, h *holdSteps) {
	then := s
	if s.workload == away {
		then.workload, then.promised = absent, false
	}
	switch {
	case s.pvc.hold != cooling || s.pvc.cooled:
		h.surely("time: the workload is not created again", then)
	case !w.late(s, s.ours) && (!w.faults.Another || !w.late(s, s.another)):
		then.pvc.cooled = true
		h.surely("time: the grace is over", then)
	}
}

func (w holdWorld) late(s holdState, k keeper) bool {
	return k.pvc != s.pvc || k.sees != (s.workload == present) || k.out.under || w.judge(s, k, false).under
}

// users write a release, or a wish to delete the PVC when it is free. They create another PVC of the
// name from a copy, and they try to remove the hold.
func (w holdWorld) users(s holdState, h *holdSteps) {
	c := s.pvc
	if !c.exists && c.uid < w.faults.PVCs {
		then := s
		then.pvc = heldPVC{uid: c.uid + 1, exists: true, release: c.release, wish: c.wish}
		then.promised = false
		h.maybe("user: create the PVC again, from a copy", then)
	}
	if !c.exists || c.terminating {
		return
	}
	annotate := func(says string, can bool, edit func(*holdState)) {
		then := s
		then.pvc.version++
		if edit(&then); can {
			h.maybe(says, then)
		}
	}
	annotate("user: release the PVC", c.release == 0 && s.releases < w.faults.Releases, func(then *holdState) { then.releases++; then.pvc.release = c.uid })
	annotate("user: delete when free", c.wish == 0 && s.wishes < w.faults.Wishes, func(then *holdState) {
		then.wishes++
		then.pvc.wish, then.wished = c.uid, c.uid
	})
	annotate("user: do not delete after all", c.wish == c.uid, func(then *holdState) { then.pvc.wish, then.wished = 0, 0 })
	annotate("user: remove the hold", c.hold != noHold && !w.rules.Guards, func(then *holdState) { then.pvc.hold, then.pvc.cooled = noHold, false })
}

// released reports whether a release counts for the PVC.
func (w holdWorld) released(c heldPVC) bool {
	return c.release == c.uid || !w.rules.NamesUID && c.release != 0
}

// refuses reports whether the DELETE of a PVC is refused.
func (w holdWorld) refuses(c heldPVC) bool {
	return w.rules.Refuses && c.hold != noHold && !w.released(c)
}

// deletions happen at any time. The finalizers of a terminating PVC are removed if it has no hold.
func (w holdWorld) deletions(s holdState, h *holdSteps) {
	c, then := s.pvc, s
	switch {
	case !c.exists:
		return
	case c.terminating:
		if c.hold == noHold || w.released(c) {
			then.pvc = heldPVC{uid: c.uid, release: c.release, wish: c.wish}
			h.surely("finalizers: removed, and the PVC is gone", then)
		}
		return
	}
	if s.bare < w.faults.Bare {
		bare := s.terminate()
		bare.bare++
		bare.lost = s.lost // an administrator may delete the policies
		h.maybe("user: DELETE, and no policy is there", bare)
	}
	switch {
	case w.refuses(c):
		then.refused = c.uid
		h.maybe("collector: DELETE without owners is refused", then)
	case w.rules.Atomic:
		h.maybe("user: DELETE", s.terminate())
	default:
		then.passed = c.uid
		h.maybe("webhook: no hold, let the DELETE pass", then)
	}
	if s.passed == c.uid {
		then := s.terminate()
		then.passed = 0
		h.maybe("user: the DELETE that was let pass", then)
	}
}

// terminate is the state after a DELETE.
func (s holdState) terminate() holdState {
	s.lost = s.lost || s.inUse() && s.pvc.release != s.pvc.uid
	s.pvc.terminating = true
	s.pvc.version++
	return s
}

// keeper takes the steps of one operator: read, judge, write.
func (w holdWorld) keeper(s holdState, name string, of func(*holdState) *keeper, h *holdSteps) {
	then := s
	of(&then).pvc = s.pvc
	h.surely(name+": PVC informer catches up", then)
	then = s
	of(&then).sees = s.workload == present
	h.surely(name+": workload informer catches up", then)
	if k := *of(&s); !k.out.under {
		then = s
		of(&then).out = w.judge(s, k, false)
		h.surely(name+": "+of(&then).out.says(), then)
		if s.errors < w.faults.Errors {
			of(&then).out = w.judge(s, k, true)
			then.errors++
			h.maybe(name+": workloads cannot be read, "+of(&then).out.says(), then)
		}
	}
	w.arrive(s, name, of, h)
	if s.crashes < w.faults.Crashes {
		then = s
		then.crashes++
		k := of(&then)
		k.late, k.out = k.out, holdWrite{}
		h.maybe(name+": crash", then)
	}
}

func (k holdWrite) says() string {
	switch {
	case !k.under:
		return "judge: no change"
	case k.deletes:
		return "judge: delete it"
	}
	return "judge: " + k.hold.says()
}

func (h hold) says() string {
	return [...]string{"end the hold", "hold", "cool"}[h]
}

// judge returns the next write. It reads the caches and, if the decision needs it, the API server.
func (w holdWorld) judge(s holdState, k keeper, fails bool) holdWrite {
	c := k.pvc
	if !c.exists || c.terminating && !w.rules.Yields {
		return holdWrite{}
	}
	q := holdQuestion{
		hold: c.hold, terminating: c.terminating, cooled: c.cooled, wanted: k.sees, grace: w.rules.Grace,
		wished:     c.wish == c.uid || !w.rules.NamesUID && c.wish != 0,
		ownersGone: s.refused == c.uid && w.rules.Replays && (c.hold != noHold || w.rules.ReplaysLater),
	}
	d := w.decisions.of(q, holdQuestion.decide)
	if d.needsLive {
		q.live = true
		switch {
		case fails && w.rules.ErrorsHold:
			return holdWrite{}
		case fails:
			q.wanted = false
		case w.rules.ReadsLive:
			q.wanted = s.workload == present
		}
		d = w.decisions.of(q, holdQuestion.decide)
	}
	changes := d.hold != c.hold || c.cooled && d.hold == held
	if !changes && !d.deletes {
		return holdWrite{}
	}
	return holdWrite{
		under: true, onto: c, hold: d.hold, next: changes && d.deletes, deletes: !changes && d.deletes,
		wished: q.wished && !q.ownersGone, wanted: s.workload == present,
	}
}

// arrive carries out a write of the operator, or of its process before a crash.
func (w holdWorld) arrive(s holdState, name string, of func(*holdState) *keeper, h *holdSteps) {
	if out := of(&s).out; out.under {
		then := s
		of(&then).out = holdWrite{}
		w.carryOut(then, name, out, of, h)
	}
	if late := of(&s).late; late.under {
		then := s
		of(&then).late = holdWrite{}
		late.next = false // that process does not go on
		w.carryOut(then, name+", before it crashed", late, of, h)
	}
}

// carryOut is the state after a write; a deletion may follow it.
func (w holdWorld) carryOut(s holdState, name string, out holdWrite, of func(*holdState) *keeper, h *holdSteps) {
	c, then := s.pvc, s
	switch {
	case !c.exists, w.rules.Preconditions && (c.uid != out.onto.uid || c.version != out.onto.version):
		h.surely(name+": conflict, judge again", s)
	case out.deletes && (c.terminating || w.refuses(c)):
		h.surely(name+": its DELETE is refused", s)
	case out.deletes:
		then = s.terminate()
		asked := s.wished == c.uid && c.wish == c.uid || s.refused == c.uid
		then.lost = then.lost || !asked || out.wished && out.wanted
		h.surely(name+": DELETE", then)
	default:
		then.pvc.hold, then.pvc.cooled = out.hold, false
		then.pvc.version++
		then.promised = s.promised || out.hold == held && s.workload == present && !c.terminating
		if out.next {
			of(&then).out = holdWrite{under: true, deletes: true, wished: out.wished, wanted: out.wanted, onto: then.pvc}
		}
		h.surely(name+": "+out.hold.says(), then)
	}
}
