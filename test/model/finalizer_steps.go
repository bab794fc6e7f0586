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

func (w world) created(uid int8) stored {
	return stored{uid: uid, exists: true, pods: true, barrier: w.rules.Barrier}
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

// user deletes the PVC and the pod, creates others of the same name, and annotates the PVC.
func (w world) user(s state, add func(string, state)) {
	change := func(says string, can bool, edit func(*state)) {
		then := s
		if edit(&then); can {
			add(says, then)
		}
	}
	change("user: DELETE PVC", s.pvc.exists && !s.pvc.terminating, func(then *state) { then.pvc.terminating = true; then.pvc.version++ })
	change("user: create the PVC again", !s.pvc.exists && s.pvc.uid < w.faults.PVCs, func(then *state) { then.pvc = w.created(s.pvc.uid + 1) })
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

// scheduler binds the pod.
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

// recordedBind reads the PVC live, writes the record onto the version that it read, and then
// binds. The gate is removed between the last two.
func (w world) recordedBind(s state, add func(string, state)) {
	switch s.pod.phase {
	case unbound, gated:
		if !s.pvc.exists || s.pvc.terminating {
			return
		}
		then := s.withPod(read)
		then.pod.version, then.pod.uid = s.pvc.version, s.pvc.uid
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
	if !s.pvc.exists || w.rules.RecordPreconditions && (s.pod.version != s.pvc.version || s.pod.uid != s.pvc.uid) {
		then.pod = pod{number: s.pod.number, phase: w.firstPhase()}
		add("scheduler: the record is refused, read again", then)
		return
	}
	then.pvc.record = s.pvc.record.with(s.pod.number)
	then.pvc.version++
	then.pod = pod{number: s.pod.number, phase: recorded, uid: s.pod.uid}
	add("scheduler: write the use record", then)
}

func (w world) kubelet(s state, add func(string, state)) {
	refuses := s.pvc.terminating && (w.rules.Kubelet == RefusesTerminating || w.rules.Kubelet == RefusesUnprotected && !s.pvc.pods)
	if s.pod.phase == bound && s.pvc.exists && !refuses {
		then := s.withPod(admitted)
		then.pod.uid = s.pvc.uid
		add("kubelet: GET PVC, accepted", then)
	}
	// A volume whose PVC is gone before the mount may be gone as well.
	if s.pod.phase == admitted {
		add("kubelet: mount", s.withPod(mounted))
	}
}

// role names one controller that removes finalizers.
type role struct {
	name string
	of   func(*state) *owner
}

var (
	builtIn = role{"built-in", func(s *state) *owner { return &s.builtIn }}
	ours    = role{"ours", func(s *state) *owner { return &s.ours }}
	another = role{"another of ours", func(s *state) *owner { return &s.another }}
)

func (x role) isOurs() bool { return x.name != builtIn.name }

// owner takes the steps of one controller: read, judge, write.
func (w world) owner(s state, x role, add func(string, state)) {
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

// informers catch up at any time, each independently.
func (w world) informers(s state, x role, add func(string, state)) {
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

// builtInJudges is the decision of the built-in controller, by its evidence.
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

// judge begins a read of pods when the cache shows no user of a terminating PVC. It judges that
// version of the PVC: by the pod cache if it is as fresh, or by a list.
func (w world) judge(s state, x role, add func(string, state)) {
	o := *x.of(&s)
	if o.began == 0 {
		then := s
		x.of(&then).began, x.of(&then).batch = s.podsAt+1, o.pvc
		if reads := w.ask(o.pvc, o.sees).reads; reads || !w.rules.ReadsLast && o.pvc.exists && !o.pvc.terminating && !o.sees.uses() {
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

// arrive carries out a write at the API server.
func (w world) arrive(s state, x role, sender string, out write, add func(string, state)) {
	switch {
	case !s.pvc.exists:
		add(sender+": the write finds no PVC", s)
	case (!x.isOurs() || w.rules.Preconditions) && !out.onto.is(s.pvc):
		if x.isOurs() && !w.rules.JudgesAgain && sender == x.name {
			x.of(&s).out = write{removes: out.removes, onto: s.pvc}
			add(x.name+": conflict, write the same again", s)
			return
		}
		add(sender+": conflict, judge again", s)
	default:
		add(sender+": remove "+out.removes.String(), s.without(out))
	}
}

// without is the state after a write. It keeps the finalizers of the judged copy, but one. A
// terminating PVC gets no new finalizer. A write that changes nothing makes no new version.
func (s state) without(out write) state {
	before := s.pvc
	s.pvc.pods = s.pvc.pods && out.onto.pods && out.removes != podsFinalizer
	s.pvc.barrier = s.pvc.barrier && out.onto.barrier && out.removes != barrierFinalizer
	if s.pvc != before {
		s.pvc.version++
	}
	if s.pvc.terminating && !s.pvc.pods && !s.pvc.barrier {
		s.pvc = stored{uid: s.pvc.uid}
	}
	return s
}

// forget removes pods that are gone from the record of a PVC that does not terminate. Without
// RecordOutlives, it also removes a pod that is not bound yet.
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
