package lws_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws/workload"
	"lockstep.dev/lockstep/test/fakeapi"
)

const (
	retainClaims = appsv1.RetainPersistentVolumeClaimRetentionPolicyType
	deleteClaims = appsv1.DeletePersistentVolumeClaimRetentionPolicyType
)

func drawVolumes(t *rapid.T) func(*lwsv1.LeaderWorkerSet) {
	policies := []appsv1.PersistentVolumeClaimRetentionPolicyType{retainClaims, deleteClaims}
	return fakeapi.Volumes(rapid.SampledFrom(policies).Draw(t, "when deleted"), rapid.SampledFrom(policies).Draw(t, "when scaled"))
}

// strangeVolumes tells whether a claim is on its way out or somebody else's: pods
// wait for it.
func strangeVolumes(c *cluster) bool {
	for _, claim := range fakeapi.All[*corev1.PersistentVolumeClaim](c.Objects) {
		if claim.DeletionTimestamp != nil || len(claim.OwnerReferences) > 0 || claim.Labels[lwsv1.SetNameLabelKey] != "w" {
			return true
		}
	}
	return false
}

// TestNeverDestroysAClaimByRestart: whatever restarts groups, in whatever order
// everybody acts, and whoever made them, every claim outlives it.
func TestNeverDestroysAClaimByRestart(t *testing.T) {
	m := &met{counts: map[string]int{}}
	rapid.Check(t, func(t *rapid.T) {
		c := newCluster(t)
		c.pass(time.Minute)
		set := fakeapi.Set("w", rapid.Int32Range(1, 3).Draw(t, "replicas"), rapid.Int32Range(2, 3).Draw(t, "size"), drawVolumes(t))
		set.Spec.RolloutStrategy.RollingUpdateConfiguration = &lwsv1.RollingUpdateConfiguration{}
		set.Spec.RolloutStrategy.RollingUpdateConfiguration.MaxUnavailable.IntVal = 2
		fakeapi.Add(c.Server, set)
		c.settle(groupNames...)
		if rapid.Bool().Draw(t, "made by others") {
			m.when("claims of a worker statefulset", asOthersMade(c) > 0)
			for _, d := range c.decideAll() {
				m.when("a tie", judgeTies(t, d) > 0)
			}
			c.settle(groupNames...)
		}
		before := claimsOf(c)
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			step := rapid.SampledFrom(stepNames).Draw(t, "step")
			m.when(step, steps[step](t, c))
		}
		c.settleAll()
		m.when("a restart", true)
		after := claimsOf(c)
		for name, uid := range before {
			if after[name] != uid {
				t.Fatalf("claim %s was %s and is %q", name, uid, after[name])
			}
		}
	})
	for _, premise := range append([]string{"claims of a worker statefulset", "a tie"}, stepNames...) {
		if m.counts[premise] == 0 && !t.Failed() {
			t.Errorf("invalid run: never met %s: %v", premise, m.counts)
		}
	}
}

// TestNeverDestroysAClaimOfAGroupThatIsKept: whatever is scaled and restarted, in
// whatever order everybody acts, the claims of a group that the leader StatefulSet was
// never lowered below outlive it; and where claims go with groups scaled away, none of
// a worker's stays behind.
func TestNeverDestroysAClaimOfAGroupThatIsKept(t *testing.T) {
	m := &met{counts: map[string]int{}}
	rapid.Check(t, func(t *rapid.T) {
		c := newCluster(t)
		c.pass(time.Minute)
		volumes := drawVolumes(t)
		set := fakeapi.Set("w", 3, 2, volumes)
		fakeapi.Add(c.Server, set)
		c.settleAll()
		before, kept := claimsOf(c), int32(3)
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			if rapid.IntRange(0, 5).Draw(t, "scale") == 0 {
				replicasTo(c, rapid.Int32Range(1, 3).Draw(t, "replicas"))
			}
			switch step := rapid.SampledFrom(append([]string{"refused", "by force"}, stepNames...)).Draw(t, "step"); step {
			case "refused":
				m.when("refused", lowersInVain(c))
			case "by force":
				fakeapi.Drop[*corev1.Pod](c.Server, rapid.SampledFrom(groupNames).Draw(t, "leader"))
			default:
				steps[step](t, c)
			}
			kept = min(kept, workload.PodsOf(find[*appsv1.StatefulSet](c, "w")))
		}
		c.settleAll()
		replicas := workload.Replicas(find[*lwsv1.LeaderWorkerSet](c, "w"))
		m.when("lowered", kept < 3)
		m.when("wanted again", kept < replicas)
		after := claimsOf(c)
		for name, uid := range before {
			if groupOfClaim(name) < int(min(kept, replicas)) && after[name] != uid {
				t.Fatalf("claim %s was %s and is %q, and the statefulset was never lowered below %d", name, uid, after[name], kept)
			}
		}
		if set.Spec.LeaderWorkerTemplate.PersistentVolumeClaimRetentionPolicy.WhenScaled == retainClaims {
			return
		}
		for name := range after {
			if groupOfClaim(name) >= int(replicas) {
				t.Fatalf("claim %s stays, and %d groups are wanted", name, replicas)
			}
		}
	})
	for _, premise := range []string{"lowered", "wanted again", "refused"} {
		if m.counts[premise] == 0 && !t.Failed() {
			t.Errorf("invalid run: never met %s: %v", premise, m.counts)
		}
	}
}

// lowersInVain has the operator do all it can but write the leader StatefulSet, and tells
// whether it was to lower that.
func lowersInVain(c *cluster) (refused bool) {
	for _, a := range c.decideSet().Actions {
		if apply, ok := a.(action.Apply); ok && a.Target().Kind == identity.KindStatefulSet {
			sts, _ := apply.Object.(*appsv1.StatefulSet)
			return sts.Spec.Replicas != nil && *sts.Spec.Replicas < workload.PodsOf(find[*appsv1.StatefulSet](c, "w"))
		}
		c.try(a)
	}
	return false
}

// groupOfClaim is the index of the group whose claim is called data-w-1, a leader's, or
// data-w-1-1, a worker's.
func groupOfClaim(name string) (index int) {
	_, index = identity.ParentAndOrdinal(name)
	if strings.Count(name, "-") == 3 {
		parent, _ := identity.ParentAndOrdinal(name)
		_, index = identity.ParentAndOrdinal(parent)
		return index
	}
	return index
}

var stepNames = []string{"delete a leader", "delete a worker", "roll", "operator", "operator anew", "statefulsets", "kubelets", "garbage collector"}

// steps are what can happen while groups restart. Each tells whether it did.
var steps = map[string]func(*rapid.T, *cluster) bool{
	"delete a leader": func(t *rapid.T, c *cluster) bool { return deletePod(t, c, true) },
	"delete a worker": func(t *rapid.T, c *cluster) bool { return deletePod(t, c, false) },
	"roll": func(t *rapid.T, c *cluster) bool {
		image(c, rapid.SampledFrom([]string{"image:1", "image:2"}).Draw(t, "image"))
		return true
	},
	"operator": func(t *rapid.T, c *cluster) bool {
		all := c.decideAll()
		for _, d := range all {
			judgeTies(t, d)
		}
		for _, a := range rapid.SampledFrom(all).Draw(t, "decision").plan.Actions {
			c.try(a)
		}
		c.pass(time.Second)
		return true
	},
	"operator anew":     func(_ *rapid.T, c *cluster) bool { c.awake(); return true },
	"garbage collector": func(_ *rapid.T, c *cluster) bool { c.collect(); return true },
	"statefulsets": func(_ *rapid.T, c *cluster) bool {
		for _, sts := range fakeapi.All[*appsv1.StatefulSet](c.Objects) {
			c.Sync(sts)
		}
		return true
	},
	"kubelets": func(_ *rapid.T, c *cluster) bool {
		for _, pod := range fakeapi.All[*corev1.Pod](c.Objects) {
			c.Run(pod)
		}
		return true
	},
}

func deletePod(t *rapid.T, c *cluster, leader bool) bool {
	var pods []*corev1.Pod
	for _, pod := range fakeapi.All[*corev1.Pod](c.Objects) {
		if parent, _ := identity.ParentAndOrdinal(pod.Name); (parent == "w") == leader && pod.DeletionTimestamp == nil {
			pods = append(pods, pod)
		}
	}
	if len(pods) == 0 {
		return false
	}
	c.Remove(rapid.SampledFrom(pods).Draw(t, "pod"), metav1.DeletePropagationBackground)
	return true
}

// asOthersMade leaves the claims and worker StatefulSets as another implementation
// makes them: with the set's own policy, and claims that it led to.
func asOthersMade(c *cluster) int {
	policy := find[*lwsv1.LeaderWorkerSet](c, "w").Spec.LeaderWorkerTemplate.PersistentVolumeClaimRetentionPolicy
	for _, claim := range fakeapi.All[*corev1.PersistentVolumeClaim](c.Objects) {
		fakeapi.Edit(c.Server, claim.Name, func(claim *corev1.PersistentVolumeClaim) { claim.OwnerReferences, claim.Annotations = nil, nil })
	}
	for _, sts := range fakeapi.All[*appsv1.StatefulSet](c.Objects) {
		c.Sync(fakeapi.Edit(c.Server, sts.Name, func(sts *appsv1.StatefulSet) {
			sts.Generation++
			sts.Spec.PersistentVolumeClaimRetentionPolicy = policy.DeepCopy()
		}))
	}
	owned := 0
	for _, claim := range fakeapi.All[*corev1.PersistentVolumeClaim](c.Objects) {
		if owner := metav1.GetControllerOf(claim); owner != nil {
			owned++
		}
	}
	return owned
}

// claimsOf are the claims that are there and not on their way out.
func claimsOf(c *cluster) map[string]types.UID {
	claims := map[string]types.UID{}
	for _, claim := range fakeapi.All[*corev1.PersistentVolumeClaim](c.Objects) {
		if claim.DeletionTimestamp == nil {
			claims[claim.Name] = claim.UID
		}
	}
	return claims
}

// judgeTies: the set deletes PVCs of groups beyond its StatefulSet's replicas alone, and
// writes no PVC that is not its own.
func judgeTies(t *rapid.T, d decided) int {
	ties := of[action.Tie](d.plan)
	for _, a := range d.plan.Actions {
		if deletion, ok := a.(action.Delete); ok && deletion.Object.Kind == identity.KindPersistentVolumeClaim {
			if d.set == nil || groupOfClaim(deletion.Object.Name) < int(workload.PodsOf(d.set.StatefulSet.Own())) {
				t.Fatalf("%s: deletes %s", d, deletion.Object)
			}
		}
	}
	for _, a := range ties {
		if named(d.seen.ghosts, a.Object) || named(d.seen.squatters, a.Object) {
			t.Fatalf("%s: ties %s, which is not the set's", d, a.Object)
		}
	}
	return len(ties)
}

func sameClaims(t testing.TB, what string, want, have map[string]types.UID) {
	t.Helper()
	if !maps.Equal(want, have) {
		t.Errorf("%s: claims were %v and are %v", what, fmt.Sprint(want), fmt.Sprint(have))
	}
}
