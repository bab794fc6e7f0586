package lws_test

import (
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/identity"
	lwsrevision "lockstep.dev/lockstep/internal/lws/revision"
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
	case "termination":
		spec.PodTerminationPolicy = rapid.SampledFrom(terminationPolicies).Draw(t, "termination")
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

var (
	recreating      = []lwsv1.RestartPolicyType{lwsv1.RecreateGroupOnPodRestart, lwsv1.RecreateGroupAfterStart}
	restartPolicies = []lwsv1.RestartPolicyType{
		lwsv1.NoneRestartPolicy, lwsv1.RecreateGroupOnPodRestart, lwsv1.RecreateGroupAfterStart,
	}
	terminationPolicies = []lwsv1.PodTerminationPolicyType{"", lwsv1.DefaultPodTermination, lwsv1.ParallelPodTermination}
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

// harm breaks an object of the set, or takes one of its names.
func (w *world) harm() {
	if w.harms >= w.may.mostHarms {
		return
	}
	w.harms++
	switch what := rapid.SampledFrom(w.may.harms).Draw(w.t, "harm"); what {
	case "statefulset":
		if all := fakeapi.All[StatefulSet](w.Objects); len(all) > 0 {
			w.met.when("a statefulset deleted", true)
			victim := pick(w.t, all)
			w.Remove(victim, w.propagation(victim))
		}
	case "leader statefulset":
		if leaders := fakeapi.Find[StatefulSet](w.Server, "w"); leaders != nil && leaders.DeletionTimestamp == nil {
			w.met.when(what, true)
			w.Remove(leaders, metav1.DeletePropagationOrphan)
			w.Collect(w.Objects[fakeapi.NameOf(leaders)])
		}
	case "service":
		w.loseService()
	case "revision":
		w.loseRevision()
	case "replicas":
		w.scaleByHand()
	case "foreign object":
		w.takeName()
	case "leader orphans its workers":
		w.orphanWorkers()
	default:
		w.harmPod(what)
	}
}

// loseService deletes a Service of the set. The stranger stays: what it owns would be garbage.
func (w *world) loseService() {
	all := slices.DeleteFunc(fakeapi.All[Service](w.Objects), func(s Service) bool { return s.Name == stranger })
	if len(all) > 0 {
		w.Remove(pick(w.t, all), metav1.DeletePropagationBackground)
	}
}

// orphanWorkers deletes a leader with --cascade=orphan.
func (w *world) orphanWorkers() {
	leader := fakeapi.Find[Pod](w.Server, rapid.SampledFrom(groupNames).Draw(w.t, "leader"))
	set := fakeapi.Find[Set](w.Server, "w")
	if leader == nil || set == nil || leader.DeletionTimestamp != nil || set.DeletionTimestamp != nil {
		return
	}
	w.orphaned = w.met.when("Pod deleted in the Orphan", true)
	w.Remove(leader, metav1.DeletePropagationOrphan)
	w.Collect(w.Objects[fakeapi.NameOf(leader)])
}

// takeName creates a foreign object under a name that the set needs, if it is free.
func (w *world) takeName() {
	name := rapid.SampledFrom([]string{"w", "w-0", "w-1", "w-0-1"}).Draw(w.t, "name")
	meta := metav1.ObjectMeta{Namespace: fakeapi.Namespace, Name: name}
	template := fakeapi.Template("x", "x")
	template.Labels = map[string]string{foreignLabel: "x"}
	object := rapid.SampledFrom([]client.Object{
		&corev1.Pod{ObjectMeta: meta, Spec: template.Spec},
		&corev1.Service{ObjectMeta: meta},
		&appsv1.StatefulSet{ObjectMeta: meta, Spec: appsv1.StatefulSetSpec{Replicas: fakeapi.Ptr[int32](0), Template: template}},
	}).Draw(w.t, "object")
	if _, taken := w.Objects[fakeapi.NameOf(object)]; !taken {
		if rapid.Bool().Draw(w.t, "controlled") {
			fakeapi.OwnedBy(object, "v1", identity.RefOf(identity.KindService, w.stranger()))
			object.SetLabels(map[string]string{lwsv1.SetNameLabelKey: "w", lwsv1.WorkerIndexLabelKey: "0"})
		}
		w.foreign[fakeapi.Add(w.Server, object).GetUID()] = true
		w.met.when("a foreign object", true)
	}
}

const (
	// stranger is the name of a Service that controls foreign objects.
	stranger = "stranger"
	// foreignLabel is the label of pods of a foreign StatefulSet.
	foreignLabel = "foreign"
)

// stranger returns the controller of foreign objects.
func (w *world) stranger() Service {
	if known := fakeapi.Find[Service](w.Server, stranger); known != nil {
		return known
	}
	added := fakeapi.Add(w.Server, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: fakeapi.Namespace, Name: stranger}})
	w.foreign[added.UID] = true
	w.met.when("a foreign object with a controller", true)
	return added
}

// loseRevision deletes the revision of the spec, and the operator reads that at once, or
// deletes all revisions.
func (w *world) loseRevision() {
	set := fakeapi.Find[Set](w.Server, "w")
	if set == nil || set.DeletionTimestamp != nil {
		return
	}
	all := w.met.when("all revisions lost", rapid.Bool().Draw(w.t, "all"))
	for _, revision := range revisions(w.cluster) {
		if !metav1.IsControlledBy(revision, set) || !all && !lwsrevision.Agrees(set, revision.Data.Raw) {
			continue
		}
		w.Remove(revision, metav1.DeletePropagationBackground)
		if !all {
			w.met.when("a revision lost", true)
			w.deliver()
			w.awake()
			w.reconcileSet(false)
		}
	}
}

// scaleByHand scales a StatefulSet past its set.
func (w *world) scaleByHand() {
	all := fakeapi.All[StatefulSet](w.Objects)
	workers := slices.DeleteFunc(slices.Clone(all), func(sts StatefulSet) bool { return sts.Name == "w" })
	if len(workers) > 0 && rapid.Bool().Draw(w.t, "workers") {
		w.met.when("workers scaled by hand", true)
		all = workers
	}
	if len(all) == 0 {
		return
	}
	w.met.when("a statefulset scaled by hand", true)
	replicas := rapid.Int32Range(0, 5).Draw(w.t, "replicas")
	fakeapi.Edit(w.Server, pick(w.t, all).Name, func(sts StatefulSet) {
		sts.Spec.Replicas = &replicas
		sts.Generation++
	})
}

// harmPod fails a pod, or delays it.
func (w *world) harmPod(how string) {
	pods := fakeapi.All[Pod](w.Objects)
	if len(pods) == 0 {
		return
	}
	pod := pick(w.t, pods)
	if pod.DeletionTimestamp != nil {
		return
	}
	parent, _ := identity.ParentAndOrdinal(pod.Name)
	switch how {
	case "restarts":
		w.fails(pod, how)
		fakeapi.Edit(w.Server, pod.Name, crash)
	case "ends":
		w.fails(pod, how)
		fakeapi.Edit(w.Server, pod.Name, func(pod Pod) { pod.Status.Phase = corev1.PodFailed })
	case "is deleted":
		w.fails(pod, how)
		w.Remove(pod, w.propagation(pod))
	case "is deleted in the background":
		w.fails(pod, how)
		w.Remove(pod, metav1.DeletePropagationBackground)
	case "vanishes":
		w.fails(pod, how)
		fakeapi.Drop[Pod](w.Server, pod.Name)
	case "loses its statefulset":
		if parent != "w" {
			w.fails(pod, how)
			fakeapi.Drop[StatefulSet](w.Server, parent)
		}
	case "is held":
		fakeapi.Edit(w.Server, pod.Name, func(pod Pod) { pod.Finalizers = append(pod.Finalizers, heldBy) })
	case "crashes":
		w.crashes[pod.Name] = rapid.IntRange(1, 3).Draw(w.t, "times")
	case "flaps":
		fakeapi.Edit(w.Server, pod.Name, func(pod Pod) { pod.Status.Conditions = nil })
	default:
		w.t.Fatalf("no harm %q", how)
	}
}
