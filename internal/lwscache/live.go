package lwscache

import (
	"context"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/gang"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws/workload"
)

var apiVersions = map[identity.Kind]string{
	identity.KindLeaderWorkerSet:    lwsv1.GroupVersion.String(),
	identity.KindStatefulSet:        "apps/v1",
	identity.KindControllerRevision: "apps/v1",
	identity.KindPod:                "v1",
	identity.KindService:            "v1",

	identity.KindPersistentVolumeClaim: "v1",

	identity.KindPodGroup: gang.Volcano{}.Kind().GroupVersion().String(),
}

// Taken records that a create found a name taken: an object without our labels may have it.
func (o *Observer) Taken(ref identity.Ref) { o.memory.Taken(ref) }

// ifTaken reads the object of a name live if a create found that name taken.
func ifTaken[T client.Object](ctx context.Context, o *Observer, n name) (found T, ok bool, err error) {
	if !o.memory.isTaken(n) {
		return found, false, nil
	}
	object := empty(n.kind)
	err = o.live.Get(ctx, types.NamespacedName{Namespace: n.namespace, Name: n.name}, object)
	if apierrors.IsNotFound(err) || unserved(err) {
		o.memory.setFree(n)
		return found, false, nil
	}
	if err != nil {
		return found, false, fmt.Errorf("read %s %q: %w", n.kind, n.name, err)
	}
	found, ok = object.(T)
	return found, ok, nil
}

// empty returns an empty object of a kind that the operator creates.
func empty(kind identity.Kind) client.Object {
	switch kind {
	case identity.KindStatefulSet:
		return &appsv1.StatefulSet{}
	case identity.KindControllerRevision:
		return &appsv1.ControllerRevision{}
	case identity.KindService:
		return &corev1.Service{}
	case identity.KindPodGroup:
		return foreign(kind, metav1.ObjectMeta{})
	}
	return &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: apiVersions[kind], Kind: string(kind)}}
}

// takenRevisions reads live the revisions of a set whose names a create found taken.
func (o *Observer) takenRevisions(ctx context.Context, set types.NamespacedName, shown []*appsv1.ControllerRevision) ([]*appsv1.ControllerRevision, error) {
	var found []*appsv1.ControllerRevision
	names := o.memory.takenUnder(identity.KindControllerRevision, set)
	slices.SortFunc(names, func(a, b name) int { return strings.Compare(a.name, b.name) })
	for _, n := range names {
		if slices.ContainsFunc(shown, func(r *appsv1.ControllerRevision) bool { return r.Name == n.name }) {
			o.memory.setFree(n)
			continue
		}
		revision, ok, err := ifTaken[*appsv1.ControllerRevision](ctx, o, n)
		if err != nil {
			return nil, err
		}
		if ok {
			found = append(found, revision)
		}
	}
	return found, nil
}

// readMissing is how many names of missing leaders are read live at most.
const readMissing = 5

// unlabelledLeaders reads live the pods under names of missing leaders. A pod without our labels
// is not in the cache.
func (o *Observer) unlabelledLeaders(ctx context.Context, set *lwsv1.LeaderWorkerSet, shown []*corev1.Pod) ([]*corev1.Pod, error) {
	names := make(map[string]bool, len(shown))
	for _, pod := range shown {
		names[pod.Name] = true
	}
	var found []*corev1.Pod
	missing := 0
	for index := range int(workload.Replicas(set)) {
		leader := identity.LeaderName(set.Name, index)
		if names[leader] {
			continue
		}
		if missing++; missing > readMissing {
			break
		}
		pod := &corev1.Pod{}
		err := o.live.Get(ctx, types.NamespacedName{Namespace: set.Namespace, Name: leader}, pod)
		switch {
		case apierrors.IsNotFound(err):
		case err != nil:
			return nil, fmt.Errorf("read pod %q: %w", leader, err)
		default:
			found = append(found, pod)
		}
	}
	return found, nil
}

// Standing returns, live, the metadata of all objects of the kind, in the namespace and with
// the name and labels of what a write relies on.
func (o *Observer) Standing(ctx context.Context, relied action.Standing) ([]metav1.ObjectMeta, error) {
	list := &metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{APIVersion: apiVersions[relied.Kind], Kind: string(relied.Kind) + "List"}}
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
