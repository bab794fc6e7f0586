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

// surely adds a step that happens at last, maybe one that may never happen.
func (h *holdSteps) surely(says string, then holdState) { h.add(says, then, false) }
func (h *holdSteps) maybe(says string, then holdState)  { h.add(says, then, true) }

func (w holdWorld) next(s holdState) []step[holdState] {
	h := &holdSteps{from: s}
	if !s.pvc.exists && s.pvc.life >= w.faults.Lives {
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

// workload is deleted, and created again.
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

// time passes: a deleted workload is not created again, and the grace ends. No operator is that
// late with what it has to read and write.
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

// users write a release, a wish to delete the PVC when it is free, or another PVC of the name
// from a copy of the manifest; and what they may not.
func (w holdWorld) users(s holdState, h *holdSteps) {
	c := s.pvc
	if !c.exists && c.life < w.faults.Lives {
		then := s
		then.pvc = heldPVC{life: c.life + 1, exists: true, release: c.release, wish: c.wish}
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
	annotate("user: release the PVC", c.release == 0 && s.releases < w.faults.Releases, func(then *holdState) { then.releases++; then.pvc.release = c.life })
	annotate("user: delete when free", c.wish == 0 && s.wishes < w.faults.Wishes, func(then *holdState) {
		then.wishes++
		then.pvc.wish, then.wished = c.life, c.life
	})
	annotate("user: do not delete after all", c.wish == c.life, func(then *holdState) { then.pvc.wish, then.wished = 0, 0 })
	annotate("user: remove the hold", c.hold != noHold && !w.rules.Guards, func(then *holdState) { then.pvc.hold, then.pvc.cooled = noHold, false })
}

// released reports whether a release counts for the PVC.
func (w holdWorld) released(c heldPVC) bool {
	return c.release == c.life || !w.rules.NamesUID && c.release != 0
}

// refuses reports whether the DELETE of a PVC is refused.
func (w holdWorld) refuses(c heldPVC) bool {
	return w.rules.Refuses && c.hold != noHold && !w.released(c)
}

// deletions come at any time. The finalizers of a terminating PVC go, if no hold keeps them.
func (w holdWorld) deletions(s holdState, h *holdSteps) {
	c, then := s.pvc, s
	switch {
	case !c.exists:
		return
	case c.terminating:
		if c.hold == noHold || w.released(c) {
			then.pvc = heldPVC{life: c.life, release: c.release, wish: c.wish}
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
		then.refused = c.life
		h.maybe("collector: DELETE without owners is refused", then)
	case w.rules.Atomic:
		h.maybe("user: DELETE", s.terminate())
	default:
		then.passed = c.life
		h.maybe("webhook: no hold, let the DELETE pass", then)
	}
	if s.passed == c.life {
		then := s.terminate()
		then.passed = 0
		h.maybe("user: the DELETE that was let pass", then)
	}
}

// terminate is the world after a DELETE.
func (s holdState) terminate() holdState {
	s.lost = s.lost || s.inUse() && s.pvc.release != s.pvc.life
	s.pvc.terminating = true
	s.pvc.version++
	return s
}
