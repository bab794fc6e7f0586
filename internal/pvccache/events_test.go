package pvccache

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
)

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

// Only a change of what a pod uses concerns its PVCs.
func TestPodsThatConcernPVCs(t *testing.T) {
	unbound, bound, over := tenant("p", "1", "data"), tenant("p", "2", "data"), tenant("p", "3", "data")
	unbound.Spec.NodeName, over.Status.Phase = "", corev1.PodSucceeded
	shut := over.DeepCopy()
	shut.DeletionTimestamp, shut.DeletionGracePeriodSeconds = &metav1.Time{}, new(int64)
	for name, tt := range map[string]struct {
		before, after *corev1.Pod
		want          int
	}{
		"is created": {nil, unbound, 1}, "is bound": {unbound, bound, 1}, "changes": {bound, bound, 0}, "completes": {bound, over, 1},
		"is shut down": {over, shut, 1}, "is deleted": {bound, nil, 1}, "uses nothing": {tenant("q", "1"), nil, 0},
	} {
		uses := func(pod *corev1.Pod) *PodUses {
			if pod == nil {
				return nil
			}
			return UsesOf(pod)
		}
		concerned := 0
		podChanged(uses(tt.before), uses(tt.after), func(types.NamespacedName) { concerned++ }, nil)
		if concerned != tt.want {
			t.Errorf("a pod %s: %d PVCs", name, concerned)
		}
	}
}
