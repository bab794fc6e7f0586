package pvccache

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/test/fakeapi"
)

// The PVCs of workers belong to the leader pod of a group that was scaled away, which does not
// use them.
func TestPVCsOfAPodAreReportedWhenItIsGone(t *testing.T) {
	owned := func(name, kind, uid string) client.Object {
		owner := metav1.OwnerReference{APIVersion: "v1", Kind: kind, Name: "llama-1", UID: types.UID(uid), Controller: new(true)}
		meta := metav1.ObjectMeta{Namespace: "ns", Name: name, OwnerReferences: []metav1.OwnerReference{owner}}
		return &corev1.PersistentVolumeClaim{ObjectMeta: meta}
	}
	api := fakeapi.NewShared(
		owned("data-llama-1-1", "Pod", "leader"), owned("data-llama-2-1", "Pod", "other"), owned("data-llama-0-1", "StatefulSet", "leader"),
	)
	api.Do(func(s *fakeapi.Server) { do(t, IndexHolds(t.Context(), s)) })
	h := &Holds{Caches: api.Caches()}
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

func TestTwoObjectsOfOneNameAreTwoChanges(t *testing.T) {
	was := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c", UID: "1"}}
	next := was.DeepCopy()
	next.UID = "2"
	for name, tt := range map[string]struct {
		event func(toolscache.ResourceEventHandlerFuncs)
		want  []string
	}{
		"deleted": {func(h toolscache.ResourceEventHandlerFuncs) { h.OnDelete(was) }, []string{"1 -"}},
		"deleted unseen": {func(h toolscache.ResourceEventHandlerFuncs) {
			h.OnDelete(toolscache.DeletedFinalStateUnknown{Obj: was})
		}, []string{"1 -"}},
		"created again": {func(h toolscache.ResourceEventHandlerFuncs) { h.OnUpdate(was, next) }, []string{"1 -", "- 2"}},
		"changed":       {func(h toolscache.ResourceEventHandlerFuncs) { h.OnUpdate(was, was) }, []string{"1 1"}},
		"created":       {func(h toolscache.ResourceEventHandlerFuncs) { h.OnAdd(was, false) }, []string{"- 1"}},
		"another type":  {func(h toolscache.ResourceEventHandlerFuncs) { h.OnAdd(&corev1.Pod{}, false) }, nil},
	} {
		var reported []string
		tt.event(eventHandler(func(before, after *corev1.PersistentVolumeClaim) {
			reported = append(reported, uidOf(before)+" "+uidOf(after))
		}))
		if !slices.Equal(reported, tt.want) {
			t.Errorf("%s: reported %v, want %v", name, reported, tt.want)
		}
	}
}

func uidOf(claim *corev1.PersistentVolumeClaim) string {
	if claim == nil {
		return "-"
	}
	return string(claim.UID)
}
