package identity_test

import (
	"math"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/test/expect"
)

func TestParentAndOrdinal(t *testing.T) {
	for _, tt := range []struct {
		name, parent string
		ordinal      int
	}{
		{"w-0", "w", 0},
		{"w-0-1", "w-0", 1},
		{"a-1-2-3", "a-1-2", 3},
		{"w-007", "w", 7},
		{"-3", "", 3},
		{"w-2147483647", "w", math.MaxInt32},
		{"w-2147483648", "", identity.NoOrdinal},
		{"w-99999999999999999999", "", identity.NoOrdinal},
		{"", "", identity.NoOrdinal},
		{"w", "", identity.NoOrdinal},
		{"w-", "", identity.NoOrdinal},
		{"w-x", "", identity.NoOrdinal},
		{"w-1x", "", identity.NoOrdinal},
		{"w-+1", "", identity.NoOrdinal},
		{"w-1_0", "", identity.NoOrdinal},
		{"w--1", "w-", 1},
		{"w-٣", "", identity.NoOrdinal},
	} {
		parent, ordinal := identity.ParentAndOrdinal(tt.name)
		expect.Equalf(t, tt.parent, parent, "%s: parent", tt.name)
		expect.Equalf(t, tt.ordinal, ordinal, "%s: ordinal", tt.name)
	}
}

func TestNamesCanBeTakenApart(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		set := rapid.StringMatching(`[a-z]([-a-z0-9]{0,20}[a-z0-9])?`).Draw(t, "set")
		group := rapid.IntRange(0, math.MaxInt32).Draw(t, "group")
		worker := rapid.IntRange(1, math.MaxInt32).Draw(t, "worker")

		leader, j := identity.ParentAndOrdinal(identity.LeaderName(identity.LeaderName(set, group), worker))
		expect.Must(t, leader == identity.LeaderName(set, group) && j == worker,
			"worker of %q: got leader %q, index %d", set, leader, j)
		parent, i := identity.ParentAndOrdinal(leader)
		expect.Must(t, parent == set && i == group, "leader %q: got set %q, group %d", leader, parent, i)
	})
}

func TestGroupKey(t *testing.T) {
	tests := []struct{ namespace, leader, key string }{
		{"default", "test-sample", "95e88034e460983f51a9952fe128729fbc0663b5"},
		{"default", "podName", "390b34ab671d29e9997d7d4252b8bbf8da02f5b7"},
		{"leaderworkerset", "test-sample", "39f5d7e9122b9d94d3932e3720b43fd3b56347e8"},
		{"ns", "w-0", "b170a251aa73d74d5ba988f212b4fe940e717eef"},
	}
	for _, tt := range tests {
		expect.Equalf(t, tt.key, identity.GroupKey(tt.namespace, tt.leader), "GroupKey(%q, %q)", tt.namespace, tt.leader)
	}
}

func TestSubgroupKey(t *testing.T) {
	for _, tt := range []struct {
		leader string
		index  int
		key    string
	}{
		{"w-0", 0, "4cb5f2a553b68e27600205b557f708ab7cbf81b7"},
		{"w-0", 1, "f90337a18372e0f2b305bc73a7863ea273ba4b20"},
	} {
		expect.Equalf(t, tt.key, identity.SubgroupKey(tt.leader, tt.index), "SubgroupKey(%q, %d)", tt.leader, tt.index)
	}
}

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
	for _, tt := range []struct {
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
	} {
		t.Run(tt.name, func(t *testing.T) {
			expect.Equalf(t, tt.want, identity.Classify(tt.pod, tt.claimant, func(*corev1.Pod) bool { return tt.ours }, lives), "the class")
		})
	}
}

func TestIsGarbage(t *testing.T) {
	orphaning := func(p *corev1.Pod) { p.Finalizers = []string{"example.com/x", metav1.FinalizerOrphanDependents} }
	held := func(p *corev1.Pod) { p.Finalizers = []string{"example.com/x"} }
	for _, tt := range []struct {
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
	} {
		expect.Equalf(t, tt.want, identity.IsGarbage(tt.pod, lives), "%s", tt.name)
	}
}
