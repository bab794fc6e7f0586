package set_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	dsv1 "lockstep.dev/lockstep/api/disaggregatedset/v1"
	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/disaggregated"
	"lockstep.dev/lockstep/internal/disaggregated/set"
	"lockstep.dev/lockstep/test/expect"
)

var now = time.Unix(1_800_000_000, 0)

func role(name, image string, replicas int32) dsv1.DisaggregatedRole {
	return dsv1.DisaggregatedRole{Name: name, Spec: lwsv1.LeaderWorkerSetSpec{Replicas: &replicas, LeaderWorkerTemplate: lwsv1.LeaderWorkerTemplate{
		Size: new(int32(1)), WorkerTemplate: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: image}}}},
	}}}
}

// world is a snapshot that plans are carried out in, without pods' delays.
type world struct {
	disaggregated.Snapshot
	uids int
}

func newWorld(edits ...func(*dsv1.DisaggregatedSet)) *world {
	s := &dsv1.DisaggregatedSet{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a", UID: "set", Generation: 1, CreationTimestamp: metav1.NewTime(now)}}
	s.Spec.Roles = []dsv1.DisaggregatedRole{role("p", "img:1", 2), role("d", "img:1", 1)}
	for _, edit := range edits {
		edit(s)
	}
	return &world{Snapshot: disaggregated.Snapshot{Set: s, Now: now}}
}

func (w *world) made(o metav1.Object) {
	w.uids++
	o.SetUID(types.UID(fmt.Sprint(w.uids)))
	o.SetGeneration(1)
	o.SetCreationTimestamp(metav1.NewTime(now.Add(time.Duration(w.uids) * time.Second)))
}

// step decides, carries the plan out, and returns what was done in words.
func (w *world) step(t *testing.T) (done []string) {
	t.Helper()
	plan, err := set.Decide(w.Snapshot)
	expect.OK(t, err)
	for _, a := range plan.Actions {
		about := a.About()
		if done = append(done, about.Verb+" "+a.Target().Name); a.Target().Name == "a" {
			done[len(done)-1] = about.Verb
		}
		switch a := a.(type) {
		case action.Create:
			w.made(a.Object)
			switch o := a.Object.(type) {
			case *lwsv1.LeaderWorkerSet:
				w.Children.Owned = append(w.Children.Owned, o)
			case *dsv1.DisaggregatedSetRoleScaler:
				w.Scalers.Owned = append(w.Scalers.Owned, o)
			case *corev1.Service:
				w.Services.Owned = append(w.Services.Owned, o)
			case *appsv1.ControllerRevision:
				w.Records.Owned = append(w.Records.Owned, o)
			}
		case action.Scale:
			child := w.child(a.Object.Name)
			child.Spec.Replicas = &a.Replicas
			for key, value := range a.Annotations {
				metav1.SetMetaDataAnnotation(&child.ObjectMeta, key, value)
			}
		case action.Delete:
			expect.That(t, !a.AnyVersion, "%s is deleted, also once it is an orphan", a.Object)
			w.Children.Owned = slices.DeleteFunc(w.Children.Owned, func(o *lwsv1.LeaderWorkerSet) bool { return o.UID == a.Object.UID })
			w.Scalers.Owned = slices.DeleteFunc(w.Scalers.Owned, func(o *dsv1.DisaggregatedSetRoleScaler) bool { return o.UID == a.Object.UID })
			w.Services.Owned = slices.DeleteFunc(w.Services.Owned, func(o *corev1.Service) bool { return o.UID == a.Object.UID })
			w.Records.Owned = slices.DeleteFunc(w.Records.Owned, func(o *appsv1.ControllerRevision) bool { return o.UID == a.Object.UID })
		case action.Relabel:
			for _, pod := range w.Pods {
				if pod.Name == a.Object.Name {
					change(pod.Labels, a.Labels)
				}
			}
			for _, service := range w.Services.Owned {
				if service.UID == a.Object.UID {
					change(service.Spec.Selector, a.Selector)
				}
			}
			for _, record := range w.Records.Owned {
				if record.UID == a.Object.UID {
					record.Revision = a.Number
				}
			}
		case action.Annotate:
			for _, pod := range w.Pods {
				if pod.Name == a.Object.Name {
					pod.Annotations[lwsv1.RecreateAnnotationKey] = a.Annotations[lwsv1.RecreateAnnotationKey]
				}
			}
		case action.WriteStatus:
			switch o := a.Status.(type) {
			case *dsv1.DisaggregatedSet:
				w.Set.Status = o.Status
			case *dsv1.DisaggregatedSetRoleScaler:
				w.Scalers.Owned[0].Status = o.Status
			}
		}
	}
	return done
}

// change changes labels. An empty value removes one.
func change(labels, by map[string]string) {
	maps.Copy(labels, by)
	maps.DeleteFunc(labels, func(_, value string) bool { return value == "" })
}

func (w *world) child(name string) *lwsv1.LeaderWorkerSet {
	i := slices.IndexFunc(w.Children.Owned, func(o *lwsv1.LeaderWorkerSet) bool { return o.Name == name })
	return w.Children.Owned[i]
}

// run makes every wanted group ready, and every other one gone.
func (w *world) run() {
	w.Pods = nil
	for _, child := range w.Children.Owned {
		n := *child.Spec.Replicas
		child.Status = lwsv1.LeaderWorkerSetStatus{ObservedGeneration: child.Generation, Replicas: n, ReadyReplicas: n, UpdatedReplicas: n}
		for i := range n {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", child.Name, i), CreationTimestamp: child.CreationTimestamp}}
			pod.Labels = map[string]string{lwsv1.SetNameLabelKey: child.Name, lwsv1.GroupIndexLabelKey: fmt.Sprint(i), lwsv1.WorkerIndexLabelKey: "0"}
			for key, value := range child.Labels {
				pod.Labels[key] = value
			}
			pod.Annotations = map[string]string{lwsv1.SizeAnnotationKey: "1"}
			pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
			w.Pods = append(w.Pods, pod)
		}
	}
}

// settle steps until nothing is done, and returns every step.
func (w *world) settle(t *testing.T) (steps []string) {
	t.Helper()
	for range 50 {
		w.run()
		done := w.step(t)
		if len(done) == 0 {
			return steps
		}
		steps = append(steps, strings.Join(done, ", "))
	}
	t.Fatalf("no end: %q", steps)
	return nil
}

func (w *world) isAvailable() bool {
	return meta.IsStatusConditionTrue(w.Set.Status.Conditions, dsv1.ConditionAvailable)
}

func rollTo(image string) func(*world) {
	return func(w *world) {
		for i := range w.Set.Spec.Roles {
			w.Set.Spec.Roles[i].Spec.LeaderWorkerTemplate.WorkerTemplate.Spec.Containers[0].Image = image
		}
	}
}

func (w *world) names() (names []string) {
	for _, child := range w.Children.Owned {
		names = append(names, fmt.Sprintf("%s=%d", strings.TrimPrefix(child.Name, "a-"), *child.Spec.Replicas))
	}
	slices.Sort(names)
	return names
}

func TestASetIsMadeRolledAndTakenBack(t *testing.T) {
	w := newWorld()
	w.settle(t)
	expect.That(t, w.isAvailable(), "conditions: %v", w.Set.Status.Conditions)
	first := w.names()
	expect.That(t, len(first) == 2, "children: %v", first)
	rollTo("img:2")(w)
	w.run()
	w.step(t)
	expect.That(t, len(w.names()) == 4 && !w.isAvailable(), "children in the rollout: %v", w.names())
	rollTo("img:1")(w)
	w.settle(t)
	expect.Equal(t, first, w.names())
	expect.That(t, w.isAvailable() && len(w.Records.Owned) == 2, "conditions %v, records %v", w.Set.Status.Conditions, w.Records.Owned)
	expect.That(t, w.Records.Owned[0].Revision > w.Records.Owned[1].Revision, "the first revision is not the newest again")
}

func TestAPausedRolloutChangesNothing(t *testing.T) {
	w := newWorld()
	w.settle(t)
	w.Set.Annotations = map[string]string{lwsv1.PausedAnnotationKey: lwsv1.PausedValue}
	before := w.names()
	w.Set.Spec.Roles[0].Spec.Replicas = new(int32(3))
	w.settle(t)
	expect.That(t, !slices.Equal(before, w.names()), "a paused set is not scaled: %v", w.names())
	rollTo("img:2")(w)
	w.settle(t)
	expect.That(t, len(w.names()) == 2, "a paused set is rolled: %v", w.names())
}

func TestADeletedSetIsLeftToTheGarbageCollector(t *testing.T) {
	w := newWorld(func(s *dsv1.DisaggregatedSet) { s.DeletionTimestamp = new(metav1.NewTime(now)) })
	expect.Equal(t, []string{"status"}, w.step(t))
}

func TestUnknownFieldsLeaveASetAlone(t *testing.T) {
	w := newWorld()
	w.Beyond = []string{`spec.scalingPolicy={"duringRollout":"AdvanceRollout"}`}
	expect.Equal(t, []string{"status"}, w.step(t))
	expect.Equal(t, nil, w.step(t))
	expect.That(t, meta.IsStatusConditionTrue(w.Set.Status.Conditions, action.CodeUnsupported), "conditions: %v", w.Set.Status.Conditions)
	w.Beyond = nil
	w.settle(t)
	expect.That(t, w.isAvailable() && meta.FindStatusCondition(w.Set.Status.Conditions, action.CodeUnsupported) == nil, "conditions: %v", w.Set.Status.Conditions)
}

func external(s *dsv1.DisaggregatedSet) {
	s.Spec.Roles[0].Scaling = &dsv1.RoleScaling{Mode: dsv1.ScalingExternal}
}

func TestAScalerSaysHowManyGroups(t *testing.T) {
	w := newWorld()
	w.settle(t)
	rollTo("img:2")(w)
	w.run()
	w.step(t)
	external(w.Set) // in a rollout: the scaler begins with what the role has, not with the sum of both revisions
	w.run()
	w.step(t)
	expect.Equal(t, int32(2), w.Scalers.Owned[0].Spec.Replicas)
	w.settle(t)
	w.Scalers.Owned[0].Spec.Replicas = 5
	w.settle(t)
	expect.That(t, w.isAvailable() && w.Scalers.Owned[0].Status.Replicas == 5, "children %v, scaler %+v", w.names(), w.Scalers.Owned[0].Status)
	w.Set.Spec.Roles[0].Scaling = nil
	w.settle(t)
	expect.That(t, len(w.Scalers.Owned) == 0 && w.isAvailable(), "scalers %v, children %v", w.Scalers.Owned, w.names())
}

func TestAForeignScalerHoldsTheSet(t *testing.T) {
	w := newWorld(external)
	w.Scalers.Foreign = []*dsv1.DisaggregatedSetRoleScaler{{ObjectMeta: metav1.ObjectMeta{Name: "a-p"}}}
	w.settle(t)
	c := meta.FindStatusCondition(w.Set.Status.Conditions, dsv1.ConditionProgressing)
	expect.That(t, len(w.names()) == 0 && c != nil && c.Reason == "ReplicaTargetsUnresolved" && strings.Contains(c.Message, ": p; DisaggregatedSetRoleScaler a-p exists"), "children %v, Progressing %v", w.names(), c)
	expect.That(t, meta.IsStatusConditionTrue(w.Set.Status.Conditions, "Stalled"), "only a user can help: %v", w.Set.Status.Conditions)
	plan, err := set.Decide(w.Snapshot)
	expect.OK(t, err)
	expect.That(t, plan.Next(now) > 0, "no event tells when the name is free")
}

func TestServicesFollowChildren(t *testing.T) {
	w := newWorld(func(s *dsv1.DisaggregatedSet) { s.Annotations = map[string]string{dsv1.ServicesAnnotationKey: "true"} })
	w.settle(t)
	expect.That(t, len(w.Services.Owned) == 2, "services: %v", w.Services.Owned)
	delete(w.Set.Annotations, dsv1.ServicesAnnotationKey) // some are there: the set goes on with them
	rollTo("img:2")(w)
	w.settle(t)
	for _, service := range w.Services.Owned {
		expect.That(t, w.child(strings.TrimSuffix(service.Name, "-prv")) != nil, "service %s has no child", service.Name)
	}
	expect.That(t, len(w.Services.Owned) == 2, "services: %v", w.Services.Owned)
}

func TestTheHistoryKeepsTenRevisions(t *testing.T) {
	w := newWorld()
	for i := range 14 {
		rollTo(fmt.Sprintf("img:%d", i))(w)
		w.settle(t)
	}
	expect.Equal(t, 10, len(w.Records.Owned))
}

func TestPodsOfAnEarlierIncarnationAreNotCounted(t *testing.T) {
	w := newWorld()
	w.settle(t)
	for _, pod := range w.Pods {
		pod.CreationTimestamp = metav1.NewTime(now.Add(-time.Hour))
	}
	table, err := disaggregated.Of(w.Snapshot)
	expect.OK(t, err)
	for _, row := range table.Slices[0].Revisions[0].Rows {
		expect.That(t, len(row.Groups) == 0, "groups: %v", row.Groups)
	}
	expect.Equal(t, int32(0), table.Slices[0].Leaving["p"]+table.Slices[0].Leaving["d"])
}

// A child that a user deleted is created again while its pods end: they take room. Those of orphans are not of the set.
func TestPodsOfAnEarlierChildTakeRoom(t *testing.T) {
	w := newWorld()
	w.settle(t)
	for _, pod := range w.Pods {
		pod.CreationTimestamp = metav1.NewTime(now)
	}
	leaving := func() int32 {
		table, err := disaggregated.Of(w.Snapshot)
		expect.OK(t, err)
		return table.Slices[0].Leaving["p"] + table.Slices[0].Leaving["d"]
	}
	expect.Equal(t, int32(3), leaving())
	w.Children.Orphans, w.Children.Owned = w.Children.Owned, nil
	expect.Equal(t, int32(0), leaving())
}

func TestProgressingSaysWhatTheSetWaitsFor(t *testing.T) {
	progressing := func(w *world) string {
		return meta.FindStatusCondition(w.Set.Status.Conditions, dsv1.ConditionProgressing).Reason
	}
	w := newWorld()
	w.step(t)
	expect.Equal(t, set.CodeInProgress, progressing(w))
	w.settle(t)
	for i := range w.Set.Spec.Roles { // a role of one group without surge leaves no room
		w.Set.Spec.Roles[i].Spec.RolloutStrategy.RollingUpdateConfiguration = &lwsv1.RollingUpdateConfiguration{MaxUnavailable: intstr.FromInt32(1)}
	}
	before := w.names()
	rollTo("img:2")(w)
	w.settle(t)
	expect.Equal(t, set.CodeBlocked, progressing(w))
	expect.Equal(t, before, w.names())
	w.Set.Annotations = map[string]string{dsv1.SurgeOneAnnotationKey: "true"}
	w.settle(t)
	expect.That(t, w.isAvailable(), "conditions: %v", w.Set.Status.Conditions)

	w = newWorld()
	w.Children.Foreign = []*lwsv1.LeaderWorkerSet{disaggregated.Child(w.Set, &w.Set.Spec.Roles[0], disaggregated.Place{Revision: "4852664f", Role: "p"}, 1, 1)}
	revision, err := disaggregated.RevisionOf(w.Set.Spec.Roles)
	expect.OK(t, err)
	w.Children.Foreign[0].Name = "a-0-" + revision + "-p"
	w.step(t)
	expect.Equal(t, action.CodeNameConflict, progressing(w))

	w = newWorld()
	w.Refused = []action.Refusal{{Sentence: "no", At: now, Since: now}}
	expect.That(t, len(w.step(t)) > 2, "a refused write stops no other")
	expect.Equal(t, action.CodeRefused, progressing(w))
	expect.That(t, meta.IsStatusConditionTrue(w.Set.Status.Conditions, "Stalled"), "conditions: %v", w.Set.Status.Conditions)
	w.settle(t)
	expect.That(t, w.isAvailable() && progressing(w) == action.CodeRefused, "what is refused stands beside Available: %v", w.Set.Status.Conditions)
	expect.That(t, !meta.IsStatusConditionTrue(w.Set.Status.Conditions, "Stalled"), "conditions: %v", w.Set.Status.Conditions)
	w.Refused = nil
	w.settle(t)
	expect.Equal(t, "AllRolesReady", progressing(w))
}

func TestOnlyAChildOfTheTargetStallsASet(t *testing.T) {
	w := newWorld()
	w.settle(t)
	stall := func(child *lwsv1.LeaderWorkerSet, kind string) {
		child.Status.ReadyReplicas = 0
		child.Status.Conditions = []metav1.Condition{{Type: kind, Status: metav1.ConditionTrue, Message: "no node"}}
	}
	reason := func() (reason string, isStalled bool) {
		for _, c := range w.Set.Status.Conditions {
			if c.Type == dsv1.ConditionProgressing {
				reason = c.Reason
			}
		}
		return reason, meta.IsStatusConditionTrue(w.Set.Status.Conditions, "Stalled")
	}
	for _, kind := range []string{"Stalled", "NameConflict", "Unsupported"} {
		stall(w.Children.Owned[0], kind)
		w.step(t)
		why, isStalled := reason()
		expect.That(t, why == set.CodeRoleStalled && isStalled, "%s: %s, Stalled %t", kind, why, isStalled)
	}
	rollTo("img:2")(w)
	w.step(t) // the target has children, and the old child is stalled still
	stall(w.Children.Owned[0], "Stalled")
	w.step(t)
	why, isStalled := reason()
	expect.That(t, why == set.CodeInProgress && !isStalled, "%s, Stalled %t", why, isStalled)
}

// How many groups a revision was to have bounds the next rollout: it follows what the set wants.
func TestACountThatASetGetsInMidRolloutIsNoted(t *testing.T) {
	w := newWorld()
	w.settle(t)
	rollTo("img:2")(w)
	w.step(t)
	w.Set.Spec.Roles[0].Spec.Replicas = new(int32(1)) // which the target has already
	w.settle(t)
	for _, child := range w.Children.Owned {
		expect.Equalf(t, fmt.Sprint(*child.Spec.Replicas), child.Annotations[dsv1.InitialReplicasAnnotationKey], "%s", child.Name)
	}
}

func TestAFailureRecreatesOlderGroupsOfPartnersOnce(t *testing.T) {
	w := newWorld()
	w.settle(t)
	failed := lwsv1.GroupRestarts{Leader: "former", FailedAt: metav1.NewTime(now.Add(time.Hour)), Failures: []lwsv1.PodFailure{{Reason: "OOMKilled"}}}
	failing := func() *lwsv1.LeaderWorkerSet {
		i := slices.IndexFunc(w.Children.Owned, func(o *lwsv1.LeaderWorkerSet) bool { return o.Labels[dsv1.RoleLabelKey] == "d" })
		return w.Children.Owned[i]
	}
	fail := func(restarts ...lwsv1.GroupRestarts) []string {
		w.run()
		failing().Status.Restarts = restarts
		return w.step(t)
	}
	expect.Equal(t, nil, fail(failed)) // without the policy, each role stands alone
	w.Set.Annotations = map[string]string{dsv1.RestartPolicyAnnotationKey: dsv1.RestartPartners}
	expect.Equal(t, []string{"status"}, fail(failed)) // the policy counts from its first sight on
	w.Now = now.Add(2 * time.Hour)
	expect.Equal(t, nil, fail())
	before := failed
	before.FailedAt = metav1.NewTime(now.Add(-time.Hour))
	expect.Equal(t, nil, fail(before)) // a failure before the policy
	asked := fail(failed)
	expect.That(t, len(asked) == 1 && strings.HasPrefix(asked[0], "annotate a-0-") && strings.Contains(asked[0], "-p-"), "one group at a time: %v", asked)
	expect.Equal(t, nil, w.step(t)) // nor before it ends
	for range 2 {                   // the asked group comes back, and the other follows
		for _, pod := range w.Pods {
			if _, is := pod.Annotations[lwsv1.RecreateAnnotationKey]; is {
				delete(pod.Annotations, lwsv1.RecreateAnnotationKey)
				pod.CreationTimestamp = metav1.NewTime(now.Add(3 * time.Hour))
			}
		}
		asked = append(asked, w.step(t)...)
	}
	slices.Sort(asked)
	expect.That(t, len(slices.Compact(asked)) == 2, "groups of the partner: %v", asked)
	expect.Equal(t, nil, w.step(t))

	failed.FailedAt = metav1.NewTime(now.Add(4 * time.Hour))
	failed.Failures = []lwsv1.PodFailure{{Reason: "Requested", Message: "partner of former"}, {Reason: "Error"}}
	failing().Status.Restarts = []lwsv1.GroupRestarts{failed}
	expect.Equal(t, nil, w.step(t)) // it failed because it was recreated with a partner
	w.Set.Annotations[dsv1.RestartPartnersAnnotationKey] = "d"
	failed.Failures = failed.Failures[1:]
	failing().Status.Restarts = []lwsv1.GroupRestarts{failed}
	expect.Equal(t, nil, w.step(t)) // the other role is no partner
}
