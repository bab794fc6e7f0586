package lws_test

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/test/fakeapi"
)

func (w *rollingWorld) isPaused() bool {
	return lws.Paused(find[*lwsv1.LeaderWorkerSet](w.cluster, "w"))
}

// pause changes metadata alone: there is no new generation.
func (w *rollingWorld) pause() {
	fakeapi.Edit(w.Server, "w", fakeapi.Annotation(lwsv1.PausedAnnotationKey, lwsv1.PausedValue))
}

func (w *rollingWorld) resume() {
	fakeapi.Edit(w.Server, "w", func(set *lwsv1.LeaderWorkerSet) { delete(set.Annotations, lwsv1.PausedAnnotationKey) })
}

// judgePaused checks that a write decided on a paused set takes in no template,
// gives up no group and adds no surge group.
func (w *rollingWorld) judgePaused(live, wanted *appsv1.StatefulSet) error {
	w.met.when("a write while paused", true)
	if was, is := live.Labels[lwsv1.RevisionKey], wanted.Labels[lwsv1.RevisionKey]; was != is {
		return fmt.Errorf("revision %s takes the place of %s while the rollout is paused", is, was)
	}
	replicas := w.wanted(wanted)
	if was, is := partition(live), partition(wanted); is < min(was, replicas) {
		return fmt.Errorf("the partition falls from %d to %d of %d while the rollout is paused", was, is, replicas)
	}
	if is := lws.PodsOf(wanted); is > max(replicas, lws.PodsOf(live)) {
		return fmt.Errorf("%d groups are asked for while the rollout is paused: %d are wanted, %d were there", is, replicas, lws.PodsOf(live))
	}
	return nil
}

// wanted is for how many groups a StatefulSet is written.
func (w *rollingWorld) wanted(sts *appsv1.StatefulSet) int32 {
	var replicas int32
	if _, err := fmt.Sscan(sts.Annotations[lwsv1.ReplicasAnnotationKey], &replicas); err != nil {
		w.t.Fatalf("statefulset %s does not say for how many groups it is: %v", sts.Name, err)
	}
	return replicas
}

// checkHeld checks a set that is paused once everybody has come to rest: it says
// so, every group is whole at its leader's revision, and a group that is lost
// comes back at a revision that ran.
func (w *rollingWorld) checkHeld() {
	images := w.checkWholeGroups()
	status, held := w.status(), condition(w.status(), progressing)
	if says := held.Reason == lws.CodePaused; says != w.heldUp() {
		w.t.Fatalf("it says %v; groups run %v, the spec says %s", brief(status), images, w.image())
	}
	if held.Reason != lws.CodePaused {
		return
	}
	w.met.when("a rollout held", true)
	w.met.when("a template held back", images[w.image()] == 0)
	w.scaled = true // whoever serves from now on, is another matter
	leaders := w.truth().Leaders.Members
	if len(leaders) == 0 {
		return
	}
	w.met.when("a group lost while paused", true)
	w.Remove(rapid.SampledFrom(leaders).Draw(w.t, "lost"), metav1.DeletePropagationBackground)
	w.everybody()
	for image := range w.checkWholeGroups() {
		if images[image] == 0 {
			w.t.Fatalf("a group came back with %s; there were %v", image, images)
		}
	}
}

// heldUp tells whether groups lack what the spec asks for.
func (w *rollingWorld) heldUp() bool {
	truth := w.truth()
	for _, g := range truth.Groups {
		if int32(g.Index) < lws.Replicas(truth.Set) && g.Leader.Spec.Containers[0].Image != w.image() {
			return true
		}
	}
	// Where groups are sent waits as a template does, and is in no revision.
	return topology(truth.StatefulSet.Member()) != truth.Set.Annotations[lwsv1.ExclusiveKeyAnnotationKey]
}

// checkWholeGroups checks that every pod has its leader's image (S5), and counts
// the groups by it.
func (w *rollingWorld) checkWholeGroups() map[string]int {
	images, leaders := map[string]int{}, map[string]string{}
	pods := fakeapi.All[*corev1.Pod](w.Objects)
	for _, pod := range pods {
		if pod.Labels[lwsv1.WorkerIndexLabelKey] == "0" {
			image := pod.Spec.Containers[0].Image
			leaders[pod.Name] = image
			images[image]++
		}
	}
	for _, pod := range pods {
		leader := pod.Annotations[lwsv1.LeaderPodNameAnnotationKey]
		if image := pod.Spec.Containers[0].Image; leader != "" && image != leaders[leader] {
			w.t.Fatalf("worker %s has %s, its leader %s", pod.Name, image, leaders[leader])
		}
	}
	return images
}
