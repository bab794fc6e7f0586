package model

// world is the rules, and the faults that they have to stand.
type world struct {
	rules  Rules
	faults Faults
}

func (w world) start() state {
	s := state{claim: w.born(1), pod: pod{phase: w.podBorn()}}
	s.builtIn.claim, s.ours.claim, s.another.claim = s.claim, s.claim, s.claim
	return s
}

func (w world) born(life int8) claim {
	return claim{life: life, exists: true, pods: true, barrier: w.rules.Barrier}
}

func (w world) podBorn() phase {
	if w.rules.Start == Gated {
		return gated
	}
	return unbound
}

// next is every step that may be taken from s.
func (w world) next(s state) []step[state] {
	var steps []step[state]
	add := func(says string, then state) {
		if then != s {
			steps = append(steps, step[state]{says: says, then: then})
		}
	}
	w.user(s, add)
	w.bring(s, add)
	w.kubelet(s, add)
	if w.rules.BuiltIn {
		w.owner(s, builtIn, add)
	}
	w.owner(s, ours, add)
	if w.faults.Another {
		w.owner(s, another, add)
	}
	return steps
}

// user deletes the claim, makes another of its name, deletes the pod; and
// somebody writes to the claim what is none of our business.
func (w world) user(s state, add func(string, state)) {
	if s.claim.exists && !s.claim.terminating {
		then := s
		then.claim.terminating = true
		then.claim.version++
		add("user: DELETE claim", then)
	}
	if !s.claim.exists && s.claim.life < w.faults.Lives {
		then := s
		then.claim = w.born(s.claim.life + 1)
		add("user: create the claim anew", then)
	}
	if s.claim.exists && s.touches < w.faults.Touches {
		then := s
		then.touches++
		then.claim.version++
		add("somebody: annotate the claim", then)
	}
	w.pods(s, add)
}

// pods go, and another comes under the same name.
func (w world) pods(s state, add func(string, state)) {
	then := s
	if s.pod.phase < gone {
		then.pod = pod{number: s.pod.number, phase: gone}
		then.podsAt++
		add("pod: unmounted and gone", then)
		return
	}
	if s.pod.phase == gone && s.pod.number < w.faults.Pods {
		then.pod = pod{number: s.pod.number + 1, phase: w.podBorn()}
		then.podsAt++
		add("user: create a pod of the same name", then)
	}
}

// bring brings the pod to its node.
func (w world) bring(s state, add func(string, state)) {
	switch w.rules.Start {
	case Free, RecordAfter:
		if s.pod.phase == unbound {
			add("scheduler: bind", s.bind())
		}
	case BindingWebhook:
		w.checkedBind(s, add)
	case RecordFirst, Gated:
		w.recordedBind(s, add)
	}
	if w.rules.Start == RecordAfter && s.pod.uses() && !s.claim.record.has(s.pod.number) && s.claim.exists && !s.claim.terminating {
		then := s
		then.claim.record = s.claim.record.with(s.pod.number)
		then.claim.version++
		add("scheduler: write the use record", then)
	}
}

func (s state) withPod(p phase) state {
	s.pod.phase = p
	return s
}

func (s state) bind() state {
	s.podsAt++
	return s.withPod(bound)
}

func (w world) checkedBind(s state, add func(string, state)) {
	switch s.pod.phase {
	case unbound:
		if s.claim.exists && !s.claim.terminating {
			add("webhook: the claim is not terminating, let the binding pass", s.withPod(checked))
		}
	case checked:
		add("scheduler: bind", s.bind())
	}
}

// recordedBind reads the claim live, writes the record onto what was read, and
// binds then; under a gate, the gate goes between the last two. What stands on record
// already is not written again.
func (w world) recordedBind(s state, add func(string, state)) {
	switch s.pod.phase {
	case unbound, gated:
		if s.claim.exists && !s.claim.terminating {
			then := s.withPod(read)
			then.pod.version, then.pod.life = s.claim.version, s.claim.life
			if s.claim.record.has(s.pod.number) {
				then.pod.phase, then.pod.version = recorded, 0
				add("scheduler: GET claim, the pod is on record already", then)
				return
			}
			add("scheduler: GET claim, not terminating", then)
		}
	case read:
		w.writeRecord(s, add)
	case recorded:
		if w.rules.Start == Gated {
			add("operator: lift the gate", s.withPod(lifted))
			return
		}
		add("scheduler: bind", s.bind())
	case lifted:
		add("scheduler: bind", s.bind())
	}
}

func (w world) writeRecord(s state, add func(string, state)) {
	same := s.pod.version == s.claim.version && s.pod.life == s.claim.life
	if !s.claim.exists || w.rules.RecordPreconditions && !same {
		then := s
		then.pod = pod{number: s.pod.number, phase: w.podBorn()}
		add("scheduler: the record is refused, look again", then)
		return
	}
	then := s
	then.claim.record = s.claim.record.with(s.pod.number)
	then.claim.version++
	then.pod = pod{number: s.pod.number, phase: recorded, life: s.pod.life}
	add("scheduler: write the use record", then)
}

func (w world) kubelet(s state, add func(string, state)) {
	if s.pod.phase == bound && s.claim.exists && !w.refuses(s.claim) {
		then := s.withPod(admitted)
		then.pod.life = s.claim.life
		add("kubelet: GET claim, nothing against it", then)
	}
	// A volume whose claim is gone before the mount may be gone as well.
	if s.pod.phase == admitted {
		add("kubelet: mount", s.withPod(mounted))
	}
}

func (w world) refuses(c claim) bool {
	switch w.rules.Kubelet {
	case RefusesTerminating:
		return c.terminating
	case RefusesUnprotected:
		return c.terminating && !c.pods
	}
	return false
}
