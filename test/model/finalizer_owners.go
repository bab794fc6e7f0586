package model

// who is one of the owners of finalizers.
type who struct {
	name string
	of   func(*state) *owner
}

var (
	builtIn = who{"built-in", func(s *state) *owner { return &s.builtIn }}
	ours    = who{"ours", func(s *state) *owner { return &s.ours }}
	another = who{"another of ours", func(s *state) *owner { return &s.another }}
)

func (x who) isOurs() bool { return x.name != builtIn.name }

// owner reads, judges and writes.
func (w world) owner(s state, x who, add func(string, state)) {
	w.informers(s, x, add)
	switch out := x.of(&s).out; {
	case out.removes != none:
		then := s
		x.of(&then).out = write{}
		w.arrive(then, x, x.name, out, add)
	case x.isOurs():
		w.judge(s, x, add)
	default:
		w.builtInJudges(s, add)
	}
	if late := x.of(&s).late; late.removes != none {
		then := s
		x.of(&then).late = write{}
		w.arrive(then, x, x.name+", before it crashed", late, add)
	}
	if s.crashes < w.faults.Crashes {
		then := s
		then.crashes++
		o := x.of(&then)
		o.late, o.out, o.listed, o.list, o.began, o.batch = o.out, write{}, false, sight{}, 0, stored{}
		add(x.name+": crash", then)
	}
}

// informers are late by any time, each for itself.
func (w world) informers(s state, x who, add func(string, state)) {
	then := s
	x.of(&then).pvc = s.pvc
	add(x.name+": PVC informer catches up", then)
	then = s
	x.of(&then).sees = sightOf(s.pod)
	if x.isOurs() {
		x.of(&then).seen = s.podsAt
	}
	add(x.name+": pod informer catches up", then)
	if !x.isOurs() && w.rules.Pods == ListPerBatch && s.builtIn.out.removes == none {
		then = s
		then.builtIn.listed, then.builtIn.list = true, sightOf(s.pod)
		add("built-in: list pods, for another PVC of the batch"+found(s.pod.uses()), then)
	}
}

func found(used bool) string {
	if used {
		return ": a user"
	}
	return ": none"
}

// builtInJudges is the controller of Kubernetes, by its evidence.
func (w world) builtInJudges(s state, add func(string, state)) {
	o := s.builtIn
	if !o.pvc.exists || !o.pvc.terminating || !o.pvc.pods || o.sees.uses() {
		return
	}
	says, used := "list pods: none", s.pod.uses()
	switch {
	case w.rules.Pods == Cache:
		says, used = "no user in the cache", false
	case o.listed:
		says, used = "judge by the list taken before", o.list.uses()
	}
	if used {
		return
	}
	then := s
	then.builtIn.out, then.builtIn.listed, then.builtIn.list = write{removes: podsFinalizer, onto: o.pvc}, false, sight{}
	add("built-in: "+says, then)
}

// ask is the decision of package pvc.
func (w world) ask(c stored, seen sight) answer {
	if !w.rules.WaitsForPods && c.barrier {
		c.pods = false // without the rule, B is judged as if P were gone
	}
	return w.decisions.of(question{c, seen, !w.rules.BuiltIn}.asked(), question.decide)
}

// judge begins a read of pods once the cache shows no user of a terminating PVC, and judges the
// PVC as it was then: by the pod cache when it is as fresh, or by a list.
func (w world) judge(s state, x who, add func(string, state)) {
	o := *x.of(&s)
	if o.began == 0 {
		then := s
		x.of(&then).began, x.of(&then).batch = s.podsAt+1, o.pvc
		if looks := w.ask(o.pvc, o.sees).looks; looks || !w.rules.ReadsLast && o.pvc.exists && !o.pvc.terminating && !o.sees.uses() {
			add(x.name+": begin to read pods", then)
		}
		return
	}
	batch := o.batch
	if !w.rules.ReadsLast {
		batch = o.pvc
	}
	end := func(says string, seen sight) {
		then := s
		x.of(&then).began, x.of(&then).batch = 0, stored{}
		x.of(&then).out.removes = w.ask(batch, seen).removes
		if x.of(&then).out.removes != none {
			x.of(&then).out.onto = batch
		}
		add(x.name+": "+says+found(seen.uses()), then)
	}
	if !w.rules.Reaches || o.seen >= o.began-1 {
		end("the cache is as fresh", o.sees)
	}
	if w.rules.ReadsLast {
		end("list pods", sightOf(s.pod))
	}
	if s.errors < w.faults.Errors && !w.rules.ErrorsMeanInUse { // otherwise the PVC is judged again
		s.errors++
		end("the read fails", sight{})
	}
}

// arrive lets a write arrive.
func (w world) arrive(s state, x who, sender string, out write, add func(string, state)) {
	switch {
	case !s.pvc.exists:
		add(sender+": the write finds no PVC", s)
	case (!x.isOurs() || w.rules.Preconditions) && !out.onto.is(s.pvc):
		if x.isOurs() && !w.rules.LooksAgain && sender == x.name {
			x.of(&s).out = write{removes: out.removes, onto: s.pvc}
			add(x.name+": conflict, write the same again", s)
			return
		}
		add(sender+": conflict, judge again", s)
	default:
		add(sender+": remove "+out.removes.String(), s.without(out))
	}
}

// without is the world after a write: it leaves the finalizers of the copy that was judged, but
// one. A terminating PVC gets no finalizer back. A write that changes nothing makes no version.
func (s state) without(out write) state {
	before := s.pvc
	s.pvc.pods = s.pvc.pods && out.onto.pods && out.removes != podsFinalizer
	s.pvc.barrier = s.pvc.barrier && out.onto.barrier && out.removes != barrierFinalizer
	if s.pvc != before {
		s.pvc.version++
	}
	if s.pvc.terminating && !s.pvc.pods && !s.pvc.barrier {
		s.pvc = stored{life: s.pvc.life}
	}
	return s
}

// forget removes pods that are gone from the record of a living PVC; without that rule, also one
// that is not bound yet.
func (w world) forget(s state, add func(string, state)) {
	seen := sightOf(s.pod)
	if !w.rules.RecordOutlives && !seen.bound {
		seen.there = false
	}
	left := w.ask(s.pvc, seen).record
	if !s.pvc.exists || s.pvc.record == 0 || left == s.pvc.record {
		return
	}
	then := s
	then.pvc.record = left
	then.pvc.version++
	add("ours: remove the pod from the record", then)
}
