package observe

import (
	"context"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/protect"
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
func TestClaimsThatGoWithAPodAreToldOfWhenItHasGone(t *testing.T) {
	owned := func(name, kind, uid string) corev1.PersistentVolumeClaim {
		owner := metav1.OwnerReference{APIVersion: "v1", Kind: kind, Name: "llama-1", UID: types.UID(uid), Controller: new(true)}
		return corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, OwnerReferences: []metav1.OwnerReference{owner}}}
	}
	h := NewHolds(claimsByPod{claims: []corev1.PersistentVolumeClaim{
		owned("data-llama-1-1", "Pod", "leader"), owned("data-llama-2-1", "Pod", "other"), owned("data-llama-0-1", "StatefulSet", "leader"),
	}}, nil, nil, nil, protect.Settings{}, 0)
	leader := &PodUses{Namespace: "ns", Name: "llama-1", UID: "leader", Node: "n1"}
	ending := *leader
	ending.Phase = corev1.PodSucceeded
	for name, tt := range map[string]struct {
		after *PodUses
		want  []string
	}{"gone": {nil, []string{"data-llama-1-1"}}, "ending": {&ending, nil}} {
		var told []string
		h.used(t.Context(), leader, tt.after, func(claim types.NamespacedName) { told = append(told, claim.Name) })
		if !slices.Equal(told, tt.want) {
			t.Errorf("%s: told of %v, want %v", name, told, tt.want)
		}
	}
}
