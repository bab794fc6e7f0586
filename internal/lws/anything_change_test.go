package lws_test

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/test/fakeapi"
)

// changeAnew is change with the generation that the API server gives.
func (w *anyWorld) changeAnew(set *lwsv1.LeaderWorkerSet) {
	w.change(set)
	set.Generation++
}

// change edits a set in one of the ways that users may.
func (w *anyWorld) change(set *lwsv1.LeaderWorkerSet) {
	t, spec := w.t, &set.Spec
	template := &spec.LeaderWorkerTemplate
	what := rapid.SampledFrom([]string{
		"workers", "workers", "leaders", "undo", "size", "replicas", "network", "policy", "startup", "budget", "partition",
		"topology", "pause", "pause", "resume", "label", "after start",
	}).Draw(t, "change")
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
	case "size":
		*template.Size = rapid.Int32Range(1, 3).Draw(t, "size")
	case "replicas":
		*spec.Replicas = rapid.Int32Range(0, 5).Draw(t, "replicas")
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

var restartPolicies = []lwsv1.RestartPolicyType{
	lwsv1.NoneRestartPolicy, lwsv1.RecreateGroupOnPodRestart, lwsv1.RecreateGroupAfterStart,
}

func rollingOf(set *lwsv1.LeaderWorkerSet) *lwsv1.RollingUpdateConfiguration {
	strategy := &set.Spec.RolloutStrategy
	if strategy.RollingUpdateConfiguration == nil {
		strategy.RollingUpdateConfiguration = &lwsv1.RollingUpdateConfiguration{MaxUnavailable: intstr.FromInt32(1)}
	}
	return strategy.RollingUpdateConfiguration
}

// heldBy keeps a pod from leaving for a while.
const heldBy = "example.com/held"

// settleDown takes away what keeps a set from becoming what its template says.
func (w *anyWorld) settleDown() {
	for _, object := range fakeapi.All[client.Object](w.Objects) {
		if w.squatters[object.GetUID()] {
			w.Remove(object, metav1.DeletePropagationBackground)
		}
	}
	if set := fakeapi.Find[*lwsv1.LeaderWorkerSet](w.Server, "w"); set != nil && set.DeletionTimestamp != nil {
		// Workers whose leader was made to leave them behind are nobody's, and use
		// claims that the set's end waits for.
		w.removeLeftBehind(func(client.Object) bool { return true })
		w.everybody()
	}
	w.create()
	w.removeLeftBehind(w.usesWhatLeaves)
	if fakeapi.Find[*lwsv1.LeaderWorkerSet](w.Server, "w") == nil {
		return
	}
	fakeapi.Edit(w.Server, "w", func(set *lwsv1.LeaderWorkerSet) {
		delete(set.Annotations, lwsv1.PausedAnnotationKey)
		rollingOf(set).Partition = fakeapi.Ptr[int32](0)
		if w.lostWhatLeadersRun() {
			w.met.when("what leaders run is lost for good", true)
			rollingOf(set).MaxUnavailable = intstr.FromInt32(lws.Replicas(set))
		}
		set.Generation++
	})
	w.scaleByHand() // no rollout comes after that and puts it right
}

// tidyUp takes away what was left behind and that the set has no use for, or waits for.
func (w *anyWorld) tidyUp() {
	set := find[*lwsv1.LeaderWorkerSet](w.cluster, "w")
	w.removeLeftBehind(func(object client.Object) bool {
		group, worker := indexOf(object.GetName())
		return int32(group) >= lws.Replicas(set) || int32(worker) >= lws.Size(set) || object.GetLabels()[squats] != "" || w.usesWhatLeaves(object) || w.ofAnotherRevision(object)
	})
	w.TryAgain()
}

// ofAnotherRevision reports whether a StatefulSet of workers that a leader left behind is
// not at the revision of the leader that followed.
func (w *anyWorld) ofAnotherRevision(object client.Object) bool {
	leader := fakeapi.Find[*corev1.Pod](w.Server, object.GetName())
	return KindIs(object, identity.KindStatefulSet) && leader != nil &&
		leader.Labels[lwsv1.RevisionKey] != object.GetLabels()[lwsv1.RevisionKey]
}

// usesWhatLeaves tells whether a pod keeps a claim from leaving, which bears its name.
func (w *anyWorld) usesWhatLeaves(object client.Object) bool {
	return slices.ContainsFunc(fakeapi.All[*corev1.PersistentVolumeClaim](w.Objects), func(claim *corev1.PersistentVolumeClaim) bool {
		return claim.DeletionTimestamp != nil && strings.HasSuffix(claim.Name, "-"+object.GetName())
	})
}

// lostWhatLeadersRun tells whether a revision was deleted that leaders run. Nobody can
// tell what it said: a group of it that lost its workers waits for the rollout, and that
// for the group unless its user allows for it.
func (w *anyWorld) lostWhatLeadersRun() bool {
	kept := map[string]bool{}
	for _, revision := range revisions(w.cluster) {
		kept[revision.Labels[lwsv1.RevisionKey]] = true
	}
	return slices.ContainsFunc(fakeapi.All[*corev1.Pod](w.Objects), func(pod *corev1.Pod) bool {
		return w.leads(pod) && !kept[pod.Labels[lwsv1.RevisionKey]]
	})
}

func (w *anyWorld) removeLeftBehind(useless func(client.Object) bool) {
	for _, object := range fakeapi.All[client.Object](w.Objects) {
		left := len(object.GetOwnerReferences()) == 0 && (KindIs(object, identity.KindPod) || KindIs(object, identity.KindStatefulSet))
		if left && useless(object) {
			w.met.when("left behind for good", true)
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
