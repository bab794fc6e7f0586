package identity_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"lockstep.dev/lockstep/internal/identity"
)

func pod(edits ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "w-0", UID: "p", ResourceVersion: "7"}}
	for _, edit := range edits {
		edit(p)
	}
	return p
}

func terminating(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} }

func ownedBy(uid types.UID, controller bool) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.OwnerReferences = append(p.OwnerReferences, metav1.OwnerReference{Kind: "StatefulSet", Name: "w", UID: uid, Controller: &controller})
	}
}

var lives = identity.Lives{"alive": identity.Alive, "doomed": identity.Doomed, "gone": identity.Gone, "unknown": identity.Unknown}

func TestClassify(t *testing.T) {
	tests := []struct {
		name     string
		pod      *corev1.Pod
		claimant identity.Claimant
		ours     bool
		want     identity.Class
	}{
		{"its controller is the claimant", pod(ownedBy("me", true)), identity.Claimant{"me"}, false, identity.Owned},
		{"one of two claimants", pod(ownedBy("me", true)), identity.Claimant{"other", "me"}, false, identity.Owned},
		{"terminating, owned by the claimant", pod(terminating, ownedBy("me", true)), identity.Claimant{"me"}, true, identity.Previous},
		{"terminating without a controller", pod(terminating), nil, true, identity.Previous},
		{"its owner is gone", pod(ownedBy("gone", true)), identity.Claimant{"me"}, true, identity.Previous},
		{"its owner is being deleted", pod(ownedBy("doomed", true)), identity.Claimant{"me"}, true, identity.Previous},
		{"its owner is alive", pod(ownedBy("alive", true)), identity.Claimant{"me"}, true, identity.Foreign},
		{"its owner was not read", pod(ownedBy("unknown", true)), identity.Claimant{"me"}, true, identity.Foreign},
		{"its owner is not in the snapshot", pod(ownedBy("never", true)), identity.Claimant{"me"}, true, identity.Foreign},
		{"no controller, with our labels", pod(), identity.Claimant{"me"}, true, identity.Orphan},
		{"no controller, with other labels", pod(), identity.Claimant{"me"}, false, identity.Foreign},
		{"owned by the claimant, but not controlled", pod(ownedBy("me", false)), identity.Claimant{"me"}, true, identity.Orphan},
		{"no claimant owns no pods", pod(ownedBy("alive", true)), nil, true, identity.Foreign},
		{"an empty UID owns no pods", pod(ownedBy("", true)), identity.Claimant{""}, true, identity.Foreign},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := identity.Classify(tt.pod, tt.claimant, func(*corev1.Pod) bool { return tt.ours }, lives); got != tt.want {
				t.Errorf("got class %d, want %d", got, tt.want)
			}
		})
	}
}

func TestIsGarbage(t *testing.T) {
	orphaning := func(p *corev1.Pod) { p.Finalizers = []string{"example.com/x", metav1.FinalizerOrphanDependents} }
	held := func(p *corev1.Pod) { p.Finalizers = []string{"example.com/x"} }
	tests := []struct {
		name string
		pod  *corev1.Pod
		want bool
	}{
		{"its only owner is gone", pod(ownedBy("gone", true)), true},
		{"a finalizer does not keep it", pod(ownedBy("gone", true), held), true},
		{"its owner is being deleted", pod(ownedBy("doomed", true)), false},
		{"its owner is alive", pod(ownedBy("alive", true)), false},
		{"its owner is not in the snapshot", pod(ownedBy("never", true)), false},
		{"it has no owner", pod(), false},
		{"a second owner keeps it", pod(ownedBy("gone", true), ownedBy("alive", false)), false},
		{"a second owner is gone too", pod(ownedBy("gone", true), ownedBy("gone", false)), false},
		{"it is being deleted", pod(ownedBy("gone", true), terminating), false},
		{"its dependents are being orphaned", pod(ownedBy("gone", true), orphaning), false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := identity.IsGarbage(tt.pod, lives); got != tt.want {
				t.Errorf("got %t", got)
			}
		})
	}
}
