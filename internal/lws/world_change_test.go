package lws_test

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws/workload"
	"lockstep.dev/lockstep/test/fakeapi"
)

// change edits a set in one of the ways that users may.
func (w *world) change(set Set) {
	t, spec := w.t, &set.Spec
	template := &spec.LeaderWorkerTemplate
	what := rapid.SampledFrom(w.may.changes).Draw(t, "change")
	w.met.when(what, true)
	switch what {
	case "workers":
		w.images++
		fakeapi.Image(fmt.Sprintf("image:%d", w.images))(set)
	case "leaders":
		w.images++
		fakeapi.Leader(fmt.Sprintf("image:%d", w.images))(set)
	case "undo":
		template.LeaderTemplate = nil
		fakeapi.Image("image:1")(set)
	case "broken":
		w.broken = true
		fakeapi.Image(brokenImage)(set)
	case "size":
		*template.Size = rapid.Int32Range(1, 3).Draw(t, "size")
	case "replicas":
		w.scaled = true
		*spec.Replicas = rapid.Int32Range(0, 5).Draw(t, "replicas")
	case "fewer replicas":
		*spec.Replicas = rapid.Int32Range(1, 3).Draw(t, "replicas")
	case "network":
		policy := rapid.SampledFrom([]lwsv1.SubdomainPolicy{lwsv1.SubdomainShared, lwsv1.SubdomainUniquePerReplica}).Draw(t, "network")
		spec.NetworkConfig = &lwsv1.NetworkConfig{SubdomainPolicy: &policy}
	case "policy":
		template.RestartPolicy = rapid.SampledFrom(restartPolicies).Draw(t, "policy")
	case "startup":
		spec.StartupPolicy = rapid.SampledFrom([]lwsv1.StartupPolicyType{
			lwsv1.LeaderReadyStartupPolicy, lwsv1.LeaderReadyStartupPolicy, lwsv1.LeaderCreatedStartupPolicy,
		}).Draw(t, "startup")
	case "budget":
		rolling := rollingOf(set)
		rolling.MaxSurge = intstr.FromInt32(rapid.Int32Range(0, 3).Draw(t, "surge"))
		rolling.MaxUnavailable = intstr.FromInt32(rapid.Int32Range(1-min(rolling.MaxSurge.IntVal, 1), 3).Draw(t, "unavailable"))
	case "partition":
		partition := rapid.Int32Range(0, 5).Draw(t, "partition")
		rollingOf(set).Partition = &partition
	case "topology":
		metav1.SetMetaDataAnnotation(&set.ObjectMeta, lwsv1.ExclusiveKeyAnnotationKey, rapid.SampledFrom([]string{"", "rack", "row"}).Draw(t, "topology"))
	case "another topology": // one that the set never had, and no node has
		if workload.Size(set) == 1 {
			w.met.when("a topology changed", true)
			fakeapi.Annotation(lwsv1.ExclusiveKeyAnnotationKey, fmt.Sprintf("zone-%d", w.edits))(set)
		}
	case "another restart policy":
		template.RestartPolicy = rapid.SampledFrom(recreating).Draw(t, "policy")
	case "pause":
		fakeapi.Annotation(lwsv1.PausedAnnotationKey, lwsv1.PausedValue)(set)
	case "resume":
		delete(set.Annotations, lwsv1.PausedAnnotationKey)
	case "label":
		metav1.SetMetaDataLabel(&set.ObjectMeta, "team", rapid.SampledFrom([]string{"a", "b"}).Draw(t, "team"))
	case "after start":
		fakeapi.Annotation(lwsv1.RecreateGroupAfterStartAnnotationKey, "")(set)
	}
}

// brokenImage never becomes ready.
const brokenImage = "image:broken"

// sameSpec reports whether two specs are equal.
func sameSpec(a, b lwsv1.LeaderWorkerSetSpec) bool { return equality.Semantic.DeepEqual(a, b) }

var (
	recreating      = []lwsv1.RestartPolicyType{lwsv1.RecreateGroupOnPodRestart, lwsv1.RecreateGroupAfterStart}
	restartPolicies = []lwsv1.RestartPolicyType{
		lwsv1.NoneRestartPolicy, lwsv1.RecreateGroupOnPodRestart, lwsv1.RecreateGroupAfterStart,
	}
)

func rollingOf(set Set) *lwsv1.RollingUpdateConfiguration {
	strategy := &set.Spec.RolloutStrategy
	if strategy.RollingUpdateConfiguration == nil {
		strategy.RollingUpdateConfiguration = &lwsv1.RollingUpdateConfiguration{MaxUnavailable: intstr.FromInt32(1)}
	}
	return strategy.RollingUpdateConfiguration
}

// heldBy keeps a pod from leaving for a while.
const heldBy = "example.com/held"

// finish removes what keeps a set from becoming what its spec says.
func (w *world) finish() {
	for _, object := range fakeapi.All[client.Object](w.Objects) {
		if w.foreign[object.GetUID()] {
			w.Remove(object, metav1.DeletePropagationBackground)
		}
	}
	if set := fakeapi.Find[Set](w.Server, "w"); set != nil && set.DeletionTimestamp != nil {
		// Orphaned workers use PVCs that the end of the set waits for.
		w.removeOrphans(func(client.Object) bool { return true })
		w.settleAfter(30 * time.Second)
	}
	w.create()
	w.removeOrphans(w.usesLeavingPVC)
	if fakeapi.Find[Set](w.Server, "w") == nil {
		return
	}
	w.edit(func(set Set) {
		delete(set.Annotations, lwsv1.PausedAnnotationKey)
		rollingOf(set).Partition = fakeapi.Ptr[int32](0)
		if w.lostRevision() {
			w.met.when("a revision in use is lost for good", true)
			rollingOf(set).MaxUnavailable = intstr.FromInt32(workload.Replicas(set))
		}
	})
	w.scaleByHand() // no rollout follows that repairs it
}

// tidyUp removes orphans that the set cannot use or waits for.
func (w *world) tidyUp() {
	set := find[Set](w.cluster, "w")
	w.removeOrphans(func(object client.Object) bool {
		group, worker := indexOf(object.GetName())
		return int32(group) >= workload.Replicas(set) || int32(worker) >= workload.Size(set) || object.GetLabels()[foreignLabel] != "" ||
			w.usesLeavingPVC(object) || w.atAnotherRevision(object)
	})
	w.TryAgain()
}

// atAnotherRevision reports whether an orphaned worker StatefulSet is not at the revision
// of the leader that followed.
func (w *world) atAnotherRevision(object client.Object) bool {
	leader := fakeapi.Find[Pod](w.Server, object.GetName())
	return fakeapi.KindOf(object) == identity.KindStatefulSet && leader != nil &&
		leader.Labels[lwsv1.RevisionKey] != object.GetLabels()[lwsv1.RevisionKey]
}

// usesLeavingPVC reports whether a pod uses a PVC that is being deleted.
func (w *world) usesLeavingPVC(object client.Object) bool {
	return slices.ContainsFunc(fakeapi.All[PVC](w.Objects), func(claim PVC) bool {
		return claim.DeletionTimestamp != nil && strings.HasSuffix(claim.Name, "-"+object.GetName())
	})
}

// lostRevision reports whether a revision was deleted that leaders run. A group of it
// that lost its workers waits for the rollout, and the rollout waits for the group unless
// maxUnavailable covers it.
func (w *world) lostRevision() bool {
	kept := map[string]bool{}
	for _, revision := range revisions(w.cluster) {
		kept[revision.Labels[lwsv1.RevisionKey]] = true
	}
	return slices.ContainsFunc(fakeapi.All[Pod](w.Objects), func(pod Pod) bool {
		return w.leads(pod) && !kept[pod.Labels[lwsv1.RevisionKey]]
	})
}

func (w *world) removeOrphans(useless func(client.Object) bool) {
	for _, object := range fakeapi.All[client.Object](w.Objects) {
		orphan := len(object.GetOwnerReferences()) == 0 && (fakeapi.KindOf(object) == identity.KindPod || fakeapi.KindOf(object) == identity.KindStatefulSet)
		if orphan && useless(object) {
			w.Remove(object, metav1.DeletePropagationBackground)
		}
	}
}

func indexOf(pod string) (group, worker int) {
	parent, ordinal := identity.ParentAndOrdinal(pod)
	if parent == "w" {
		return ordinal, 0
	}
	_, group = identity.ParentAndOrdinal(parent)
	return group, ordinal
}
