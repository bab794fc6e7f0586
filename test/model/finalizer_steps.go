package model

// world is the rules and the faults.
type world struct {
	rules     Rules
	faults    Faults
	decisions memo[question, answer]
}

// Search tries every order of steps, the shortest first.
func Search(rules Rules, faults Faults) Result {
	w := world{rules, faults, memo[question, answer]{}}
	s := state{pvc: w.created(1), pod: pod{phase: w.firstPhase()}}
	s.builtIn.pvc, s.ours.pvc, s.another.pvc = s.pvc, s.pvc, s.pvc
	s.builtIn.sees, s.ours.sees, s.another.sees = sightOf(s.pod), sightOf(s.pod), sightOf(s.pod)
	return searched(machine[state]{
		start: s, next: w.next,
		lost:  func(s state) bool { return s.lost(rules.recorded()) },
		waits: state.pinned,
		over:  func(s state) bool { return !s.pvc.exists },
	})
}

func (w world) created(life int8) stored {
	return stored{life: life, exists: true, pods: true, barrier: w.rules.Barrier}
}

func (w world) firstPhase() phase {
	if w.rules.Start == Gated {
		return gated
	}
	return unbound
}

// next is every step from s.
func (w world) next(s state) (steps []step[state]) {
	add := func(says string, then state) {
		if then != s {
			steps = append(steps, step[state]{says: says, then: then})
		}
	}
	w.user(s, add)
	w.scheduler(s, add)
	w.kubelet(s, add)
	if w.rules.BuiltIn {
		w.owner(s, builtIn, add)
	}
	w.owner(s, ours, add)
	w.forget(s, add)
	if w.faults.Another {
		w.owner(s, another, add)
	}
	return steps
}

// user deletes the PVC and the pod, creates others of the name, and annotates the PVC.
func (w world) user(s state, add func(string, state)) {
	change := func(says string, can bool, edit func(*state)) {
		then := s
		if edit(&then); can {
			add(says, then)
		}
	}
	change("user: DELETE PVC", s.pvc.exists && !s.pvc.terminating, func(then *state) { then.pvc.terminating = true; then.pvc.version++ })
	change("user: create the PVC again", !s.pvc.exists && s.pvc.life < w.faults.Lives, func(then *state) { then.pvc = w.created(s.pvc.life + 1) })
	change("user: annotate the PVC", s.pvc.exists && s.touches < w.faults.Touches, func(then *state) { then.touches++; then.pvc.version++ })
	change("pod: unmounted and gone", s.pod.phase < gone, func(then *state) { then.pod = pod{number: s.pod.number, phase: gone}; then.podsAt++ })
	change("user: create a pod of the same name", s.pod.phase == gone && s.pod.number < w.faults.Pods, func(then *state) {
		then.pod = pod{number: s.pod.number + 1, phase: w.firstPhase()}
		then.podsAt++
	})
}

func (s state) withPod(p phase) state {
	s.pod.phase = p
	return s
}

func (s state) bind() state {
	s.podsAt++
	return s.withPod(bound)
}

// scheduler brings the pod to its node.
func (w world) scheduler(s state, add func(string, state)) {
	if w.rules.recorded() {
		w.recordedBind(s, add)
		return
	}
	if s.pod.phase == unbound {
		add("scheduler: bind", s.bind())
	}
	if w.rules.Start == RecordAfter && s.pod.uses() && !s.pvc.record.has(s.pod.number) && s.pvc.exists && !s.pvc.terminating {
		then := s
		then.pvc.record = s.pvc.record.with(s.pod.number)
		then.pvc.version++
		add("scheduler: write the use record", then)
	}
}

// recordedBind reads the PVC live, writes the record onto what was read, and then binds; the gate
// goes between the last two.
func (w world) recordedBind(s state, add func(string, state)) {
	switch s.pod.phase {
	case unbound, gated:
		if !s.pvc.exists || s.pvc.terminating {
			return
		}
		then := s.withPod(read)
		then.pod.version, then.pod.life = s.pvc.version, s.pvc.life
		if s.pvc.record.has(s.pod.number) {
			then.pod.phase, then.pod.version = recorded, 0
			add("scheduler: GET PVC, its record names the pod", then)
			return
		}
		add("scheduler: GET PVC, not terminating", then)
	case read:
		w.writeRecord(s, add)
	case recorded:
		if w.rules.Start == Gated {
			add("operator: remove the gate", s.withPod(lifted))
			return
		}
		add("scheduler: bind", s.bind())
	case lifted:
		add("scheduler: bind", s.bind())
	}
}

func (w world) writeRecord(s state, add func(string, state)) {
	then := s
	if !s.pvc.exists || w.rules.RecordPreconditions && (s.pod.version != s.pvc.version || s.pod.life != s.pvc.life) {
		then.pod = pod{number: s.pod.number, phase: w.firstPhase()}
		add("scheduler: the record is refused, read again", then)
		return
	}
	then.pvc.record = s.pvc.record.with(s.pod.number)
	then.pvc.version++
	then.pod = pod{number: s.pod.number, phase: recorded, life: s.pod.life}
	add("scheduler: write the use record", then)
}

func (w world) kubelet(s state, add func(string, state)) {
	refuses := s.pvc.terminating && (w.rules.Kubelet == RefusesTerminating || w.rules.Kubelet == RefusesUnprotected && !s.pvc.pods)
	if s.pod.phase == bound && s.pvc.exists && !refuses {
		then := s.withPod(admitted)
		then.pod.life = s.pvc.life
		add("kubelet: GET PVC, accepted", then)
	}
	// A volume whose PVC is gone before the mount may be gone as well.
	if s.pod.phase == admitted {
		add("kubelet: mount", s.withPod(mounted))
	}
}
