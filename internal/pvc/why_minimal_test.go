package pvc_test

import (
	"fmt"
	"math/bits"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"lockstep.dev/lockstep/internal/pvc"
)

// TestNoSmallerSetOfActionsFrees compares with every set of objects that could be
// acted upon.
func TestNoSmallerSetOfActionsFrees(t *testing.T) {
	law(t, noSmallerSetFrees, "several pods of a workload", "a workload that must let go", "a pod alone")
}

func noSmallerSetFrees(t *rapid.T, m met) {
	c := claim("data-db-0")
	refused := rapid.Bool().Draw(t, "refused")
	if refused {
		c.Annotations[pvc.HoldersAnnotation] = "StatefulSet/db"
	} else {
		dying(c)
	}
	owned := map[types.UID]types.UID{}
	var pods []*corev1.Pod
	for i := range rapid.IntRange(0, 5).Draw(t, "pods") {
		o := pod(fmt.Sprintf("pod-%d", i), []string{c.Name}, phase(rapid.SampledFrom([]corev1.PodPhase{corev1.PodRunning, corev1.PodSucceeded}).Draw(t, "phase")))
		if owner := rapid.SampledFrom([]types.UID{"", "uid-db", "uid-web"}).Draw(t, "owner"); owner != "" {
			controlledBy("StatefulSet", owner)(o)
			owned[o.UID] = owner
		}
		if rapid.IntRange(0, 4).Draw(t, "unbound") == 0 {
			unbound(o)
		}
		pods = append(pods, o)
	}
	e := pvc.Why(caseOf(c, pvc.Hold, pods, pvc.OfStatefulSet(statefulSet("db", 1)), pvc.OfStatefulSet(statefulSet("web", 1))))
	m.when("a pod alone", len(e.Actions) == 1 && len(pods) == 1)
	m.when("several pods of a workload", slices.ContainsFunc(e.Actions, func(a pvc.Suggestion) bool { return len(a.Frees) > 1 }))
	m.when("a workload that must let go", refused && len(e.Actions) > 0)
	least := smallest(e.Holders, owned, refused)
	deeds := slices.DeleteFunc(slices.Clone(e.Actions), func(s pvc.Suggestion) bool { return len(e.Holders) == 0 || s.Frees[0][:3] == "Fin" })
	if len(deeds) != least {
		t.Fatalf("%d actions, and %d would do: %+v", len(deeds), least, deeds)
	}
}

// smallest tries every set of pods and workloads.
func smallest(holders []pvc.Explained, owned map[types.UID]types.UID, refused bool) int {
	objects := []types.UID{"uid-db", "uid-web"}
	for _, h := range holders {
		if h.Reason != pvc.DesiredState {
			objects = append(objects, h.UID)
		}
	}
	least := len(objects)
	for set := range 1 << len(objects) {
		acted := func(uid types.UID) bool { return set>>slices.Index(objects, uid)&1 == 1 }
		frees := func(h pvc.Explained) bool {
			switch owner := owned[h.UID]; {
			case !h.Holds:
				return true
			case h.Reason == pvc.DesiredState:
				return acted(h.UID)
			case owner != "" && h.Phase != string(corev1.PodSucceeded) && acted(owner):
				return true
			case owner == "uid-db" && refused && h.Phase != string(corev1.PodSucceeded):
				return false // it would come again
			}
			return acted(h.UID)
		}
		if !slices.ContainsFunc(holders, func(h pvc.Explained) bool { return !frees(h) }) {
			least = min(least, bits.OnesCount(uint(set)))
		}
	}
	return least
}
