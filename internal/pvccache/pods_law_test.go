package pvccache

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
)

// Whatever the watch says, in whichever order: what is found by a claim are the pods
// that name it, and who follows knows the same pods.
func TestPodsAreWhatTheWatchSaid(t *testing.T) {
	claims := []string{"a", "b", "c"}
	rapid.Check(t, func(t *rapid.T) {
		p, truth, known, version := NewPods(), map[string]*corev1.Pod{}, map[types.UID]string{}, 0
		p.Follow(func(before, after *PodUses) {
			if before != nil {
				if known[before.UID] != before.ResourceVersion {
					t.Fatalf("%s was %s, not %s", before.UID, known[before.UID], before.ResourceVersion)
				}
				delete(known, before.UID)
			}
			if after != nil {
				known[after.UID] = after.ResourceVersion
			}
		})
		fresh := func(name string) *corev1.Pod {
			version++
			pod := tenant(name, strconv.Itoa(version), rapid.SliceOfDistinct(rapid.SampledFrom(claims), rapid.ID).Draw(t, "claims")...)
			pod.UID = types.UID(fmt.Sprintf("%s-%d", name, rapid.IntRange(0, 1).Draw(t, "life")))
			return pod
		}
		for range rapid.IntRange(1, 40).Draw(t, "events") {
			name := rapid.SampledFrom([]string{"x", "y", "z"}).Draw(t, "name")
			switch rapid.IntRange(0, 2).Draw(t, "event") {
			case 0:
				truth[name] = fresh(name)
				must(t, p.Sink().Update(truth[name]))
			case 1:
				version++
				delete(truth, name)
				must(t, p.Sink().Delete(tenant(name, strconv.Itoa(version))))
			case 2:
				var list []any
				maps.DeleteFunc(truth, func(string, *corev1.Pod) bool { return rapid.Bool().Draw(t, "gone unseen") })
				for _, pod := range truth {
					list = append(list, pod)
				}
				version++
				must(t, p.Sink().Replace(list, strconv.Itoa(version)))
			}
			if !p.hasReached(strconv.Itoa(version)) && p.Synced() {
				t.Fatalf("at %s after %d", p.reached, version)
			}
			agree(t, p, truth, known, claims)
		}
	})
}

func must(t *rapid.T, err error) {
	if err != nil {
		t.Fatal(err)
	}
}

// agree holds what is in memory, and what was heard, against the truth.
func agree(t *rapid.T, p *Pods, truth map[string]*corev1.Pod, known map[types.UID]string, claims []string) {
	versions := map[types.UID]string{}
	for _, pod := range truth {
		versions[pod.UID] = pod.ResourceVersion
		if !p.Has("ns", pod.UID) {
			t.Fatalf("%s is there, and is not found", pod.UID)
		}
	}
	if diff := cmp.Diff(versions, known); diff != "" {
		t.Fatalf("heard (-true +heard)\n%s", diff)
	}
	for _, claim := range claims {
		want, got := map[string]bool{}, map[string]bool{}
		for _, pod := range truth {
			if slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.PersistentVolumeClaim.ClaimName == claim }) {
				want[pod.Name] = true
			}
		}
		for _, name := range users(p, claim) {
			got[name] = true
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("users of %s (-true +found)\n%s", claim, diff)
		}
	}
}
