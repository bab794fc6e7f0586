package lws_test

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
	lwsrevision "lockstep.dev/lockstep/internal/lws/revision"
	"lockstep.dev/lockstep/internal/lws/workload"
	"lockstep.dev/lockstep/test/expect"
	"lockstep.dev/lockstep/test/fakeapi"
)

// judgeWrite says what is wrong with a write, by the state of the cluster at that moment.
func (w *world) judgeWrite(a action.Action) error {
	if _, creates := a.(action.Create); !creates && w.foreign[a.Target().UID] {
		return fmt.Errorf("the object is foreign (S10)")
	}
	switch a.About().Because.Code {
	case lws.CodeSuperseded:
		return w.judgeKept(a)
	case lws.CodeRestart:
		return w.judgeDue(a)
	case lws.CodeParallel:
		return w.judgeParallel(a)
	}
	if ungate, is := a.(action.Ungate); is {
		return w.judgeUngated(ungate)
	}
	live := fakeapi.Find[StatefulSet](w.Server, "w")
	if live == nil {
		return nil
	}
	switch a := a.(type) {
	case action.Apply:
		if wanted, ok := a.Object.(StatefulSet); ok && wanted.Name == "w" && wanted.Spec.Replicas != nil && (w.may.strict || w.current) {
			return w.judgeApply(live, wanted)
		}
	case action.Delete:
		pod := fakeapi.Find[Pod](w.Server, a.Object.Name)
		if w.may.strict && a.Object.Kind == identity.KindPod && a.OwnerGone == nil && pod != nil && pod.UID == a.Object.UID {
			return w.judgeReplaced(live, pod)
		}
	}
	return nil
}

// judgeUngated: no leader is scheduled beside a worker of the group before it. The pods of a foreign StatefulSet are none.
func (w *world) judgeUngated(a action.Ungate) error {
	for _, pod := range fakeapi.All[Pod](w.Objects) {
		parent, _ := identity.ParentAndOrdinal(pod.Name)
		owner := metav1.GetControllerOf(pod)
		if parent != a.Pod.Name || owner == nil || owner.Name != a.Pod.Name {
			continue
		}
		sts := fakeapi.Find[StatefulSet](w.Server, owner.Name)
		if sts == nil || sts.UID != owner.UID {
			return fmt.Errorf("beside pod %s, whose StatefulSet is gone", pod.Name)
		}
		if leader := metav1.GetControllerOf(sts); leader != nil && leader.Kind == string(identity.KindPod) && leader.UID != a.Pod.UID {
			return fmt.Errorf("beside pod %s of the group before it", pod.Name)
		}
	}
	return nil
}

// judgeDue: no group is recreated before its back-off ends.
func (w *world) judgeDue(a action.Action) error {
	if set := fakeapi.Find[Set](w.Server, "w"); set != nil {
		for _, failed := range set.Status.Restarts {
			if failed.Leader == a.Target().UID && w.Now.Before(failed.DueAt.Time) {
				return fmt.Errorf("at %s, and due at %s", w.Now, failed.DueAt)
			}
		}
	}
	return nil
}

// judgeKept: no revision is filed away or deleted that leaders run (S5).
func (w *world) judgeKept(a action.Action) error {
	others, key := map[string]int{}, ""
	for _, revision := range revisions(w.cluster) {
		switch {
		case !workload.BearsName(revision, "w"):
		case revision.UID == a.Target().UID:
			key = revision.Labels[lwsv1.RevisionKey]
		default:
			others[revision.Labels[lwsv1.RevisionKey]]++
		}
	}
	for _, pod := range fakeapi.All[Pod](w.Objects) {
		if key != "" && others[key] == 0 && w.leads(pod) && pod.Labels[lwsv1.RevisionKey] == key {
			return fmt.Errorf("leader %s runs %s", pod.Name, key)
		}
	}
	return nil
}

// leads reports whether a pod is a leader of the current incarnation that is to stay.
func (w *world) leads(pod Pod) bool {
	group, worker := indexOf(pod.Name)
	set, sts := fakeapi.Find[Set](w.Server, "w"), fakeapi.Find[StatefulSet](w.Server, "w")
	return set != nil && sts != nil && worker == 0 && int32(group) < workload.PodsOf(sts) && pod.DeletionTimestamp == nil &&
		metav1.IsControlledBy(sts, set) && metav1.IsControlledBy(pod, sts)
}

// judgeApply: a rollout gives up ready groups only within its budget (S4), of a template that the
// StatefulSet controller observed, and none while it is paused.
func (w *world) judgeApply(live, wanted StatefulSet) error {
	was, is, running := partition(live), partition(wanted), workload.PodsOf(live)
	s, exposed := w.standing(wanted), 0
	if w.paused && w.may.strict {
		if err := w.judgePaused(live, wanted, int32(s.replicas)); err != nil {
			return err
		}
	}
	if live.Labels[lwsv1.RevisionKey] != wanted.Labels[lwsv1.RevisionKey] || topology(live) != topology(wanted) {
		if w.may.strict && is < running && int32(s.replicas) > is {
			return fmt.Errorf("a new template comes with partition %d for %d groups", is, running)
		}
		return nil
	}
	if is > was && w.may.strict {
		return fmt.Errorf("the partition rises from %d to %d", was, is)
	}
	for i := is; i < min(was, int32(s.replicas)); i++ {
		if s.ready[int(i)] && !s.updated[int(i)] {
			exposed++
		}
	}
	if exposed == 0 {
		return nil
	}
	w.met.when("groups given up", true)
	if w.may.strict && live.Status.ObservedGeneration != live.Generation {
		return fmt.Errorf("the partition is lowered before generation %d was observed", live.Generation)
	}
	if !s.covers(exposed) {
		return fmt.Errorf("partition %d → %d gives up %d groups beyond the budget: %+v\n%s", was, is, exposed, s, w.all())
	}
	return nil
}

// judgeReplaced: a rollout replaces only outdated leaders from the partition on, within its budget.
func (w *world) judgeReplaced(live StatefulSet, pod Pod) error {
	_, index := identity.ParentAndOrdinal(pod.Name)
	s := w.standing(live)
	w.met.when("a leader replaced directly", true)
	switch {
	case w.paused:
		return fmt.Errorf("leader %s is replaced while the rollout is paused", pod.Name)
	case int32(index) < s.partition || s.updated[index] && pod.Labels[lwsv1.RevisionKey] == live.Labels[lwsv1.RevisionKey]:
		return fmt.Errorf("leader %s is deleted, which the partition %d does not grant", pod.Name, s.partition)
	case s.ready[index] && !s.covers(0):
		return fmt.Errorf("leader %s is deleted beyond the budget: %+v", pod.Name, s)
	}
	return nil
}

// judgePaused: a write decided on a paused set takes in no template, gives up no group and adds
// no surge group.
func (w *world) judgePaused(live, wanted StatefulSet, replicas int32) error {
	w.met.when("a write while paused", true)
	template := func(sts StatefulSet) string { return sts.Labels[lwsv1.RevisionKey] + topology(sts) }
	templates := [2]string{template(live), template(wanted)}
	partitions := [2]int32{partition(live), partition(wanted)}
	running := [2]int32{workload.PodsOf(live), workload.PodsOf(wanted)}
	gives := partitions[1] < min(partitions[0], replicas)
	if templates[0] != templates[1] || gives || running[1] > max(replicas, running[0]) {
		return fmt.Errorf("while the rollout is paused: templates %v, partitions %v, replicas %v of %d",
			templates, partitions, running, replicas)
	}
	return nil
}

// standing is the state of the groups, by the current partition and the replicas that
// a StatefulSet is written for.
type standing struct {
	ready, updated map[int]bool
	partition      int32
	replicas       int
	unavailable    int
}

func (w *world) standing(sts StatefulSet) standing {
	truth, key := w.live(), sts.Labels[lwsv1.RevisionKey]
	rolling := rollingOf(truth.Set.DeepCopy())
	s := standing{ready: map[int]bool{}, updated: map[int]bool{}, unavailable: int(rolling.MaxUnavailable.IntVal)}
	s.partition = partition(fakeapi.Find[StatefulSet](w.Server, "w"))
	if s.unavailable == 0 && rolling.MaxSurge.IntVal == 0 {
		s.unavailable = 1
	}
	s.replicas, _ = strconv.Atoi(sts.Annotations[lwsv1.ReplicasAnnotationKey])
	for i := range truth.Groups {
		g := &truth.Groups[i]
		s.ready[g.Index] = g.Ready(truth.Set)
		s.updated[g.Index] = g.UpToDate(key) && g.Leader.Annotations[lwsv1.ExclusiveKeyAnnotationKey] == topology(sts)
	}
	return s
}

// covers reports whether groups may go down beside those that are down or may be.
func (s standing) covers(more int) bool {
	down, budget := more, s.unavailable
	for i := range s.replicas {
		if !s.ready[i] || int32(i) >= s.partition && !s.updated[i] {
			down++
		}
	}
	for i := range s.ready {
		if i >= s.replicas && s.ready[i] && s.updated[i] {
			budget++
		}
	}
	return down <= budget
}

func partition(sts StatefulSet) int32 {
	if sts == nil || sts.Spec.UpdateStrategy.RollingUpdate == nil || sts.Spec.UpdateStrategy.RollingUpdate.Partition == nil {
		return 0
	}
	return *sts.Spec.UpdateStrategy.RollingUpdate.Partition
}

// topology is the exclusive topology of the pods of a StatefulSet.
func topology(sts StatefulSet) string {
	return sts.Spec.Template.Annotations[lwsv1.ExclusiveKeyAnnotationKey]
}

// checkWholeGroups checks that every pod has its leader's image (S5), and counts
// the groups by it.
func (w *world) checkWholeGroups() map[string]int {
	images := map[string]int{}
	for _, pod := range fakeapi.All[Pod](w.Objects) {
		image, leader := pod.Spec.Containers[0].Image, w.leaderOf(pod)
		expect.Must(w.t, leader != nil && leader.Spec.Containers[0].Image == image,
			"pod %s has %s, its leader is %v", pod.Name, image, leader)
		if leader == pod {
			images[image]++
		}
	}
	return images
}

// checkAtRest checks everything that exists against the set's spec, once nothing changes any more.
func (w *world) checkAtRest() {
	set := find[Set](w.cluster, "w")
	replicas := workload.Replicas(set)
	if status := set.Status; brief(status)[available] != isAvailable || status.ReadyReplicas != replicas || status.UpdatedReplicas != replicas || status.Replicas != replicas {
		w.t.Fatalf("of %d groups %v; %+v; %v\n%s", replicas, brief(status), status, w.decideAll(), w.all())
	}
	if checkForTools(w.t, set); kstatus(set.Status, set.Generation) != current {
		w.t.Fatalf("at rest, yet not current: %+v", set.Status.Conditions)
	}
	away := slices.ContainsFunc(set.Status.Restarts, func(r lwsv1.GroupRestarts) bool { return r.Index >= replicas }) ||
		slices.ContainsFunc(set.Status.Started, func(s lwsv1.StartedGroup) bool { return s.Index >= replicas })
	if w.met.when("a group recorded", len(set.Status.Started) > 0); away {
		w.t.Fatalf("of %d groups, the status keeps others: %+v", replicas, set.Status)
	}
	w.checkPods(set)
	w.checkServices(set)
	w.checkRevisions(set)
	for _, d := range w.decideAll() {
		expect.Must(w.t, len(d.plan.Actions) == 0, "at rest, yet %s", d)
	}
}

func (w *world) checkPods(set Set) {
	replicas, size := workload.Replicas(set), workload.Size(set)
	pods := fakeapi.All[Pod](w.Objects)
	if len(pods) != int(replicas*size) {
		w.t.Fatalf("%d pods stand, want %d × %d\n%s", len(pods), replicas, size, w.all())
	}
	topology := set.Annotations[lwsv1.ExclusiveKeyAnnotationKey]
	for _, pod := range pods {
		group, worker := indexOf(pod.Name)
		if int32(group) >= replicas || int32(worker) >= size || !fakeapi.Ready(pod) || w.incarnation(pod) != set.UID {
			w.t.Fatalf("pod %s of %d × %d: %v", pod.Name, replicas, size, pod.Status)
		}
		if pod.Spec.Containers[0].Image != imageOf(set, worker) {
			w.t.Fatalf("pod %s has %s, want %s\n%s", pod.Name, pod.Spec.Containers[0].Image, imageOf(set, worker), w.all())
		}
		placed := pod.Annotations[lwsv1.ExclusiveKeyAnnotationKey]
		if (worker == 0 || !w.orphaned) && (placed != topology || worker > 0 && topology != "" && pod.Spec.NodeSelector[topology] == "") {
			w.t.Fatalf("pod %s is placed by %q and %v, want %q", pod.Name, placed, pod.Spec.NodeSelector, topology)
		}
	}
	for _, sts := range fakeapi.All[StatefulSet](w.Objects) {
		if sts.Name != "w" && *sts.Spec.Replicas != size-1 {
			w.t.Fatalf("statefulset %s has %d workers, want %d", sts.Name, *sts.Spec.Replicas, size-1)
		}
		parallel := set.Spec.PodTerminationPolicy == lwsv1.ParallelPodTermination
		if sts.Name != "w" && (sts.Annotations[policyKey] != "") != parallel {
			w.t.Fatalf("statefulset %s says %q, the spec %q", sts.Name, sts.Annotations[policyKey], set.Spec.PodTerminationPolicy)
		}
	}
}

func imageOf(set Set, worker int) string {
	template := &set.Spec.LeaderWorkerTemplate.WorkerTemplate
	if leader := set.Spec.LeaderWorkerTemplate.LeaderTemplate; leader != nil && worker == 0 {
		template = leader
	}
	return template.Spec.Containers[0].Image
}

func (w *world) checkServices(set Set) {
	if workload.Subdomain(set) == lwsv1.SubdomainShared {
		if shared := fakeapi.Find[Service](w.Server, "w"); shared == nil || !metav1.IsControlledBy(shared, set) {
			w.t.Fatalf("the shared service is %+v", shared)
		}
		return
	}
	for i := range int(workload.Replicas(set)) {
		leader := find[Pod](w.cluster, identity.LeaderName("w", i))
		own := fakeapi.Find[Service](w.Server, leader.Name)
		expect.Must(w.t, own != nil && metav1.IsControlledBy(own, leader), "the service of %s is %+v", leader.Name, own)
	}
}

// checkRevisions checks that the revisions in use say what the spec says.
func (w *world) checkRevisions(set Set) {
	data, err := lwsrevision.Data(set)
	inUse := 0
	for _, revision := range revisions(w.cluster) {
		if revision.Labels[lwsv1.SetNameLabelKey] != set.Name || w.noGC && !metav1.IsControlledBy(revision, set) {
			continue
		}
		if inUse++; !metav1.IsControlledBy(revision, set) || !bytes.Equal(revision.Data.Raw, data) {
			w.t.Fatalf("revision %s is in use: %s\n%s", revision.Name, revision.Data.Raw, w.all())
		}
	}
	expect.Must(w.t, inUse != 0 && err == nil, "%d revisions are in use: %v", inUse, err)
}

// all is what exists, in short.
func (w *world) all() string {
	var lines []string
	for _, object := range fakeapi.All[client.Object](w.Objects) {
		line := fmt.Sprintf("%s %s %s of %v, labels %v, deleted %v", fakeapi.KindOf(object), object.GetName(), object.GetUID(),
			object.GetOwnerReferences(), object.GetLabels(), object.GetDeletionTimestamp())
		if sts, is := object.(StatefulSet); is {
			line += fmt.Sprintf(": %d replicas, partition %d, generation %d, %+v", workload.PodsOf(sts), partition(sts), sts.Generation, sts.Status)
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}
