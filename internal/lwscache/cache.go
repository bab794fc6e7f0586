package lwscache

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/internal/lws/volumes"
	"lockstep.dev/lockstep/internal/lws/workload"
	"lockstep.dev/lockstep/internal/sieve"
)

// indexClaim finds objects by the name that theirs is made of ("name:…"), whatever their owner. In a Hash set,
// that is the name of the set for leaders, and of the leader for what belongs to it. It finds revisions and PVCs by the
// UID of their controller ("uid:…") too, and PVCs by the name of their set ("under:…"). It finds what a group consists
// of, but for its leader, by the name that the group's is made of ("group:…"). It finds pods such as w-01 by their set
// ("misspelt:…").
const indexClaim = "lockstep.claim"

// ownPrefix begins every key of the LeaderWorkerSet API.
const ownPrefix = "leaderworkerset.sigs.k8s.io/"

// CacheOptions limits the caches to objects with a set's label, and drops what no decision reads.
// Readers get the cached objects themselves, and must never change them.
func CacheOptions() cache.Options {
	shared := true
	ours := func(transform toolscache.TransformFunc) cache.ByObject {
		return cache.ByObject{Label: labelled(), UnsafeDisableDeepCopy: &shared, Transform: transform}
	}
	return cache.Options{ByObject: map[client.Object]cache.ByObject{
		&lwsv1.LeaderWorkerSet{}: {UnsafeDisableDeepCopy: &shared, Transform: trims(func(set *lwsv1.LeaderWorkerSet) {
			set.ManagedFields = workload.OnlySpecWritten(set)
		})},
		&appsv1.StatefulSet{}:        ours(trims(trimStatefulSet)),
		&appsv1.Deployment{}:         ours(trims(func(d *appsv1.Deployment) { d.ManagedFields = trimManagedFields(d.ManagedFields) })),
		&appsv1.ReplicaSet{}:         ours(trims(trimReplicaSet)),
		&appsv1.ControllerRevision{}: ours(cache.TransformStripManagedFields()),
		&corev1.Service{}:            ours(cache.TransformStripManagedFields()),
		&corev1.Pod{}:                ours(trims(trimPod)),
		volumes.Named("", ""):        ours(trims(trimVolume)),
	}}
}

// labelled selects objects with a set's label.
func labelled() labels.Selector {
	named, _ := labels.Parse(lwsv1.SetNameLabelKey) // a constant key is valid
	return named
}

// Index adds the indexes of an Observer. It must run before the cache starts.
func Index(ctx context.Context, indexer client.FieldIndexer) error {
	for object, keys := range map[client.Object]client.IndexerFunc{
		&corev1.Pod{}:                podKeys,
		&appsv1.StatefulSet{}:        statefulSetKeys,
		&corev1.Service{}:            serviceKeys,
		&appsv1.ReplicaSet{}:         setKeys,
		&appsv1.ControllerRevision{}: revisionKeys,
		volumes.Named("", ""):        volumeKeys,
	} {
		if err := indexer.IndexField(ctx, object, indexClaim, keys); err != nil {
			return fmt.Errorf("index %T: %w", object, err)
		}
	}
	return nil
}

// setKeys is the key of what has the label of a set.
func setKeys(object client.Object) []string {
	return nameKeys(object.GetLabels()[lwsv1.SetNameLabelKey])
}

// revisionKeys are none of a StatefulSet's own history, which has the labels of its template: a set has one of each group.
func revisionKeys(object client.Object) []string {
	if OfStatefulSet(object) {
		return nil
	}
	return append(ownerKeys(object), setKeys(object)...)
}

func serviceKeys(service client.Object) []string { return groupKeys(service.GetName()) }

func volumeKeys(pvc client.Object) []string {
	labels := pvc.GetLabels()
	return append(ownerKeys(pvc), byName(volumeParent(labels)), underName(labels[lwsv1.SetNameLabelKey]))
}

// statefulSetKeys are the keys of a StatefulSet. One of a Hash group is found by the leader that owns it, too.
func statefulSetKeys(sts client.Object) []string {
	if owner := metav1.GetControllerOfNoCopy(sts); owner != nil && workload.HashKey(sts) != "" {
		return append(groupKeys(sts.GetName()), byName(owner.Name))
	}
	return groupKeys(sts.GetName())
}

// podKeys are the keys of a pod. In a Hash group, the name of a pod does not say what it belongs to: its
// labels and annotations do. Such a worker is found by the name of its set, too.
func podKeys(pod client.Object) []string {
	switch g := workload.Of(pod); {
	case !g.HasKey():
		if lws.IsMisspelt(pod.GetName()) {
			return []string{misspelt(pod.GetLabels()[lwsv1.SetNameLabelKey])}
		}
		parent := above(pod.GetName())
		return append(groupKeys(parent), nameKeys(parent)...)
	case g.LeaderName != pod.GetName():
		return []string{byName(g.LeaderName), underName(pod.GetLabels()[lwsv1.SetNameLabelKey])}
	}
	return setKeys(pod)
}

// groupKeys is the key of what has, or is named after, the name of a group.
func groupKeys(group string) []string {
	if set := above(group); set != "" {
		return []string{ofGroups(set)}
	}
	return nil
}

// nameKeys is the key of what belongs to a name.
func nameKeys(name string) []string {
	if name == "" {
		return nil
	}
	return []string{byName(name)}
}

func ownerKeys(object client.Object) []string {
	if owner := metav1.GetControllerOfNoCopy(object); owner != nil {
		return []string{byUID(string(owner.UID))}
	}
	return nil
}

// volumeParent returns the name of the StatefulSet whose PVCs have such labels. A StatefulSet
// gives its PVCs the labels of its selector.
func volumeParent(labels map[string]string) string {
	set, group := labels[lwsv1.SetNameLabelKey], labels[lwsv1.GroupIndexLabelKey]
	if group == "" {
		return set
	}
	return set + "-" + group
}

// above returns the name that a pod's name is made of. "w-007" is made of none: the StatefulSet
// controller writes no leading zeros.
func above(name string) string {
	if parent, ordinal := identity.ParentAndOrdinal(name); name == identity.LeaderName(parent, ordinal) {
		return parent
	}
	return ""
}

func byUID(uid string) string      { return "uid:" + uid }
func byName(name string) string    { return "name:" + name }
func underName(name string) string { return "under:" + name }
func ofGroups(set string) string   { return "group:" + set }
func misspelt(set string) string   { return "misspelt:" + set }

// keptFields are the fields of pods that decisions and reports read.
func keptFields() *sieve.Sieve {
	containers := sieve.Only(1, 2, 8)        // name, image, resources
	statuses := sieve.Only(1, 2, 3, 4, 5, 9) // name, state, lastState, ready, restartCount, started
	return sieve.Only().
		Within(1, sieve.Metadata()).
		Within(2, sieve.Only(10, 38).Within(2, containers).Within(20, containers)). // nodeName, schedulingGates, containers, initContainers
		Within(3, sieve.Only(1, 2, 3, 4, 17).Within(8, statuses).Within(10, statuses))
}

// NewCache returns a cache with CacheOptions that decodes only those fields of pods that it keeps.
func NewCache(config *rest.Config, options cache.Options) (cache.Cache, error) {
	client, err := sieve.Pods(config, keptFields())
	if err != nil {
		return nil, err
	}
	pods := toolscache.NewFilteredListWatchFromClient(client, "pods", metav1.NamespaceAll, func(o *metav1.ListOptions) {
		o.LabelSelector, o.AllowWatchBookmarks = labelled().String(), true
	})
	options.NewInformer = func(from toolscache.ListerWatcher, object runtime.Object, resync time.Duration, indexers toolscache.Indexers) toolscache.SharedIndexInformer {
		if _, ok := object.(*corev1.Pod); ok {
			from = pods
		}
		return toolscache.NewSharedIndexInformer(from, object, resync, indexers)
	}
	return cache.New(config, options)
}
