package identity_test

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"lockstep.dev/lockstep/internal/identity"
)

func TestParentAndOrdinal(t *testing.T) {
	tests := []struct {
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
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			parent, ordinal := identity.ParentAndOrdinal(tt.name)
			if parent != tt.parent || ordinal != tt.ordinal {
				t.Errorf("got (%q, %d), want (%q, %d)", parent, ordinal, tt.parent, tt.ordinal)
			}
		})
	}
}

func TestNamesCanBeTakenApart(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		set := rapid.StringMatching(`[a-z]([-a-z0-9]{0,20}[a-z0-9])?`).Draw(t, "set")
		group := rapid.IntRange(0, math.MaxInt32).Draw(t, "group")
		worker := rapid.IntRange(1, math.MaxInt32).Draw(t, "worker")

		leader, j := identity.ParentAndOrdinal(identity.LeaderName(identity.LeaderName(set, group), worker))
		if leader != identity.LeaderName(set, group) || j != worker {
			t.Fatalf("worker of %q: got leader %q, index %d", set, leader, j)
		}
		parent, i := identity.ParentAndOrdinal(leader)
		if parent != set || i != group {
			t.Fatalf("leader %q: got set %q, group %d", leader, parent, i)
		}
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
		if got := identity.GroupKey(tt.namespace, tt.leader); got != tt.key {
			t.Errorf("GroupKey(%q, %q) = %s, want %s", tt.namespace, tt.leader, got, tt.key)
		}
	}
}

func TestSubgroupKey(t *testing.T) {
	tests := []struct {
		leader string
		index  int
		key    string
	}{
		{"w-0", 0, "4cb5f2a553b68e27600205b557f708ab7cbf81b7"},
		{"w-0", 1, "f90337a18372e0f2b305bc73a7863ea273ba4b20"},
	}
	for _, tt := range tests {
		if got := identity.SubgroupKey(tt.leader, tt.index); got != tt.key {
			t.Errorf("SubgroupKey(%q, %d) = %s, want %s", tt.leader, tt.index, got, tt.key)
		}
	}
}
