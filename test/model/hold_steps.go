package model

// holdWorld is the rules, and the faults that they have to stand.
type holdWorld struct {
	rules  HoldRules
	faults HoldFaults
}

// holdSteps gathers what may happen next.
type holdSteps struct {
	from  holdState
	steps []step[holdState]
}

func (h *holdSteps) add(says string, then holdState, maybe bool) {
	if then = then.renumbered(); then != h.from {
		h.steps = append(h.steps, step[holdState]{says: says, then: then, maybe: maybe})
	}
}

// surely is what can be counted on, and maybe what cannot.
func (h *holdSteps) surely(says string, then holdState) { h.add(says, then, false) }
func (h *holdSteps) maybe(says string, then holdState)  { h.add(says, then, true) }

func (w holdWorld) start() holdState {
	s := holdState{claim: bornClaim{life: 1, exists: true}}
	s.ours.claim, s.another.claim = s.claim, s.claim
	return s
}

func (w holdWorld) next(s holdState) []step[holdState] {
	h := &holdSteps{from: s}
	if !s.claim.exists && s.claim.life >= w.faults.Lives {
		return nil
	}
	w.workload(s, h)
	w.time(s, h)
	w.people(s, h)
	w.deletions(s, h)
	w.finalizers(s, h)
	w.keeper(s, "operator", func(s *holdState) *keeper { return &s.ours }, h)
	if w.faults.Another {
		w.keeper(s, "another operator", func(s *holdState) *keeper { return &s.another }, h)
	}
	return h.steps
}

// workload comes and goes, and comes again.
func (w holdWorld) workload(s holdState, h *holdSteps) {
	then := s
	switch s.workload {
	case present:
		then.workload = away
		h.maybe("workload: goes", then)
	case absent, away:
		if s.comings < w.faults.Comings {
			then.comings++
			then.workload = present
			h.maybe("workload: comes", then)
		}
	}
}

// time passes: a workload that has gone is not to come again, and words that cool have
// cooled. No operator is as late as that with what it has to see and to write.
func (w holdWorld) time(s holdState, h *holdSteps) {
	then := s
	if s.workload == away {
		then.workload, then.promised = absent, false
	}
	if s.claim.words != coolingWords || s.claim.cooled {
		h.surely("time: the workload does not come again", then)
		return
	}
	if !w.late(s, s.ours) && (!w.faults.Another || !w.late(s, s.another)) {
		then.claim.cooled = true
		h.surely("time: the grace is over", then)
	}
}

func (w holdWorld) late(s holdState, k keeper) bool {
	return k.claim != s.claim || k.sees != (s.workload == present) || k.out.under || w.judge(s, k).under
}

// people write what they may: a release, a wish that the claim be deleted when it is free,
// another claim of the name from a copy of the manifest; and what they may not.
func (w holdWorld) people(s holdState, h *holdSteps) {
	c := s.claim
	switch {
	case !c.exists && c.life < w.faults.Lives:
		then := s
		then.claim = bornClaim{life: c.life + 1, exists: true, release: c.release, wish: c.wish}
		then.promised = false
		h.maybe("somebody: create the claim anew, from a copy", then)
	case c.exists && !c.terminating:
		w.annotate(s, h)
	}
}

func (w holdWorld) annotate(s holdState, h *holdSteps) {
	then := s
	then.claim.version++
	if s.claim.release == 0 && s.releases < w.faults.Releases {
		released := then
		released.releases++
		released.claim.release = s.claim.life
		h.maybe("somebody: release the claim", released)
	}
	if s.claim.wish == 0 && s.wishes < w.faults.Wishes {
		wished := then
		wished.wishes++
		wished.claim.wish, wished.wished = s.claim.life, s.claim.life
		h.maybe("somebody: to be deleted when free", wished)
	}
	if s.claim.wish == s.claim.life {
		kept := then
		kept.claim.wish, kept.wished = 0, 0
		h.maybe("somebody: not to be deleted after all", kept)
	}
	if s.claim.words != noWords && !w.rules.GuardsWords {
		then.claim.words, then.claim.cooled = noWords, false
		h.maybe("a stranger: take the words off", then)
	}
}

// released tells whether a release counts for the claim.
func (w holdWorld) released(c bornClaim) bool {
	return c.release == c.life || !w.rules.NamesLife && c.release != 0
}

// refuses tells whether the DELETE of a claim is refused.
func (w holdWorld) refuses(c bornClaim) bool {
	return w.rules.Refuses && c.words != noWords && !w.released(c)
}

// deletions are asked for by whoever likes.
func (w holdWorld) deletions(s holdState, h *holdSteps) {
	c := s.claim
	if !c.exists || c.terminating {
		return
	}
	if s.bare < w.faults.Bare {
		then := s.terminate()
		then.bare++
		then.lost = s.lost // that much is for who deletes policies
		h.maybe("somebody: DELETE, and no policy is there", then)
	}
	switch {
	case w.refuses(c):
		then := s
		then.refused = c.life
		h.maybe("collector: DELETE of what its owner left is refused", then)
	case w.rules.Atomic:
		h.maybe("somebody: DELETE", s.terminate())
	default:
		then := s
		then.passed = c.life
		h.maybe("webhook: no words, let the DELETE pass", then)
	}
	if s.passed == c.life {
		then := s.terminate()
		then.passed = 0
		h.maybe("somebody: the DELETE that was let pass", then)
	}
}

// terminate is the world after a DELETE.
func (s holdState) terminate() holdState {
	s.lost = s.lost || s.inUse() && s.claim.release != s.claim.life
	s.claim.terminating = true
	s.claim.version++
	return s
}

// finalizers go at some time, if no words keep them.
func (w holdWorld) finalizers(s holdState, h *holdSteps) {
	if !s.claim.terminating || s.claim.words != noWords && !w.released(s.claim) {
		return
	}
	then := s
	then.claim = bornClaim{life: s.claim.life, release: s.claim.release, wish: s.claim.wish}
	h.surely("finalizers: go, and the claim with them", then)
}
