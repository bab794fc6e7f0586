package model

// world is the rules and the faults.
type world struct {
	rules  Rules
	faults Faults
	decide func(question) answer
}

// Search tries every order of steps, the shortest first.
func Search(rules Rules, faults Faults) Result {
	w := world{rules, faults, remembered(question.decide)}
	s := state{pvc: w.created(1), pod: pod{phase: w.firstPhase()}}
	for _, x := range []role{builtIn, ours, another} {
		*x.of(&s) = owner{pvc: s.pvc, sees: sightOf(s.pod)}
	}
	return searched(machine[state]{
		start: s, next: w.next,
		same:  func(s state) state { return s },
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

// next adds every step.
func (w world) next(to *steps[state]) {
	w.user(to.from, to)
	w.scheduler(to.from, to)
	w.kubelet(to.from, to)
	if w.rules.BuiltIn {
		w.owner(to.from, builtIn, to)
	}
	w.owner(to.from, ours, to)
	w.forget(to.from, to)
	if w.faults.Another {
		w.owner(to.from, another, to)
	}
}

// user deletes the PVC and the pod, creates others of the same name, and annotates the PVC.
func (w world) user(s state, to *steps[state]) {
	to.surely(s.pvc.exists && !s.pvc.terminating, "user: DELETE PVC", func(s *state) {
		s.pvc.terminating = true
		s.pvc.version++
	})
	to.surely(!s.pvc.exists && s.pvc.uid < w.faults.PVCs, "user: create the PVC again", func(s *state) {
		s.pvc = w.created(s.pvc.uid + 1)
	})
	to.surely(s.pvc.exists && s.touches < w.faults.Touches, "user: annotate the PVC", func(s *state) {
		s.touches++
		s.pvc.version++
	})
	to.surely(s.pod.phase < gone, "pod: unmounted and gone", func(s *state) {
		s.pod = pod{number: s.pod.number, phase: gone}
		s.podsAt++
	})
	to.surely(s.pod.phase == gone && s.pod.number < w.faults.Pods, "user: create a pod of the same name", func(s *state) {
		s.pod = pod{number: s.pod.number + 1, phase: w.firstPhase()}
		s.podsAt++
	})
}

// turn takes the pod to another phase.
func turn(p phase) func(*state) { return func(s *state) { s.pod.phase = p } }

func bind(s *state) {
	s.podsAt++
	s.pod.phase = bound
}

// record writes the pod into the use record.
func record(s *state) {
	s.pvc.record = s.pvc.record.with(s.pod.number)
	s.pvc.version++
}

// scheduler binds the pod.
func (w world) scheduler(s state, to *steps[state]) {
	if w.rules.recorded() {
		w.recordedBind(s, to)
		return
	}
	to.surely(s.pod.phase == unbound, "scheduler: bind", bind)
	lacks := s.pvc.exists && !s.pvc.terminating && !s.pvc.record.has(s.pod.number)
	to.surely(w.rules.Start == RecordAfter && s.pod.uses() && lacks, "scheduler: write the use record", record)
}

// recordedBind reads the PVC live, writes the record onto the version that it read, and then
// binds. The gate is removed between the last two.
func (w world) recordedBind(s state, to *steps[state]) {
	reads := (s.pod.phase == unbound || s.pod.phase == gated) && s.pvc.exists && !s.pvc.terminating
	named := s.pvc.record.has(s.pod.number)
	to.surely(reads && named, "scheduler: GET PVC, its record names the pod", func(s *state) {
		s.pod.phase, s.pod.uid = recorded, s.pvc.uid
	})
	to.surely(reads && !named, "scheduler: GET PVC, not terminating", func(s *state) {
		s.pod.phase, s.pod.uid, s.pod.version = read, s.pvc.uid, s.pvc.version
	})
	stale := !s.pvc.exists || w.rules.RecordPreconditions && (s.pod.version != s.pvc.version || s.pod.uid != s.pvc.uid)
	to.surely(s.pod.phase == read && stale, "scheduler: the record is refused, read again", func(s *state) {
		s.pod = pod{number: s.pod.number, phase: w.firstPhase()}
	})
	to.surely(s.pod.phase == read && !stale, "scheduler: write the use record", func(s *state) {
		record(s)
		s.pod = pod{number: s.pod.number, phase: recorded, uid: s.pod.uid}
	})
	isGated := s.pod.phase == recorded && w.rules.Start == Gated
	to.surely(isGated, "operator: remove the gate", turn(lifted))
	to.surely(s.pod.phase == lifted || s.pod.phase == recorded && !isGated, "scheduler: bind", bind)
}

func (w world) kubelet(s state, to *steps[state]) {
	refuses := s.pvc.terminating && (w.rules.Kubelet == RefusesTerminating || w.rules.Kubelet == RefusesUnprotected && !s.pvc.pods)
	to.surely(s.pod.phase == bound && s.pvc.exists && !refuses, "kubelet: GET PVC, accepted", func(s *state) {
		s.pod.phase, s.pod.uid = admitted, s.pvc.uid
	})
	// A volume whose PVC is gone before the mount may be gone as well.
	to.surely(s.pod.phase == admitted, "kubelet: mount", turn(mounted))
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
func (w world) owner(s state, x role, to *steps[state]) {
	w.informers(s, x, to)
	o := *x.of(&s)
	w.arrive(s, x, x.name, o.out, to)
	switch {
	case o.out.removes != none:
	case x.isOurs():
		w.judge(s, x, to)
	default:
		w.builtInJudges(s, to)
	}
	w.arrive(s, x, x.name+", before it crashed", o.late, to)
	to.surely(s.crashes < w.faults.Crashes, x.name+": crash", func(s *state) {
		s.crashes++
		*x.of(s) = owner{pvc: o.pvc, sees: o.sees, seen: o.seen, late: o.out}
	})
}

// informers catch up at any time, each independently.
func (w world) informers(s state, x role, to *steps[state]) {
	to.surely(true, x.name+": PVC informer catches up", func(s *state) { x.of(s).pvc = s.pvc })
	to.surely(true, x.name+": pod informer catches up", func(s *state) {
		x.of(s).sees = sightOf(s.pod)
		if x.isOurs() {
			x.of(s).seen = s.podsAt
		}
	})
	lists := !x.isOurs() && w.rules.Pods == ListPerBatch && s.builtIn.out.removes == none
	to.surely(lists, "built-in: list pods, for another PVC of the batch"+found(s.pod.uses()), func(s *state) {
		s.builtIn.listed, s.builtIn.list = true, sightOf(s.pod)
	})
}

func found(used bool) string {
	if used {
		return ": a user"
	}
	return ": none"
}

// builtInJudges is the decision of the built-in controller, by its evidence.
func (w world) builtInJudges(s state, to *steps[state]) {
	o := s.builtIn
	says, used := "list pods: none", s.pod.uses()
	switch {
	case w.rules.Pods == Cache:
		says, used = "no user in the cache", false
	case o.listed:
		says, used = "judge by the list taken before", o.list.uses()
	}
	unused := o.pvc.exists && o.pvc.terminating && o.pvc.pods && !o.sees.uses() && !used
	to.surely(unused, "built-in: "+says, func(s *state) {
		s.builtIn.out, s.builtIn.listed, s.builtIn.list = write{removes: podsFinalizer, onto: o.pvc}, false, sight{}
	})
}

// ask is the decision of package pvc. No decision reads the version.
func (w world) ask(c stored, seen sight) answer {
	if !w.rules.WaitsForPods && c.barrier {
		c.pods = false // without the rule, B is judged as if P were gone
	}
	c.version = 0
	return w.decide(question{c, seen, !w.rules.BuiltIn})
}

// judge begins a read of pods when the cache shows no user of a terminating PVC. It judges that
// version of the PVC: by the pod cache if it is as fresh, or by a list.
func (w world) judge(s state, x role, to *steps[state]) {
	o := *x.of(&s)
	if o.began == 0 {
		early := !w.rules.ReadsLast && o.pvc.exists && !o.pvc.terminating && !o.sees.uses()
		to.surely(early || w.ask(o.pvc, o.sees).reads, x.name+": begin to read pods", func(s *state) {
			x.of(s).began, x.of(s).batch = s.podsAt+1, o.pvc
		})
		return
	}
	batch := o.batch
	if !w.rules.ReadsLast {
		batch = o.pvc
	}
	end := func(can bool, says string, seen sight, errors int8) {
		to.surely(can, x.name+": "+says+found(seen.uses()), func(s *state) {
			s.errors += errors
			x.of(s).began, x.of(s).batch = 0, stored{}
			if removes := w.ask(batch, seen).removes; removes != none {
				x.of(s).out = write{removes: removes, onto: batch}
			}
		})
	}
	end(!w.rules.Reaches || o.seen >= o.began-1, "the cache is as fresh", o.sees, 0)
	end(w.rules.ReadsLast, "list pods", sightOf(s.pod), 0)
	// With the rule, the PVC is judged again.
	end(s.errors < w.faults.Errors && !w.rules.ErrorsMeanInUse, "the read fails", sight{}, 1)
}

// arrive carries out a write at the API server.
func (w world) arrive(s state, x role, sender string, out write, to *steps[state]) {
	sent, says := sender == x.name, ": remove "+out.removes.String()
	stale := (!x.isOurs() || w.rules.Preconditions) && !out.onto.is(s.pvc)
	again := stale && x.isOurs() && !w.rules.JudgesAgain && sent
	switch {
	case !s.pvc.exists:
		says, stale, again = ": the write finds no PVC", true, false
	case again:
		says = ": conflict, write the same again"
	case stale:
		says = ": conflict, judge again"
	}
	to.surely(out.removes != none, sender+says, func(s *state) {
		o := x.of(s)
		switch {
		case again:
			o.out.onto = s.pvc
		case sent:
			o.out = write{}
		default:
			o.late = write{}
		}
		if !stale {
			s.remove(out)
		}
	})
}

// remove keeps the finalizers of the judged copy, but one. A terminating PVC gets no new
// finalizer. A write that changes nothing makes no new version.
func (s *state) remove(out write) {
	before := s.pvc
	s.pvc.pods = s.pvc.pods && out.onto.pods && out.removes != podsFinalizer
	s.pvc.barrier = s.pvc.barrier && out.onto.barrier && out.removes != barrierFinalizer
	if s.pvc != before {
		s.pvc.version++
	}
	if s.pvc.terminating && !s.pvc.pods && !s.pvc.barrier {
		s.pvc = stored{uid: s.pvc.uid}
	}
}

// forget removes pods that are gone from the record of a PVC that does not terminate. Without
// RecordOutlives, it also removes a pod that is not bound yet.
func (w world) forget(s state, to *steps[state]) {
	seen := sightOf(s.pod)
	if !w.rules.RecordOutlives && !seen.bound {
		seen.there = false
	}
	left := w.ask(s.pvc, seen).record
	to.surely(s.pvc.exists && left != s.pvc.record, "ours: remove the pod from the record", func(s *state) {
		s.pvc.record = left
		s.pvc.version++
	})
}
