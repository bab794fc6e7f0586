package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	dsv1 "lockstep.dev/lockstep/api/disaggregatedset/v1"
	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/test/drill"
	"lockstep.dev/lockstep/test/expect"
	"lockstep.dev/lockstep/test/standin"
)

// Another implementation that takes over in the middle of a rollout finds each child as it would have made it: its writes
// change nothing. Handed back after its next step, the rollout ends with the children and the target's pods that were there.
func TestRolesAreHandedBackInMidRollout(t *testing.T) {
	s, slow := newScene(t), readyAfter("1s")
	former := s.settledRoles(s.rolesSet("a", s.roleOf("prefill", 4, 1, imageA, slow), s.roleOf("decode", 4, 2, imageA, slow)))
	at := s.counts()
	set := s.changeRoles("a", rolesRun(imageB))
	for range 4 {
		at = s.step(set, at)
	}
	s.Check("stop the operator", errors.Join(bed.Operator.Kill(), bed.Operator.Start("--controllers="))) // its webhooks stay
	t.Cleanup(func() { _ = bed.Operator.Kill(); must(t, bed.Operator.Start()) })
	expect.Must(t, !s.isRolled(set), "the rollout was over before the operator was stopped: %s", s.counts())
	s.Until("no pod is left of a group that ended", func() bool {
		return !slices.ContainsFunc(s.Pods(), func(pod *corev1.Pod) bool {
			leader := s.Pod(pod.Labels[lwsv1.SetNameLabelKey] + "-" + pod.Labels[lwsv1.GroupIndexLabelKey])
			return pod.DeletionTimestamp != nil || leader == nil
		})
	})
	before, target := s.podUIDs(), s.uidsOf(imageB)

	var fresh []*lwsv1.LeaderWorkerSet
	for image, of := range map[string]*dsv1.DisaggregatedSet{imageA: former, imageB: set} {
		for i := range of.Spec.Roles {
			child := s.asMade(standin.RoleSet(of, &of.Spec.Roles[i], "4"))
			if image == imageB {
				fresh = append(fresh, child)
			}
		}
	}
	expect.Equalf(t, 4, len(drill.Live[*lwsv1.LeaderWorkerSet](s.Recorder)), "children: %s", s.counts())
	expect.Equalf(t, before, s.podUIDs(), "pods after the writes of the other implementation")
	for _, child := range fresh { // its next step
		s.Check("scale", s.Client.Patch(t.Context(), child, drill.Merge(fmt.Sprintf(`{"spec":{"replicas":%d}}`, min(4, *child.Spec.Replicas+1)))))
	}
	s.Check("start the operator", errors.Join(bed.Operator.Kill(), bed.Operator.Start()))
	s.awaitRoles(set)
	now := s.uidsOf(imageB)
	for uid, name := range target {
		expect.That(t, now[uid] == name, "pod %s of the target is another one", name)
	}
	made := s.Pick(func(r *drill.Record) bool { return r.Kind == "LeaderWorkerSet" })
	expect.Equalf(t, 4, len(made), "children ever: %s", names(made))
}

// asMade returns the child that the other implementation would have made. What that would write onto it changes nothing.
func (s *scene) asMade(want *lwsv1.LeaderWorkerSet) *lwsv1.LeaderWorkerSet {
	s.Helper()
	child := &lwsv1.LeaderWorkerSet{}
	s.Check("find child "+want.Name, s.Client.Get(s.Context(), client.ObjectKeyFromObject(want), child))
	want.Spec.Replicas = child.Spec.Replicas
	document, err := json.Marshal(want)
	s.Check("encode", err)
	had := child.ResourceVersion
	s.Check("write child "+want.Name, s.Client.Patch(s.Context(), child, client.RawPatch(types.MergePatchType, document)))
	expect.Equalf(s, had, child.ResourceVersion, "%s changed by what the other implementation writes: %s", want.Name, document)
	expect.Equalf(s, want.Labels, child.Labels, "labels of %s", want.Name)
	theirs := maps.Clone(child.Annotations) // without a default of the webhook of LeaderWorkerSets, which has nothing to do with roles
	delete(theirs, "lockstep.dev/progress-deadline")
	expect.Equalf(s, want.Annotations, theirs, "annotations of %s", want.Name)
	return child
}

// podUIDs are the UIDs of all pods that stay.
func (s *scene) podUIDs() map[types.UID]string {
	uids := s.uidsOf(imageA)
	for uid, name := range s.uidsOf(imageB) {
		uids[uid] = name
	}
	return uids
}
