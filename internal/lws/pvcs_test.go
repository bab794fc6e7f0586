package lws_test

import (
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
	"lockstep.dev/lockstep/internal/lws"
	lwsrevision "lockstep.dev/lockstep/internal/lws/revision"
	lwsset "lockstep.dev/lockstep/internal/lws/set"
	"lockstep.dev/lockstep/internal/lws/volumes"
	"lockstep.dev/lockstep/internal/lws/workload"
	"lockstep.dev/lockstep/test/expect"
	"lockstep.dev/lockstep/test/fakeapi"
)

type retention = appsv1.PersistentVolumeClaimRetentionPolicyType

const (
	retainClaims = appsv1.RetainPersistentVolumeClaimRetentionPolicyType
	deleteClaims = appsv1.DeletePersistentVolumeClaimRetentionPolicyType
)

// ownerOf is the controller of a PVC: "LeaderWorkerSet w", or "".
func ownerOf(c *cluster, pvc string) string {
	owner := metav1.GetControllerOf(find[PVC](c, pvc))
	if owner == nil {
		return ""
	}
	return owner.Kind + " " + owner.Name
}

// pvcsOf are the PVCs that are not terminating.
func pvcsOf(c *cluster) map[string]types.UID {
	pvcs := map[string]types.UID{}
	for _, pvc := range fakeapi.All[PVC](c.Objects) {
		if pvc.DeletionTimestamp == nil {
			pvcs[pvc.Name] = pvc.UID
		}
	}
	return pvcs
}

func checkPVCs(c *cluster, when string, want map[string]types.UID) {
	c.t.Helper()
	if got := pvcsOf(c); !maps.Equal(want, got) {
		c.t.Fatalf("%s: PVCs were %v and are %v", when, want, got)
	}
}

func TestAPVCKeepsTheOwnersThatOthersGaveIt(t *testing.T) {
	c := running(t, 1, 2, fakeapi.Volumes(deleteClaims, retainClaims))
	then(foreign[PVC]("data-w-0-1"), on("data-w-0-1", func(pvc PVC) { *pvc.OwnerReferences[0].Controller = false }))(c)
	if tie := one[action.SetOwner](t, c.decideSet()); len(tie.Owners) != 2 || tie.Owners[0].Name != "stranger" {
		t.Errorf("takes from a PVC the owners that others gave it: %v", tie.Owners)
	}
}

// asOthersMade leaves the PVCs and worker StatefulSets as another implementation
// makes them: with the set's own policy, and PVCs with the owners that it leads to.
func asOthersMade(c *cluster) (owned int) {
	policy := find[Set](c, "w").Spec.LeaderWorkerTemplate.PersistentVolumeClaimRetentionPolicy
	for name := range pvcsOf(c) {
		on(name, func(pvc PVC) { pvc.OwnerReferences, pvc.Annotations = nil, nil })(c)
	}
	for _, sts := range fakeapi.All[StatefulSet](c.Objects) {
		c.Sync(fakeapi.Edit(c.Server, sts.Name, func(sts StatefulSet) {
			sts.Generation++
			sts.Spec.PersistentVolumeClaimRetentionPolicy = policy.DeepCopy()
		}))
	}
	for name := range pvcsOf(c) {
		if ownerOf(c, name) != "" {
			owned++
		}
	}
	return owned
}

// otherClaims are what another implementation took in the spec of a set whose pods
// have a PVC called data.
var otherClaims = map[string]edit{
	"of another class": func(set Set) {
		set.Spec.LeaderWorkerTemplate.VolumeClaimTemplates[0].Spec.StorageClassName = fakeapi.Ptr("fast")
	},
	"under another name": func(set Set) { set.Spec.LeaderWorkerTemplate.VolumeClaimTemplates[0].Name = "cache" },
	"one more": func(set Set) {
		more := corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "cache"}}
		set.Spec.LeaderWorkerTemplate.VolumeClaimTemplates = append(set.Spec.LeaderWorkerTemplate.VolumeClaimTemplates, more)
	},
	"none": func(set Set) { set.Spec.LeaderWorkerTemplate.VolumeClaimTemplates = nil },
}

func podsAndTemplates(c *cluster) map[string]any {
	all := map[string]any{}
	for _, pod := range fakeapi.All[Pod](c.Objects) {
		all["pod "+pod.Name] = pod.UID
	}
	for _, sts := range fakeapi.All[StatefulSet](c.Objects) {
		all["template of "+sts.Name] = *sts.Spec.Template.DeepCopy()
	}
	return all
}

// The claims of a set were changed under an implementation that took that, and whose every write was
// refused since. Such a set is in step: no pod is restarted, no revision is created, and its user is told. Scaling
// and restarts continue with the template and the claims that stand; another template waits.
func TestClaimsChangedUnderOthers(t *testing.T) {
	for name, change := range otherClaims {
		t.Run(name, func(t *testing.T) {
			c := running(t, 2, 3, fakeapi.Volumes(deleteClaims, retainClaims))
			asOthersMade(c)
			then(on("w", func(sts StatefulSet) { delete(sts.Annotations, lws.AppliedAnnotationKey) }), user(change))(c)
			refused := revision(c).DeepCopy()
			refused.Data.Raw, refused.Revision, refused.UID = data(t, find[Set](c, "w")), 2, "refused"
			refused.Labels[lwsv1.RevisionKey] = lwsrevision.Key(refused.Data.Raw)
			refused.Name = "w-" + lwsrevision.Key(refused.Data.Raw) + "-2"
			fakeapi.Add(c.Server, refused)
			c.awake()
			before, kept, known := podsAndTemplates(c), pvcsOf(c), len(revisions(c))
			c.settle()
			expect.Equalf(t, before, podsAndTemplates(c), "what was there before")
			checkPVCs(c, "after the takeover", kept)
			checkAvailable(c, 2)
			if now := len(revisions(c)); now != known || leadersOf(c).Annotations[lws.AppliedAnnotationKey] == "" {
				t.Errorf("%d revisions became %d, or it was not taken over", known, now)
			}
			told := condition(c.status(), lws.CodeVolumeClaimsDiffer)
			if told.Status != metav1.ConditionTrue || !strings.Contains(told.Message, "(data)") || !strings.Contains(told.Message, "--cascade=orphan") {
				t.Errorf("told %+v", told)
			}
			then(user(replicas(3), fakeapi.Image("image:2")), settled, removed[Pod]("w-1"), settled)(c)
			checkImage(c, "image:1", 9)
			if stands := lwsset.Stand(c.set()); !stands.Pending || condition(c.status(), available).Status == metav1.ConditionTrue {
				t.Errorf("told done: %+v", stands)
			}
			now := pvcsOf(c)
			for _, pvc := range []string{"data-w-2", "data-w-2-1", "data-w-2-2"} {
				kept[pvc] = now[pvc]
			}
			checkPVCs(c, "after a scaling up and a restart", kept)
			then(user(fakeapi.Image("image:1")), (*cluster).awake, settled)(c)
			checkAvailable(c, 3)
			expect.Emptyf(t, spelled(c.decideSet()), "never in step")
		})
	}
}

var scaling = scenario{
	changes:   []string{"workers", "fewer replicas", "fewer replicas"},
	harms:     []string{"is deleted in the background", "is deleted in the background", "vanishes"},
	mostEdits: 6, mostHarms: 6,
}

func drawVolumes(t *rapid.T) edit {
	policies := rapid.SampledFrom([]retention{retainClaims, deleteClaims})
	return fakeapi.Volumes(policies.Draw(t, "when deleted"), policies.Draw(t, "when scaled"))
}

// TestPVCs: whatever is scaled and restarted, in any order of events, and whichever implementation
// made them, the PVCs of a group that the leader StatefulSet was never lowered below outlive it.
// Where PVCs go with groups that are scaled away, none stays behind that was marked before.
func TestPVCs(t *testing.T) {
	inWorlds(t, 1, func(t *rapid.T, m *met) {
		set := fakeapi.Set("w", 3, rapid.Int32Range(2, 3).Draw(t, "size"), drawVolumes(t))
		rollingOf(set).MaxUnavailable.IntVal = 2
		w := newWorld(t, m, scaling, set)
		w.settle()
		if rapid.Bool().Draw(t, "made by others") {
			w.met.when("PVCs of a worker StatefulSet", asOthersMade(w.cluster) > 0)
			w.settle()
		}
		before, kept := pvcsOf(w.cluster), int32(3)
		w.lag()
		w.after = func() {
			kept = min(kept, workload.PodsOf(leadersOf(w.cluster)))
			after := pvcsOf(w.cluster)
			for name, uid := range before {
				expect.Must(t, groupOfPVC(name) >= int(kept) || after[name] == uid,
					"PVC %s was %s and is %q; the StatefulSet was never lowered below %d", name, uid, after[name], kept)
			}
		}
		w.run(rapid.IntRange(0, 120).Draw(t, "steps"))
		w.settleAfter(30 * time.Second)
		w.after()
		wanted := workload.Replicas(find[Set](w.cluster, "w"))
		m.when("lowered", kept < 3)
		m.when("wanted again", kept < wanted)
		if set.Spec.LeaderWorkerTemplate.PersistentVolumeClaimRetentionPolicy.WhenScaled == retainClaims {
			return
		}
		for name := range pvcsOf(w.cluster) {
			if groupOfPVC(name) >= int(wanted) && find[PVC](w.cluster, name).Annotations[volumes.WhenScaledAnnotationKey] != "" {
				t.Fatalf("PVC %s stays, and %d groups are wanted", name, wanted)
			}
		}
	}, "PVCs of a worker StatefulSet", "lowered", "wanted again", "a write refused", "a crash before a write", "workers", lws.CodeTie, lws.CodeScaledAway)
}

// groupOfPVC is the index of the group of data-w-1, a leader's, or data-w-1-1, a worker's.
func groupOfPVC(name string) (index int) {
	if strings.Count(name, "-") == 3 {
		name, _ = identity.ParentAndOrdinal(name)
	}
	_, index = identity.ParentAndOrdinal(name)
	return index
}
