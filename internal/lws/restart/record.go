package restart

import (
	"cmp"
	"encoding/base64"
	"encoding/binary"
	"hash/fnv"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws/workload"
)

// Entry returns what the status says about the failures of a group, or nil.
func Entry(set *lwsv1.LeaderWorkerSet, index int) *lwsv1.GroupRestarts {
	return find(set.Status.Restarts, index, restartsIndex)
}

func startedIndex(s lwsv1.StartedGroup) int32 { return s.Index }

func restartsIndex(r lwsv1.GroupRestarts) int32 { return r.Index }

// position returns where a group is in a list by rising index, and whether it is there.
func position[T any](sorted []T, index int32, of func(T) int32) (int, bool) {
	return slices.BinarySearchFunc(sorted, index, func(one T, index int32) int { return cmp.Compare(of(one), index) })
}

func find[T any](sorted []T, index int, of func(T) int32) *T {
	if at, found := position(sorted, int32(index), of); found {
		return &sorted[at]
	}
	return nil
}

func below[T any](sorted []T, end int32, of func(T) int32) []T {
	at, _ := position(sorted, end, of)
	return sorted[:at:at]
}

// merge returns sorted with others in their places. It changes neither.
func merge[T any](sorted, others []T, of func(T) int32) []T {
	if len(others) == 0 {
		return sorted
	}
	byIndex := make(map[int32]T, len(sorted)+len(others))
	for _, one := range slices.Concat(sorted, others) {
		byIndex[of(one)] = one
	}
	return slices.SortedFunc(maps.Values(byIndex), func(a, b T) int { return cmp.Compare(of(a), of(b)) })
}

// record is the pods of a group when all of them ran for the first time: the leader, to whose UID it is bound, then
// each worker by rising index. A group counts as started once the status holds its record.
//
// In the status it is base64, a point, and the leader's revision, which a record that is counted lacks:
//
//	leader's restarts, then of each worker four bytes of a hash of its UID and its restarts
type record []recorded

// recorded is one pod of a record. The number of restarts of a pod only rises.
type recorded struct {
	uid      uint32
	restarts uint64
}

func recordOf(pod *corev1.Pod) recorded {
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(pod.UID))
	return recorded{uid: hash.Sum32(), restarts: Restarts(pod)}
}

// Restarts counts the restarts of a pod's containers, sidecars included.
func Restarts(pod *corev1.Pod) (sum uint64) {
	for _, c := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		sum += uint64(max(c.RestartCount, 0))
	}
	return sum
}

const revisionSeparator = "."

func (r record) encode(revision string) string {
	var encoded []byte
	for i, pod := range r {
		if i > 0 {
			encoded = binary.BigEndian.AppendUint32(encoded, pod.uid)
		}
		encoded = binary.AppendUvarint(encoded, pod.restarts)
	}
	return base64.RawStdEncoding.EncodeToString(encoded) + revisionSeparator + revision
}

// decodeRecord returns nil for text that is not a record.
func decodeRecord(text string) record {
	pods, _, _ := strings.Cut(text, revisionSeparator)
	encoded, err := base64.RawStdEncoding.DecodeString(pods)
	if err != nil {
		return nil
	}
	var r record
	for len(encoded) > 0 {
		var pod recorded
		if len(r) > 0 {
			if len(encoded) < 4 {
				return nil
			}
			pod.uid = binary.BigEndian.Uint32(encoded)
			encoded = encoded[4:]
		}
		n := 0
		if pod.restarts, n = binary.Uvarint(encoded); n <= 0 {
			return nil
		}
		encoded = encoded[n:]
		r = append(r, pod)
	}
	return r
}

// restartsAt returns the restarts of a pod when the group started. Without a record it is zero.
func (r record) restartsAt(index int) uint64 {
	if index >= len(r) {
		return 0
	}
	return r[index].restarts
}

// restarted reports whether a container of any pod restarted before the record was made.
func (r record) restarted() bool {
	return slices.ContainsFunc(r, func(pod recorded) bool { return pod.restarts > 0 })
}

// running returns the record of a group all of whose pods run, or nil.
func running(set *lwsv1.LeaderWorkerSet, leader *corev1.Pod, workers []*corev1.Pod) record {
	size := int(workload.SizeOf(leader, set))
	if leader.Status.Phase != corev1.PodRunning || len(workers) < size-1 {
		return nil
	}
	r := make(record, size)
	r[0] = recordOf(leader)
	found := 1
	for _, pod := range workers {
		_, index := identity.ParentAndOrdinal(pod.Name)
		if index < 1 || index >= size || pod.Status.Phase != corev1.PodRunning {
			continue
		}
		r[index] = recordOf(pod)
		found++
	}
	if found != size {
		return nil
	}
	return r
}

// LargestStarted returns the number of pods of the largest group in the record.
func LargestStarted(set *lwsv1.LeaderWorkerSet) int {
	largest := 0
	for i := range set.Status.Started {
		largest = max(largest, len(decodeRecord(set.Status.Started[i].Pods)))
	}
	return largest
}

// NewlyStarted returns the indexes of groups whose record the later status has and the earlier one has not.
func NewlyStarted(before, after *lwsv1.LeaderWorkerSet) []int {
	var indexes []int
	for _, now := range after.Status.Started {
		if was := startedAt(before, int(now.Index)); was == nil || was.Leader != now.Leader {
			indexes = append(indexes, int(now.Index))
		}
	}
	return indexes
}

// LacksRecord reports whether the status still lacks the record of a leader that runs.
func LacksRecord(set *lwsv1.LeaderWorkerSet, index int, leader *corev1.Pod) bool {
	started := startedAt(set, index)
	return leader != nil && leader.Status.Phase == corev1.PodRunning && Recreates(set) && (started == nil || started.Leader != leader.UID)
}

// HasStarted reports whether the status has the record of a leader's group.
func HasStarted(set *lwsv1.LeaderWorkerSet, index int, leader *corev1.Pod) bool {
	return recordOfLeader(set, index, leader) != nil
}

// FailedAt is when a group failed that a leader replaces at an equal revision, or zero.
func FailedAt(set *lwsv1.LeaderWorkerSet, index int, leader *corev1.Pod) (at time.Time) {
	if entry := Entry(set, index); entry != nil && entry.Leader != leader.UID && entry.Revision == leader.Labels[lwsv1.RevisionKey] {
		at = entry.FailedAt.Time
	}
	return at
}

// startedAt returns what the status records of a group, or nil.
func startedAt(set *lwsv1.LeaderWorkerSet, index int) *lwsv1.StartedGroup {
	return find(set.Status.Started, index, startedIndex)
}

// recordOfLeader returns the record of the group under this leader, or nil.
func recordOfLeader(set *lwsv1.LeaderWorkerSet, index int, leader *corev1.Pod) record {
	if started := startedAt(set, index); started != nil && started.Leader == leader.UID {
		return decodeRecord(started.Pods)
	}
	return nil
}

// ReplacesUncounted reports whether the leader followed another one at an equal revision, and nothing was counted for it.
func ReplacesUncounted(set *lwsv1.LeaderWorkerSet, index int, leader *corev1.Pod) bool {
	started, revision := startedAt(set, index), leader.Labels[lwsv1.RevisionKey]
	return started != nil && started.Leader != leader.UID && !isCounted(started) && revision != "" &&
		strings.HasSuffix(started.Pods, revisionSeparator+revision)
}

// isCounted reports whether another leader is no failure of a group. A record without a revision says so, too: the
// release before knows no other mark, and a definition of that release drops the field.
func isCounted(started *lwsv1.StartedGroup) bool {
	return started.Counted || !strings.Contains(started.Pods, revisionSeparator)
}

// IsReplaced reports whether a rollout replaces a leader: its record is marked, and its group did not fail.
func IsReplaced(set *lwsv1.LeaderWorkerSet, index int, leader *corev1.Pod) bool {
	started := startedAt(set, index)
	return started != nil && started.Leader == leader.UID && isCounted(started) && Of(set, leader) == nil
}

// counted returns the record, marked. A record that has a mark stays as it is.
func counted(started lwsv1.StartedGroup) lwsv1.StartedGroup {
	if !isCounted(&started) {
		started.Pods, _, _ = strings.Cut(started.Pods, revisionSeparator)
		started.Counted = true
	}
	return started
}

// uncounted returns the record of a leader, without a mark.
func uncounted(started lwsv1.StartedGroup, leader *corev1.Pod) lwsv1.StartedGroup {
	pods, _, _ := strings.Cut(started.Pods, revisionSeparator)
	started.Pods, started.Counted = pods+revisionSeparator+leader.Labels[lwsv1.RevisionKey], false
	return started
}

// IsRestarting reports whether a group failed and was not seen to start since. leader is that of the group now, or nil.
func IsRestarting(set *lwsv1.LeaderWorkerSet, index int, leader *corev1.Pod) bool {
	entry, started := Entry(set, index), startedAt(set, index)
	switch {
	case entry == nil:
		return false
	case leader == nil:
		return started == nil || started.Leader == entry.Leader
	}
	return entry.Leader != leader.UID && entry.Revision == leader.Labels[lwsv1.RevisionKey] && !HasStarted(set, index, leader)
}
