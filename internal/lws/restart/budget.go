package restart

import (
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/lws/workload"
)

// IsCounted reports whether the status counts a recreation. It does so before the group is deleted:
// the count then survives whatever ends. Where the status has no room for more groups, or the policy is None, it counts
// none.
func IsCounted(set *lwsv1.LeaderWorkerSet, index int, decision *Decision) bool {
	entry := Entry(set, index)
	return !Recreates(set) || set.Spec.LeaderWorkerTemplate.MaxGroupRestarts == nil && decision.HeldUntil == nil || len(set.Status.Restarts) >= restartsAtMost ||
		entry != nil && entry.Leader == decision.Leader && entry.HeldUntil.Equal(decision.HeldUntil)
}

// NewlyCounted returns the indexes of groups that may go on since the later status counts a
// recreation, or no longer does.
func NewlyCounted(before, after *lwsv1.LeaderWorkerSet) []int {
	var indexes []int
	for i := range after.Status.Restarts {
		now := &after.Status.Restarts[i]
		was := ptr.Deref(Entry(before, int(now.Index)), lwsv1.GroupRestarts{})
		isNew := (after.Spec.LeaderWorkerTemplate.MaxGroupRestarts != nil || now.HeldUntil != nil) && (was.Leader != now.Leader || !was.HeldUntil.Equal(now.HeldUntil))
		if isNew || !ptr.Equal(was.Recreations, now.Recreations) {
			indexes = append(indexes, int(now.Index))
		}
	}
	return indexes
}

// heldFor is how long the names of a group stay unused after a pod of it was drained. A drain that still waits for another
// pod of the group evicts whatever has its name by then: kubectl retries after 5 s, and the cluster autoscaler after 10 s.
const heldFor = 12 * time.Second

// HeldUntil is when the pods of a group may be scheduled at the earliest, or zero.
func HeldUntil(set *lwsv1.LeaderWorkerSet, index int) time.Time {
	return ptr.Deref(ptr.Deref(Entry(set, index), lwsv1.GroupRestarts{}).HeldUntil, metav1.Time{}).Time
}

// IsRecovered reports whether a user recovers the group of a leader. The annotation is removed when
// the budget is exhausted: one that is there was set since.
func IsRecovered(leader *corev1.Pod) bool {
	return leader.Annotations[lwsv1.RecoverAnnotationKey] == "true"
}

// recreations returns how often the group of a leader was recreated at its revision, or nil. Another implementation
// counted for leaders from before restartsSince. What it counted for those after is older than what is here.
func recreations(set *lwsv1.LeaderWorkerSet, index int, leader *corev1.Pod) *int32 {
	key, since := leader.Labels[lwsv1.RevisionKey], set.Status.RestartsSince
	if entry := Entry(set, index); entry != nil && entry.Revision == key && entry.Recreations != nil {
		return entry.Recreations
	}
	if since == nil || !leader.CreationTimestamp.Before(since) {
		return nil
	}
	counts, err := OthersCounts(set.Annotations[lwsv1.GroupRestartCountsAnnotationKey])
	if count, found := counts[key+"/"+workload.IndexLabel(leader)]; err == nil && found {
		return &count
	}
	return nil
}

// OthersCounts returns the counts in the annotation of another implementation, by revision key and index of the group.
func OthersCounts(annotation string) (counts map[string]int32, err error) {
	if annotation == "" {
		return nil, nil
	}
	if err := json.Unmarshal([]byte(annotation), &counts); err != nil || counts == nil {
		return nil, fmt.Errorf("must be a JSON object of whole numbers from 0, by revision key and group index")
	}
	for key, count := range counts {
		if count < 0 {
			return nil, fmt.Errorf("must be a JSON object of whole numbers from 0, and the one of %.64q is %d", key, count)
		}
	}
	return counts, nil
}
