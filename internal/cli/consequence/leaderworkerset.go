package consequence

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	clilws "lockstep.dev/lockstep/internal/cli/lws"
	"lockstep.dev/lockstep/internal/cli/page"
	"lockstep.dev/lockstep/internal/cli/render"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/internal/lws/revision"
	lwsset "lockstep.dev/lockstep/internal/lws/set"
	"lockstep.dev/lockstep/internal/lws/table"
	"lockstep.dev/lockstep/internal/lws/volumes"
	"lockstep.dev/lockstep/internal/lws/workload"
)

// Codes of what a change waits for, beside those of a plan. They are stable.
const (
	CodeNoBudget = "RolloutBudgetUsed"
	CodeNoNode   = "NoNodeFits"
	CodeNoRoom   = "NotEnoughRoom"
)

// lasting are the waits of a plan that may last for ever.
var lasting = []string{
	lws.CodeNameConflict, lws.CodeRefused, lws.CodePreviousIncarnation, lws.CodeNotHeadless, lws.CodeWorkloadNotReady,
	lws.CodePodGroupDiffers, lws.CodeUnsupported, lws.CodeVolumeClaimsDiffer,
}

// sets is a change of a LeaderWorkerSet.
type sets struct {
	// before is nil if there is no such set. had and size are its replicas and size.
	before    *lwsv1.LeaderWorkerSet
	had, size int32
	after     clilws.Survey
	// set is the one that would be stored, and made the one whose templates are used: the former while a template waits.
	set, made *lwsv1.LeaderWorkerSet
	was, roll table.Roll
	// groups are those with leaders, by the names of these.
	groups map[string]*clilws.Group
}

// OfSet returns what it does to store a set. before is empty if there is no such set. Confidential values are left out
// unless they are asked for.
func OfSet(before, after clilws.Survey, showValues bool) *Consequence {
	s := &sets{after: after, set: after.Set.Set, made: after.Set.Set, roll: lwsset.Roll(after.Set), groups: map[string]*clilws.Group{}}
	c := &Consequence{Rest: int(s.roll.Rest)}
	if s.before = before.Set.Set; s.before != nil {
		s.was, s.had, s.size = lwsset.Roll(before.Set), workload.Replicas(s.before), workload.Size(s.before)
		c.Changes = changes(fieldsOf(s.before, s.before.Spec), fieldsOf(s.set, s.set.Spec), showValues)
	}
	if restored, err := revision.RestoredAt(s.set, after.Set.Revisions, s.roll.Key); err == nil && after.Standing.Pending {
		s.made = restored
	}
	for i := range after.Groups {
		if g := &after.Groups[i]; g.Leader != nil {
			s.groups[g.LeaderName] = g
		}
	}
	if isLeft := len(after.Set.Beyond) > 0 || s.set.DeletionTimestamp != nil; isLeft {
		c.Verdict = "nothing restarts: the set is being deleted, or the operator leaves it alone"
	} else {
		for _, fill := range []func(*Consequence){s.fillGroups, s.fillAmounts, s.fillClaims, s.fillRevision, s.fillTime} {
			fill(c)
		}
		c.Verdict = s.verdict(c)
	}
	c.Waits = s.waits(c)
	return c
}

func (s *sets) fillGroups(c *Consequence) {
	wants := workload.Replicas(s.set)
	c.Replaced, c.Kept = named(leadersOf(s.roll.Replaced)), named(leadersOf(s.roll.Kept))
	if !s.roll.HasOrdinals { // the Deployment controller chooses which
		c.Replaced.Count = min(c.Replaced.Count, int(wants))
		c.Created.Count, c.Deleted.Count = int(max(0, wants-s.had)), int(max(0, s.had-wants))
		c.Surge.Count = int(max(0, s.roll.Peak-max(wants, s.had)))
		return
	}
	c.Ordered, c.Created = c.Replaced.Count > 1, s.ordinals(s.had, wants, false)
	c.Deleted, c.Surge = s.ordinals(s.roll.Rest, max(s.had, s.roll.Peak), true), s.ordinals(wants, s.roll.Peak, false)
	slices.Reverse(c.Replaced.Names)
	slices.Reverse(c.Deleted.Names)
}

// ordinals are the groups in a range whose leaders exist, or do not.
func (s *sets) ordinals(first, end int32, exist bool) Groups {
	var names []string
	for i := first; i < end; i++ {
		if name := identity.LeaderName(s.set.Name, int(i)); (s.groups[name] != nil) == exist {
			names = append(names, name)
		}
	}
	return named(names)
}

func named(names []string) Groups { return Groups{Count: len(names), Names: names} }

func leadersOf(groups []workload.Identity) (names []string) {
	for _, g := range groups {
		names = append(names, g.LeaderName)
	}
	return names
}

// fillAmounts says what is down, and what the change needs.
func (s *sets) fillAmounts(c *Consequence) {
	leader := &corev1.Pod{Spec: workload.WrittenForLeaders(s.made).Spec}
	now, largest, next := corev1.ResourceList{}, corev1.ResourceList{}, requests(leader)
	c.needs, c.starts = corev1.ResourceList{}, []*corev1.Pod{leader}
	if size := int(workload.Size(s.made)); size > 1 {
		worker := &corev1.Pod{Spec: s.made.Spec.LeaderWorkerTemplate.WorkerTemplate.Spec}
		Add(next, requests(worker), size-1)
		c.starts = append(c.starts, worker)
	}
	for name, g := range s.groups {
		requested := requests(podsOf(g)...)
		Add(now, requested, 1)
		if slices.Contains(c.Replaced.Names, name) {
			Add(largest, beyond(requested, largest), 1)
			Add(c.needs, beyond(next, requested), 1)
		}
	}
	fresh := c.Created.Count + c.Surge.Count
	unavailable, _ := workload.Budget(s.set)
	if n := min(int(unavailable), c.Replaced.Count); c.Replaced.Count > 0 {
		down := corev1.ResourceList{}
		Add(down, largest, n)
		c.Down = AmountOf(n, down)
	} else if fresh == 0 {
		return
	}
	Add(c.needs, next, fresh)
	Add(now, c.needs, 1)
	c.Peak, c.More = AmountOf(int(s.roll.Peak), now), AmountOf(fresh, c.needs)
}

func podsOf(g *clilws.Group) []*corev1.Pod { return append(slices.Clone(g.Pods.Owned), g.Leader) }

// fillRevision says to which revision groups are rolled, unless it is the present one.
func (s *sets) fillRevision(c *Consequence) {
	if s.roll.Key == s.was.Key {
		return
	}
	c.Revision = s.roll.Number
	if known := revision.WithKey(revision.Counting(s.after.Set.Revisions, s.set.Name), s.roll.Key); known != nil {
		c.RevisionWas = known.Revision
	}
}

// fillTime takes the median of the last starts.
func (s *sets) fillTime(c *Consequence) {
	var starts []time.Duration
	for _, g := range s.groups {
		if took := startOf(g, s.set); took > 0 {
			starts = append(starts, took)
		}
	}
	if slices.Sort(starts); len(starts) > 0 && c.Peak != nil {
		pace := max(1, s.mayBeDown())
		c.Steps = min(1, c.Created.Count+c.Surge.Count) + (c.Replaced.Count+pace-1)/pace
		c.StepSeconds = int64(max(1, starts[len(starts)/2].Round(time.Second).Seconds()))
	}
}

// longestStart is how long a start may take: a pod that lost its readiness and has it again says nothing of its start.
const longestStart = time.Hour

// startOf is how long a group took until its last pod was ready, or 0 if a container restarted, or it took too long.
func startOf(g *clilws.Group, set *lwsv1.LeaderWorkerSet) (took time.Duration) {
	for _, pod := range podsOf(g) {
		isRestarted := func(status corev1.ContainerStatus) bool { return status.RestartCount > 0 }
		if !g.Ready(set) || slices.ContainsFunc(pod.Status.ContainerStatuses, isRestarted) {
			return 0
		}
		took = max(took, workload.Condition(pod, corev1.PodReady).LastTransitionTime.Sub(g.Leader.CreationTimestamp.Time))
	}
	if took > longestStart {
		return 0
	}
	return took
}

// waits are those that may last for ever.
func (s *sets) waits(c *Consequence) (all []render.Wait) {
	for _, w := range s.after.Plan.Waits {
		if slices.Contains(lasting, w.Code) && !w.Ordinary {
			all = append(all, render.Wait{Reason: w.Code, Message: w.Sentence})
		}
	}
	if down, may := leadersOf(s.roll.Down), s.mayBeDown(); c.Replaced.Count > 0 && len(down) > 0 && len(down) >= may {
		all = append(all, render.Wait{Reason: CodeNoBudget, Message: fmt.Sprintf(
			"the rollout waits for groups that are not ready and that it does not replace: %s; at most %s may be down", page.Few(down), page.Counted(may, "group"))})
	}
	return all
}

// mayBeDown is how many groups the rollout may have down: each surge group, also one that exists, stands for one.
func (s *sets) mayBeDown() int {
	unavailable, surge := workload.Budget(s.set)
	return int(unavailable + min(surge, max(0, s.roll.Peak-workload.Replicas(s.set))))
}

func (s *sets) verdict(c *Consequence) string {
	isOn := c.Replaced.Count > 0 && len(s.was.Replaced) == len(s.roll.Replaced) && s.was.Key == s.roll.Key
	switch {
	case s.before == nil:
		return "the set is created with " + page.Counted(c.Created.Count, "group")
	case len(c.Changes) == 0 && !isOn:
		return "nothing changes"
	}
	var parts []string
	for i, verb := range []string{"deleted", "replaced", "created"} {
		if n := []int{c.Deleted.Count, c.Replaced.Count, c.Created.Count}[i]; n > 0 {
			parts = append(parts, strings.Replace(page.Counted(n, "group")+" is "+verb, "s is", "s are", 1))
		}
	}
	if isOn {
		parts = append(parts, "which a rollout in progress does anyway")
	}
	if lws.Paused(s.set) {
		parts = append(parts, "the rollout is paused: nothing "+map[bool]string{true: "else "}[c.Replaced.Count > 0]+"restarts until it is resumed")
	} else if c.Replaced.Count == 0 {
		parts = append(parts, "nothing restarts")
	}
	return strings.Join(parts, ", ")
}

// fillClaims says what becomes of the PVCs of groups that start or are deleted, unless they are too many to list.
func (s *sets) fillClaims(c *Consequence) {
	if int64(s.roll.Peak)*int64(workload.Size(s.made)) > 100_000 {
		return
	}
	exists := map[string]bool{}
	for _, pvc := range slices.Concat(s.after.Set.PVCs.Owned, s.after.Set.PVCs.Orphans) {
		exists[pvc.Name] = pvc.DeletionTimestamp == nil
	}
	// sort adds names of PVCs of groups of a size to those that exist, and to those that do not.
	sort := func(leaders []string, size int32, there, missing *[]string) {
		for _, leader := range leaders {
			for _, template := range volumes.TemplateNames(s.made) {
				name := template + "-" + leader
				for worker := int32(1); worker <= size; worker++ {
					list := missing
					if exists[name] {
						list = there
					}
					*list = append(*list, name)
					name = fmt.Sprintf("%s-%s-%d", template, leader, worker)
				}
			}
		}
	}
	size, left := workload.Size(s.made), &c.ClaimsStay
	if !volumes.KeepsScaled(s.set) {
		left = &c.ClaimsDeleted
	}
	sort(c.Replaced.Names, size, &c.ClaimsStay, &c.ClaimsCreated)
	sort(slices.Concat(c.Created.Names, c.Surge.Names), size, &c.ClaimsReused, &c.ClaimsCreated)
	sort(c.Deleted.Names, s.size, left, &[]string{})
}
