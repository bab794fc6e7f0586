package scheduling

import (
	"hash/fnv"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"lockstep.dev/lockstep/internal/pvc"
)

// turns lets pods that share a PVC write onto it one after the other. A scheduler binds many at
// a time, and all but one of the writes would conflict. The resourceVersion keeps a record right.
type turns [64]sync.Mutex

// take waits until no other pod writes onto the PVCs of a pod. Locks are taken in order, so that
// two pods cannot wait for each other.
func (t *turns) take(pod *corev1.Pod) (give func()) {
	var needed []int
	for _, name := range pvc.ClaimsOf(pod) {
		hash := fnv.New32a()
		_, _ = hash.Write([]byte(pod.Namespace + "/" + name)) // never fails
		needed = append(needed, int(hash.Sum32())%len(t))
	}
	slices.Sort(needed)
	needed = slices.Compact(needed)
	for _, i := range needed {
		t[i].Lock()
	}
	return func() {
		for _, i := range needed {
			t[i].Unlock()
		}
	}
}
