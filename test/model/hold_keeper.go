package model

// keeper reads, judges and writes.
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

// judge is the write that is due, by the caches and, if the decision asks for it, by a live read.
func (w holdWorld) judge(s holdState, k keeper, fails bool) holdWrite {
	c := k.pvc
	if !c.exists || c.terminating && !w.rules.Yields {
		return holdWrite{}
	}
	q := holdQuestion{
		hold: c.hold, terminating: c.terminating, cooled: c.cooled, wanted: k.sees, grace: w.rules.Grace,
		wished:     c.wish == c.life || !w.rules.NamesUID && c.wish != 0,
		ownersGone: s.refused == c.life && w.rules.Replays && (c.hold != noHold || w.rules.ReplaysLater),
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

// arrive lets a write arrive: of the operator, or of a process before it.
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

// carryOut is the world after a write; a deletion may follow it.
func (w holdWorld) carryOut(s holdState, name string, out holdWrite, of func(*holdState) *keeper, h *holdSteps) {
	c, then := s.pvc, s
	switch {
	case !c.exists, w.rules.Preconditions && (c.life != out.onto.life || c.version != out.onto.version):
		h.surely(name+": conflict, judge again", s)
	case out.deletes && (c.terminating || w.refuses(c)):
		h.surely(name+": its DELETE is refused", s)
	case out.deletes:
		then = s.terminate()
		asked := s.wished == c.life && c.wish == c.life || s.refused == c.life
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
