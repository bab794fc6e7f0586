package lwscache

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
)

// Kin reads what a pod that is about to be made belongs to. It is asked in the
// middle of a creation, so it waits for nothing.
type Kin struct {
	cached, live client.Reader
}

// NewKin returns a Kin that reads through cached, if not nil, and through live what
// that does not show.
func NewKin(cached, live client.Reader) *Kin { return &Kin{cached: cached, live: live} }

// Set returns the set whose name a pod bears, or nil when there is none.
func (k *Kin) Set(ctx context.Context, pod *corev1.Pod) (*lwsv1.LeaderWorkerSet, error) {
	return kin(ctx, k, types.NamespacedName{Namespace: pod.Namespace, Name: pod.Labels[lwsv1.SetNameLabelKey]}, &lwsv1.LeaderWorkerSet{})
}

// Leader returns the pod that bears the name of a worker's leader, or nil when
// there is none.
func (k *Kin) Leader(ctx context.Context, worker *corev1.Pod) (*corev1.Pod, error) {
	return kin(ctx, k, types.NamespacedName{Namespace: worker.Namespace, Name: worker.Annotations[lwsv1.LeaderPodNameAnnotationKey]}, &corev1.Pod{})
}

func kin[T client.Object](ctx context.Context, k *Kin, key types.NamespacedName, into T) (T, error) {
	var none T
	if key.Name == "" || len(key.Name) > validation.DNS1123SubdomainMaxLength {
		return none, nil
	}
	if k.cached != nil {
		if err := k.cached.Get(ctx, key, into); err == nil {
			return into, nil
		} // it may lag, or not have begun
	}
	err := k.live.Get(ctx, key, into)
	if apierrors.IsNotFound(err) {
		return none, nil
	}
	if err != nil {
		return none, fmt.Errorf("read %T %q: %w", into, key, err)
	}
	return into, nil
}
