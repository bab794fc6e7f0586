package pvccache

import (
	"context"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/pvc"
)

// claimsByPod is a cache of claims that is asked by the pod that controls them.
type claimsByPod struct {
	cache.Cache
	claims []corev1.PersistentVolumeClaim
}

func (c claimsByPod) List(_ context.Context, list client.ObjectList, options ...client.ListOption) error {
	var asked client.ListOptions
	asked.ApplyOptions(options)
	for _, claim := range c.claims {
		if uid, ok := asked.FieldSelector.RequiresExactMatch(indexPodOwned); ok && slices.Contains(podOwner(&claim), uid) {
			claims := list.(*corev1.PersistentVolumeClaimList)
			claims.Items = append(claims.Items, claim)
		}
	}
	return nil
}

// The claims of workers belong to the leader of a group that was scaled away, which does
// not use them: they are looked at when it has gone, and not before.
func TestPVCsOfAPodAreReportedWhenItIsGone(t *testing.T) {
	owned := func(name, kind, uid string) corev1.PersistentVolumeClaim {
		owner := metav1.OwnerReference{APIVersion: "v1", Kind: kind, Name: "llama-1", UID: types.UID(uid), Controller: new(true)}
		return corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, OwnerReferences: []metav1.OwnerReference{owner}}}
	}
	h := NewHolds(claimsByPod{claims: []corev1.PersistentVolumeClaim{
		owned("data-llama-1-1", "Pod", "leader"), owned("data-llama-2-1", "Pod", "other"), owned("data-llama-0-1", "StatefulSet", "leader"),
	}}, nil, nil, nil, Reader{}, pvc.Settings{}, 0)
	leader := &PodUses{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "llama-1", UID: "leader"}, Node: "n1"}
	ending := *leader
	ending.Phase = corev1.PodSucceeded
	for name, tt := range map[string]struct {
		after *PodUses
		want  []string
	}{"gone": {nil, []string{"data-llama-1-1"}}, "ending": {&ending, nil}} {
		var reported []string
		h.podChanged(t.Context(), leader, tt.after, func(claim types.NamespacedName) { reported = append(reported, claim.Name) })
		if !slices.Equal(reported, tt.want) {
			t.Errorf("%s: reported %v, want %v", name, reported, tt.want)
		}
	}
}

// A claim that went is reported of as gone, and not to be looked at: nothing is left to decide
// of it. The next one of its name is.
func TestADeletedPVCIsReportedAsGone(t *testing.T) {
	was := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c", UID: "1"}}
	next := was.DeepCopy()
	next.UID = "2"
	for name, tt := range map[string]struct {
		event func(toolscache.ResourceEventHandlerFuncs)
		want  []string
	}{
		"went": {func(h toolscache.ResourceEventHandlerFuncs) { h.OnDelete(was) }, []string{"gone 1", "namespace ns"}},
		"went unseen": {func(h toolscache.ResourceEventHandlerFuncs) {
			h.OnDelete(toolscache.DeletedFinalStateUnknown{Obj: was})
		}, []string{"gone 1", "namespace ns"}},
		"made again": {func(h toolscache.ResourceEventHandlerFuncs) { h.OnUpdate(was, next) }, []string{"gone 1", "claim c", "namespace ns"}},
		"changed":    {func(h toolscache.ResourceEventHandlerFuncs) { h.OnUpdate(was, was) }, []string{"claim c", "namespace ns"}},
		"came":       {func(h toolscache.ResourceEventHandlerFuncs) { h.OnAdd(was, false) }, []string{"claim c", "namespace ns"}},
	} {
		var reported []string
		tt.event(Followers{
			Claim:     func(key types.NamespacedName) { reported = append(reported, "claim "+key.Name) },
			Namespace: func(name string) { reported = append(reported, "namespace "+name) },
			Gone:      func(claim *corev1.PersistentVolumeClaim) { reported = append(reported, "gone "+string(claim.UID)) },
		}.claims())
		if !slices.Equal(reported, tt.want) {
			t.Errorf("%s: reported %v, want %v", name, reported, tt.want)
		}
	}
}

// Pods of other groups are nowhere in memory, and none of them is gone for that: what they
// own would be let go, and looked for again every tenth of a second.
func TestAnOwnerOfAKindThatIsNotReadIsNotGone(t *testing.T) {
	h := NewHolds(nil, nil, NewPods(nil, nil), emptyWorkloads(t), Reader{}, pvc.Settings{}, 0)
	for version, missed := range map[string]bool{"v1": true, "sandbox.example.com/v1": false} {
		claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "data-llama-0", OwnerReferences: []metav1.OwnerReference{
			{APIVersion: version, Kind: "Pod", Name: "llama-0", UID: "u", Controller: new(true)},
		}}}
		if gone := pvc.OwnersGone(claim, h.isGone); gone != missed {
			t.Errorf("%s: gone %t", version, gone)
		}
	}
}
