package model

// who is one of the two owners of finalizers.
type who struct {
	name string
	of   func(*state) *owner
}

var (
	builtIn = who{"built-in", func(s *state) *owner { return &s.builtIn }}
	ours    = who{"ours", func(s *state) *owner { return &s.ours }}
	another = who{"another of ours", func(s *state) *owner { return &s.another }}
)

// evidence is what an owner goes by.
func (w world) evidence(x who) Evidence {
	if x.name == builtIn.name {
		return w.rules.Pods
	}
	return w.rules.Ours
}

// rule tells whether a rule of ours holds for an owner. Those of the built-in
// are fixed: its writes carry what was judged, a conflict is judged again, and a
// list that fails is in use.
func (w world) rule(x who, holds bool) bool { return x.name == builtIn.name || holds }

// owner looks, judges and writes.
func (w world) owner(s state, x who, add func(string, state)) {
	w.informers(s, x, add)
	w.judge(s, x, add)
	w.send(s, x, add)
	w.crash(s, x, add)
	if x.name == ours.name {
		w.dropRecord(s, add)
	}
}

// informers lag as they like, each for itself.
func (w world) informers(s state, x who, add func(string, state)) {
	then := s
	x.of(&then).claim = s.claim
	add(x.name+": claim informer catches up", then)
	if w.evidence(x) == Record {
		return
	}
	then = s
	x.of(&then).uses = s.pod.uses()
	if w.evidence(x) == Probe {
		x.of(&then).seen = s.podsAt
	}
	add(x.name+": pod informer catches up", then)
	if w.evidence(x) == ListPerBatch && x.of(&s).out.removes == none {
		then = s
		x.of(&then).list = listed(s.pod.uses())
		add(x.name+": list pods, for another claim of the batch"+found(s.pod.uses()), then)
	}
}

func listed(used bool) listing {
	if used {
		return listedUsed
	}
	return listedFree
}

func found(used bool) string {
	if used {
		return ": a user"
	}
	return ": none"
}

// judges is the finalizer that an owner would remove from the claim it sees.
func (w world) judges(x who, c claim) finalizer {
	if !c.exists || !c.terminating {
		return none
	}
	owned := x.name == builtIn.name || !w.rules.BuiltIn
	barrier := x.name != builtIn.name && c.barrier
	switch {
	case barrier && c.pods && !w.rules.WaitsForPods:
		return barrierFinalizer
	case owned && c.pods:
		return podsFinalizer
	case barrier && !c.pods:
		return barrierFinalizer
	}
	return none
}

func (w world) judge(s state, x who, add func(string, state)) {
	o := *x.of(&s)
	removes := w.judges(x, o.claim)
	early := w.evidence(x) == Probe && !w.rules.ProbesLast && o.probe == 0 // asked for nothing yet
	if o.out.removes != none || removes == none && !early {
		return
	}
	decide := func(says string) {
		then := s
		x.of(&then).out = write{removes: removes, onto: o.claim}
		x.of(&then).list = notListed
		add(x.name+": "+says, then)
	}
	if w.evidence(x) == Record {
		if o.claim.record == 0 {
			decide("terminating, no use record")
		}
		return
	}
	if w.evidence(x) == Probe {
		w.judgeByProbe(s, x, add)
		return
	}
	if o.uses {
		return // a cache may say used
	}
	w.judgeByList(s, x, o, decide, add)
}

// judgeByProbe asks how far pods are, and judges the claim that it had seen before that
// by what is in memory, when that is as far, or by a list.
func (w world) judgeByProbe(s state, x who, add func(string, state)) {
	o := *x.of(&s)
	if o.probe == 0 {
		then := s
		x.of(&then).probe, x.of(&then).batch = s.podsAt+1, o.claim
		if !o.uses {
			add(x.name+": seen terminating, ask how far pods are", then)
			w.failedRead(s, x, o.claim, add)
		}
		return
	}
	batch := o.batch
	if !w.rules.ProbesLast {
		batch = o.claim // whatever has become of it since
	}
	if w.judges(x, batch) == none {
		return
	}
	end := func(says string, used bool) {
		then := s
		x.of(&then).probe, x.of(&then).batch = 0, claim{}
		if !used {
			x.of(&then).out = write{removes: w.judges(x, batch), onto: batch}
		}
		add(x.name+": "+says+found(used), then)
	}
	if !w.rules.Reaches || o.seen >= o.probe-1 {
		end("memory is as far", o.uses)
	}
	if w.rules.ProbesLast {
		end("list pods", s.pod.uses())
	}
	w.failedRead(s, x, batch, add)
}

// failedRead is a reading that fails.
func (w world) failedRead(s state, x who, onto claim, add func(string, state)) {
	if s.errors >= w.faults.Errors || w.rule(x, w.rules.ErrorsMeanInUse) {
		return // an error changes nothing: the claim is tried again
	}
	then := s
	then.errors++
	x.of(&then).probe, x.of(&then).batch = 0, claim{}
	x.of(&then).out = write{removes: w.judges(x, onto), onto: onto}
	add(x.name+": the reading fails, taken for none", then)
}

func (w world) judgeByList(s state, x who, o owner, decide func(string), add func(string, state)) {
	if w.evidence(x) == Cache {
		decide("terminating, no user in the cache")
		return
	}
	if o.list == listedFree {
		decide("judge by the list taken before")
	}
	if o.list != notListed {
		return
	}
	if !s.pod.uses() {
		decide("list pods: none")
	}
	w.failedRead(s, x, o.claim, add)
}

// send lets the write of an owner, or one of its predecessor's, arrive.
func (w world) send(s state, x who, add func(string, state)) {
	if out := x.of(&s).out; out.removes != none {
		then := s
		x.of(&then).out = write{}
		w.arrive(then, x, out, false, add)
	}
	if late := x.of(&s).late; late.removes != none {
		then := s
		x.of(&then).late = write{}
		w.arrive(then, x, late, true, add)
	}
}

func (w world) arrive(s state, x who, out write, late bool, add func(string, state)) {
	sender := x.name
	if late {
		sender += ", before it crashed"
	}
	if !s.claim.exists {
		add(sender+": the write finds no claim", s)
		return
	}
	same := out.onto.version == s.claim.version && out.onto.life == s.claim.life
	if w.rule(x, w.rules.Preconditions) && !same {
		w.conflict(s, x, out, late, add)
		return
	}
	if w.rules.UpdateWebhook && out.removes == podsFinalizer && !out.passed {
		if !s.pod.uses() && !late {
			x.of(&s).out = write{removes: out.removes, onto: out.onto, passed: true}
			add("webhook: lists pods before P goes: none", s)
		}
		return
	}
	add(sender+": "+says(out.removes), s.without(out))
}

// conflict is answered by judging again, or, with that rule taken away, by
// writing the same onto what is there now.
func (w world) conflict(s state, x who, out write, late bool, add func(string, state)) {
	if !late && !w.rule(x, w.rules.LooksAgain) {
		x.of(&s).out = write{removes: out.removes, onto: s.claim}
		add(x.name+": conflict, write the same again", s)
		return
	}
	add(x.name+": conflict, look again", s)
}

func says(f finalizer) string {
	if f == barrierFinalizer {
		return "remove B"
	}
	return "remove P"
}

// without is the world after a write: it leaves the finalizers of the copy that
// was judged, but one. Never does a finalizer come back to a terminating claim.
// A write that changes nothing is no new version.
func (s state) without(out write) state {
	before := s.claim
	s.claim.pods = s.claim.pods && out.onto.pods && out.removes != podsFinalizer
	s.claim.barrier = s.claim.barrier && out.onto.barrier && out.removes != barrierFinalizer
	if s.claim != before {
		s.claim.version++
	}
	if s.claim.terminating && !s.claim.pods && !s.claim.barrier {
		s.claim = claim{life: s.claim.life}
	}
	return s
}

// crash forgets everything but the caches, which come back as they please, and
// what was already sent.
func (w world) crash(s state, x who, add func(string, state)) {
	if s.crashes >= w.faults.Crashes {
		return
	}
	then := s
	then.crashes++
	o := x.of(&then)
	o.late, o.out, o.list, o.probe, o.batch = o.out, write{}, notListed, 0, claim{}
	add(x.name+": crash", then)
}

// dropRecord takes pods off the record that are gone; without that rule, one that has
// not been bound yet.
func (w world) dropRecord(s state, add func(string, state)) {
	if w.rules.Ours != Record {
		return
	}
	left := s.claim.record & (1 << s.pod.number)
	if s.pod.phase == gone || !w.rules.RecordOutlives && !s.pod.uses() {
		left = 0
	}
	if left == s.claim.record {
		return
	}
	then := s
	then.claim.record = left
	then.claim.version++
	add("ours: the pod is gone, drop its record", then)
}
