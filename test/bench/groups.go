package main

import (
	"fmt"
	"net/http"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/test/drill"
)

// create measures the creation of the same load, bare and as a set.
func create(groups, size int) func(*bed) {
	return func(b *bed) {
		measured := func(l load) cost {
			s, c := b.creation(l)
			defer s.leave()
			valid(c.pods == l.groups*l.size, "%d pods were created for %d", c.pods, l.groups*l.size)
			return c
		}
		bare := measured(floor(groups, size))
		ours := measured(own(groups, size))
		b.tellCost(ours, bare)
		b.tell("writes-beyond-groups", float64(ours.writes-groups))
		b.tell("rss-mib", b.used().rss)
	}
}

// roll gives every group another template. The floor has no groups and no budget: all of its
// StatefulSets replace all of their pods at once.
func roll(b *bed) {
	if b.against != "" {
		rollInTurn(b)
		return
	}
	const ofStatefulSet = `{"spec":{"template":{"spec":{"containers":[{"name":"serve","image":%q}]}}}}`
	bare, _ := b.rolled(floor(100, 8), func(s *stage) error {
		return drill.Together(s.statefulSets(), func(sts *appsv1.StatefulSet) error {
			return s.Client.Patch(b.ctx, sts, client.RawPatch(types.StrategicMergePatchType, fmt.Appendf(nil, ofStatefulSet, imageB)))
		})
	})
	ours, fewest := b.rolled(own(100, 8), func(s *stage) error {
		return s.Client.Patch(b.ctx, s.newSet(), drill.Merge(withImage(imageB)))
	})
	b.tellCost(ours, bare)
	b.tell("fewest-groups-ready", float64(fewest))
	b.tell("writes-per-group", float64(ours.writes)/100)
}

// rollInTurn has two programs roll one set: one of them, the other one twice, and the first again. A machine that gets
// slower or faster meanwhile does so for both. Each second run begins with the other program. The figures are means.
func rollInTurn(b *bed) {
	programs := [2]string{b.Operator.Program, b.against}
	s := b.standing(own(100, 8))
	defer s.leave()
	defer func() { b.left = b.swap(programs[0]) }()
	var sums [2]cost
	for i := range 4 {
		which := (b.turn + 1 + (i+1)/2) % 2 // 1 0 0 1, then 0 1 1 0
		image := [2]string{imageB, imageA}[i%2]
		must(b.swap(programs[which]))
		s.rest()
		c := s.spend("all groups are rolled", func() error {
			return s.Client.Patch(b.ctx, s.newSet(), drill.Merge(withImage(image)))
		}, func() bool { return s.complete() && s.allAt(image) })
		valid(c.pods >= s.groups*s.size, "only %d pods were created", c.pods)
		sums[which] = sums[which].plus(c)
	}
	for i, name := range [2]string{"", "against-"} {
		b.tell(name+"seconds", sums[i].time.Seconds()/2)
		b.tell(name+"cpu-seconds", sums[i].cpu.Seconds()/2)
		b.tell(name+"nodes-cpu-seconds", sums[i].nodes.Seconds()/2)
		b.tell(name+"writes", float64(sums[i].writes)/2)
		b.tell(name+"reads", float64(sums[i].reads)/2)
	}
	ratio := sums[0].time.Seconds() / sums[1].time.Seconds()
	b.tell("against-ratio", ratio)
	b.tell("against-ratio-at-one-speed", ratio*sums[1].nodes.Seconds()/sums[0].nodes.Seconds())
}

// withImage is the merge patch of a set that gives its pods an image.
func withImage(image string) string {
	return fmt.Sprintf(`{"spec":{"leaderWorkerTemplate":{"workerTemplate":{"spec":{"containers":[{"name":"serve","image":%q}]}}}}}`, image)
}

// rolled measures a rollout, and the least number of ready groups during it.
func (b *bed) rolled(l load, do func(*stage) error) (c cost, fewest int) {
	s := b.standing(l)
	defer s.leave()
	holding(s.census, func() int { s.fewest = s.whole; return s.fewest })
	c = s.spend("all groups are rolled", func() error { return do(s) }, func() bool { return s.complete() && s.allAt(imageB) })
	valid(c.pods >= l.groups*l.size, "only %d pods were created", c.pods)
	return c, holding(s.census, func() int { return s.fewest })
}

// An hour without changes still has heartbeats, resyncs, lost watches and meaningless writes of
// others. The compressed hour has this many of each.
const (
	idleRounds  = 12
	idleStarts  = 2
	idleTouched = 20 // objects of each kind in a round
)

// idle makes meaningless changes to every kind of child and restarts the watches of the API server.
// It counts the writes of the operator, which should be none.
func idle(b *bed) {
	s := b.standing(own(100, 8))
	defer s.leave()
	s.settle()
	touched := 0
	c := s.spend("the set stands", func() error {
		for round := range idleRounds {
			n, err := s.touch(round)
			if touched += n; err != nil {
				return err
			}
		}
		for range idleStarts { // every watch ends with the API server
			if err := s.Plane.Restart(drill.APIServer); err != nil {
				return err
			}
		}
		return nil
	}, s.complete)
	valid(touched == idleRounds*3*idleTouched && c.pods == 0, "%d objects were touched, %d pods created", touched, c.pods)
	b.tell("writes", float64(c.writes+c.events))
	b.tell("reads", float64(c.reads))
	b.tell("touched", float64(touched))
	b.tell("cpu-seconds", c.cpu.Seconds())
}

// settle waits until the operator has made its remaining writes for a set.
func (s *stage) settle() {
	pause(s.ctx, 10*time.Second)
	s.rest()
}

// touch makes a meaningless change to some objects of each kind.
func (s *stage) touch(round int) (int, error) {
	var objects []client.Object
	for i := range idleTouched {
		leader := fmt.Sprintf("a-%d", i)
		objects = append(objects, &corev1.Pod{ObjectMeta: s.meta(leader)}, &corev1.Pod{ObjectMeta: s.meta(leader + "-1")},
			&appsv1.StatefulSet{ObjectMeta: s.meta(leader)})
	}
	return len(objects), drill.Together(objects, func(o client.Object) error {
		return s.Client.Patch(s.ctx, o, drill.Merge(fmt.Sprintf(`{"metadata":{"annotations":{"bench/touched":"%d"}}}`, round)))
	})
}

// restartOperator restarts the operator beside a large set. Then it compares the cost of an event
// of one worker pod in the large set and in a small one.
func restartOperator(b *bed) {
	s := b.standing(own(1000, 8))
	defer func() {
		if !b.last { // thousands of pods take minutes to end one by one: the last ones end with the control plane
			s.leave()
		}
	}()
	s.settle()
	b.tell("rss-before-mib", b.used().rss)
	must(b.Operator.Kill())
	began := time.Now()
	var ready time.Duration
	c := s.spend("the set stands", func() error {
		err := b.Operator.Start(b.flags...)
		ready = time.Since(began)
		return err
	}, s.complete)
	used := b.used()
	b.tell("ready-seconds", ready.Seconds())
	b.tell("writes", float64(c.writes+c.events))
	b.tell("reads", float64(c.reads))
	b.tell("pods-created", float64(c.pods))
	b.tell("cpu-seconds", used.cpu.Seconds())
	b.tell("rss-mib", used.rss)
	b.tell("rss-peak-mib", used.peak)
	s.tellEvents()
}

// tellEvents adds the figures for an event of a worker pod that needs a reconcile: its cost in CPU
// and in requests, beside a set of 10 groups and beside this one.
func (s *stage) tellEvents() {
	small := s.standing(own(10, s.size))
	defer small.leave()
	few, many := small.labelled(), s.labelled()
	s.figures.add("event.cpu-ms-10-groups", few.cpu.Seconds()*1000/labels)
	s.figures.add("event.cpu-ms-1000-groups", many.cpu.Seconds()*1000/labels)
	s.figures.add("event.cpu-growth", many.cpu.Seconds()/max(few.cpu.Seconds(), 0.01))
	s.figures.add("event.requests", float64(many.writes+many.events+many.reads)/labels)
}

// labels is the number of events over which the cost of one is averaged.
const labels = 1000

// labelled changes a label on worker pods, one after the other. The operator judges a group by the
// labels of its pods, so that each change causes a reconcile.
func (s *stage) labelled() cost {
	return s.spend("the set is available after the labels changed", func() error {
		for i := range labels {
			pod := &corev1.Pod{ObjectMeta: s.meta(fmt.Sprintf("a-%d-%d", i%s.groups, 1+i/s.groups%(s.size-1)))}
			if err := s.Client.Patch(s.ctx, pod, drill.Merge(fmt.Sprintf(`{"metadata":{"labels":{"bench/round":"%d"}}}`, i))); err != nil {
				return err
			}
		}
		return nil
	}, func() bool { return available(s.sets["a"], s.groups) })
}

// kills is how many workers killOne deletes.
const kills = 25

// recreating is a load whose groups are recreated when a worker is deleted.
func recreating(groups int) load {
	l := own(groups, 8)
	l.policy = lwsv1.RecreateGroupOnPodRestart
	return l
}

// killOne deletes a worker of one group after the other. It measures the time until the operator
// deletes the leader, and until the group is whole. For the floor, the bench deletes all eight pods
// of a group.
func killOne(b *bed) {
	bare := b.standing(floor(4, 8))
	group := []string{"a-1", "a-1-1", "a-1-2", "a-1-3", "a-1-4", "a-1-5", "a-1-6", "a-1-7"}
	floorCost := bare.spend("the group is whole again", func() error { return drill.Together(group, bare.kill) }, bare.complete)
	bare.leave()
	s := b.standing(recreating(kills))
	defer s.leave()
	s.rest()
	s.remark()
	mark := s.mark
	var costs []cost
	for i := range kills {
		costs = append(costs, s.spend("the group is whole again", func() error { return s.killWorker(i) }, s.recreated(8*(i+1))))
	}
	answers := s.answers(kills)
	after := s.aftermath(mark, kills, func(int) bool { return true })
	slices.SortFunc(costs, func(a, b cost) int { return int(a.time - b.time) })
	median := costs[len(costs)/2]
	median.pods = after.most
	b.tellCost(median, floorCost)
	after.tell(b)
	b.tell("answer-ms-median", milliseconds(answers[len(answers)/2]))
	b.tell("answer-ms-p99", milliseconds(percentile(answers, 99)))
}

// killForty deletes one worker in each of 40 of 100 groups, all at once.
func killForty(b *bed) {
	const groups, hit = 100, 40
	s := b.standing(recreating(groups))
	defer s.leave()
	s.rest()
	s.remark()
	mark, victims := s.mark, make([]int, hit)
	for i := range victims {
		victims[i] = i * groups / hit
	}
	c := s.spend("all groups are whole again", func() error { return drill.Together(victims, s.killWorker) }, s.recreated(8*hit))
	answers := s.answers(hit)
	b.tellCost(c, cost{})
	b.tell("answer-ms-p99", milliseconds(answers[len(answers)-1]))
	after := s.aftermath(mark, hit, func(group int) bool { return slices.Contains(victims, group) })
	after.tell(b)
	b.tell("pods-created-beyond", float64(after.made-8*hit))
}

func (s *stage) killWorker(group int) error { return s.kill(fmt.Sprintf("a-%d-3", group)) }

// recreated returns a condition: this many pods were created after the load, and all pods are ready.
func (s *stage) recreated(pods int) func() bool {
	return func() bool { return s.created >= s.groups*s.size+pods && s.complete() }
}

// answers returns the times from the deletion of each worker to the deletion of its leader, by the
// clock of the API server, shortest first.
func (s *stage) answers(want int) []time.Duration {
	must(s.Audit.Sync())
	answers := answersOf(s.Audit.Kept(0, func(r drill.Request) bool { return r.Namespace == s.namespace && deletesPod(r) }))
	valid(len(answers) >= want, "the operator deleted %d leaders for %d workers", len(answers), want)
	return answers
}

// answersOf measures the time from each deletion of a worker by the bench to the first deletion of
// its leader by the operator.
func answersOf(deletions []drill.Request) (answers []time.Duration) {
	killed := map[string]time.Time{} // by leader, until the operator deletes it
	for _, r := range deletions {
		var group, worker int
		n, _ := fmt.Sscanf(r.Name, "a-%d-%d", &group, &worker)
		at, awaited := killed[r.Name]
		switch {
		case n == 2 && r.Agent == benchAgent:
			killed[fmt.Sprintf("a-%d", group)] = r.Done
		case awaited && drill.ByLockstep(r):
			answers = append(answers, r.Begun.Sub(at))
			delete(killed, r.Name)
		}
	}
	slices.Sort(answers)
	return answers
}

// aftermath counts the consequences for groups after a worker of each was deleted.
type aftermath struct {
	hit     int
	leaders int // successful deletions of leaders
	made    int // pods created in the new incarnations
	most    int // the largest number of them in one group
	others  int // pods of other groups that were created or deleted
	// late are replacements that the StatefulSet controller created in an incarnation that was
	// about to end. The operator receives the event of the deleted pod at the same time.
	late int
}

// aftermath reads the audit log from a mark on. hit is the number of groups that lost a worker,
// and isHit reports whether a group is one of them.
func (s *stage) aftermath(mark, hit int, isHit func(int) bool) aftermath {
	return aftermathOf(s.Audit.Kept(mark, func(r drill.Request) bool { return r.Namespace == s.namespace }), hit, isHit)
}

func aftermathOf(requests []drill.Request, hit int, isHit func(int) bool) aftermath {
	a, begun, made := aftermath{hit: hit}, map[string]time.Time{}, map[int]int{}
	for _, r := range requests {
		var group, worker int
		switch n, _ := fmt.Sscanf(r.Name, "a-%d-%d", &group, &worker); {
		case n == 0:
		case deletesPod(r):
			if n == 1 && drill.ByLockstep(r) {
				a.leaders++
				begun[r.Name] = r.Begun // the next leader comes after it
			}
			if !isHit(group) {
				a.others++
			}
		case drill.CreatesPod(r):
			if !isHit(group) {
				a.others++
			}
		case makesStatefulSet(r):
			begun[r.Name+"-"] = r.Begun
		}
	}
	for _, r := range requests {
		var group, worker int
		n, _ := fmt.Sscanf(r.Name, "a-%d-%d", &group, &worker)
		if n == 0 || !drill.CreatesPod(r) || !isHit(group) {
			continue
		}
		maker := fmt.Sprintf("a-%d", group)
		if n == 2 {
			maker += "-"
		}
		if at, known := begun[maker]; !known || r.Begun.Before(at) {
			a.late++
			continue
		}
		made[group]++
		a.made++
		a.most = max(a.most, made[group])
	}
	return a
}

func deletesPod(r drill.Request) bool {
	return r.Verb == "delete" && r.Resource == "pods" && r.Code == http.StatusOK
}

func makesStatefulSet(r drill.Request) bool {
	return r.Resource == "statefulsets" && r.Code == http.StatusCreated && drill.ByLockstep(r)
}

func (a aftermath) tell(b *bed) {
	b.tell("leaders-deleted-beyond", float64(a.leaders-a.hit))
	b.tell("others-touched", float64(a.others))
	b.tell("late-pods", float64(a.late))
}

// ending is a load of 10 groups of 4 whose pods take 3 s to end and 2 s to be ready.
func ending(policy lwsv1.PodTerminationPolicyType) load {
	l := own(10, 4)
	l.edit = func(set *lwsv1.LeaderWorkerSet) {
		set.Spec.PodTerminationPolicy = policy
		set.Spec.RolloutStrategy.RollingUpdateConfiguration.MaxUnavailable = intstr.FromInt32(2)
		set.Spec.LeaderWorkerTemplate.WorkerTemplate.Annotations = map[string]string{
			"local.lockstep.dev/vanish-after": "3s", "local.lockstep.dev/ready-after": "2s",
		}
	}
	return l
}

// ended measures the same end of groups under both policies.
func ended(do func(*stage) cost) func(*bed) {
	return func(b *bed) {
		measured := func(policy lwsv1.PodTerminationPolicyType) cost {
			s := b.standing(ending(policy))
			defer s.leave()
			s.rest()
			return do(s)
		}
		byDefault := measured(lwsv1.DefaultPodTermination)
		b.tellCost(measured(lwsv1.ParallelPodTermination), cost{})
		b.tell("default-seconds", byDefault.time.Seconds())
		b.tell("default-writes", float64(byDefault.writes))
		b.tell("default-refused-writes", float64(byDefault.refused))
	}
}

// endGroup deletes a leader, and waits until its former group is gone.
func endGroup(s *stage) cost {
	var former []types.UID
	holding(s.census, func() int {
		for uid, pod := range s.pods {
			if pod.group == "a-3" {
				former = append(former, uid)
			}
		}
		return len(former)
	})
	valid(len(former) == s.size, "the group has %d pods", len(former))
	return s.spend("the group is gone",
		func() error { return s.Client.Delete(s.ctx, &corev1.Pod{ObjectMeta: s.meta("a-3")}) },
		func() bool {
			return !slices.ContainsFunc(former, func(uid types.UID) bool { _, there := s.pods[uid]; return there })
		})
}

// endRoll gives all groups another template.
func endRoll(s *stage) cost {
	c := s.spend("all groups are rolled",
		func() error { return s.Client.Patch(s.ctx, s.newSet(), drill.Merge(withImage(imageB))) },
		func() bool { return s.complete() && s.allAt(imageB) })
	valid(c.pods == s.groups*s.size, "%d pods were created", c.pods)
	return c
}

// endSet deletes the set.
func endSet(s *stage) cost {
	return s.spend("all pods are gone", func() error { return s.remove(s) }, s.empty)
}
