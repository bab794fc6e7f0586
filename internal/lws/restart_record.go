package lws

import (
	"cmp"
	"encoding/base64"
	"encoding/binary"
	"hash/fnv"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws/workload"
)

// record is the pods of a group when all of them ran for the first time: the leader, to
// whose UID it is bound, then each worker by rising index. A group counts as started once
// the status holds its record.
//
// In the status it is base64, a point, and the leader's revision:
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
	return recorded{uid: hash.Sum32(), restarts: restartsOf(pod)}
}

// restartsOf counts the restarts of a pod's containers, sidecars included.
func restartsOf(pod *corev1.Pod) uint64 {
	var sum uint64
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

// started returns the record of a group all of whose pods run, or nil.
func (g *Group) started(set *lwsv1.LeaderWorkerSet) record {
	if g.Leader == nil || g.Leader.Status.Phase != corev1.PodRunning {
		return nil
	}
	size := int(workload.SizeOf(g.Leader, set))
	if len(g.Pods.Members) < size-1 {
		return nil
	}
	r := make(record, size)
	r[0] = recordOf(g.Leader)
	found := 1
	for _, pod := range g.Pods.Members {
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

// restarted reports whether a container of any pod restarted before the record was made.
func (r record) restarted() bool {
	return slices.ContainsFunc(r, func(pod recorded) bool { return pod.restarts > 0 })
}

// LargestStarted returns the number of pods of the largest group in the record.
func LargestStarted(set *lwsv1.LeaderWorkerSet) int {
	largest := 0
	for i := range set.Status.Started {
		largest = max(largest, len(decodeRecord(set.Status.Started[i].Pods)))
	}
	return largest
}

// startedAt returns what the status records of a group, or nil.
func startedAt(set *lwsv1.LeaderWorkerSet, index int) *lwsv1.StartedGroup {
	at, found := findIndex(set.Status.Started, int32(index), startedIndex)
	if !found {
		return nil
	}
	return &set.Status.Started[at]
}

// NewlyStarted returns the indexes of groups whose record the later status has and the
// earlier one has not.
func NewlyStarted(before, after *lwsv1.LeaderWorkerSet) []int {
	var indexes []int
	for _, now := range after.Status.Started {
		if was := startedAt(before, int(now.Index)); was == nil || was.Leader != now.Leader {
			indexes = append(indexes, int(now.Index))
		}
	}
	return indexes
}

// recordOfLeader returns the record of the group under this leader, or nil.
func recordOfLeader(set *lwsv1.LeaderWorkerSet, index int, leader types.UID) record {
	started := startedAt(set, index)
	if started == nil || started.Leader != leader {
		return nil
	}
	return decodeRecord(started.Pods)
}

// restartsBefore returns how often containers of the leader had restarted when its group
// started.
func (d *groupDecision) restartsBefore(leader *corev1.Pod) uint64 {
	if r := recordOfLeader(d.Set, d.Index, leader.UID); r != nil {
		return r[0].restarts
	}
	return 0
}

// replacesUncounted reports whether the leader followed another one at an equal revision
// and no restart was counted for that.
func replacesUncounted(set *lwsv1.LeaderWorkerSet, index int, leader *corev1.Pod) bool {
	started := startedAt(set, index)
	if started == nil || started.Leader == leader.UID {
		return false
	}
	_, revision, _ := strings.Cut(started.Pods, revisionSeparator)
	return revision != "" && revision == leader.Labels[lwsv1.RevisionKey]
}

// withoutRevision returns a record whose group was recreated since, without the revision: the
// restart is counted once.
func withoutRevision(started lwsv1.StartedGroup) lwsv1.StartedGroup {
	started.Pods, _, _ = strings.Cut(started.Pods, revisionSeparator)
	return started
}

// RestartsOf returns what the status tells about the failures of a group, or nil.
func RestartsOf(set *lwsv1.LeaderWorkerSet, index int) *lwsv1.GroupRestarts {
	at, found := findIndex(set.Status.Restarts, int32(index), restartsIndex)
	if !found {
		return nil
	}
	return &set.Status.Restarts[at]
}

// Records reports whether the status still lacks the record of a group whose leader runs.
func Records(set *lwsv1.LeaderWorkerSet, g Group) bool {
	if g.Leader == nil || g.Leader.Status.Phase != corev1.PodRunning || !Recreates(set) {
		return false
	}
	started := startedAt(set, g.Index)
	return started == nil || started.Leader != g.Leader.UID
}

// bytesOf returns about how many bytes entries take in JSON.
func bytesOf(started ...lwsv1.StartedGroup) int {
	const keys = 90
	sum := 0
	for i := range started {
		sum += len(started[i].Pods) + keys
	}
	return sum
}

func startedIndex(s lwsv1.StartedGroup) int32   { return s.Index }
func restartsIndex(r lwsv1.GroupRestarts) int32 { return r.Index }

func findIndex[T any](sorted []T, index int32, of func(T) int32) (int, bool) {
	return slices.BinarySearchFunc(sorted, index, func(one T, index int32) int { return cmp.Compare(of(one), index) })
}

// merge returns sorted with others in their places. It changes neither.
func merge[T any](sorted, others []T, of func(T) int32) []T {
	if len(others) == 0 {
		return sorted
	}
	taken := make(map[int32]bool, len(others))
	for _, one := range others {
		taken[of(one)] = true
	}
	merged := slices.Clone(others)
	for _, one := range sorted {
		if !taken[of(one)] {
			merged = append(merged, one)
		}
	}
	slices.SortFunc(merged, func(a, b T) int { return cmp.Compare(of(a), of(b)) })
	return merged
}
