package table

import (
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/internal/lws/restart"
	"lockstep.dev/lockstep/internal/lws/revision"
	"lockstep.dev/lockstep/internal/lws/workload"
)

// exhaustedLeaders returns the leaders of groups that were stopped, or are to be, by index. Groups of a
// surge count: their rollout waits for them.
func (t *Table) exhaustedLeaders() map[int]*corev1.Pod {
	found, sts := map[int]*corev1.Pod{}, t.LeaderStatefulSet()
	for _, leader := range t.LeadersAndLeaving() {
		index := workload.IndexOf(leader)
		if lws.IsExhausted(leader) && (sts == nil || int32(index) < max(workload.Replicas(t.Set), workload.PodsOf(sts))) {
			found[index] = leader
		}
	}
	return found
}

// RollsExhausted reports whether the rollout is to replace a group that was stopped.
func (t *Table) RollsExhausted() bool {
	return slices.ContainsFunc(slices.Collect(maps.Values(t.ExhaustedBy)), func(leader *corev1.Pod) bool {
		return workload.IndexOf(leader) >= int(workload.Partition(t.Set)) && leader.Labels[lwsv1.RevisionKey] != t.TargetKey()
	})
}

// restartStatus copies decisions from leader pods into the status, counts leaders that
// were replaced without one, and records the groups that started.
func restartStatus(t *Table) restart.Status {
	status := t.Set.Status
	if !restart.Recreates(t.Live) {
		// A group whose leader is still there was not recreated: its failure is void. Nothing is limited, so
		// that nothing is counted: a group that is recovered waits for that.
		restarts := slices.DeleteFunc(slices.Clone(status.Restarts), func(failed lwsv1.GroupRestarts) bool {
			return slices.ContainsFunc(t.Rows, func(r Row) bool { return r.Leader.UID == failed.Leader })
		})
		for i := range restarts {
			restarts[i].Recreations = nil
		}
		return restart.Status{Restarts: restarts}
	}
	next := restart.Status{Started: status.Started, Restarts: status.Restarts, Since: t.since()}
	next.Count(t.Live, t.LeadersAndLeaving(), t.Evictions != nil && t.Evictions.IsAsked, t.Now)
	var started []lwsv1.StartedGroup
	for i := range t.Rows {
		r := &t.Rows[i]
		if entry := restart.Started(t.Live, r.Index, r.Leader, r.Pods.Owned, t.forgivesStart); entry != nil {
			started = append(started, *entry)
		}
	}
	next.Record(started)
	return next
}

// since dates the beginning. A set that has leaders by now may have had them, and their
// restarts, under another implementation or another policy.
func (t *Table) since() *metav1.Time {
	if t.Set.Status.RestartsSince != nil {
		return t.Set.Status.RestartsSince
	}
	since := metav1.NewTime(t.Now.Truncate(time.Second).Add(time.Second))
	if len(t.Groups)+len(t.Leaders.Previous)+len(t.Leaders.Orphans) == 0 {
		since = t.Set.CreationTimestamp
	}
	return &since
}

func (t *Table) forgivesStart(leader *corev1.Pod) bool {
	return restart.ForgivesStart(t.Live, revision.PolicyAt(t.Live, t.Revisions, leader.Labels[lwsv1.RevisionKey]), leader)
}
