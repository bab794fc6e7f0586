package lwscache_test

import (
	"context"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/test/fakeapi"
)

// One that was hidden for a moment, was shown again and is deleted then was taken to
// stand: nobody made another, and its set told its group ready.
func TestWhatWasHiddenAndIsShownAgainIsNotRememberedAsItWas(t *testing.T) {
	for how, look := range map[string]func(*eyes) bool{
		"by its group": func(e *eyes) bool { return e.group("w-0").Workers.Empty() },
		"by its set":   func(e *eyes) bool { return e.set("w").Groups[0].Workers.Empty() },
	} {
		e, _, _ := chained(t)
		leader := fakeapi.Edit(e.Server, "w-0", func(*corev1.Pod) {})
		workers := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: fakeapi.Namespace, Name: "w-0"}}
		fakeapi.OwnedBy(workers, "v1", identity.RefOf(identity.KindPod, leader))
		ref := identity.RefOf(identity.KindStatefulSet, fakeapi.Add(e.Server, workers))
		if err := e.observer.Uncover(context.Background(), ref, e.Now); err != nil || look(e) {
			t.Fatalf("%s: invalid run: not found, %v", how, err)
		}
		fakeapi.Edit(e.Server, "w-0", func(sts *appsv1.StatefulSet) {
			sts.Labels = map[string]string{lwsv1.SetNameLabelKey: "w", lwsv1.GroupIndexLabelKey: "0"}
		})
		look(e)
		fakeapi.Drop[*appsv1.StatefulSet](e.Server, "w-0")
		if !look(e) {
			t.Errorf("%s: it still stands", how)
		}
	}
}
