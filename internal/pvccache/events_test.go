package pvccache

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
