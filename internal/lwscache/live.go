package lwscache

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws/workload"
)

// readMissing is how many names of missing leaders are read live at most.
const readMissing = 5

// unlabelledLeaders reads live the pods under names of missing leaders. A pod without our labels is not in the cache.
func (r *reading) unlabelledLeaders(ctx context.Context, shown []*corev1.Pod) (found []*corev1.Pod, err error) {
	names := make(map[string]bool, len(shown))
	for _, pod := range shown {
		names[pod.Name] = true
	}
	missing := 0
	for index := range int(workload.Replicas(r.set)) {
		leader := identity.LeaderName(r.set.Name, index)
		if names[leader] {
			continue
		}
		if missing++; missing > readMissing {
			break
		}
		pod := &corev1.Pod{}
		err := r.live.Get(ctx, types.NamespacedName{Namespace: r.set.Namespace, Name: leader}, pod)
		if client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("read pod %q: %w", leader, err)
		}
		if err == nil {
			found = append(found, pod)
		}
	}
	return found, nil
}

func (o *Observer) liveMeta(ctx context.Context, apiVersion, kind string, key types.NamespacedName) (*metav1.PartialObjectMetadata, error) {
	meta := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: apiVersion, Kind: kind}}
	return meta, o.live.Get(ctx, key, meta)
}
