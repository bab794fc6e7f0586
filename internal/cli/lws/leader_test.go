package lws

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/test/expect"
	"lockstep.dev/lockstep/test/fakeapi"
)

// A request is one patch of one leader at the version that was judged, or a reason why there is none.
func TestRequests(t *testing.T) {
	stopped := func(pod *corev1.Pod) { pod.Finalizers = []string{lwsv1.GroupRestartBudgetFinalizer} }
	annotated := func(key string) func(*corev1.Pod) {
		return func(pod *corev1.Pod) { metav1.SetMetaDataAnnotation(&pod.ObjectMeta, key, "true") }
	}
	terminating := func(pod *corev1.Pod) {
		pod.DeletionTimestamp, pod.Finalizers = &metav1.Time{Time: now}, append(pod.Finalizers, "example.com/hold")
	}
	for _, tt := range []struct {
		name    string
		set     func(*lwsv1.LeaderWorkerSet)
		leader  func(*corev1.Pod)
		group   string
		request Request
		dry     string
		key     string // of the annotation that is written, or none
		why     string
	}{
		{"restart", nil, nil, "1", RestartGroup, "", lwsv1.RecreateAnnotationKey, ""},
		{"restart as a dry run", nil, nil, "1", RestartGroup, DryRunClient, "", ""},
		{"restart without a leader", nil, nil, "7", RestartGroup, "", "", "kubectl lockstep status llama -n ns"},
		{"restart a stopped group", nil, stopped, "1", RestartGroup, "", "", "kubectl lockstep recover llama 1 -n ns"},
		{"restart again", nil, annotated(lwsv1.RecreateAnnotationKey), "1", RestartGroup, "", "", "kubectl lockstep check"},
		{"restart a group that ends", nil, terminating, "1", RestartGroup, "", "", "its leader llama-1 is terminating"},
		{"restart a set that ends", func(set *lwsv1.LeaderWorkerSet) {
			set.DeletionTimestamp, set.Finalizers = &metav1.Time{Time: now}, []string{"example.com/hold"}
		}, nil, "1", RestartGroup, "", "", "is being deleted"},
		{"recover", nil, stopped, "1", Recover, "", lwsv1.RecoverAnnotationKey, ""},
		{"recover a terminating leader", nil, func(pod *corev1.Pod) { stopped(pod); terminating(pod) }, "1", Recover, "", lwsv1.RecoverAnnotationKey, ""},
		{"recover a group that runs", nil, nil, "1", Recover, "", "", "kubectl lockstep restart llama 1 -n ns"},
		{"recover again", nil, func(pod *corev1.Pod) { stopped(pod); annotated(lwsv1.RecoverAnnotationKey)(pod) }, "1", Recover, "", "", "being recovered"},
	} {
		s := up(t, fakeapi.Set("llama", 2, 2))
		if tt.set != nil {
			fakeapi.Edit(s, "llama", tt.set)
		}
		if tt.leader != nil {
			fakeapi.Edit(s, "llama-1", tt.leader)
		}
		patched := len(s.Asked("patch"))
		change, err := Amend(t.Context(), &Editor{Client: s, DryRun: tt.dry}, key, Ask(tt.group, "restart", tt.request))
		expect.That(t, (err == nil) == (tt.why == "") && (err == nil || strings.Contains(err.Error(), tt.why)), "%s: got %v", tt.name, err)
		patches := s.Asked("patch")[patched:]
		expect.That(t, (len(patches) == 1) == (tt.key != ""), "%s: wrote %v", tt.name, patches)
		if tt.key != "" {
			leader := fakeapi.Find[*corev1.Pod](s, "llama-1")
			expect.That(t, leader.Annotations[tt.key] != "" && change.After.GetUID() == leader.UID, "%s: stored %v", tt.name, leader.Annotations)
			expect.Says(t, patches[0].Body, "resourceVersion", tt.name)
		}
	}
}
