package lws_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/internal/lws/workload"
	"lockstep.dev/lockstep/test/fakeapi"
)

var anything = scenario{
	changes: []string{
		"workers", "workers", "leaders", "undo", "size", "replicas", "network", "policy", "startup", "budget", "partition",
		"topology", "pause", "pause", "resume", "label", "after start",
	},
	harms: []string{
		"restarts", "ends", "is deleted", "is deleted", "vanishes", "is held", "flaps", "crashes", "crashes",
		"leader orphans its workers", "leader orphans its workers", "statefulset", "service", "revision", "replicas", "foreign object",
	},
	mostEdits: 6, mostHarms: 8, faults: true, restarts: true, operators: true, deletions: true,
}

// TestAnything: whatever users ask for, whatever breaks and whichever write fails, in the
// end everything is as the spec says, and nothing more is written (L1, L2, L7, L8).
func TestAnything(t *testing.T) {
	inWorlds(t, 3, func(t *rapid.T, m *met) {
		set := fakeapi.Set("w", rapid.Int32Range(0, 4).Draw(t, "replicas"), rapid.Int32Range(1, 3).Draw(t, "size"))
		set.Spec.LeaderWorkerTemplate.RestartPolicy = rapid.SampledFrom(restartPolicies).Draw(t, "policy")
		if m.when("volumes", rapid.IntRange(0, 3).Draw(t, "volumes") == 0) {
			drawVolumes(t)(set)
		}
		w := newWorld(t, m, anything, set)
		w.judge = w.judgeAnything
		w.WithoutMaxUnavailable = rapid.Bool().Draw(t, "without maxUnavailable")
		for range rapid.IntRange(0, 3).Draw(t, "features") {
			w.edit(w.change)
		}
		w.lag()
		if rapid.Bool().Draw(t, "settled") {
			w.settleAfter(30 * time.Second)
		}
		w.run(rapid.IntRange(0, 150).Draw(t, "steps"))
		for _, then := range []func(){w.finish, w.tidyUp, w.checkAll} {
			w.settleAfter(30 * time.Second)
			then()
		}
	},
		"a crash before a write", "a crash after a write", "an answer lost", "a write refused", "a set deleted",
		"a statefulset deleted", "a statefulset scaled by hand", "workers scaled by hand", "a revision lost", "all revisions lost",
		"a foreign object", "a foreign object with a controller", "two operators", "volumes",
		"undo", "size", "replicas", "network", "policy", "startup", "budget", "partition", "topology", "pause", "resume", "after start",
		"LeaderWorkerSet deleted in the Background", "LeaderWorkerSet deleted in the Foreground", "LeaderWorkerSet deleted in the Orphan",
		"Pod deleted in the Orphan", "StatefulSet deleted in the Orphan",
		lws.CodePreviousIncarnation, lws.CodeNameConflict, lws.CodeLeaderNotReady, lws.CodeGarbage, lws.CodeOrphan,
		lws.CodeSuperseded, lws.CodeRollout, lws.CodeOutdated, lws.CodePaused, lws.CodeTie, lws.CodeRestart, lws.CodeBackoff,
	)
}

// judgeAnything says what is wrong with a write of any world.
func (w *world) judgeAnything(a action.Action) error {
	if _, creates := a.(action.Create); !creates && w.foreign[a.Target().UID] {
		return fmt.Errorf("the object is foreign (S10)")
	}
	if err := w.judgeKept(a); err != nil {
		return err
	}
	if a.Why().Code == lws.CodeRestart {
		return w.judgeDue(a)
	}
	return w.judgeBudget(a)
}

// judgeDue: no group is recreated before its back-off ends.
func (w *world) judgeDue(a action.Action) error {
	set := fakeapi.Find[*lwsv1.LeaderWorkerSet](w.Server, "w")
	if set == nil {
		return nil
	}
	for _, failed := range set.Status.Restarts {
		if failed.Leader == a.Target().UID && w.Now.Before(failed.DueAt.Time) {
			return fmt.Errorf("at %s, and due at %s", w.Now, failed.DueAt)
		}
	}
	return nil
}

// judgeBudget: a rollout gives up a ready group only within its budget (S4), while the
// caches are up to date.
func (w *world) judgeBudget(a action.Action) error {
	apply, applies := a.(action.Apply)
	if !w.current || !applies || a.Why().Code != lws.CodeRollout {
		return nil
	}
	sts, _ := apply.Object.(*appsv1.StatefulSet)
	world := w.set("w")
	was, key := partition(world.StatefulSet.Own()), sts.Labels[lwsv1.RevisionKey]
	rolling := rollingOf(world.Set.DeepCopy())
	var up, standIn, givenUp int32
	for i := range world.Groups {
		group := &world.Groups[i]
		index, ready, old := int32(group.Index), group.Ready(world.Set), group.Leader.Labels[lwsv1.RevisionKey] != key
		switch {
		case index >= workload.Replicas(world.Set):
			if ready && !old {
				standIn++
			}
		case ready && old && index >= partition(sts) && index < was:
			givenUp++
		case ready && (!old || index < was):
			up++
		}
	}
	down, mayBe := workload.Replicas(world.Set)-up, rolling.MaxUnavailable.IntVal
	if mayBe == 0 && rolling.MaxSurge.IntVal == 0 {
		mayBe = 1
	}
	if givenUp > 0 && down > mayBe+standIn {
		return fmt.Errorf("partition %d to %d gives up %d ready groups: %d of %d are down then, %d may be, and %d stand in\n%s",
			was, partition(sts), givenUp, down, workload.Replicas(world.Set), mayBe, standIn, w.all())
	}
	return nil
}

// judgeKept: no revision is filed away or deleted that leaders run (S5).
func (w *world) judgeKept(a action.Action) error {
	if a.Target().Kind != identity.KindControllerRevision || a.Why().Code != lws.CodeSuperseded {
		return nil
	}
	keys := map[string]int{}
	for _, revision := range revisions(w.cluster) {
		if workload.BearsName(revision, "w") && revision.UID != a.Target().UID {
			keys[revision.Labels[lwsv1.RevisionKey]]++
		}
	}
	for _, revision := range revisions(w.cluster) {
		key := revision.Labels[lwsv1.RevisionKey]
		if revision.UID != a.Target().UID || keys[key] > 0 || !workload.BearsName(revision, "w") {
			continue
		}
		for _, pod := range fakeapi.All[*corev1.Pod](w.Objects) {
			if w.leads(pod) && pod.Labels[lwsv1.RevisionKey] == key {
				return fmt.Errorf("leader %s runs %s", pod.Name, key)
			}
		}
	}
	return nil
}

// leads reports whether a pod is a leader of the current incarnation that is to stay.
func (w *world) leads(pod *corev1.Pod) bool {
	group, worker := indexOf(pod.Name)
	set, sts := fakeapi.Find[*lwsv1.LeaderWorkerSet](w.Server, "w"), fakeapi.Find[*appsv1.StatefulSet](w.Server, "w")
	return set != nil && sts != nil && worker == 0 && int32(group) < workload.PodsOf(sts) && pod.DeletionTimestamp == nil && metav1.IsControlledBy(sts, set) && metav1.IsControlledBy(pod, sts)
}

// checkAll checks everything that there is against the set's spec.
func (w *world) checkAll() {
	set := find[*lwsv1.LeaderWorkerSet](w.cluster, "w")
	if got := brief(set.Status)[available]; got != isAvailable {
		w.t.Fatalf("not available: %v; %v\n%s", brief(set.Status), w.decideAll(), w.all())
	}
	if status := set.Status; status.ReadyReplicas != workload.Replicas(set) || status.UpdatedReplicas != workload.Replicas(set) || status.Replicas != workload.Replicas(set) {
		w.t.Fatalf("of %d groups %+v\n%s", workload.Replicas(set), status, w.all())
	}
	w.checkPods(set)
	w.checkServices(set)
	w.checkRevisions(set)
	for _, d := range w.decideAll() {
		if len(d.plan.Actions) > 0 {
			w.t.Fatalf("at rest, yet %s", d)
		}
	}
}

func (w *world) checkPods(set *lwsv1.LeaderWorkerSet) {
	replicas, size := workload.Replicas(set), workload.Size(set)
	pods := fakeapi.All[*corev1.Pod](w.Objects)
	if len(pods) != int(replicas*size) {
		w.t.Fatalf("%d pods stand, want %d × %d\n%s", len(pods), replicas, size, w.all())
	}
	topology := set.Annotations[lwsv1.ExclusiveKeyAnnotationKey]
	for _, pod := range pods {
		group, worker := indexOf(pod.Name)
		if int32(group) >= replicas || int32(worker) >= size || !fakeapi.Ready(pod) {
			w.t.Fatalf("pod %s of %d × %d: %v", pod.Name, replicas, size, pod.Status)
		}
		if pod.Spec.Containers[0].Image != imageOf(set, worker) {
			w.t.Fatalf("pod %s has %s, want %s\n%s", pod.Name, pod.Spec.Containers[0].Image, imageOf(set, worker), w.all())
		}
		if pod.Annotations[lwsv1.ExclusiveKeyAnnotationKey] != topology || worker > 0 && topology != "" && pod.Spec.NodeSelector[topology] == "" {
			w.t.Fatalf("pod %s is placed by %q and %v, want %q", pod.Name, pod.Annotations[lwsv1.ExclusiveKeyAnnotationKey], pod.Spec.NodeSelector, topology)
		}
	}
	for _, sts := range fakeapi.All[*appsv1.StatefulSet](w.Objects) {
		if sts.Name != "w" && *sts.Spec.Replicas != size-1 {
			w.t.Fatalf("statefulset %s has %d workers, want %d", sts.Name, *sts.Spec.Replicas, size-1)
		}
	}
}

func imageOf(set *lwsv1.LeaderWorkerSet, worker int) string {
	template := &set.Spec.LeaderWorkerTemplate.WorkerTemplate
	if leader := set.Spec.LeaderWorkerTemplate.LeaderTemplate; leader != nil && worker == 0 {
		template = leader
	}
	return template.Spec.Containers[0].Image
}

func (w *world) checkServices(set *lwsv1.LeaderWorkerSet) {
	if workload.Subdomain(set) == lwsv1.SubdomainShared {
		if shared := fakeapi.Find[*corev1.Service](w.Server, "w"); shared == nil || !metav1.IsControlledBy(shared, set) {
			w.t.Fatalf("the shared service is %+v", shared)
		}
		return
	}
	for _, pod := range fakeapi.All[*corev1.Pod](w.Objects) {
		if _, worker := indexOf(pod.Name); worker > 0 {
			continue
		}
		if own := fakeapi.Find[*corev1.Service](w.Server, pod.Name); own == nil || !metav1.IsControlledBy(own, pod) {
			w.t.Fatalf("the service of %s is %+v", pod.Name, own)
		}
	}
}

// checkRevisions checks that the revisions in use say what the spec says.
func (w *world) checkRevisions(set *lwsv1.LeaderWorkerSet) {
	data, err := lws.RevisionData(set)
	if err != nil {
		w.t.Fatalf("%v", err)
	}
	inUse := 0
	for _, revision := range revisions(w.cluster) {
		if revision.Labels[lwsv1.SetNameLabelKey] != set.Name {
			continue
		}
		inUse++
		if !metav1.IsControlledBy(revision, set) || !bytes.Equal(revision.Data.Raw, data) {
			w.t.Fatalf("revision %s is in use: %s\n%s", revision.Name, revision.Data.Raw, w.all())
		}
	}
	if inUse == 0 {
		w.t.Fatalf("no revision is in use")
	}
}

// all is what there is, in short.
func (w *world) all() string {
	var lines []string
	for _, object := range fakeapi.All[client.Object](w.Objects) {
		line := fmt.Sprintf("%s %s uid %s labels %v deleted %v", fakeapi.KindOf(object), object.GetName(), object.GetUID(), object.GetLabels(), object.GetDeletionTimestamp() != nil)
		switch object := object.(type) {
		case *corev1.Pod:
			line += fmt.Sprintf(" %s ready %t", object.Status.Phase, lws.PodReady(object))
		case *appsv1.StatefulSet:
			line += fmt.Sprintf(" %d replicas, partition %d, generation %d, %+v", workload.PodsOf(object), partition(object), object.Generation, object.Status)
		}
		for _, owner := range object.GetOwnerReferences() {
			line += " of " + string(owner.UID)
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}
