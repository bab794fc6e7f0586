package lwscache

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws/restart"
	"lockstep.dev/lockstep/internal/lws/workload"
)

// Kin reads the set, the leader and the group of a pod that is being created. For the first two it does not
// wait for caches: the API server waits for the webhook.
type Kin struct {
	cached, live client.Reader
}

// NewKin returns a Kin that reads cached, unless nil, and live what that does not show.
func NewKin(cached, live client.Reader) *Kin { return &Kin{cached: cached, live: live} }

// Set returns the set of a pod's label, or nil.
func (k *Kin) Set(ctx context.Context, pod *corev1.Pod) (*lwsv1.LeaderWorkerSet, error) {
	return kin(ctx, k, types.NamespacedName{Namespace: pod.Namespace, Name: pod.Labels[lwsv1.SetNameLabelKey]}, &lwsv1.LeaderWorkerSet{})
}

// Leader returns the pod with the name of a worker's leader, or nil.
func (k *Kin) Leader(ctx context.Context, worker *corev1.Pod) (*corev1.Pod, error) {
	return kin(ctx, k, types.NamespacedName{Namespace: worker.Namespace, Name: worker.Annotations[lwsv1.LeaderPodNameAnnotationKey]}, &corev1.Pod{})
}

// MustWait reports whether a worker of an earlier leader with the name of a new leader is still there, or the name is
// held after an eviction. It reads the cache alone, once that is filled: where it shows neither, the leader is scheduled
// at once.
func (k *Kin) MustWait(ctx context.Context, leader *corev1.Pod) (bool, error) {
	if k.cached == nil || leader.Name == "" {
		return false, nil
	}
	var list corev1.PodList
	if err := k.cached.List(ctx, &list, client.InNamespace(leader.Namespace), client.MatchingFields{indexClaim: byName(leader.Name)}); err != nil {
		return false, fmt.Errorf("list pods under %q: %w", leader.Name, err)
	}
	if slices.ContainsFunc(list.Items, func(pod corev1.Pod) bool {
		owner := metav1.GetControllerOfNoCopy(&pod)
		return owner != nil && owner.Kind == string(identity.KindStatefulSet) && owner.Name == leader.Name &&
			pod.Labels[lwsv1.SetNameLabelKey] == leader.Labels[lwsv1.SetNameLabelKey]
	}) {
		return true, nil
	}
	set := &lwsv1.LeaderWorkerSet{}
	err := k.cached.Get(ctx, types.NamespacedName{Namespace: leader.Namespace, Name: leader.Labels[lwsv1.SetNameLabelKey]}, set)
	return err == nil && time.Now().Before(restart.HeldUntil(set, workload.IndexOf(leader))), client.IgnoreNotFound(err)
}

func kin[T client.Object](ctx context.Context, k *Kin, key types.NamespacedName, into T) (T, error) {
	var none T
	if key.Name == "" || len(key.Name) > validation.DNS1123SubdomainMaxLength {
		return none, nil
	}
	if k.cached != nil {
		if err := k.cached.Get(ctx, key, into); err == nil {
			return into, nil
		} // the cache may be late, or not have started
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
