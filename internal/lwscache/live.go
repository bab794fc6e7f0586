package lwscache

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/action"
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

// Standing returns, live, the metadata of all objects of the kind, in the namespace and with
// the name and labels of what a write relies on.
func (o *Observer) Standing(ctx context.Context, relied action.Standing) ([]metav1.ObjectMeta, error) {
	list := &metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{APIVersion: relied.Kind.APIVersion(), Kind: string(relied.Kind) + "List"}}
	options := []client.ListOption{client.InNamespace(relied.Namespace), client.MatchingLabels(relied.Labels)}
	if relied.Name != "" {
		options = append(options, client.MatchingFields{metav1.ObjectNameField: relied.Name})
	}
	if err := o.live.List(ctx, list, options...); err != nil {
		return nil, fmt.Errorf("list what a write relies on: %w", err)
	}
	found := make([]metav1.ObjectMeta, 0, len(list.Items))
	for i := range list.Items {
		found = append(found, list.Items[i].ObjectMeta)
	}
	return found, nil
}

func (o *Observer) liveMeta(ctx context.Context, apiVersion, kind string, key types.NamespacedName) (*metav1.PartialObjectMetadata, error) {
	meta := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: apiVersion, Kind: kind}}
	return meta, o.live.Get(ctx, key, meta)
}
