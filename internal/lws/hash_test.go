package lws_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/dump"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/apply"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
	lwsgroup "lockstep.dev/lockstep/internal/lws/group"
	lwsset "lockstep.dev/lockstep/internal/lws/set"
	"lockstep.dev/lockstep/internal/lws/workload"
	"lockstep.dev/lockstep/test/expect"
	"lockstep.dev/lockstep/test/fakeapi"
)

type Deployment = *appsv1.Deployment

func hashed(set Set) { set.Spec.GroupIdentity = lwsv1.HashGroupIdentity }

// keyed is a cluster with a set of Hash groups. Its Deployment has a ReplicaSet for each revision.
func keyed(t *testing.T, replicas, size int32, edits ...edit) *cluster {
	t.Helper()
	c := newCluster(t)
	edits = append([]edit{hashed}, edits...)
	fakeapi.Add(c.Server, fakeapi.Set("w", replicas, size, edits...))
	c.reconcileSet()
	c.observed()
	return c
}

// observed has the Deployment controller see the Deployment, and make its ReplicaSet.
func (c *cluster) observed() {
	deployment := fakeapi.Find[Deployment](c.Server, "w")
	fakeapi.Edit(c.Server, "w", func(d Deployment) { d.Status.ObservedGeneration = d.Generation })
	if name := "w-" + deployment.Labels[lwsv1.RevisionKey]; fakeapi.Find[ReplicaSet](c.Server, name) == nil {
		c.replicaSet(deployment, name)
	}
}

// replicaSet makes a ReplicaSet of the Deployment's template. It has no leaders.
func (c *cluster) replicaSet(deployment Deployment, name string) ReplicaSet {
	rs := &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: fakeapi.Namespace, Name: name, Labels: deployment.Spec.Template.Labels},
		Spec:       appsv1.ReplicaSetSpec{Replicas: fakeapi.Ptr(int32(0)), Template: *deployment.Spec.Template.DeepCopy()},
	}
	fakeapi.OwnedBy(rs, "apps/v1", identity.RefOf(identity.KindDeployment, deployment))
	return fakeapi.Add(c.Server, rs)
}

func times(n int, do func()) {
	for range n {
		do()
	}
}

// keyOf is a key that begins with a digit.
func keyOf(digit string) string { return strings.Repeat(digit, 40) }

// lead adds a leader as the ReplicaSet of the Deployment makes it, gated.
func (c *cluster) lead(name, key string, edits ...func(Pod)) Pod {
	deployment := fakeapi.Find[Deployment](c.Server, "w")
	rs := fakeapi.Find[ReplicaSet](c.Server, "w-"+deployment.Labels[lwsv1.RevisionKey])
	pod := c.newLeader(rs, deployment.Spec.Template.DeepCopy(), name, key)
	pod.Annotations[corev1.PodDeletionCost] = "-100"
	fakeapi.Edited(pod, edits...)
	c.pass(time.Second)
	return fakeapi.Add(c.Server, pod)
}

// newLeader is a leader of a ReplicaSet, as admission completes it.
func (c *cluster) newLeader(rs ReplicaSet, template *corev1.PodTemplateSpec, name, key string) Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: fakeapi.Namespace, Name: name, Labels: template.Labels, Annotations: template.Annotations, CreationTimestamp: metav1.NewTime(c.Now),
		},
		Spec: template.Spec,
	}
	pod.Labels[lwsv1.GroupIndexLabelKey], pod.Labels[lwsv1.GroupUniqueHashLabelKey] = key, key
	pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: lwsv1.GroupReplacementGate}}
	fakeapi.OwnedBy(pod, "apps/v1", identity.RefOf(identity.KindReplicaSet, rs))
	return pod
}

func runs(pod Pod) {
	pod.Spec.SchedulingGates, pod.Spec.NodeName = nil, fakeapi.Node
	delete(pod.Annotations, corev1.PodDeletionCost)
	fakeapi.Up(pod)
}

func admittedBy(plan lws.Plan) (names []string) {
	for _, a := range plan.Actions {
		if ungate, ok := a.(action.Ungate); ok {
			names = append(names, ungate.Pod.Name)
		}
	}
	return names
}

// A Deployment is created in place of a StatefulSet, and copies no counts of another implementation.
func TestASetWithKeysHasADeployment(t *testing.T) {
	c := keyed(t, 2, 3, func(set Set) {
		set.Annotations = map[string]string{lwsv1.GroupRestartCountsAnnotationKey: "{}", "mine": "yes"}
	})
	d := fakeapi.Find[Deployment](c.Server, "w")
	if len(fakeapi.All[StatefulSet](c.Objects)) > 0 || d.Annotations["mine"] != "yes" || d.Annotations[lwsv1.GroupRestartCountsAnnotationKey] != "" {
		t.Errorf("annotations %v", d.Annotations)
	}
	gates := d.Spec.Template.Spec.ReadinessGates
	if len(gates) != 1 || gates[0].ConditionType != lwsv1.GroupReadyCondition || d.Spec.Template.Annotations[lwsv1.GroupIdentityAnnotationKey] != "Hash" {
		t.Errorf("template %+v", d.Spec.Template)
	}
	expect.Emptyf(t, spelled(c.decideSet()), "once created")
	expect.That(t, fakeapi.Find[Deployment](keyed(t, 1, 1).Server, "w").Spec.Template.Spec.ReadinessGates == nil,
		"a group of one has a readiness gate")
}

// Leaders are admitted as there is room, the oldest first. One of another revision comes last, and waits until the
// Deployment controller has seen the present one.
func TestLeadersAreAdmittedByRoom(t *testing.T) {
	c := keyed(t, 2, 1)
	for i, name := range []string{"w-r-b", "w-r-a", "w-r-c"} {
		c.lead(name, keyOf(fmt.Sprint(i)))
	}
	plan := c.decideSet()
	got := admittedBy(plan)
	expect.Must(t, slices.Equal(got, []string{"w-r-b", "w-r-a"}), "admitted %v", got)
	c.do(plan)
	first := find[Pod](c, "w-r-b")
	expect.Emptyf(t, first.Spec.SchedulingGates, "gates")
	expect.Equalf(t, "", first.Annotations[corev1.PodDeletionCost], "the deletion cost")
	expect.Emptyf(t, admittedBy(c.decideSet()), "then admitted")
	image(c, "image:2")
	fakeapi.Edit(c.Server, "w", func(set Set) { set.Spec.Replicas = fakeapi.Ptr(int32(5)) })
	expect.Emptyf(t, admittedBy(c.decideSet()), "before the rollout is seen")
	c.reconcileSet()
	fakeapi.Edit(c.Server, "w", func(d Deployment) { d.Generation++ })
	expect.Emptyf(t, admittedBy(c.decideSet()), "before the new template is seen")
	c.observed()
	c.lead("w-s-d", keyOf("d"))
	c.lead("w-s-e", keyOf("e"))
	expect.Equalf(t, []string{"w-s-d", "w-s-e", "w-r-c"}, admittedBy(c.decideSet()), "in the rollout")
	fakeapi.Edit(c.Server, "w", func(set Set) { set.Spec.Replicas = fakeapi.Ptr(int32(4)) })
	expect.Equalf(t, []string{"w-s-d", "w-s-e"}, admittedBy(c.decideSet()), "without room for all")
}

func surgeOnly(set Set) {
	set.Spec.RolloutStrategy.RollingUpdateConfiguration = &lwsv1.RollingUpdateConfiguration{MaxUnavailable: intstr.FromInt32(0), MaxSurge: intstr.FromInt32(1)}
}

// roll changes the template of the set. The Deployment controller has seen it then.
func (c *cluster) roll() {
	image(c, "image:2")
	times(3, c.reconcileSet)
	c.observed()
}

// releasedBy are the pods of stopped groups that a plan lets go.
func releasedBy(plan lws.Plan) (names []string) {
	for _, a := range plan.Actions {
		if _, is := a.(action.SetFinalizers); is {
			names = append(names, a.Target().Name)
		}
	}
	return names
}

// stops has the group of a leader exhaust maxGroupRestarts.
func (c *cluster) stops(leader string) {
	fakeapi.Terminate[Pod](c.Server, leader, budgetFinalizer, metav1.FinalizerDeleteDependents)
}

// A leader that is marked and not deleted yet holds the place of its group, and runs no more.
func TestAMarkedLeaderIsNotActive(t *testing.T) {
	c := keyed(t, 2, 2, onRestart, atMost(0))
	c.lead("w-r-a", keyOf("a"), runs, func(p Pod) { p.Finalizers = []string{budgetFinalizer} })
	c.lead("w-r-b", keyOf("b"), runs)
	c.stops("w-r-b")
	c.lead("w-r-c", keyOf("c"))
	plan := c.decideSet()
	expect.Emptyf(t, releasedBy(plan), "released while both groups are stopped")
	expect.Emptyf(t, admittedBy(plan), "admitted while both groups are stopped")
}

// A rollout at an equal revision is one too: an edit of the template of the Deployment, as by kubectl rollout restart.
func TestARolloutAtOneRevisionHasItsSurge(t *testing.T) {
	c := keyed(t, 2, 1, surgeOnly)
	c.lead("w-r-a", keyOf("a"), runs)
	c.lead("w-r-b", keyOf("b"), runs)
	times(3, c.reconcileSet)
	fakeapi.Edit(c.Server, "w", func(d Deployment) {
		d.Spec.Template.Annotations["kubectl.kubernetes.io/restartedAt"] = "now"
		d.Generation++
		d.Status.ObservedGeneration, d.Status.Replicas, d.Status.UpdatedReplicas = d.Generation, 3, 1
	})
	c.lead("w-q-c", keyOf("c"))
	expect.Equalf(t, []string{"w-q-c"}, admittedBy(c.decideSet()), "admitted")
	updating := func(want metav1.ConditionStatus) {
		t.Helper()
		for range 3 {
			c.reconcileSet()
			c.pass(time.Minute)
		}
		expect.Equalf(t, want, condition(c.status(), string(lwsv1.LeaderWorkerSetUpdateInProgress)).Status, "conditions %+v", c.status().Conditions)
	}
	updating(metav1.ConditionTrue)
	fakeapi.Edit(c.Server, "w-q-c", runs)
	fakeapi.Drop[Pod](c.Server, "w-r-a")
	fakeapi.Edit(c.Server, "w", func(d Deployment) { d.Status.Replicas, d.Status.UpdatedReplicas = 2, 2 })
	updating(metav1.ConditionFalse)
}

// A paused Deployment stays paused as long as its set is, also while no leader is of another revision.
func TestAPausedDeploymentStaysPaused(t *testing.T) {
	c := keyed(t, 2, 1)
	c.lead("w-r-a", keyOf("a"), runs)
	c.lead("w-r-b", keyOf("b"), runs)
	c.roll()
	fakeapi.Drop[Pod](c.Server, "w-r-a")
	c.lead("w-s-c", keyOf("c"), runs)
	paused := func(want bool) {
		t.Helper()
		times(3, c.reconcileSet)
		expect.Equalf(t, want, fakeapi.Find[Deployment](c.Server, "w").Spec.Paused, "paused")
	}
	fakeapi.Edit(c.Server, "w", func(set Set) { set.Annotations = map[string]string{lwsv1.PausedAnnotationKey: "true"} })
	paused(true)
	fakeapi.Drop[Pod](c.Server, "w-r-b")
	paused(true)
	fakeapi.Edit(c.Server, "w", func(set Set) { set.Annotations = nil })
	paused(true) // an undo may follow
	c.pass(3 * time.Second)
	paused(false)
}

// A leader waits for groups that end, and its event is told once. Room that comes free is used in the next reconcile.
func TestALeaderWaitsForAGroupThatEnds(t *testing.T) {
	c := keyed(t, 2, 2)
	c.lead("w-r-a", keyOf("a"), runs)
	ended := c.lead("w-r-b", keyOf("b"), runs)
	fakeapi.Terminate[Pod](c.Server, ended.Name)
	c.lead("w-r-c", keyOf("c"))
	for range 2 {
		plan := c.decideSet()
		got := admittedBy(plan)
		expect.Must(t, len(got) == 0, "admitted %v", got)
		i := slices.IndexFunc(plan.Waits, func(w lws.Wait) bool { return w.Code == lws.CodeDeferred })
		if i < 0 || plan.Waits[i].Tell.Note != "Leader pod w-r-c waits for 1 terminating group(s) to be removed before scheduling" {
			t.Fatalf("waits %+v", plan.Waits)
		}
	}
	fakeapi.Drop[Pod](c.Server, ended.Name)
	expect.Equalf(t, []string{"w-r-c"}, admittedBy(c.decideSet()), "admitted")
}

// A cache that does not show yet that a leader was admitted costs no second place: of two leaders of one second, the
// one that came later may be the first by name.
func TestTwoLeadersOfOneSecondTakeOnePlaceOnce(t *testing.T) {
	c := keyed(t, 1, 1)
	c.lead("w-r-b", keyOf("b"))
	made := find[Pod](c, "w-r-b").CreationTimestamp
	c.lead("w-r-a", keyOf("a"), func(pod Pod) { pod.CreationTimestamp = made })
	plan := c.decideSet()
	got := admittedBy(plan)
	expect.Must(t, slices.Equal(got, []string{"w-r-a"}), "admitted %v", got)
	fakeapi.Edit(c.Server, "w-r-b", runs) // in the reconcile before, which the cache did not show
	_, err := c.actor.Do(ctx, one[action.Ungate](t, plan))
	expect.That(t, errors.Is(err, apply.ErrStale), "a second leader is admitted: %v", err)
}

// With the policy Immediate, no leader waits for a group that ends.
func TestALeaderIsAdmittedAtOnceWhereAsked(t *testing.T) {
	c := keyed(t, 2, 2, func(set Set) { set.Spec.GroupReplacementPolicy = lwsv1.ImmediateGroupReplacement })
	c.lead("w-r-a", keyOf("a"), runs)
	fakeapi.Terminate[Pod](c.Server, c.lead("w-r-b", keyOf("b"), runs).Name)
	c.lead("w-r-c", keyOf("c"))
	expect.Equalf(t, []string{"w-r-c"}, admittedBy(c.decideSet()), "admitted")
}

// The younger of two leaders goes whose groups would have one name.
func TestTheYoungerLeaderOfOneNameGoes(t *testing.T) {
	c := keyed(t, 2, 2)
	c.lead("w-r-z", keyOf("a"), runs)
	younger := c.lead("w-r-a", "aaaaaaaa"+strings.Repeat("b", 32))
	deleted := one[action.Delete](t, c.decideSet())
	expect.Equal(t, younger.UID, deleted.Object.UID)
	expect.Equalf(t, lws.CodeKeyTaken, deleted.Because.Code, "deleted because %s", deleted.Because.Sentence)
}

// A rollout is not done before the Deployment controller has seen it (H1): nothing is said and no revision is dropped.
func TestNothingIsDoneThatTheDeploymentControllerHasNotSeen(t *testing.T) {
	c := keyed(t, 1, 1, func(set Set) { set.Annotations = map[string]string{lwsv1.HistoryLimitAnnotationKey: "0"} })
	old := c.lead("w-r-a", keyOf("a"), runs)
	c.reconcileSet()
	expect.Must(t, c.isAvailable(), "conditions %+v", c.status().Conditions)
	image(c, "image:2")
	dropped := func(plan lws.Plan) bool {
		return slices.ContainsFunc(plan.Actions, func(a action.Action) bool {
			return a.Target().Kind == identity.KindControllerRevision && a.About().Verb == "delete"
		})
	}
	for range 4 {
		plan := c.decideSet()
		expect.Must(t, !dropped(plan), "the revision of %s goes: %v", old.Name, spelled(plan))
		c.do(plan)
	}
	if c.isAvailable() || !meta.IsStatusConditionTrue(c.status().Conditions, string(lwsv1.LeaderWorkerSetUpdateInProgress)) {
		t.Errorf("conditions %+v", c.status().Conditions)
	}
	c.observed()
	fakeapi.Terminate[Pod](c.Server, old.Name) // it still runs its revision
	c.lead("w-s-a", keyOf("b"), runs)
	plan := c.decideSet()
	expect.Must(t, !dropped(plan), "the revision of a terminating leader goes: %v", spelled(plan))
	fakeapi.Drop[Pod](c.Server, old.Name)
	for range 3 {
		plan := c.decideSet()
		c.do(plan)
		if dropped(plan) {
			if c.reconcileSet(); !c.isAvailable() {
				t.Errorf("conditions %+v", c.status().Conditions)
			}
			return
		}
	}
	t.Errorf("the former revision stays: %v", spelled(c.decideSet()))
}

// What the Deployment controller has not seen may yet replace a leader: the set is not available before that, also
// where all leaders are of the present revision.
func TestASetIsAvailableOnceItsDeploymentIsSeen(t *testing.T) {
	c := keyed(t, 1, 1)
	c.lead("w-r-a", keyOf("a"), runs)
	fakeapi.Edit(c.Server, "w", func(d Deployment) { d.Generation++ })
	available := func(want bool) {
		t.Helper()
		c.reconcileSet()
		expect.Equalf(t, want, c.isAvailable(), "conditions %+v", c.status().Conditions)
	}
	available(false)
	c.observed()
	available(true)
}

// A group has the size and the Service of its own revision, whatever the spec says by now.
func TestAGroupWithAKeyIsOfItsRevision(t *testing.T) {
	c := keyed(t, 1, 2)
	leader := c.lead("w-r-a", keyOf("a"), runs)
	fakeapi.Edit(c.Server, "w", func(set Set) {
		set.Spec.LeaderWorkerTemplate.Size = fakeapi.Ptr(int32(5))
		fakeapi.UniquePerReplica(set)
	})
	times(2, func() { c.reconcileGroup(leader.Name) })
	if services := fakeapi.All[*corev1.Service](c.Objects); slices.ContainsFunc(services, func(s *corev1.Service) bool { return s.Name != "w" }) {
		t.Errorf("the group has a Service of its own: %v", services)
	}
	sts := fakeapi.Find[StatefulSet](c.Server, "w-aaaaaaaa")
	expect.That(t, sts != nil && *sts.Spec.Replicas == 1 && sts.Spec.ServiceName == "w", "workers %+v", sts)
}

// The condition of a leader follows its workers, and is written only when it changes.
func TestALeaderShowsWhetherItsGroupIsReady(t *testing.T) {
	c := keyed(t, 1, 2)
	leader := c.lead("w-r-a", keyOf("a"))
	c.reconcileGroup(leader.Name)
	if workers := fakeapi.All[StatefulSet](c.Objects); len(workers) > 0 {
		t.Fatalf("a gated leader has workers: %v", workers[0].Name)
	}
	fakeapi.Edit(c.Server, leader.Name, runs)
	condition := func(want corev1.ConditionStatus) {
		t.Helper()
		times(4, func() { c.reconcileGroup(leader.Name) })
		got := lws.GroupReadyOf(find[Pod](c, leader.Name))
		expect.Must(t, got == want, "condition %q, want %q", got, want)
		plan := c.decideGroup(leader.Name)
		expect.Must(t, len(plan.Actions) == 0, "written again: %v", spelled(plan))
	}
	condition(corev1.ConditionFalse)
	workers := fakeapi.Find[StatefulSet](c.Server, "w-aaaaaaaa")
	if workers == nil || !metav1.IsControlledBy(workers, leader) || workers.Spec.Template.Annotations[lwsv1.LeaderAddressAnnotationKey] != "w-aaaaaaaa.w."+fakeapi.Namespace {
		t.Fatalf("workers %+v", workers)
	}
	fakeapi.Edit(c.Server, workers.Name, func(sts StatefulSet) { sts.Status.Replicas, sts.Status.AvailableReplicas = 1, 1 })
	condition(corev1.ConditionTrue)
	fakeapi.Edit(c.Server, workers.Name, func(sts StatefulSet) { sts.Status.AvailableReplicas = 0 })
	condition(corev1.ConditionFalse)
}

// The condition follows the workers while another write of the group is refused again and again, such as its Service.
func TestReadinessIsShownBesideARefusedService(t *testing.T) {
	unique := lwsv1.SubdomainUniquePerReplica
	c := keyed(t, 1, 2, func(set Set) { set.Spec.NetworkConfig = &lwsv1.NetworkConfig{SubdomainPolicy: &unique} })
	leader := c.lead("w-r-a", keyOf("a"), runs)
	times(2, func() { c.reconcileGroup(leader.Name) })
	fakeapi.Edit(c.Server, "w-aaaaaaaa", func(sts StatefulSet) { sts.Status.Replicas, sts.Status.AvailableReplicas = 1, 1 })
	fakeapi.Drop[*corev1.Service](c.Server, "w-aaaaaaaa")
	plan := c.decideGroup(leader.Name)
	if first, is := plan.Actions[0].(action.SetCondition); !is || first.Condition.Status != corev1.ConditionTrue || len(plan.Actions) != 2 {
		t.Errorf("plan %v", spelled(plan))
	}
}

// Workers that a leader left behind keep their revision and the room of a group, and a condition names them.
func TestWorkersLeftBehindAreNamed(t *testing.T) {
	c := keyed(t, 1, 2, func(set Set) { set.Annotations = map[string]string{lwsv1.HistoryLimitAnnotationKey: "0"} })
	c.lead("w-r-a", keyOf("a"), runs)
	c.reconcileSet()
	times(2, func() { c.reconcileGroup("w-r-a") })
	workers := fakeapi.Find[StatefulSet](c.Server, "w-aaaaaaaa")
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: fakeapi.Namespace, Name: "w-aaaaaaaa-1", Labels: workers.Spec.Template.Labels, Annotations: workers.Spec.Template.Annotations,
	}}
	fakeapi.OwnedBy(pod, "apps/v1", identity.RefOf(identity.KindStatefulSet, workers))
	fakeapi.Add(c.Server, pod)
	fakeapi.Edit(c.Server, workers.Name, func(sts StatefulSet) { sts.OwnerReferences = nil })
	fakeapi.Drop[Pod](c.Server, "w-r-a")
	c.roll()
	c.lead("w-s-b", keyOf("b"))
	times(3, c.reconcileSet) // no write is refused, as that of the history would be
	says := "names are taken: pod w-aaaaaaaa-1 belongs to statefulset w-aaaaaaaa; "
	if got := condition(c.status(), lws.CodeNameConflict); got.Status != metav1.ConditionTrue || !strings.HasPrefix(got.Message, says) {
		t.Errorf("conditions %+v", c.status().Conditions)
	}
	fakeapi.Drop[StatefulSet](c.Server, workers.Name)
	fakeapi.Drop[Pod](c.Server, pod.Name)
	plan := c.decideSet()
	expect.Equalf(t, []string{"w-s-b"}, admittedBy(plan), "admitted")
	c.do(plan)
	got := condition(c.status(), lws.CodeNameConflict)
	expect.That(t, got.Status != metav1.ConditionTrue, "it stays: %s", got.Message)
}

// A change of the exclusive topology replaces groups at an equal revision. Until then the rollout is not over.
func TestAnotherTopologyReplacesGroupsWithKeys(t *testing.T) {
	c := keyed(t, 1, 1)
	c.lead("w-r-a", keyOf("a"), runs)
	c.reconcileSet()
	fakeapi.Edit(c.Server, "w", func(set Set) { set.Annotations = map[string]string{lwsv1.ExclusiveKeyAnnotationKey: "rack"} })
	times(2, c.reconcileSet)
	annotations := fakeapi.Find[Deployment](c.Server, "w").Spec.Template.Annotations
	expect.Equalf(t, "rack", annotations[lwsv1.ExclusiveKeyAnnotationKey], "the domain of the template")
	expect.That(t, meta.IsStatusConditionTrue(c.status().Conditions, string(lwsv1.LeaderWorkerSetUpdateInProgress)),
		"conditions %+v", c.status().Conditions)
}

// What another implementation wrote into the template stays at an equal revision: a write would replace all groups.
func TestATemplateOfAnotherImplementationStays(t *testing.T) {
	c := keyed(t, 1, 2)
	fakeapi.Edit(c.Server, "w", func(d Deployment) {
		delete(d.Annotations, lws.AppliedAnnotationKey)
		d.Spec.Template.Annotations["leaderworkerset.sigs.k8s.io/of-a-later-version"] = "x"
	})
	before := fakeapi.Find[Deployment](c.Server, "w").Spec.Template
	times(3, c.reconcileSet)
	now := fakeapi.Find[Deployment](c.Server, "w")
	if diff := cmp.Diff(before, now.Spec.Template); diff != "" || now.Annotations[lws.AsFoundAnnotationKey] == "" {
		t.Errorf("annotations %v (-before +now)\n%s", now.Annotations, diff)
	}
	expect.Emptyf(t, spelled(c.decideSet()), "and then")
}

// Decisions change nothing that they read, and say the same of the same.
func TestDecisionsAboutGroupsWithKeysArePure(t *testing.T) {
	c := keyed(t, 3, 2, func(set Set) {
		set.Spec.LeaderWorkerTemplate.WorkerTemplate.Spec.ReadinessGates = append(make([]corev1.PodReadinessGate, 0, 4), corev1.PodReadinessGate{ConditionType: "mine"})
	})
	c.lead("w-r-a", keyOf("a"), runs)
	fakeapi.Terminate[Pod](c.Server, c.lead("w-r-b", keyOf("b"), runs).Name)
	c.lead("w-r-c", keyOf("c"))
	w := c.set()
	first := spelled(lwsset.Decide(w))
	mutates(t, &w, func() {
		expect.Equal(t, first, spelled(lwsset.Decide(w)))
	})
	for _, leader := range []string{"w-r-a", "w-r-b", "w-r-c"} {
		g, _ := c.groupPlan(leader)
		mutates(t, &g, func() { lwsgroup.Decide(g) })
	}
}

func mutates(t *testing.T, snapshot any, decide func()) {
	t.Helper()
	before := dump.ForHash(snapshot)
	decide()
	expect.Equalf(t, before, dump.ForHash(snapshot), "a decision changed a %T", snapshot)
}

// Until the Deployment controller has seen a template, a ReplicaSet may still make leaders of the one before: its
// revision stays, also while no leader has it.
func TestTheRevisionOfAReplicaSetStays(t *testing.T) {
	c := keyed(t, 1, 1, func(set Set) { set.Annotations = map[string]string{lwsv1.HistoryLimitAnnotationKey: "0"} })
	old := c.lead("w-r-a", keyOf("a"), runs)
	c.reconcileSet()
	image(c, "image:2")
	c.reconcileSet()
	fakeapi.Edit(c.Server, "w", func(d Deployment) { d.Generation++ })
	fakeapi.Drop[Pod](c.Server, old.Name)
	times(4, c.reconcileSet)
	expect.Equalf(t, 2, len(fakeapi.All[*appsv1.ControllerRevision](c.Objects)), "revisions that are left")
}

// A StatefulSet with the name of a Hash set makes none of its leaders. Beside the Deployment it is ignored, and one that
// made leaders before the set had hash groups stops the set, which says so.
func TestAStatefulSetBesideAHashSetMakesNoLeader(t *testing.T) {
	ordinal := fakeapi.Set("w", 1, 2)
	restored := func() *appsv1.StatefulSet {
		sts := workload.LeaderStatefulSet(ordinal, "key", 1, 0)
		sts.OwnerReferences = nil
		return sts
	}
	c := keyed(t, 1, 2)
	sts := fakeapi.Add(c.Server, restored())
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: fakeapi.Namespace, Name: "w-0", Labels: sts.Spec.Template.Labels, Finalizers: []string{"example.com/holds"}}}
	fakeapi.OwnedBy(pod, "apps/v1", identity.RefOf(identity.KindStatefulSet, sts))
	fakeapi.Add(c.Server, pod)
	for _, ends := range []bool{false, true} {
		if ends {
			fakeapi.Edit(c.Server, "w-0", func(pod Pod) { pod.DeletionTimestamp = new(metav1.NewTime(c.Now)) })
		}
		if w, plan := c.groupPlan("w-0"); w.Leader != nil || w.Leaving != nil || len(plan.Actions) > 0 {
			t.Errorf("ends %t: the group of a stranger's pod has leader %v, leaving %v and the plan %v", ends, w.Leader, w.Leaving, spelled(plan))
		}
	}
	if plan := c.decideSet(); plan.IsUnsupported() || slices.ContainsFunc(spelled(plan), func(a string) bool { return strings.Contains(a, "statefulset") }) {
		t.Errorf("the set has the plan %v", spelled(plan))
	}

	c = newCluster(t)
	fakeapi.Add(c.Server, restored())
	fakeapi.Add(c.Server, fakeapi.Set("w", 1, 2, hashed))
	if plan := c.decideSet(); !plan.IsUnsupported() || !strings.Contains(plan.Waits[0].Sentence, "statefulset w") {
		t.Errorf("a set whose leaders another identity made has the plan %v, and waits %v", spelled(plan), plan.Waits)
	}
}

// Version 0.11 named the workers of a hash group after their leader. They are found, and no second ones are created.
func TestWorkersNamedAfterAHashLeaderAreFound(t *testing.T) {
	c := keyed(t, 1, 2)
	c.lead("w-a", keyOf("1"), runs)
	c.reconcileGroup("w-a")
	made := c.decideGroup("w-a")
	for _, sts := range fakeapi.All[*appsv1.StatefulSet](c.Objects) {
		c.Erase(sts)
		sts = sts.DeepCopy()
		sts.Name, sts.UID, sts.ResourceVersion = "w-a", "", ""
		fakeapi.Add(c.Server, sts)
	}
	if plan := c.decideGroup("w-a"); len(fakeapi.All[*appsv1.StatefulSet](c.Objects)) != 1 || creates(plan) {
		t.Errorf("the plan was %v, and is %v", spelled(made), spelled(plan))
	}
}

// A change of the subdomain policy concerns the groups that are made after it (H8).
func TestAHashGroupHasTheServiceOfItsOwnRevision(t *testing.T) {
	set := fakeapi.Set("w", 1, 2, func(set Set) {
		set.Spec.NetworkConfig = &lwsv1.NetworkConfig{SubdomainPolicy: fakeapi.Ptr(lwsv1.SubdomainUniquePerReplica)}
	})
	leader := fakeapi.Pod("w-x-y", "w", 0)
	leader.Annotations = map[string]string{lwsv1.GroupIdentityAnnotationKey: string(lwsv1.HashGroupIdentity)}
	g := lws.Group{Leader: leader}
	expect.That(t, !g.HasOwnSubdomain(set), "a group that was made without a Service of its own is to get one")
	leader.Annotations[lwsv1.SubdomainPolicyAnnotationKey] = string(lwsv1.SubdomainUniquePerReplica)
	expect.That(t, g.HasOwnSubdomain(set), "a group that was made with a Service of its own has none")
}
