package lws_test

import (
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/test/fakeapi"
)

// harm breaks something that belongs to the set.
func (w *anyWorld) harm() {
	if w.harms >= 8 {
		return
	}
	w.harms++
	what := rapid.SampledFrom([]string{"pod", "leader", "pod", "leader", "pod", "statefulset", "service", "revision", "replicas", "squatter"}).Draw(w.t, "harmed")
	switch what {
	case "pod":
		w.harmPod()
	case "statefulset":
		if all := fakeapi.All[*appsv1.StatefulSet](w.Objects); len(all) > 0 {
			w.met.when("a statefulset deleted", true)
			victim := pick(w.t, all)
			w.Remove(victim, w.propagation(victim))
		}
	case "service":
		w.loseService()
	case "revision":
		w.loseRevision()
	case "replicas":
		w.scaleByHand()
	case "squatter":
		w.squat()
	case "leader":
		w.leaveBehind()
	}
}

// loseService deletes a Service of the set. Without the stranger, what is his would be
// garbage, and nobody's.
func (w *anyWorld) loseService() {
	all := slices.DeleteFunc(fakeapi.All[*corev1.Service](w.Objects), func(s *corev1.Service) bool { return s.Name == stranger })
	if len(all) > 0 {
		w.Remove(pick(w.t, all), metav1.DeletePropagationBackground)
	}
}

// leaveBehind deletes a leader with --cascade=orphan: its workers stay for the next one.
func (w *anyWorld) leaveBehind() {
	leader := fakeapi.Find[*corev1.Pod](w.Server, rapid.SampledFrom(groupNames).Draw(w.t, "leader"))
	set := fakeapi.Find[*lwsv1.LeaderWorkerSet](w.Server, "w")
	if leader == nil || set == nil || leader.DeletionTimestamp != nil || set.DeletionTimestamp != nil {
		return
	}
	w.met.when("Pod deleted in the Orphan", true)
	w.Remove(leader, metav1.DeletePropagationOrphan)
	w.Collect(w.Objects[fakeapi.NameOf(leader)])
}

// squat has somebody else take a name that the set needs, if it is free.
func (w *anyWorld) squat() {
	name := rapid.SampledFrom([]string{"w", "w-0", "w-1", "w-0-1"}).Draw(w.t, "name")
	meta := metav1.ObjectMeta{Namespace: fakeapi.Namespace, Name: name}
	template := fakeapi.Template("x", "x")
	template.Labels = map[string]string{squats: "x"}
	squatter := rapid.SampledFrom([]client.Object{
		&corev1.Pod{ObjectMeta: meta, Spec: template.Spec},
		&corev1.Service{ObjectMeta: meta},
		&appsv1.StatefulSet{ObjectMeta: meta, Spec: appsv1.StatefulSetSpec{Replicas: fakeapi.Ptr[int32](0), Template: template}},
	}).Draw(w.t, "squatter")
	if _, taken := w.Objects[fakeapi.NameOf(squatter)]; !taken {
		if rapid.Bool().Draw(w.t, "controlled") {
			fakeapi.OwnedBy(squatter, "v1", identity.RefOf(identity.KindService, w.stranger()))
			squatter.SetLabels(map[string]string{lwsv1.SetNameLabelKey: "w", lwsv1.WorkerIndexLabelKey: "0"})
		}
		w.squatters[fakeapi.Add(w.Server, squatter).GetUID()] = true
		w.met.when("a squatter", true)
	}
}

const (
	// stranger is the name of somebody else.
	stranger = "stranger"
	// squats is the label of pods of a StatefulSet of somebody else's.
	squats = "squats"
)

// stranger is there, and controls things of his own.
func (w *anyWorld) stranger() *corev1.Service {
	if known := fakeapi.Find[*corev1.Service](w.Server, stranger); known != nil {
		return known
	}
	added := fakeapi.Add(w.Server, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: fakeapi.Namespace, Name: stranger}})
	w.squatters[added.UID] = true
	w.met.when("a squatter that somebody controls", true)
	return added
}

// loseRevision loses the revision that the spec still says, under the eyes of the
// operator, or all that there are, whatever the operator is at.
func (w *anyWorld) loseRevision() {
	set := fakeapi.Find[*lwsv1.LeaderWorkerSet](w.Server, "w")
	if set == nil || set.DeletionTimestamp != nil {
		return
	}
	all := w.met.when("all revisions lost", rapid.Bool().Draw(w.t, "all"))
	for _, revision := range revisions(w.cluster) {
		if !metav1.IsControlledBy(revision, set) || !all && !lws.Agrees(set, revision.Data.Raw) {
			continue
		}
		w.Remove(revision, metav1.DeletePropagationBackground)
		if !all {
			w.met.when("a revision lost", true)
			w.restart()
			w.lookAtSet(false)
		}
	}
}

// scaleByHand scales a StatefulSet as nobody should.
func (w *anyWorld) scaleByHand() {
	all := fakeapi.All[*appsv1.StatefulSet](w.Objects)
	workers := slices.DeleteFunc(slices.Clone(all), func(sts *appsv1.StatefulSet) bool { return sts.Name == "w" })
	if len(workers) > 0 && rapid.Bool().Draw(w.t, "workers") {
		w.met.when("workers scaled by hand", true)
		all = workers
	}
	if len(all) == 0 {
		return
	}
	w.met.when("a statefulset scaled by hand", true)
	replicas := rapid.Int32Range(0, 5).Draw(w.t, "replicas")
	fakeapi.Edit(w.Server, pick(w.t, all).Name, func(sts *appsv1.StatefulSet) {
		sts.Spec.Replicas = &replicas
		sts.Generation++
	})
}

func (w *anyWorld) harmPod() {
	pods := fakeapi.All[*corev1.Pod](w.Objects)
	if len(pods) == 0 {
		return
	}
	pod := pick(w.t, pods)
	if pod.DeletionTimestamp != nil {
		return
	}
	switch rapid.SampledFrom([]string{"restarts", "ends", "is deleted", "vanishes", "is held", "flaps", "crashes", "crashes"}).Draw(w.t, "how") {
	case "restarts":
		fakeapi.Edit(w.Server, pod.Name, crash)
	case "ends":
		fakeapi.Edit(w.Server, pod.Name, func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodFailed })
	case "is deleted":
		w.Remove(pod, w.propagation(pod))
	case "vanishes":
		fakeapi.Drop[*corev1.Pod](w.Server, pod.Name)
	case "is held":
		fakeapi.Edit(w.Server, pod.Name, func(pod *corev1.Pod) { pod.Finalizers = append(pod.Finalizers, heldBy) })
	case "crashes":
		w.crashes[pod.Name] = rapid.IntRange(1, 3).Draw(w.t, "times")
	case "flaps":
		fakeapi.Edit(w.Server, pod.Name, func(pod *corev1.Pod) { pod.Status.Conditions = nil })
	}
}
