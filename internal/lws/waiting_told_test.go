package lws_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/test/fakeapi"
)

// progress is the condition that the plan would write.
func progress(t *testing.T, w lws.SetSnapshot) metav1.Condition {
	t.Helper()
	for _, a := range lws.DecideSet(w).Actions {
		if write, ok := a.(action.WriteStatus); ok {
			return write.Status.Conditions[0]
		}
	}
	t.Fatal("no condition is written")
	return metav1.Condition{}
}

func former[T metav1.Object](object T) T {
	object.SetNamespace(fakeapi.Namespace)
	object.SetUID("former")
	object.SetDeletionTimestamp(&metav1.Time{Time: fakeapi.Epoch})
	object.SetFinalizers([]string{"example.com/hold"})
	return object
}

// A set whose Service could not be made, because the old one would not leave, said
// that it was Available: its pods had no DNS names, and nobody was told why.
func TestAServiceThatDoesNotLeaveIsTold(t *testing.T) {
	set := fakeapi.Set("w", 0, 1)
	set.CreationTimestamp = metav1.NewTime(fakeapi.Epoch.Add(time.Second))
	w := lws.SetSnapshot{Now: fakeapi.Epoch.Add(2 * time.Second), Set: set, Vigil: lws.Vigil{Moved: fakeapi.Epoch}}
	w.Service.Previous = []*corev1.Service{former(&corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "w"}})}
	got := progress(t, w)
	if got.Reason != lws.CodePreviousIncarnation || facts(got.Message) != ": 1 w" {
		t.Errorf("got %s: %s", got.Reason, got.Message)
	}
}

// A Service of the group's own is needed only where the set asks for one.
func TestAServiceNobodyNeedsIsNotWaitedFor(t *testing.T) {
	set := fakeapi.Set("w", 0, 1, fakeapi.UniquePerReplica)
	w := lws.SetSnapshot{Now: fakeapi.Epoch, Set: set}
	w.Service.Previous = []*corev1.Service{former(&corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "w"}})}
	if got := progress(t, w); got.Type != string(lwsv1.LeaderWorkerSetAvailable) {
		t.Errorf("got %s: %s", got.Reason, got.Message)
	}
}
