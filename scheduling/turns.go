package scheduling

import (
	"hash/fnv"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"lockstep.dev/lockstep/internal/pvc"
)

// turns lets pods that share a claim write on it one after the other. A scheduler
// binds many at once, and all but one of them would be refused. It is not what
// keeps a record right: that is the version it is written onto.
type turns [64]sync.Mutex

// take waits until the pod's claims are free of other writers here. The locks are
// taken in order, so that two pods cannot wait for each other.
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
