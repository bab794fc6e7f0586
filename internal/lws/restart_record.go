package lws

import (
	"cmp"
	"encoding/base64"
	"encoding/binary"
	"hash/fnv"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/identity"
)

// record is what a group was made of when all of its pods ran for the first time:
// of the leader, whose UID it is bound to, and of each worker by rising index.
//
//	leader's restarts, then of each worker four bytes of a hash of its UID and its restarts
type record []recorded

// recorded is one pod of a record. A sum of restarts only rises for as long as
// the pod lives.
type recorded struct {
	uid      uint32
	restarts uint64
}

func recordOf(pod *corev1.Pod) recorded {
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(pod.UID))
	return recorded{uid: hash.Sum32(), restarts: restartsOf(pod)}
}

// restartsOf is how often containers of a pod were restarted, sidecars included.
func restartsOf(pod *corev1.Pod) uint64 {
	var sum uint64
	for _, c := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		sum += uint64(max(c.RestartCount, 0))
	}
	return sum
}

func (r record) encode() string {
	var encoded []byte
	for i, pod := range r {
		if i > 0 {
			encoded = binary.BigEndian.AppendUint32(encoded, pod.uid)
		}
		encoded = binary.AppendUvarint(encoded, pod.restarts)
	}
	return base64.RawStdEncoding.EncodeToString(encoded)
}

// decodeRecord returns nil for what is no record. The leader's hash is left out:
// its UID stands beside.
func decodeRecord(text string) record {
	encoded, err := base64.RawStdEncoding.DecodeString(text)
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

// started is the record of a group all of whose pods run, or nil.
func (g *Group) started(set *lwsv1.LeaderWorkerSet) record {
	if g.Leader == nil || g.Leader.Status.Phase != corev1.PodRunning {
		return nil
	}
	size := int(SizeOf(g.Leader, set))
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

// LargestStarted is how many pods the largest group has of those whose beginning the
// set's status tells. Under a leader that is gone it is what the group had.
func LargestStarted(set *lwsv1.LeaderWorkerSet) int {
	largest := 0
	for i := range set.Status.Started {
		largest = max(largest, len(decodeRecord(set.Status.Started[i].Pods)))
	}
	return largest
}

// isRecorded tells whether the set's status tells what the group under that very
// leader was made of when it started.
func isRecorded(set *lwsv1.LeaderWorkerSet, index int, leader types.UID) bool {
	at, found := findIndex(set.Status.Started, int32(index), startedIndex)
	return found && set.Status.Started[at].Leader == leader
}

// recordOfLeader is what the set's status tells of the group under that very
// leader, or nil.
func recordOfLeader(set *lwsv1.LeaderWorkerSet, index int, leader types.UID) record {
	at, found := findIndex(set.Status.Started, int32(index), startedIndex)
	if !found || set.Status.Started[at].Leader != leader {
		return nil
	}
	return decodeRecord(set.Status.Started[at].Pods)
}

// RestartsOf is what the set's status tells of the failures of a group, or nil.
func RestartsOf(set *lwsv1.LeaderWorkerSet, index int) *lwsv1.GroupRestarts {
	at, found := findIndex(set.Status.Restarts, int32(index), restartsIndex)
	if !found {
		return nil
	}
	return &set.Status.Restarts[at]
}

// Failed is what the set's status tells of the failure of the group under that
// very leader, or nil: it is or will be recreated.
func Failed(set *lwsv1.LeaderWorkerSet, index int, leader types.UID) *lwsv1.GroupRestarts {
	if restarts := RestartsOf(set, index); restarts != nil && restarts.Leader == leader && Recreates(set) {
		return restarts
	}
	return nil
}

// Tells tells whether the set's status says what was found of a group.
func Tells(set *lwsv1.LeaderWorkerSet, f Finding) bool {
	if f.Failure != nil {
		return Failed(set, f.Index, f.Leader.UID) != nil
	}
	return isRecorded(set, f.Index, f.Leader.UID)
}

// Records tells whether the status is yet to say what a group that is ready was
// made of when it started.
func Records(set *lwsv1.LeaderWorkerSet, g Group) bool {
	return g.Leader != nil && Recreates(set) && !isRecorded(set, g.Index, g.Leader.UID) && g.Ready(set)
}

// bytesOf is about how much room entries take, their keys included.
func bytesOf(started []lwsv1.StartedGroup) int {
	const keys = 90
	sum := 0
	for i := range started {
		sum += len(started[i].Pods) + keys
	}
	return sum
}

// growsBy is how much more room the record takes with an entry: it takes the place of
// that of the leader before, who has gone.
func (d *setDecision) growsBy(entry lwsv1.StartedGroup) int {
	more := bytesOf([]lwsv1.StartedGroup{entry})
	if at, found := findIndex(d.Set.Status.Started, entry.Index, startedIndex); found {
		more -= bytesOf(d.Set.Status.Started[at : at+1])
	}
	return more
}

func startedIndex(s lwsv1.StartedGroup) int32   { return s.Index }
func restartsIndex(r lwsv1.GroupRestarts) int32 { return r.Index }

func findIndex[T any](sorted []T, index int32, of func(T) int32) (int, bool) {
	return slices.BinarySearchFunc(sorted, index, func(one T, index int32) int { return cmp.Compare(of(one), index) })
}

// merge returns sorted with others in their places. Both are left as they are.
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
