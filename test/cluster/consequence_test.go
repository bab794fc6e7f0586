package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/cli/consequence"
	"lockstep.dev/lockstep/test/drill"
	"lockstep.dev/lockstep/test/expect"
	"lockstep.dev/lockstep/test/fakeapi"
)

// seen is what became of the groups and PVCs of a set.
type seen struct {
	// Replaced are the leaders that were created again, in that order; Created those with new names, and Deleted those gone.
	Replaced, Created, Deleted []string
	ClaimsCreated, ClaimsGone  []string
	// Revision is the number of the revision of the leaders, or 0 if it is the one from before.
	Revision int64
}

// watched is a set while a change is made.
type watched struct {
	*scene
	set        *lwsv1.LeaderWorkerSet
	mark       int
	leaders    map[string]types.UID
	claims     map[string]types.UID
	revision   int64
	ready      int
	fewest     int
	mostGroups int
	mostPods   int64
	isKeyed    bool
}

func (s *scene) watchSet(set *lwsv1.LeaderWorkerSet) *watched {
	w := &watched{scene: s, set: set, mark: s.Changes(), leaders: s.leaderUIDs(set), claims: s.claimUIDs()}
	w.revision, w.isKeyed = s.numberOf(set), set.Spec.GroupIdentity == lwsv1.HashGroupIdentity
	w.ready = s.groupsReady(set)
	w.fewest = w.ready
	return w
}

func (s *scene) leaderUIDs(set *lwsv1.LeaderWorkerSet) map[string]types.UID {
	found := map[string]types.UID{}
	for _, leader := range s.leadersOf(set) {
		found[leader.Name] = leader.UID
	}
	return found
}

func (s *scene) claimUIDs() map[string]types.UID {
	all, err := s.PVCs()
	s.Check("list PVCs", err)
	found := map[string]types.UID{}
	for name, claim := range all {
		if claim.DeletionTimestamp == nil {
			found[name] = claim.UID
		}
	}
	return found
}

// numberOf is the highest number of a revision that a leader of a set has.
func (s *scene) numberOf(set *lwsv1.LeaderWorkerSet) (number int64) {
	for _, leader := range s.leadersOf(set) {
		for _, r := range s.revisions(set) {
			if r.Labels[lwsv1.RevisionKey] == leader.Labels[lwsv1.RevisionKey] {
				number = max(number, r.Revision)
			}
		}
	}
	return number
}

// groupsReady counts the groups whose pods are ready, by the size that their leaders were created with.
func (s *scene) groupsReady(set *lwsv1.LeaderWorkerSet) (n int) {
	ready := map[string]int{}
	for _, pod := range s.podsOf(set) {
		if drill.PodReady(pod) {
			ready[pod.Labels[lwsv1.GroupIndexLabelKey]]++
		}
	}
	for _, leader := range s.leadersOf(set) {
		if ready[leader.Labels[lwsv1.GroupIndexLabelKey]] == sizeOf(leader) {
			n++
		}
	}
	return n
}

func sizeOf(leader *corev1.Pod) int {
	size, _ := strconv.Atoi(leader.Annotations[lwsv1.SizeAnnotationKey])
	return size
}

// look compares the present moment with those before.
func (w *watched) look() {
	pods := slices.DeleteFunc(w.podsOf(w.set), func(pod *corev1.Pod) bool { return pod.DeletionTimestamp != nil })
	w.fewest = min(w.fewest, w.groupsReady(w.set))
	w.mostGroups, w.mostPods = max(w.mostGroups, len(w.leadersOf(w.set))), max(w.mostPods, int64(len(pods)))
}

// seen returns what happened since the mark.
func (w *watched) seen() (s seen) {
	born := slices.DeleteFunc(bornSince[*corev1.Pod](w.scene, w.mark), func(r drill.Record) bool {
		labels := r.Last.GetLabels()
		return labels[lwsv1.SetNameLabelKey] != w.set.Name || labels[lwsv1.WorkerIndexLabelKey] != "0"
	})
	slices.SortFunc(born, func(a, b drill.Record) int { return a.Born - b.Born })
	for _, r := range born {
		if name := r.Last.GetName(); w.leaders[name] != "" {
			s.Replaced = append(s.Replaced, name)
		} else {
			s.Created = append(s.Created, name)
		}
	}
	now, claims := w.leaderUIDs(w.set), w.claimUIDs()
	s.Deleted, s.ClaimsGone, s.ClaimsCreated = lacks(w.leaders, now), lacks(w.claims, claims), lacks(claims, w.claims)
	slices.Sort(s.Created)
	if number := w.numberOf(w.set); number != w.revision {
		s.Revision = number
	}
	return s
}

// lacks returns the names that a second list lacks, or has with another UID.
func lacks(all, of map[string]types.UID) (names []string) {
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if of[name] != all[name] && of[name] == "" {
			names = append(names, name)
		}
	}
	return names
}

// said is what a plan announces, in the form of what is seen. Surge groups end, unless the partition keeps others back.
func said(c *consequence.Consequence) (s seen) {
	s.Replaced = c.Replaced.Names
	s.Created = sorted(c.Created.Names, c.Surge.Names)
	s.Deleted = sorted(c.Deleted.Names)
	s.ClaimsCreated, s.ClaimsGone, s.Revision = sorted(c.ClaimsCreated), sorted(c.ClaimsDeleted), c.Revision
	return s
}

func sorted(lists ...[]string) []string { return slices.Sorted(slices.Values(slices.Concat(lists...))) }

// planned asks what an edit of a set does.
func (s *scene) planned(set *lwsv1.LeaderWorkerSet) *consequence.Consequence {
	file := &lwsv1.LeaderWorkerSet{ObjectMeta: s.Meta(set.Name), Spec: set.Spec}
	file.Labels, file.Annotations = set.Labels, set.Annotations
	var plan struct{ Consequences consequence.Consequence }
	out := s.answer(bed.Plane, s.manifest(file), "plan", "-f", "-", "-o", "json")
	s.Check("read "+out, json.Unmarshal([]byte(out), &plan))
	return &plan.Consequences
}

// foretold plans an edit of a set and makes it: what is seen is what was said. It returns what was said.
func (s *scene) foretold(what, name string, edit edit) *consequence.Consequence {
	before := s.Set(name)
	after := before.DeepCopy()
	edit(after)
	c := s.planned(after)
	s.Logf("%s: %s", what, c.Verdict)
	w := s.watchSet(before)
	s.Check(what, s.Client.Patch(s.Context(), after, client.MergeFrom(before)))
	w.await(what, c, after)
	if c.Replaced.Count == 0 {
		outlast(s.T)
	}
	w.judge(what, c, after)
	return c
}

// await waits until what was said is seen, and the set is at rest.
func (w *watched) await(what string, c *consequence.Consequence, after *lwsv1.LeaderWorkerSet) {
	w.Eventually(what+" is as said", func() error {
		w.look()
		now := w.Set(w.set.Name)
		return errors.Join(
			drill.Lacking("observedGeneration", after.Generation, now.Status.ObservedGeneration),
			drill.Lacking("groups", c.Rest, len(w.leadersOf(w.set))),
			drill.Lacking("ready groups", c.Rest, w.groupsReady(w.set)),
			w.differs(c),
		)
	})
}

// differs returns how what is seen differs from what was said.
func (w *watched) differs(c *consequence.Consequence) error {
	want, have := said(c), w.seen()
	if w.isKeyed { // the Deployment controller chooses, and names are random
		return errors.Join(drill.Lacking("new groups", c.Replaced.Count+c.Created.Count, len(have.Created)),
			drill.Lacking("groups gone", c.Replaced.Count+c.Deleted.Count, len(have.Deleted)),
			drill.Lacking("revision", want.Revision, have.Revision))
	}
	return drill.Lacking("changes", fmt.Sprintf("%+v", want), fmt.Sprintf("%+v", have))
}

// judge checks that nothing else was seen, and the bounds that were said.
func (w *watched) judge(what string, c *consequence.Consequence, after *lwsv1.LeaderWorkerSet) {
	w.look()
	w.Want(what+": what was seen is what was said", w.differs(c))
	least := min(w.ready, int(*after.Spec.Replicas))
	if c.Down != nil {
		least -= c.Down.Groups
	}
	expect.That(w, w.fewest >= least, "%s: %d groups were ready, said were at least %d", what, w.fewest, least)
	if c.Peak != nil {
		expect.That(w, w.mostGroups <= c.Peak.Groups && w.mostPods <= c.Peak.Pods, "%s: %d groups and %d pods, said were at most %+v",
			what, w.mostGroups, w.mostPods, c.Peak)
	}
	same(w.T, what+": planned again", "nothing changes", w.planned(w.Set(w.set.Name)).Verdict)
}

func image(image string) edit {
	return func(set *lwsv1.LeaderWorkerSet) {
		set.Spec.LeaderWorkerTemplate.WorkerTemplate.Spec.Containers[0].Image = image
	}
}

func replicas(n int32) edit { return func(set *lwsv1.LeaderWorkerSet) { set.Spec.Replicas = &n } }

func paused(value string) edit { return fakeapi.Annotation(lwsv1.PausedAnnotationKey, value) }

// Twelve changes: what a plan says of each is what happens.
func TestAPlanSaysWhatHappens(t *testing.T) {
	t.Run("ordinals", func(t *testing.T) { changeOrdinals(asideScene(t)) })
	t.Run("keys", func(t *testing.T) {
		s := asideScene(t)
		s.settled(s.newSet("b", 3, 2, imageA, withKeys, budget(1, 1, 0)))
		same(t, "replaced Hash groups", 3, s.foretold("Hash: image", "b", image(imageB)).Replaced.Count)
		same(t, "deleted Hash groups", 1, s.foretold("Hash: replicas down", "b", replicas(2)).Deleted.Count)
	})
	t.Run("surge", func(t *testing.T) {
		s := asideScene(t)
		s.settled(s.newSet("c", 1, 2, imageA, budget(0, 1, 0)))
		c := s.foretold("surge at replicas 1", "c", image(imageB))
		same(t, "surge and down", "[c-1] 0", fmt.Sprint(c.Surge.Names, c.Down.Groups))
		c = s.foretold("surge that is not needed", "c", together(image(imageA), budget(1, 1, 0)))
		same(t, "surge and down", "[] 1", fmt.Sprint(c.Surge.Names, c.Down.Groups))
	})
}

func changeOrdinals(s *scene) {
	s.settled(s.newSet("a", 3, 2, imageA, hasty, budget(1, 0, 0), volumes(keepClaims, keepClaims)))
	c := s.foretold("image", "a", image(imageB))
	same(s.T, "order", "a-2 a-1 a-0", strings.Join(c.Replaced.Names, " "))
	c = s.foretold("undo", "a", image(imageA))
	same(s.T, "revision", "1 as 3", fmt.Sprintf("%d as %d", c.RevisionWas, c.Revision))
	c = s.foretold("size", "a", func(set *lwsv1.LeaderWorkerSet) { set.Spec.LeaderWorkerTemplate.Size = new(int32(3)) })
	same(s.T, "PVCs of new workers", 3, len(c.ClaimsCreated))
	c = s.foretold("replicas up", "a", replicas(4))
	same(s.T, "created", "[a-3]", fmt.Sprint(c.Created.Names))
	c = s.foretold("replicas down, and the budget with it", "a", together(replicas(3), budget(2, 0, 0)))
	same(s.T, "PVCs that stay", 3, len(c.ClaimsStay))
	c = s.foretold("pause", "a", together(paused("true"), image(imageB)))
	same(s.T, "replaced while paused", 0, c.Replaced.Count)
	c = s.foretold("partition", "a", together(paused("false"), budget(1, 1, 1)))
	same(s.T, "kept", "[a-0]", fmt.Sprint(c.Kept.Names))
	c = s.foretold("a surge group stays", "a", together(image(imageB+"2"), budget(0, 1, 1)))
	same(s.T, "groups in the end", 4, c.Rest)
	c = s.foretold("no partition", "a", budget(1, 0, 0))
	same(s.T, "deleted", "[a-3]", fmt.Sprint(c.Deleted.Names))
	c = s.foretold("restarts that are counted", "a", func(set *lwsv1.LeaderWorkerSet) {
		set.Spec.LeaderWorkerTemplate.MaxGroupRestarts, set.Spec.PodTerminationPolicy = new(int32(9)), lwsv1.ParallelPodTermination
	})
	same(s.T, "verdict", "nothing restarts", c.Verdict)
	s.foretold("restart policy", "a", fakeapi.Policy(lwsv1.RecreateGroupAfterStart))
	s.foretold("claim retention", "a", volumes(keepClaims, deleteClaims))
	c = s.foretold("replicas down, and PVCs with it", "a", replicas(1))
	same(s.T, "PVCs that are deleted", 6, len(c.ClaimsDeleted))
	s.refusesClaims("a")
}

// refusesClaims checks that a plan says of other volumes what the API server says.
func (s *scene) refusesClaims(name string) {
	set := s.Set(name).DeepCopy()
	set.Spec.LeaderWorkerTemplate.VolumeClaimTemplates[0].Name = "other"
	err := s.Client.Patch(s.Context(), set, client.MergeFrom(s.Set(name)))
	expect.ErrorSays(s, err, "field is immutable")
	set.TypeMeta, set.ObjectMeta, set.Status = s.Set(name).TypeMeta, s.Meta(name), lwsv1.LeaderWorkerSetStatus{}
	_, errOut, failed := s.Plugin(s.manifest(set), "plan", "-f", "-")
	expect.That(s, failed != nil && strings.Contains(errOut, "field is immutable"), "got %v, %s", failed, errOut)
}
