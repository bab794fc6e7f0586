package main

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/test/drill"
)

// kills is how often killOne kills.
const kills = 25

func recreateGroup(set *lwsv1.LeaderWorkerSet) {
	set.Spec.LeaderWorkerTemplate.RestartPolicy = lwsv1.RecreateGroupOnPodRestart
}

// killOne deletes a worker of one group after the other. It measures how long it takes until
// the operator deletes the leader, and until the group is whole. The floor is the eight pods
// of a group deleted by the bench.
func killOne(ctx context.Context, b *bed) (figures, error) {
	bare, err := b.standing(ctx, floor(4, 8))
	if err != nil {
		return nil, err
	}
	floorCost, err := bare.spend(ctx, "the group is whole again", func() error { return bare.killAll(ctx, "a-1") }, bare.complete)
	bare.strikeEmpty(ctx)
	if err != nil {
		return nil, err
	}
	s, err := b.standing(ctx, own(kills, 8, recreateGroup))
	if err != nil {
		return nil, err
	}
	defer s.strikeEmpty(ctx)
	mark, err := s.settled(ctx)
	if err != nil {
		return nil, err
	}
	var costs []cost
	for i := range kills {
		c, err := s.spend(ctx, "the group is whole again", func() error { return s.kill(ctx, i) }, s.recreated(8*(i+1)))
		if err != nil {
			return nil, err
		}
		costs = append(costs, c)
	}
	answers, err := s.answers(kills)
	if err != nil {
		return nil, err
	}
	after := s.aftermath(mark, kills, func(int) bool { return true })
	slices.SortFunc(costs, func(a, b cost) int { return int(a.time - b.time) })
	median := costs[len(costs)/2]
	median.pods = after.most
	var f figures
	median.tell(&f, "kill-one", floorCost)
	after.tell(&f, "kill-one")
	steps, err := s.steps()
	if err != nil {
		return nil, err
	}
	for _, step := range []string{"record", "statefulset"} {
		if taken := steps[step]; len(taken) > 0 {
			f.add("kill-one."+step+"-ms-median", milliseconds(taken[len(taken)/2]))
			f.add("kill-one."+step+"-ms-longest", milliseconds(taken[len(taken)-1]))
		}
	}
	f.add("kill-one.answer-ms-median", milliseconds(answers[len(answers)/2]))
	f.add("kill-one.answer-ms-p99", milliseconds(answers[(len(answers)*99+99)/100-1]))
	return f, nil
}

// killForty deletes a worker of every second group or so, all at once.
func killForty(ctx context.Context, b *bed) (figures, error) {
	const groups, hit = 100, 40
	s, err := b.standing(ctx, own(groups, 8, recreateGroup))
	if err != nil {
		return nil, err
	}
	defer s.strikeEmpty(ctx)
	mark, err := s.settled(ctx)
	if err != nil {
		return nil, err
	}
	victims := make([]int, hit)
	for i := range victims {
		victims[i] = i * groups / hit
	}
	do := func() error { return together(victims, func(group int) error { return s.kill(ctx, group) }) }
	c, err := s.spend(ctx, "all groups are whole again", do, s.recreated(8*hit))
	if err != nil {
		return nil, err
	}
	answers, err := s.answers(hit)
	if err != nil {
		return nil, err
	}
	var f figures
	c.tell(&f, "kill-40", cost{})
	f.add("kill-40.answer-ms-p99", milliseconds(answers[len(answers)-1]))
	after := s.aftermath(mark, hit, func(group int) bool { return slices.Contains(victims, group) })
	after.tell(&f, "kill-40")
	f.add("kill-40.pods-created-beyond", float64(after.made-8*hit))
	return f, nil
}

// settled returns where the audit log stands once nothing more of the creation is done.
func (s *stage) settled(ctx context.Context) (mark int, err error) {
	if err := s.rest(ctx); err != nil {
		return 0, err
	}
	err = s.remark()
	return s.mark, err
}

// recreated reports whether so many pods were created since the load came, and all of them
// are ready.
func (s *stage) recreated(pods int) func() bool {
	return func() bool { return s.created >= s.groups*s.size+pods && s.complete() }
}

// kill deletes one worker with no grace: the pod is gone with the first event of it.
func (s *stage) kill(ctx context.Context, group int) error {
	victim := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: fmt.Sprintf("a-%d-3", group)}}
	return s.client.Delete(ctx, victim, client.GracePeriodSeconds(0))
}

// killAll deletes the pods of one group of the floor.
func (s *stage) killAll(ctx context.Context, leader string) error {
	names := []string{leader}
	for i := 1; i < s.size; i++ {
		names = append(names, fmt.Sprintf("%s-%d", leader, i))
	}
	return together(names, func(name string) error {
		return s.client.Delete(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name}}, client.GracePeriodSeconds(0))
	})
}

// answers returns how long after each worker's deletion the operator deleted its leader, by
// the API server's clock, shortest first.
func (s *stage) answers(want int) ([]time.Duration, error) {
	all, err := s.steps()
	if err != nil {
		return nil, err
	}
	if answers := all["leader"]; len(answers) >= want {
		return answers, nil
	}
	return nil, fmt.Errorf("%w: the operator deleted %d leaders for %d workers", errInvalid, len(all["leader"]), want)
}

// steps returns how long after each worker's deletion the operator began each step of its
// answer, shortest first: a write of the set's status, the deletion of the group's
// StatefulSet, and that of its leader.
func (s *stage) steps() (map[string][]time.Duration, error) {
	if err := s.audit.Sync(); err != nil {
		return nil, err
	}
	return stepsOf(s.audit.Kept(0, func(r drill.Request) bool { return r.Namespace == s.namespace && r.Code == http.StatusOK })), nil
}

func stepsOf(requests []drill.Request) map[string][]time.Duration {
	killed := map[string]time.Time{} // by the leader, until another worker of it is
	answered := map[string]bool{}    // by the leader, once it is deleted
	recorded := map[string]time.Time{}
	steps := map[string][]time.Duration{}
	for _, r := range requests {
		var group, worker int
		n, _ := fmt.Sscanf(r.Name, "a-%d-%d", &group, &worker)
		at, awaited := killed[r.Name]
		switch {
		case n == 2 && deletesPod(r) && r.Agent == benchAgent:
			leader := fmt.Sprintf("a-%d", group)
			killed[leader], answered[leader] = r.Done, false
			delete(recorded, leader)
		case !drill.ByLockstep(r):
		case r.Resource == "leaderworkersets" && r.Subresource == "status":
			for leader := range killed { // one at a time
				if _, known := recorded[leader]; !known && !answered[leader] {
					recorded[leader] = r.Begun
				}
			}
		case awaited && r.Resource == "statefulsets" && r.Verb == "delete": // before the leader or after
			steps["statefulset"] = append(steps["statefulset"], r.Begun.Sub(at))
		case awaited && !answered[r.Name] && deletesPod(r):
			answered[r.Name] = true
			steps["leader"] = append(steps["leader"], r.Begun.Sub(at))
			if begun, known := recorded[r.Name]; known {
				steps["record"] = append(steps["record"], begun.Sub(at))
			}
		}
	}
	for _, taken := range steps {
		slices.Sort(taken)
	}
	return steps
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
