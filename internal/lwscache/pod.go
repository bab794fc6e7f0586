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
	limits       bool
}

// NewKin returns a Kin that reads cached, unless nil, and live what that does not show. limits says whether evictions of sets
// without the annotation are limited.
func NewKin(cached, live client.Reader, limits bool) *Kin { return &Kin{cached, live, limits} }

// Set returns the set of a pod's label, or nil.
func (k *Kin) Set(ctx context.Context, pod *corev1.Pod) (*lwsv1.LeaderWorkerSet, error) {
	return kin(ctx, k, types.NamespacedName{Namespace: pod.Namespace, Name: pod.Labels[lwsv1.SetNameLabelKey]}, &lwsv1.LeaderWorkerSet{})
}

// Leader returns the pod with the name of a worker's leader, or nil.
func (k *Kin) Leader(ctx context.Context, worker *corev1.Pod) (*corev1.Pod, error) {
	return kin(ctx, k, types.NamespacedName{Namespace: worker.Namespace, Name: worker.Annotations[lwsv1.LeaderPodNameAnnotationKey]}, &corev1.Pod{})
}

// MustWait reports whether a new pod is not to be scheduled yet: a leader whose name is held, or beside a worker of an
// earlier leader of its name, and where evictions are limited a worker that replaces one of a group that ran: it would
// allow another eviction before its group is recreated. It reads the cache alone, once that is filled.
func (k *Kin) MustWait(ctx context.Context, pod *corev1.Pod, now time.Time) (bool, error) {
	if k.cached == nil || pod.Name == "" {
		return false, nil
	}
	set, err := k.Set(ctx, pod)
	switch {
	case err != nil || set == nil:
		return false, err
	case !workload.IsLeader(pod, set.Name) && workload.LimitsEvictions(set, k.limits) && restart.Recreates(set):
		leader, err := k.Leader(ctx, pod)
		return leader != nil && restart.HasStarted(set, workload.IndexOf(leader), leader), err
	case !workload.IsLeader(pod, set.Name):
		return false, nil
	}
	former, err := listed[*corev1.Pod](ctx, k.cached, &corev1.PodList{}, fmt.Sprintf("pods under %q", pod.Name), client.InNamespace(pod.Namespace), client.MatchingFields{indexClaim: byName(pod.Name)})
	return now.Before(restart.HeldUntil(set, workload.IndexOf(pod))) || slices.ContainsFunc(former, func(worker *corev1.Pod) bool {
		owner := metav1.GetControllerOfNoCopy(worker)
		return owner != nil && owner.Kind == string(identity.KindStatefulSet) && owner.Name == pod.Name && workload.BearsName(worker, set.Name)
	}), err
}

func kin[T client.Object](ctx context.Context, k *Kin, key types.NamespacedName, into T) (T, error) {
	var none T
	if key.Name == "" || len(key.Name) > validation.DNS1123SubdomainMaxLength {
		return none, nil
	}
	if k.cached != nil && k.cached.Get(ctx, key, into) == nil { // else the cache may be late, or not have started
		return into, nil
	}
	switch err := k.live.Get(ctx, key, into); {
	case apierrors.IsNotFound(err):
		return none, nil
	case err != nil:
		return none, fmt.Errorf("read %T %q: %w", into, key, err)
	}
	return into, nil
}
