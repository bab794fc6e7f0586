package admission_test

import (
	"fmt"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/identity"
)

// Each row gives the subgroup of every pod of group 0, the leader first; "" is
// none.
func TestSubgroups(t *testing.T) {
	tests := []struct {
		size, part int
		policy     lwsv1.SubGroupPolicyType
		want       []string
	}{
		{4, 2, lwsv1.SubGroupPolicyTypeLeaderWorker, []string{"0", "0", "1", "1"}},
		{4, 4, lwsv1.SubGroupPolicyTypeLeaderWorker, []string{"0", "0", "0", "0"}},
		{3, 1, lwsv1.SubGroupPolicyTypeLeaderWorker, []string{"0", "1", "2"}},
		{5, 2, lwsv1.SubGroupPolicyTypeLeaderWorker, []string{"0", "0", "0", "1", "1"}},
		{7, 3, lwsv1.SubGroupPolicyTypeLeaderWorker, []string{"0", "0", "0", "0", "1", "1", "1"}},
		{5, 2, lwsv1.SubGroupPolicyTypeLeaderExcluded, []string{"", "0", "0", "1", "1"}},
		{3, 1, lwsv1.SubGroupPolicyTypeLeaderExcluded, []string{"", "1", "2"}},
		{4, 2, "", []string{"0", "0", "1", "1"}},
	}
	for _, tt := range tests {
		t.Run(fmt.Sprintf("%d by %d %s", tt.size, tt.part, tt.policy), func(t *testing.T) {
			var got []string
			for w := range tt.size {
				labels := mutate(t, podOf(w, tt.size, tt.part, tt.policy)).Labels
				index := labels[lwsv1.SubGroupIndexLabelKey]
				got = append(got, index)
				if want := keyOf(index); labels[lwsv1.SubGroupUniqueHashLabelKey] != want {
					t.Errorf("worker %d: key %q, want %q", w, labels[lwsv1.SubGroupUniqueHashLabelKey], want)
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func keyOf(index string) string {
	if index == "" {
		return ""
	}
	n, err := strconv.Atoi(index)
	if err != nil {
		return err.Error()
	}
	return identity.SubgroupKey("w-0", n)
}

func TestSubgroupThatIsKnownStays(t *testing.T) {
	for _, w := range []int{0, 1} {
		pod := podOf(w, 4, 2, "")
		pod.Labels[lwsv1.SubGroupIndexLabelKey] = "5"
		labels := mutate(t, pod).Labels
		if labels[lwsv1.SubGroupIndexLabelKey] != "5" || labels[lwsv1.SubGroupUniqueHashLabelKey] != "" {
			t.Errorf("worker %d: labels %v, want subgroup 5 and no key", w, labels)
		}
	}
}
