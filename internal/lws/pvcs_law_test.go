package lws_test

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/internal/lws/volumes"
	"lockstep.dev/lockstep/internal/lws/workload"
	"lockstep.dev/lockstep/test/fakeapi"
)

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
				if groupOfPVC(name) < int(kept) && after[name] != uid {
					t.Fatalf("PVC %s was %s and is %q; the StatefulSet was never lowered below %d", name, uid, after[name], kept)
				}
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
