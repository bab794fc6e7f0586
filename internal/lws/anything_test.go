package lws_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/test/fakeapi"
)

// TestAnything: whatever is asked of a set, whatever breaks, whoever crashes at
// whatever write, in the end all is as the last spec says, and nothing is written
// any more (L1, L2, L7, L8).
func TestAnything(t *testing.T) {
	m := &met{counts: map[string]int{}}
	for range 3 {
		otherWorlds(t)
		rapid.Check(t, func(t *rapid.T) {
			w := newAnyWorld(t, m)
			for range rapid.IntRange(0, 150).Draw(t, "steps") {
				w.step()
			}
			w.everybody()
			w.settleDown()
			w.everybody()
			w.tidyUp()
			w.everybody()
			w.checkAll()
		})
	}
	for _, premise := range []string{
		"a crash before a write", "a crash after a write", "an answer lost", "a write refused", "a set deleted",
		"a statefulset deleted", "a statefulset scaled by hand", "workers scaled by hand", "a revision lost", "all revisions lost",
		"a squatter", "a squatter that somebody controls", "two operators", "volumes",
		"undo", "size", "replicas", "network", "policy", "startup", "budget", "partition", "topology", "pause", "resume", "after start",
		"LeaderWorkerSet deleted in the Background", "LeaderWorkerSet deleted in the Foreground", "LeaderWorkerSet deleted in the Orphan",
		"Pod deleted in the Orphan", "StatefulSet deleted in the Orphan",
		lws.CodePreviousIncarnation, lws.CodeNameConflict, lws.CodeLeaderNotReady, lws.CodeGarbage, lws.CodeOrphan, lws.CodeNudge,
		lws.CodeSuperseded, lws.CodeRollout, lws.CodeOutdated, lws.CodePaused, lws.CodeTie, lws.CodeRestart, lws.CodeBackoff,
	} {
		if m.counts[premise] == 0 {
			t.Errorf("invalid run: never met %s; met %v", premise, m.counts)
		}
	}
}

// checkAll checks everything that there is against the set's spec.
func (w *anyWorld) checkAll() {
	set := find[*lwsv1.LeaderWorkerSet](w.cluster, "w")
	if got := brief(set.Status)[available]; got != isAvailable {
		w.t.Fatalf("not available: %v; %v\n%s", brief(set.Status), w.decideAll(), w.all())
	}
	if status := set.Status; status.ReadyReplicas != lws.Replicas(set) || status.UpdatedReplicas != lws.Replicas(set) || status.Replicas != lws.Replicas(set) {
		w.t.Fatalf("of %d groups %+v\n%s", lws.Replicas(set), status, w.all())
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

func (w *anyWorld) checkPods(set *lwsv1.LeaderWorkerSet) {
	replicas, size := lws.Replicas(set), lws.Size(set)
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

func (w *anyWorld) checkServices(set *lwsv1.LeaderWorkerSet) {
	if lws.Subdomain(set) == lwsv1.SubdomainShared {
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

// checkRevisions checks that what is in use says what the spec says, and that no two
// templates have one number. Two operators may make one under two numbers, of which
// neither sees the other's; it has one key then.
func (w *anyWorld) checkRevisions(set *lwsv1.LeaderWorkerSet) {
	data, err := lws.RevisionData(set)
	if err != nil {
		w.t.Fatalf("%v", err)
	}
	inUse, numbers := 0, map[int64]string{}
	for _, revision := range revisions(w.cluster) {
		key := revision.Labels[lwsv1.RevisionKey]
		if revision.Labels[lwsv1.SetNameLabelKey] != set.Name && revision.Labels[lws.HistoryLabelKey] != set.Name {
			continue // somebody took its labels, no group runs it, and nobody finds it
		}
		if metav1.IsControlledBy(revision, set) { // one of a former life, left behind, has its own number
			if other, taken := numbers[revision.Revision]; taken && other != key {
				w.t.Fatalf("revisions %s and %s are both number %d", key, other, revision.Revision)
			}
			numbers[revision.Revision] = key
		}
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
func (w *anyWorld) all() string {
	var lines []string
	for _, object := range fakeapi.All[client.Object](w.Objects) {
		line := fmt.Sprintf("%s %s uid %s labels %v deleted %v", fakeapi.KindOf(object), object.GetName(), object.GetUID(), object.GetLabels(), object.GetDeletionTimestamp() != nil)
		switch object := object.(type) {
		case *corev1.Pod:
			line += fmt.Sprintf(" %s ready %t", object.Status.Phase, lws.PodReady(object))
		case *appsv1.StatefulSet:
			line += fmt.Sprintf(" %d replicas, partition %d, generation %d, %+v", lws.PodsOf(object), partition(object), object.Generation, object.Status)
		}
		for _, owner := range object.GetOwnerReferences() {
			line += " of " + string(owner.UID)
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}
