package model

// keeper looks, judges and writes.
func (w holdWorld) keeper(s holdState, name string, of func(*holdState) *keeper, h *holdSteps) {
	then := s
	of(&then).claim = s.claim
	h.surely(name+": claim informer catches up", then)
	then = s
	of(&then).sees = s.workload == present
	h.surely(name+": workload informer catches up", then)
	w.blind(s, name, of, h)
	if k := *of(&s); !k.out.under {
		then = s
		of(&then).out = w.judge(s, k)
		h.surely(name+": "+of(&then).out.says(), then)
	}
	w.arrive(s, name, of, h)
	if s.crashes < w.faults.Crashes {
		then = s
		then.crashes++
		k := of(&then)
		k.late, k.out = k.out, keeping{}
		h.maybe(name+": crash", then)
	}
}

// blind has workloads be unreadable for a while, to who has seen and done all by then.
func (w holdWorld) blind(s holdState, name string, of func(*holdState) *keeper, h *holdSteps) {
	then := s
	of(&then).blind = !of(&s).blind
	if of(&s).blind {
		h.surely(name+": workloads can be read again", then)
		return
	}
	if s.errors < w.faults.Errors && !w.late(s, *of(&s)) {
		then.errors++
		h.maybe(name+": workloads cannot be read", then)
	}
}

func (k keeping) says() string {
	switch {
	case k.deletes:
		return "judge: delete it"
	case k.words == heldWords:
		return "judge: a workload wants it"
	case k.words == coolingWords:
		return "judge: the last holder is gone"
	}
	return "judge: words go"
}

// view is what a verdict goes by.
type view struct {
	claim               bornClaim
	wanted, blind, gone bool
}

// judge is the write that is due, if one is.
func (w holdWorld) judge(s holdState, k keeper) keeping {
	v := view{claim: k.claim, wanted: k.sees && !k.blind, blind: k.blind, gone: s.refused == k.claim.life}
	d := w.decide(v)
	if d.wished && (d.deletes || d.next) && w.rules.LooksLive {
		v.wanted = s.workload == present
		d = w.decide(v)
	}
	d.wanted = s.workload == present
	if !d.under {
		return keeping{}
	}
	return d
}

// decide says what shall stand on a claim, and whether it is deleted.
func (w holdWorld) decide(v view) keeping {
	c := v.claim
	write := func(stands words) keeping {
		return keeping{under: stands != c.words || c.cooled && stands == heldWords, onto: c, words: stands}
	}
	switch {
	case !c.exists:
		return keeping{}
	case c.terminating:
		if w.rules.Yields {
			return write(noWords)
		}
		return keeping{}
	case v.wanted:
		return write(heldWords)
	case v.blind && w.rules.ErrorsHold:
		return keeping{}
	case c.words == heldWords && w.rules.Grace:
		return write(coolingWords)
	case c.words == coolingWords && !c.cooled:
		return keeping{}
	}
	d := write(noWords)
	d.wished = c.wish == c.life || !w.rules.NamesLife && c.wish != 0
	if d.wished || v.gone && w.rules.Replays && (d.under || w.rules.ReplaysLater) {
		d.next, d.deletes = d.under, !d.under
		d.under = true
	}
	return d
}

// arrive lets a write of the operator's, or one of its predecessor's, arrive.
func (w holdWorld) arrive(s holdState, name string, of func(*holdState) *keeper, h *holdSteps) {
	if out := of(&s).out; out.under {
		then := s
		of(&then).out = keeping{}
		w.carryOut(then, name, out, of, h)
	}
	if late := of(&s).late; late.under {
		then := s
		of(&then).late = keeping{}
		late.next = false // there is nobody to go on
		w.carryOut(then, name+", before it crashed", late, of, h)
	}
}

// carryOut is what comes of a write, and of the deletion that is to follow it.
func (w holdWorld) carryOut(s holdState, name string, out keeping, of func(*holdState) *keeper, h *holdSteps) {
	c := s.claim
	same := c.life == out.onto.life && c.version == out.onto.version
	switch {
	case !c.exists, w.rules.Preconditions && !same:
		h.surely(name+": conflict, look again", s)
		return
	case out.deletes && (c.terminating || w.refuses(c)):
		h.surely(name+": its own DELETE is refused", s)
		return
	case out.deletes:
		then := s.terminate()
		asked := s.wished == c.life && c.wish == c.life || s.refused == c.life
		then.lost = then.lost || !asked || out.wished && out.wanted
		h.surely(name+": DELETE", then)
		return
	}
	then := s
	then.claim.words, then.claim.cooled = out.words, false
	then.claim.version++
	then.promised = s.promised || out.words == heldWords && s.workload == present && !c.terminating
	if out.next {
		of(&then).out = keeping{under: true, deletes: true, wished: out.wished, wanted: out.wanted, onto: then.claim}
		h.surely(name+": words go, its DELETE is next", then)
		return
	}
	h.surely(name+": "+[]string{"words go", "write the holder", "write until when it cools"}[out.words], then)
}
