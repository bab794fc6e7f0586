package model

// holdWorld is the rules and the faults.
type holdWorld struct {
	rules  HoldRules
	faults HoldFaults
	decide func(holdQuestion) holdAnswer
}

// next adds every step.
func (w holdWorld) next(to *steps[holdState]) {
	s := to.from
	if !s.pvc.exists && s.pvc.uid >= w.faults.PVCs {
		return
	}
	w.workload(s, to)
	w.time(s, to)
	w.users(s, to)
	w.deletions(s, to)
	w.keeper(s, "operator", func(s *holdState) *keeper { return &s.ours }, to)
	if w.faults.Another {
		w.keeper(s, "another operator", func(s *holdState) *keeper { return &s.another }, to)
	}
}

// workload is the workload's deletion and creation.
func (w holdWorld) workload(s holdState, to *steps[holdState]) {
	to.maybe(s.workload == present, "workload: deleted", func(s *holdState) { s.workload = away })
	to.maybe(s.workload != present && s.comings < w.faults.Comings, "workload: created", func(s *holdState) {
		s.comings++
		s.workload = present
	})
}

// time passes: a deleted workload is not created again, and the grace ends. An operator reads and
// writes faster than the grace.
func (w holdWorld) time(s holdState, to *steps[holdState]) {
	passes := func(s *holdState) {
		if s.workload == away {
			s.workload, s.promised = absent, false
		}
	}
	isGrace := s.pvc.hold == cooling && !s.pvc.cooled
	to.surely(!isGrace, "time: the workload is not created again", passes)
	isRead := isGrace && !w.late(s, s.ours) && (!w.faults.Another || !w.late(s, s.another))
	to.surely(isRead, "time: the grace is over", func(s *holdState) {
		passes(s)
		s.pvc.cooled = true
	})
}

func (w holdWorld) late(s holdState, k keeper) bool {
	return k.pvc != s.pvc || k.sees != (s.workload == present) || k.out.under || w.judge(s, k, false).under
}

// users write a release, or a wish to delete the PVC when it is free. They create another PVC of the
// name from a copy, and they try to remove the hold.
func (w holdWorld) users(s holdState, to *steps[holdState]) {
	c := s.pvc
	to.maybe(!c.exists && c.uid < w.faults.PVCs, "user: create the PVC again, from a copy", func(s *holdState) {
		s.pvc = heldPVC{uid: c.uid + 1, exists: true, release: c.release, wish: c.wish}
		s.promised = false
	})
	annotate := func(says string, can bool, edit func(*holdState)) {
		to.maybe(can && c.exists && !c.terminating, "user: "+says, func(s *holdState) {
			edit(s)
			s.pvc.version++
		})
	}
	annotate("release the PVC", c.release == 0 && s.releases < w.faults.Releases, func(s *holdState) {
		s.releases++
		s.pvc.release = c.uid
	})
	annotate("delete when free", c.wish == 0 && s.wishes < w.faults.Wishes, func(s *holdState) {
		s.wishes++
		s.pvc.wish, s.wished = c.uid, c.uid
	})
	annotate("do not delete after all", c.wish == c.uid, func(s *holdState) { s.pvc.wish, s.wished = 0, 0 })
	annotate("remove the hold", c.hold != noHold && !w.rules.Guards, func(s *holdState) {
		s.pvc.hold, s.pvc.cooled = noHold, false
	})
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
func (w holdWorld) deletions(s holdState, to *steps[holdState]) {
	c := s.pvc
	ends := c.exists && c.terminating && (c.hold == noHold || w.released(c))
	to.surely(ends, "finalizers: removed, and the PVC is gone", func(s *holdState) {
		s.pvc = heldPVC{uid: c.uid, release: c.release, wish: c.wish}
	})
	if !c.exists || c.terminating {
		return
	}
	to.maybe(s.bare < w.faults.Bare, "user: DELETE, and no policy is there", func(s *holdState) {
		was := s.lost // an administrator may delete the policies
		s.terminate()
		s.lost = was
		s.bare++
	})
	refuses := w.refuses(c)
	to.maybe(refuses, "collector: DELETE without owners is refused", func(s *holdState) { s.refused = c.uid })
	to.maybe(!refuses && w.rules.Atomic, "user: DELETE", (*holdState).terminate)
	to.maybe(!refuses && !w.rules.Atomic, "webhook: no hold, let the DELETE pass", func(s *holdState) { s.passed = c.uid })
	to.maybe(s.passed == c.uid, "user: the DELETE that was let pass", func(s *holdState) {
		s.terminate()
		s.passed = 0
	})
}

// terminate is a DELETE.
func (s *holdState) terminate() {
	s.lost = s.lost || s.inUse() && s.pvc.release != s.pvc.uid
	s.pvc.terminating = true
	s.pvc.version++
}

// keeper takes the steps of one operator: read, judge, write.
func (w holdWorld) keeper(s holdState, name string, of func(*holdState) *keeper, to *steps[holdState]) {
	to.surely(true, name+": PVC informer catches up", func(s *holdState) { of(s).pvc = s.pvc })
	to.surely(true, name+": workload informer catches up", func(s *holdState) { of(s).sees = s.workload == present })
	k := *of(&s)
	if !k.out.under {
		judged, blind := w.judge(s, k, false), w.judge(s, k, true)
		to.surely(true, name+": "+judged.says(), func(s *holdState) { of(s).out = judged })
		to.maybe(s.errors < w.faults.Errors, name+": workloads cannot be read, "+blind.says(), func(s *holdState) {
			s.errors++
			of(s).out = blind
		})
	}
	w.arrive(s, name, k.out, func(s *holdState) *holdWrite { return &of(s).out }, to)
	late := k.late
	late.next = false // the process that crashed does not go on
	w.arrive(s, name+", before it crashed", late, func(s *holdState) *holdWrite { return &of(s).late }, to)
	to.maybe(s.crashes < w.faults.Crashes, name+": crash", func(s *holdState) {
		s.crashes++
		of(s).late, of(s).out = k.out, holdWrite{}
	})
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
	d := w.decide(q)
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
		d = w.decide(q)
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

// arrive carries out a write of the operator, or of its process before a crash. A deletion may follow it.
func (w holdWorld) arrive(
	s holdState, name string, out holdWrite, sent func(*holdState) *holdWrite, to *steps[holdState],
) {
	c, says, write := s.pvc, out.hold.says(), func(s *holdState) {
		s.pvc.hold, s.pvc.cooled = out.hold, false
		s.pvc.version++
		s.promised = s.promised || out.hold == held && s.workload == present && !s.pvc.terminating
		if out.next {
			*sent(s) = holdWrite{under: true, deletes: true, wished: out.wished, wanted: out.wanted, onto: s.pvc}
		}
	}
	switch {
	case !c.exists, w.rules.Preconditions && (c.uid != out.onto.uid || c.version != out.onto.version):
		says, write = "conflict, judge again", func(*holdState) {}
	case out.deletes && (c.terminating || w.refuses(c)):
		says, write = "its DELETE is refused", func(*holdState) {}
	case out.deletes:
		says, write = "DELETE", func(s *holdState) {
			asked := s.wished == c.uid && c.wish == c.uid || s.refused == c.uid
			s.terminate()
			s.lost = s.lost || !asked || out.wished && out.wanted
		}
	}
	to.surely(out.under, name+": "+says, func(s *holdState) {
		*sent(s) = holdWrite{}
		write(s)
	})
}
