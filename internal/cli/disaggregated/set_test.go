package disaggregated

import (
	"context"
	"encoding/json"
	"flag"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	dsv1 "lockstep.dev/lockstep/api/disaggregatedset/v1"
	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/cli/cluster"
	"lockstep.dev/lockstep/internal/cli/lws"
	"lockstep.dev/lockstep/internal/cli/page"
	"lockstep.dev/lockstep/internal/cli/render"
	"lockstep.dev/lockstep/internal/disaggregated"
	"lockstep.dev/lockstep/test/expect"
)

var update = flag.Bool("update", false, "write the texts of testdata")

var (
	now = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	key = types.NamespacedName{Namespace: "default", Name: "llama"}
)

// golden compares a text with a file of testdata.
func golden(t *testing.T, name, text string) {
	t.Helper()
	if *update {
		expect.OK(t, os.WriteFile("testdata/"+name, []byte(text), 0o600))
	}
	expect.Equal(t, string(expect.Value(os.ReadFile("testdata/"+name))(t)), text)
}

func newRole(name string, replicas, size int32, image string) dsv1.DisaggregatedRole {
	role := dsv1.DisaggregatedRole{Name: name}
	role.Spec.Replicas = &replicas
	role.Spec.LeaderWorkerTemplate.Size = &size
	role.Spec.RolloutStrategy.RollingUpdateConfiguration = &lwsv1.RollingUpdateConfiguration{MaxSurge: intstr.FromInt32(1)}
	role.Spec.LeaderWorkerTemplate.WorkerTemplate.Spec.Containers = []corev1.Container{{Name: "serve", Image: image, Resources: corev1.ResourceRequirements{
		Limits: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("8")},
	}}}
	return role
}

func newSet(slices int32, roles ...dsv1.DisaggregatedRole) *dsv1.DisaggregatedSet {
	return &dsv1.DisaggregatedSet{
		TypeMeta: metav1.TypeMeta{APIVersion: dsv1.GroupVersion.String(), Kind: "DisaggregatedSet"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: key.Namespace, Name: key.Name, UID: "set", Generation: 1, CreationTimestamp: metav1.NewTime(now.Add(-time.Hour)),
		},
		Spec: dsv1.DisaggregatedSetSpec{Roles: roles, Slices: &slices},
	}
}

// recorded is the record of a set as it is.
func recorded(t *testing.T, set *dsv1.DisaggregatedSet, number int64) *appsv1.ControllerRevision {
	t.Helper()
	record := disaggregated.Record(set, expect.Value(disaggregated.RevisionOf(set.Spec.Roles))(t), number)
	record.CreationTimestamp = metav1.NewTime(now.Add(-time.Duration(10-number) * time.Minute))
	return record
}

// run adds what a set has at its revision: so many groups of each role in each slice, and as many of them ready.
func run(t *testing.T, w *disaggregated.Snapshot, set *dsv1.DisaggregatedSet, groups, ready []int32) {
	t.Helper()
	revision := expect.Value(disaggregated.RevisionOf(set.Spec.Roles))(t)
	for slice := range disaggregated.Slices(set) {
		for r := range set.Spec.Roles {
			role := &set.Spec.Roles[r]
			place := disaggregated.Place{Slice: slice, Revision: revision, Role: role.Name}
			child := disaggregated.Child(set, role, place, groups[r], *role.Spec.Replicas)
			child.CreationTimestamp, child.UID = set.CreationTimestamp, types.UID(child.Name)
			w.Children.Owned = append(w.Children.Owned, child)
			for i := range groups[r] {
				pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
					Name: child.Name + "-" + string('0'+i), Namespace: set.Namespace, CreationTimestamp: metav1.NewTime(now), Annotations: map[string]string{lwsv1.SizeAnnotationKey: "1"},
					Labels: disaggregated.Labels(set.Name, place),
				}}
				pod.Labels[lwsv1.SetNameLabelKey], pod.Labels[lwsv1.GroupIndexLabelKey], pod.Labels[lwsv1.WorkerIndexLabelKey] = child.Name, string('0'+i), "0"
				if i < ready[r] {
					pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
				}
				w.Pods = append(w.Pods, pod)
			}
		}
	}
}

// rolling is a set in the middle of a rollout: revision 1 has 3/2 groups, and revision 2 has 2/1, of which 1/1 are ready.
func rolling(t *testing.T) disaggregated.Snapshot {
	before := newSet(1, newRole("prefill", 4, 2, "engine:1"), newRole("decode", 2, 4, "engine:1"))
	after := newSet(1, newRole("prefill", 4, 2, "engine:2"), newRole("decode", 2, 4, "engine:2"))
	after.Status.ObservedGeneration = 1
	after.Status.Conditions = []metav1.Condition{{
		Type: dsv1.ConditionProgressing, Status: metav1.ConditionTrue, Reason: "RolloutInProgress", Message: "Not all roles are ready",
		LastTransitionTime: metav1.NewTime(now.Add(-time.Minute)),
	}}
	w := disaggregated.Snapshot{Set: after, Now: now}
	run(t, &w, before, []int32{3, 2}, []int32{3, 2})
	run(t, &w, after, []int32{2, 1}, []int32{1, 1})
	w.Records.Owned = []*appsv1.ControllerRevision{recorded(t, before, 1), recorded(t, after, 2)}
	return w
}

// atRest is a set with all its groups.
func atRest(t *testing.T, set *dsv1.DisaggregatedSet) disaggregated.Snapshot {
	w := disaggregated.Snapshot{Set: set, Now: now}
	var groups []int32
	for _, role := range set.Spec.Roles {
		groups = append(groups, *role.Spec.Replicas)
	}
	run(t, &w, set, groups, groups)
	w.Records.Owned = []*appsv1.ControllerRevision{recorded(t, set, 1)}
	return w
}

func TestStatusShowsRolesRevisionsAndPairs(t *testing.T) {
	s := expect.Value(Status(rolling(t)))(t)
	golden(t, "status.txt", page.Text(s, now))
	golden(t, "status.json", string(expect.Value(json.MarshalIndent(s, "", "  "))(t))+"\n")
}

// Groups that are not ready get no traffic without a policy: they are counted elsewhere.
func TestStatusCountsGroupsWithoutTraffic(t *testing.T) {
	w := rolling(t)
	expect.That(t, !strings.Contains(page.Text(expect.Value(Status(w))(t), now), "traffic"), "without the policy")
	w.Set.Annotations = map[string]string{dsv1.RestartPolicyAnnotationKey: dsv1.FencePartners}
	for _, pod := range w.Pods {
		if pod.Labels[dsv1.RoleLabelKey] == "decode" {
			pod.Labels[dsv1.ReadyForTrafficLabelKey] = "true"
		}
	}
	expect.Equal(t, []string{
		"slice 0: 1 group of prefill at 219d7975 out of traffic: a group of another role failed and is not ready",
		"slice 0: 3 groups of prefill at b50305ff out of traffic: a group of another role failed and is not ready",
	}, expect.Value(Status(w))(t).Waiting)
}

func TestARolloutSaysHowFarItIs(t *testing.T) {
	r := expect.Value(standingOf(rolling(t)))(t)
	expect.Equal(t, "waiting: 3 of 6 groups are updated, 2 of them ready; 5 others must end", r.Message)
	expect.That(t, !r.IsDone && r.Number == 2, "got %+v", r)
	w := rolling(t)
	w.Set.Annotations = map[string]string{lwsv1.PausedAnnotationKey: lwsv1.PausedValue}
	expect.Says(t, expect.Value(standingOf(w))(t).Message, "rollout resume dset/llama -n default")
	r = expect.Value(standingOf(atRest(t, newSet(2, newRole("prefill", 2, 1, "engine:1")))))(t)
	expect.That(t, !r.IsDone, "the operator has not observed it: %+v", r)
	w = atRest(t, newSet(2, newRole("prefill", 2, 1, "engine:1")))
	w.Set.Status.ObservedGeneration = 1
	r = expect.Value(standingOf(w))(t)
	expect.That(t, r.IsDone && strings.Contains(r.Message, "successfully rolled out: 4 groups at revision 1 ("), "got %+v", r)
}

func TestHistoryAndDiff(t *testing.T) {
	w := rolling(t)
	h := expect.Value(History(w))(t)
	golden(t, "history.txt", page.Text(h, now))
	golden(t, "diff.txt", expect.Value(compared(w.Set, w.Records.Owned, render.Comparison{}))(t))
	_, err := compared(w.Set, w.Records.Owned, render.Comparison{From: 7})
	expect.ErrorSays(t, err, `disaggregatedset "llama" has no revision 7; there are: 1, 2`)
	_, err = compared(w.Set, nil, render.Comparison{})
	expect.ErrorSays(t, err, "no revision yet")
}

// What "diff" says of equal revisions is no part of the difference, which a program may read.
func TestADifferenceOfNothingIsEmpty(t *testing.T) {
	set := newSet(1, newRole("prefill", 4, 2, "engine:1"))
	s := &cluster.Session{Cluster: &cluster.Cluster{Flags: &cluster.Flags{}}, Session: &lws.Session{Live: newClient(set.DeepCopy(), recorded(t, set, 1))}}
	text, same, err := Diff(t.Context(), s, key, render.Comparison{From: 1})
	expect.That(t, err == nil && text == "" && same != "", "got %q, %q, %v", text, same, err)
	_, _, err = Diff(t.Context(), s, types.NamespacedName{Namespace: "default", Name: "other"}, render.Comparison{})
	expect.ErrorSays(t, err, `no disaggregatedset "other"`)
}

// external is a role whose groups an autoscaler decides.
func external(role dsv1.DisaggregatedRole) dsv1.DisaggregatedRole {
	role.Scaling = &dsv1.RoleScaling{Mode: dsv1.ScalingExternal}
	return role
}

func TestPlanShowsEveryStep(t *testing.T) {
	two := func(image string) *dsv1.DisaggregatedSet {
		return newSet(3, newRole("prefill", 4, 2, image), newRole("decode", 2, 4, image))
	}
	changed := atRest(t, two("engine:1"))
	changed.Set = two("engine:2")
	changed.Set.Annotations = map[string]string{dsv1.ServicesAnnotationKey: "true"}
	fewer := atRest(t, two("engine:1"))
	fewer.Set = newSet(1, newRole("prefill", 6, 2, "engine:1"), newRole("decode", 2, 4, "engine:1"))
	renamed := atRest(t, newSet(1, newRole("prefill", 2, 2, "engine:1"), newRole("decode", 2, 4, "engine:1")))
	renamed.Set = newSet(1, newRole("prefill", 2, 2, "engine:1"), newRole("generate", 2, 4, "engine:1"))
	stuck := func(image string) *dsv1.DisaggregatedSet {
		set := newSet(1, newRole("prefill", 4, 2, image), newRole("decode", 1, 4, image))
		for i := range set.Spec.Roles {
			set.Spec.Roles[i].Spec.RolloutStrategy.RollingUpdateConfiguration = &lwsv1.RollingUpdateConfiguration{MaxUnavailable: intstr.FromInt32(1)}
		}
		set.Spec.Roles[0].Spec.RolloutStrategy.RollingUpdateConfiguration.MaxUnavailable = intstr.FromInt32(2)
		return set
	}
	held := atRest(t, stuck("engine:1"))
	held.Set = stuck("engine:2")
	created := newSet(2, newRole("prefill", 2, 1, "engine:1"), external(newRole("decode", 1, 2, "engine:1")))
	created.UID = ""
	paused := rolling(t)
	paused.Set.Annotations = map[string]string{lwsv1.PausedAnnotationKey: lwsv1.PausedValue}
	for name, w := range map[string]disaggregated.Snapshot{
		"change": changed, "fewer-slices": fewer, "rename": renamed, "stuck": held, "create": {Set: created, Now: now}, "paused": paused,
		"at-rest": atRest(t, two("engine:1")),
	} {
		t.Run(name, func(t *testing.T) {
			p := expect.Value(Plan(w))(t)
			golden(t, "plan-"+name+".txt", page.Text(p, now))
			slices.Reverse(w.Children.Owned)
			slices.Reverse(w.Pods)
			expect.Equal(t, page.Text(p, now), page.Text(expect.Value(Plan(w))(t), now))
		})
	}
}

func TestAFileThatChangesNothingHasNoText(t *testing.T) {
	expect.Equal(t, "", page.Text(&SetPlan{NoChange: true}, now))
}

func newClient(objects ...client.Object) client.WithWatch {
	return fake.NewClientBuilder().WithScheme(lws.Scheme()).WithObjects(objects...).Build()
}

// An undo restores what the revision says of all roles, in one write, and nothing else of them.
func TestAnUndoRestoresTheRevision(t *testing.T) {
	first := newSet(1, newRole("prefill", 4, 2, "engine:1"), newRole("decode", 2, 4, "engine:1"), newRole("route", 1, 1, "router:1"))
	first.Spec.Roles[0].Spec.GroupIdentity = lwsv1.HashGroupIdentity
	second := newSet(1, newRole("decode", 2, 4, "engine:2"), newRole("prefill", 4, 2, "engine:2"), newRole("cache", 1, 1, "cache:1"))
	third := newSet(1, newRole("decode", 3, 4, "engine:3"), external(newRole("prefill", 7, 2, "engine:3")))
	records := []client.Object{recorded(t, first, 1), recorded(t, second, 2), recorded(t, third, 3)}
	for name, tt := range map[string]struct {
		number int64
		roles  string
		of     *dsv1.DisaggregatedSet
	}{
		"the one before": {0, "decode prefill cache", second},
		"a number":       {1, "prefill decode route", first},
	} {
		t.Run(name, func(t *testing.T) {
			c := newClient(append(records, third.DeepCopy())...)
			change, err := lws.Amend(t.Context(), &lws.Editor{Client: c}, key, Undo(tt.number))
			expect.OK(t, err)
			stored := &dsv1.DisaggregatedSet{}
			expect.OK(t, c.Get(t.Context(), key, stored))
			want := expect.Value(disaggregated.RevisionOf(tt.of.Spec.Roles))(t)
			expect.Equal(t, want, expect.Value(disaggregated.RevisionOf(stored.Spec.Roles))(t))
			expect.Says(t, change.Verb, "rolled back to revision ")
			expect.Says(t, change.Verb, want)
			var names []string
			for _, role := range stored.Spec.Roles {
				if names = append(names, role.Name); role.Name == "prefill" {
					expect.That(t, disaggregated.IsExternal(&role) && *role.Spec.Replicas == 7, "its scaling changed: %+v", role)
				}
			}
			expect.Equal(t, tt.roles, strings.Join(names, " "))
		})
	}
}

// What an undo leaves must be admitted: the policy of another identity, partners that are gone, and the only groups of a set
// that wants none are not.
func TestAnUndoLeavesASetThatIsAdmitted(t *testing.T) {
	first := newSet(1, newRole("prefill", 4, 2, "engine:1"), newRole("decode", 2, 4, "engine:1"))
	second := newSet(1, newRole("prefill", 0, 2, "engine:2"), newRole("generate", 0, 4, "engine:2"))
	second.Annotations = map[string]string{dsv1.RestartPolicyAnnotationKey: "Restart", dsv1.RestartPartnersAnnotationKey: "generate"}
	second.Spec.Roles[0].Spec.GroupIdentity, second.Spec.Roles[0].Spec.GroupReplacementPolicy = lwsv1.HashGroupIdentity, lwsv1.ImmediateGroupReplacement
	after, _, err := restored(second, []*appsv1.ControllerRevision{recorded(t, first, 1), recorded(t, second, 2)}, 1)
	expect.OK(t, err)
	prefill, decode := after.Spec.Roles[0].Spec, after.Spec.Roles[1].Spec
	expect.That(t, prefill.GroupIdentity == "" && prefill.GroupReplacementPolicy == "", "prefill: %+v", prefill)
	expect.That(t, *prefill.Replicas == 0 && *decode.Replicas == 0, "%d and %d groups", *prefill.Replicas, *decode.Replicas)
	expect.Equal(t, map[string]string{dsv1.RestartPolicyAnnotationKey: "Restart"}, after.Annotations)
}

// The number of groups of a role that returns is admitted beside the Static roles of the set.
func TestARoleReturnsWithGroupsAsTheOthersHave(t *testing.T) {
	first := newSet(1, newRole("prefill", 4, 2, "engine:1"), newRole("route", 4, 1, "engine:1"))
	for _, groups := range []int32{0, 3} {
		first.Spec.Roles[1].Spec.Replicas = new(3 - groups)
		second := newSet(1, newRole("prefill", groups, 2, "engine:2"), external(newRole("decode", 1, 4, "engine:2")))
		after, _, err := restored(second, []*appsv1.ControllerRevision{recorded(t, first, 1), recorded(t, second, 2)}, 1)
		expect.OK(t, err)
		expect.Equal(t, groups, *after.Spec.Roles[0].Spec.Replicas)
		expect.Equal(t, groups > 0, *after.Spec.Roles[1].Spec.Replicas > 0)
	}
}

// An undo takes away what places subgroups that the revision lacks, and partners that it lacks.
func TestAnUndoDropsWhatTheRevisionLacks(t *testing.T) {
	first := newSet(1, newRole("prefill", 4, 2, "engine:1"), newRole("decode", 2, 4, "engine:1"))
	second := newSet(1, newRole("prefill", 4, 2, "engine:2"), newRole("generate", 2, 4, "engine:2"))
	second.Annotations = map[string]string{dsv1.RestartPolicyAnnotationKey: "Restart", dsv1.RestartPartnersAnnotationKey: "prefill,generate"}
	second.Spec.Roles[0].Metadata.Annotations = map[string]string{lwsv1.SubGroupExclusiveKeyAnnotationKey: "rack", "mine": "1"}
	second.Spec.Roles[0].Spec.LeaderWorkerTemplate.SubGroupPolicy = &lwsv1.SubGroupPolicy{SubGroupSize: new(int32(2))}
	change, err := Undo(1)(t.Context(), newClient(second.DeepCopy(), recorded(t, first, 1), recorded(t, second, 2)), second)
	expect.OK(t, err)
	expect.Equal(t, map[string]string{"mine": "1"}, change.After.(*dsv1.DisaggregatedSet).Spec.Roles[0].Metadata.Annotations)
	expect.Equal(t, "prefill", change.After.GetAnnotations()[dsv1.RestartPartnersAnnotationKey])
}

func TestWhatCannotBeUndone(t *testing.T) {
	set := newSet(1, newRole("prefill", 4, 2, "engine:1"))
	other := newSet(1, newRole("prefill", 4, 2, "engine:2"))
	unsupported := set.DeepCopy()
	unsupported.Status.Conditions = []metav1.Condition{{Type: action.CodeUnsupported, Status: metav1.ConditionTrue}}
	later, broken := recorded(t, other, 1), recorded(t, other, 1)
	later.Data.Raw = []byte(`{"roles":[{"name":"prefill"}]}`)
	broken.Data.Raw = []byte(`[]`)
	foreign := recorded(t, other, 1)
	foreign.OwnerReferences[0].UID = "another"
	for name, tt := range map[string]struct {
		set    *dsv1.DisaggregatedSet
		kept   *appsv1.ControllerRevision
		number int64
		says   string
	}{
		"no history":               {set, nil, 0, `no rollout history found for disaggregatedset "llama"`},
		"the history of another":   {set, foreign, 0, "no rollout history found"},
		"an unknown revision":      {set, recorded(t, other, 1), 4, "has no revision 4; there are: 1"},
		"the only revision":        {set, recorded(t, set, 1), 0, "nothing to go back to"},
		"a set of a later version": {unsupported, recorded(t, other, 1), 0, "upgrade Lockstep"},
		"a record that was cut":    {set, later, 0, "cannot be restored"},
		"a record that is broken":  {set, broken, 0, "decode controllerrevision"},
	} {
		t.Run(name, func(t *testing.T) {
			objects := []client.Object{tt.set.DeepCopy()}
			if tt.kept != nil {
				objects = append(objects, tt.kept)
			}
			_, err := Undo(tt.number)(t.Context(), newClient(objects...), tt.set)
			expect.ErrorSays(t, err, tt.says)
		})
	}
	change, err := Undo(1)(t.Context(), newClient(set.DeepCopy(), recorded(t, set, 1)), set)
	expect.That(t, err == nil && change.Before == change.After && strings.HasPrefix(change.Verb, "skipped rollback"), "got %+v, %v", change, err)
}

// A set that the operator leaves alone says so, and a stalled rollout has failed.
func TestWhatOnlyTheOperatorKnowsIsTold(t *testing.T) {
	w := atRest(t, newSet(2, newRole("prefill", 2, 1, "engine:1")))
	w.Set.Status.Conditions = []metav1.Condition{
		{Type: action.CodeUnsupported, Status: metav1.ConditionTrue, Message: "spec.newer is unknown", ObservedGeneration: w.Set.Generation},
		{Type: dsv1.ConditionProgressing, Status: metav1.ConditionTrue, Reason: action.CodeRefused, Message: "exceeded quota", ObservedGeneration: w.Set.Generation},
	}
	s := expect.Value(Status(w))(t)
	expect.Equal(t, []string{"spec.newer is unknown", "exceeded quota"}, s.Waiting)
	p := expect.Value(Plan(w))(t)
	expect.Says(t, strings.Join(p.Waits, "; "), "spec.newer is unknown; exceeded quota")
	_, err := Restart(now)(t.Context(), nil, w.Set)
	expect.ErrorSays(t, err, "upgrade Lockstep first")
	w.Set.Status.Conditions = []metav1.Condition{{Type: "Stalled", Status: metav1.ConditionTrue}}
	w.Set.Status.ObservedGeneration = w.Set.Generation
	r := expect.Value(standingOf(w))(t)
	expect.That(t, r.IsFailed, "got %+v", r)
	w.Set.Generation++
	expect.That(t, !expect.Value(standingOf(w))(t).IsFailed, "the operator has not seen the change")
}

// Groups of a slice that is removed hold nodes until they end.
func TestARemovedSliceIsWaitedFor(t *testing.T) {
	w := atRest(t, newSet(2, newRole("prefill", 2, 1, "engine:1")))
	w.Set = newSet(1, newRole("prefill", 2, 1, "engine:1"))
	w.Set.Status.ObservedGeneration = w.Set.Generation
	s := expect.Value(Status(w))(t)
	expect.Equal(t, []string{"slice 1 is removed: 2 groups of prefill must end"}, s.Waiting)
	expect.That(t, !expect.Value(standingOf(w))(t).IsDone, "the rollout is done before they end")
}

// Fields of roles that this version lacks stay.
func TestARestartReachesEveryTemplate(t *testing.T) {
	set := newSet(1, newRole("prefill", 4, 2, "engine:1"), newRole("decode", 2, 4, "engine:1"))
	set.Spec.Roles[1].Spec.LeaderWorkerTemplate.LeaderTemplate = &corev1.PodTemplateSpec{}
	stored := &unstructured.Unstructured{Object: expect.Value(runtime.DefaultUnstructuredConverter.ToUnstructured(set))(t)}
	const newer = "subRoles"
	roles, _, _ := unstructured.NestedFieldNoCopy(stored.Object, "spec", "roles")
	roles.([]any)[1].(map[string]any)[newer] = []any{"a"}
	unstructured.RemoveNestedField(roles.([]any)[0].(map[string]any), "spec", "leaderWorkerTemplate", "workerTemplate", "metadata")
	c := interceptor.NewClient(newClient(), interceptor.Funcs{Get: func(_ context.Context, _ client.WithWatch, _ client.ObjectKey, into client.Object, _ ...client.GetOption) error {
		stored.DeepCopyInto(into.(*unstructured.Unstructured))
		return nil
	}})
	change, err := Restart(now)(t.Context(), c, set)
	expect.OK(t, err)
	changed := change.After.(*unstructured.Unstructured)
	kept, _, _ := unstructured.NestedSlice(changed.Object, "spec", "roles")
	expect.That(t, reflect.DeepEqual(kept[1].(map[string]any)[newer], []any{"a"}), "a field that this version lacks is gone: %v", kept[1])
	expect.Equal(t, stored.Object, change.Before.(*unstructured.Unstructured).Object)
	after := &dsv1.DisaggregatedSet{}
	expect.OK(t, runtime.DefaultUnstructuredConverter.FromUnstructured(changed.Object, after))
	templates := []corev1.PodTemplateSpec{*after.Spec.Roles[1].Spec.LeaderWorkerTemplate.LeaderTemplate}
	for _, role := range after.Spec.Roles {
		templates = append(templates, role.Spec.LeaderWorkerTemplate.WorkerTemplate)
	}
	for _, template := range templates {
		expect.Equal(t, now.Format(time.RFC3339), template.Annotations[lws.RestartedAtKey])
	}
	_, err = Restart(now)(t.Context(), nil, after)
	expect.ErrorSays(t, err, "within the past second")
	change, err = lws.Pause(context.Background(), nil, set)
	expect.OK(t, err)
	paused := change.After.(*dsv1.DisaggregatedSet)
	_, err = Restart(now)(t.Context(), nil, paused)
	expect.ErrorSays(t, err, "rollout resume dset/llama -n default")
	_, err = lws.Pause(t.Context(), nil, paused)
	expect.ErrorSays(t, err, `disaggregatedset "llama" is already paused`)
	change, err = lws.Resume(t.Context(), nil, paused)
	expect.That(t, err == nil && !isPaused(change.After.(*dsv1.DisaggregatedSet)), "got %+v, %v", change, err)
}
