package lws

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1alpha3 "k8s.io/api/scheduling/v1alpha3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/apply"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/internal/lwscache"
	"lockstep.dev/lockstep/internal/reconcile"
	reconcilelws "lockstep.dev/lockstep/internal/reconcile/lws"
	"lockstep.dev/lockstep/internal/report"
	"lockstep.dev/lockstep/internal/turn"
	"lockstep.dev/lockstep/test/expect"
	"lockstep.dev/lockstep/test/fakeapi"
)

var epoch = fakeapi.Epoch

// serverOf is a fake API server with the operator's indexes.
func serverOf(t *testing.T, objects ...client.Object) *fakeapi.Server {
	t.Helper()
	s := fakeapi.New()
	expect.OK(t, lwscache.Index(t.Context(), s))
	for _, object := range objects {
		fakeapi.Add(s, object)
	}
	return s
}

func sessionOf(s *fakeapi.Server) *Session { return &Session{Cached: s.Cached(), Live: s.Live()} }

func surveyed(t *testing.T, s *Session, name string) Survey {
	t.Helper()
	found := expect.Value(s.Set(t.Context(), types.NamespacedName{Namespace: fakeapi.Namespace, Name: name}, epoch.Add(time.Minute)))(t)
	return found
}

// advance reconciles a set and its groups, and has the controllers of StatefulSets and pods act.
func advance(t *testing.T, s *fakeapi.Server, name string) {
	t.Helper()
	memory, actor, controllers := lwscache.NewMemory(), apply.New(s, s.Live()), fakeapi.Control(s)
	loop := &reconcilelws.Loop{
		Executor: reconcile.Executor{
			Memory: memory.Memory, Report: report.New(&events.FakeRecorder{}),
			Writer: func() reconcile.Writer { return actor.ForReconcile() }, Together: apply.AtOnce,
			Now: func() time.Time { return epoch.Add(time.Minute) }, Wake: func(client.Object) {},
		},
		Observer: lwscache.New(s.Cached(), s.Live(), memory), Failures: turn.NewPace(1000, 1000, time.Now),
	}
	request := func(name string) ctrl.Request {
		return ctrl.Request{NamespacedName: types.NamespacedName{Namespace: fakeapi.Namespace, Name: name}}
	}
	_, _, err := loop.Set(t.Context(), request(name))
	expect.OK(t, err)
	for _, pod := range fakeapi.All[*corev1.Pod](s.Objects) {
		expect.Value(loop.Group(t.Context(), request(pod.Name)))(t)
	}
	for _, sts := range fakeapi.All[*appsv1.StatefulSet](s.Objects) {
		controllers.Sync(sts)
	}
	for _, pod := range fakeapi.All[*corev1.Pod](s.Objects) {
		controllers.Run(pod)
	}
}

// up is a server with a set whose groups are ready, and other objects.
func up(t *testing.T, set *lwsv1.LeaderWorkerSet, others ...client.Object) *fakeapi.Server {
	t.Helper()
	s := serverOf(t, append(others, set)...)
	for range 6 {
		advance(t, s, set.Name)
	}
	return s
}

// formerPod is a pod of a set's name that a former StatefulSet controls.
func formerPod(name, set string) *corev1.Pod {
	pod := fakeapi.Pod(name, set, 1)
	parent, _ := identity.ParentAndOrdinal(name)
	fakeapi.OwnedBy(pod, "apps/v1", fakeapi.Former(identity.KindStatefulSet, parent))
	return pod
}

func TestSurveyHasEveryGroupOfTheSet(t *testing.T) {
	set := fakeapi.Set("a", 3, 4)
	server := up(t, set, formerPod("a-7-1", "a"), fakeapi.Set("a-0", 1, 2), formerPod("a-0-9-1", "a-0"))
	s := sessionOf(server)
	found := surveyed(t, s, "a")
	expect.Must(t, len(found.Groups) == 4 && found.Standing.Ready == 3 && found.Standing.Updated == 3,
		"got %d groups, %+v", len(found.Groups), found.Standing)
	for i, g := range found.Groups[:3] {
		if g.Index != i || g.Leader == nil || len(g.Pods.Owned) != 3 || !g.Ready(found.Set.Set) || !g.UpToDate(found.Standing.Key) {
			t.Errorf("group %d: got %+v", i, g.Group)
		}
	}
	if last := found.Groups[3]; last.Index != 7 || len(last.Pods.Previous) != 1 || len(last.Pods.Owned) != 0 {
		t.Errorf("without a leader: got group %d with %+v", last.Index, last.Pods)
	}
	_, err := s.Set(t.Context(), types.NamespacedName{Namespace: fakeapi.Namespace, Name: "b"}, epoch)
	expect.That(t, apierrors.IsNotFound(err), "no such set: got %v", err)
}

// The operator has called the pod stuck. A new process must not take that back.
func TestStuckObjectsStayStuck(t *testing.T) {
	set := fakeapi.Set("a", 1, 1)
	set.CreationTimestamp = metav1.NewTime(epoch.Add(-time.Hour))
	set.Status.Conditions = []metav1.Condition{{
		Type: "Progressing", Status: metav1.ConditionTrue, Reason: lws.CodePreviousIncarnation,
		Message: "waiting for 1 pod; none has left for a minute: …",
	}}
	previous := formerPod("a-0", "a")
	previous.CreationTimestamp = metav1.NewTime(epoch.Add(-2 * time.Hour))
	previous.Finalizers = []string{"example.com/hold"}
	previous.DeletionTimestamp = &set.CreationTimestamp
	found := surveyed(t, sessionOf(serverOf(t, set, previous)), "a")
	message := found.Plan.Waits[0].Sentence
	if !strings.Contains(message, "none has left for a minute") || !strings.Contains(message, "example.com/hold") {
		t.Errorf("got %q", message)
	}
}

// Users need not read the definition: what the operator says of a set that it leaves alone is the plan.
func TestThePlanOfASetThatIsLeftAloneIsWhatTheOperatorSays(t *testing.T) {
	server := up(t, fakeapi.Set("a", 1, 2))
	fakeapi.Edit(server, "a", func(set *lwsv1.LeaderWorkerSet) {
		set.Status.Conditions = []metav1.Condition{{Type: lws.CodeUnsupported, Status: metav1.ConditionTrue, Message: "left alone"}}
	})
	s, live := sessionOf(server), server.Live()
	live.Fail = func(n fakeapi.Name) error {
		if n.Kind == "CustomResourceDefinition" {
			return apierrors.NewForbidden(schema.GroupResource{Resource: "customresourcedefinitions"}, n.Name, nil)
		}
		return nil
	}
	s.Live = live
	found := surveyed(t, s, "a")
	for _, plan := range []lws.Plan{found.Plan, found.Groups[0].Plan} {
		expect.That(t, plan.IsUnsupported() && len(plan.Actions) == 0 && plan.Waits[0].Sentence == "left alone",
			"got %+v", plan)
	}
}

// Exclusive placement is decided by the node's labels, and nodes are in no namespace.
func TestUsersWithoutNodesSeeTheRest(t *testing.T) {
	server := serverOf(t, fakeapi.Set("a", 1, 2, fakeapi.Annotation(lwsv1.ExclusiveKeyAnnotationKey, "rack")))
	advance(t, server, "a")
	s, live := sessionOf(server), server.Live()
	live.Fail = func(n fakeapi.Name) error {
		if n.Kind == "Node" {
			return apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, n.Name, nil)
		}
		return nil
	}
	s.Live = live
	found := surveyed(t, s, "a")
	if len(found.Groups) != 1 || found.Groups[0].Leader == nil || found.Groups[0].Plan.Waits[0].Code != CodeNotAllowed {
		t.Errorf("got %+v", found.Groups)
	}
}

// No object says why a pod is missing: the newest event of its StatefulSet does.
func TestRefusalsAreReadFromEvents(t *testing.T) {
	s := serverOf(t, fakeapi.Set("a", 2, 2))
	expect.OK(t, s.IndexField(t.Context(), &corev1.Event{}, "reason", func(o client.Object) []string { return []string{o.(*corev1.Event).Reason} }))
	advance(t, s, "a")
	sts := fakeapi.Find[*appsv1.StatefulSet](s, "a")
	event := func(name string, uid types.UID, message string, minute int) {
		e := &corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: fakeapi.Namespace, Name: name}, Reason: "FailedCreate", Message: message}
		e.InvolvedObject.UID, e.LastTimestamp = uid, metav1.NewTime(epoch.Add(time.Duration(minute)*time.Minute))
		fakeapi.Add(s, e)
	}
	event("a", sts.UID, "create Pod a-1 in StatefulSet a failed error: too long", 1)
	event("b", sts.UID, "create Pod a-1 in StatefulSet a failed error: exceeded quota", 2)
	event("c", sts.UID, "create Pod a-11 in StatefulSet a failed error: another", 3)
	event("d", "former", "create Pod a-1 in StatefulSet a failed error: another incarnation", 4)
	found := surveyed(t, sessionOf(s), "a")
	expect.Says(t, found.Refusals.OfPod(sts, "a-1"), "exceeded quota")
	expect.Equalf(t, "", found.Refusals.OfPod(sts, "a-0"), "of another pod")
}

func TestAwaitEndsWithTheSession(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	expired := errors.New("expired")
	cancel(expired)
	s := &Session{ctx: ctx}
	for range 2 { // each of several sets is followed
		err := s.Await()
		expect.That(t, errors.Is(err, expired), "got %v", err)
	}
}

// leaseOf is a lease of 15 seconds that was renewed so long before epoch.
func leaseOf(namespace, holder string, ago time.Duration) *coordinationv1.Lease {
	renewed, duration := metav1.NewMicroTime(epoch.Add(-ago)), int32(15)
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "lease"},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder, RenewTime: &renewed, LeaseDurationSeconds: &duration},
	}
}

// attended is a session that may read leases, unless "get" is forbidden, and reads a stored set.
func attended(leases []*coordinationv1.Lease, set *lwsv1.LeaderWorkerSet, forbidden ...string) *Session {
	builder := fake.NewClientBuilder().WithScheme(Scheme())
	for _, l := range leases {
		builder.WithObjects(l)
	}
	denied := func(verb string) error {
		if slices.Contains(forbidden, verb) {
			return apierrors.NewForbidden(schema.GroupResource{Resource: "leases"}, "lease", nil)
		}
		return nil
	}
	live := builder.WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if stored, isSet := o.(*lwsv1.LeaderWorkerSet); isSet {
				set.DeepCopyInto(stored)
				return nil
			}
			if err := denied("get"); err != nil {
				return err
			}
			return c.Get(ctx, key, o, opts...)
		},
	}).Build()
	return &Session{Live: live, Lease: types.NamespacedName{Namespace: "home", Name: "lease"}}
}

// written is a set whose spec was written so long before epoch, and whose status after it.
func written(observed int64, ago time.Duration) *lwsv1.LeaderWorkerSet {
	set := fakeapi.Set("a", 1, 1)
	set.Generation, set.Status.ObservedGeneration = 2, observed
	entry := func(subresource, fields string, at time.Time) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{Subresource: subresource, Time: new(metav1.NewTime(at)), FieldsV1: metav1.NewFieldsV1(fields)}
	}
	set.ManagedFields = []metav1.ManagedFieldsEntry{
		entry("", `{"f:spec":{"f:replicas":{}}}`, epoch.Add(-time.Hour)),
		entry("scale", `{"f:spec":{"f:replicas":{}}}`, epoch.Add(-ago)),
		entry("status", `{"f:status":{}}`, epoch),
		entry("", `{"f:metadata":{"f:labels":{"f:spec":{}}}}`, epoch),
	}
	return set
}

func TestASetWithoutAnOperatorSaysSo(t *testing.T) {
	held, expired, released := leaseOf("home", "x", time.Second), leaseOf("home", "x", time.Minute), leaseOf("home", "", 0)
	for _, tt := range []struct {
		name      string
		leases    []*coordinationv1.Lease
		forbidden []string
		set       *lwsv1.LeaderWorkerSet
		want      string
	}{
		{"held", []*coordinationv1.Lease{held}, nil, written(2, time.Hour), ""},
		{"expired", []*coordinationv1.Lease{expired}, nil, written(2, time.Hour), CodeNoOperator},
		{"released", []*coordinationv1.Lease{released}, nil, written(2, time.Hour), CodeNoOperator},
		{"absent, as without leader election", nil, nil, written(2, time.Hour), ""},
		{"absent, and a spec is not observed", nil, nil, written(1, time.Hour), CodeNotObserved},
		{"not to be read", []*coordinationv1.Lease{expired}, []string{"get"}, written(2, time.Hour), ""},
		{"not to be read, and a spec is not observed", nil, []string{"get"}, written(1, 30*time.Second), CodeNotObserved},
		{"a spec is not observed", []*coordinationv1.Lease{held}, nil, written(1, 30*time.Second), CodeNotObserved},
		{"a spec is not observed yet", []*coordinationv1.Lease{held}, nil, written(1, 29*time.Second), ""},
		{"a spec without a time", []*coordinationv1.Lease{held}, nil, func() *lwsv1.LeaderWorkerSet {
			set := written(1, time.Hour)
			set.ManagedFields = nil
			return set
		}(), ""},
	} {
		cached := tt.set.DeepCopy()
		cached.ManagedFields = nil // the cache drops them
		s := attended(tt.leases, tt.set, tt.forbidden...)
		got := codeOf(s.unattended(t.Context(), cached, s.isAbandoned(t.Context(), epoch), epoch))
		expect.Equalf(t, tt.want, got, "%s", tt.name)
	}
	replay := &Session{Live: attended(nil, nil).Live}
	expect.Equalf(t, nil, replay.unattended(t.Context(), written(1, time.Hour), replay.isAbandoned(t.Context(), epoch), epoch), "without a lease to look for")
}

func codeOf(why *action.Reason) string {
	if why == nil {
		return ""
	}
	return why.Code
}

type edit = func(*lwsv1.LeaderWorkerSet)

// rolling sets the rolling update to numbers of groups.
func rolling(unavailable, surge, partition int32) edit {
	return func(set *lwsv1.LeaderWorkerSet) {
		set.Spec.RolloutStrategy.RollingUpdateConfiguration = &lwsv1.RollingUpdateConfiguration{
			MaxUnavailable: intstr.FromInt32(unavailable), MaxSurge: intstr.FromInt32(surge), Partition: &partition,
		}
	}
}

// asks makes the set and its leader StatefulSet ask for groups that nothing creates.
func asks(s *fakeapi.Server, groups int32, edits ...edit) {
	fakeapi.Edit(s, "w", func(set *lwsv1.LeaderWorkerSet) {
		set.Spec.Replicas = &groups
		fakeapi.Edited(set, edits...)
	})
	if fakeapi.Find[*appsv1.StatefulSet](s, "w") == nil {
		return
	}
	fakeapi.Edit(s, "w", func(sts *appsv1.StatefulSet) {
		sts.Spec.Replicas = &groups
		sts.Status.ObservedGeneration = sts.Generation
	})
}

// gangOfSet makes all pods of a set one gang.
func gangOfSet(set *lwsv1.LeaderWorkerSet) {
	set.Spec.Scheduling = &lwsv1.Scheduling{SchedulingPolicy: &schedulingv1alpha3.WorkloadCompositePodGroupSchedulingPolicy{
		Gang: &schedulingv1alpha3.WorkloadCompositePodGroupGangSchedulingPolicy{},
	}}
}

// A read and a decision allocate as much for a million groups that do not exist as for a thousand.
func TestASetCostsWhatExists(t *testing.T) {
	const most = math.MaxInt32
	for name, tt := range map[string]struct {
		made   []edit
		change func(*fakeapi.Server, int32)
	}{
		"nothing exists":           {change: func(s *fakeapi.Server, n int32) { asks(s, n) }},
		"three groups exist":       {made: []edit{}, change: func(s *fakeapi.Server, n int32) { asks(s, n) }},
		"groups restart":           {made: []edit{fakeapi.Policy(lwsv1.RecreateGroupOnPodRestart)}, change: func(s *fakeapi.Server, n int32) { asks(s, n) }},
		"a Service for each group": {made: []edit{fakeapi.UniquePerReplica}, change: func(s *fakeapi.Server, n int32) { asks(s, n) }},
		"PVCs": {made: []edit{fakeapi.Volumes(appsv1.DeletePersistentVolumeClaimRetentionPolicyType, appsv1.DeletePersistentVolumeClaimRetentionPolicyType)},
			change: func(s *fakeapi.Server, n int32) { asks(s, n) }},
		"scaled down to one": {made: []edit{}, change: func(s *fakeapi.Server, n int32) {
			asks(s, n)
			fakeapi.Edit(s, "w", func(set *lwsv1.LeaderWorkerSet) { set.Spec.Replicas = fakeapi.Ptr(int32(1)) })
		}},
		"a rollout begins": {made: []edit{}, change: func(s *fakeapi.Server, n int32) { asks(s, n, fakeapi.Image("image:2")) }},
		"a rollout that surges": {made: []edit{rolling(0, 1, 0)}, change: func(s *fakeapi.Server, n int32) {
			asks(s, n, fakeapi.Image("image:2"), rolling(0, most, 0))
		}},
		"a rollout in its middle": {made: []edit{}, change: func(s *fakeapi.Server, n int32) {
			asks(s, n, fakeapi.Image("image:2"), rolling(n/2, 0, 0))
			fakeapi.Edit(s, "w", func(sts *appsv1.StatefulSet) {
				sts.Status.ObservedGeneration = sts.Generation
				sts.Spec.UpdateStrategy.RollingUpdate.Partition = fakeapi.Ptr(n / 2)
			})
		}},
		"a partition beyond all groups": {made: []edit{}, change: func(s *fakeapi.Server, n int32) { asks(s, n, fakeapi.Image("image:2"), rolling(1, 0, most)) }},
		"a leader's name is taken": {made: []edit{}, change: func(s *fakeapi.Server, n int32) {
			asks(s, n)
			fakeapi.Add(s, formerPod("w-7", "w"))
		}},
		"a gang of the whole set": {made: []edit{gangOfSet}, change: func(s *fakeapi.Server, n int32) { asks(s, n) }},
		"groups have keys": {made: []edit{func(set *lwsv1.LeaderWorkerSet) { set.Spec.GroupIdentity = lwsv1.HashGroupIdentity }},
			change: func(s *fakeapi.Server, n int32) { asks(s, n) }},
		"large groups": {made: []edit{}, change: func(s *fakeapi.Server, n int32) {
			asks(s, 3)
			fakeapi.Edit(s, "w", func(set *lwsv1.LeaderWorkerSet) { set.Spec.LeaderWorkerTemplate.Size = &n })
			for _, pod := range fakeapi.All[*corev1.Pod](s.Objects) {
				fakeapi.Edit(s, pod.Name, func(pod *corev1.Pod) {
					metav1.SetMetaDataAnnotation(&pod.ObjectMeta, lwsv1.SizeAnnotationKey, "1000000")
				})
			}
			fakeapi.Edit(s, "w-0", func(sts *appsv1.StatefulSet) { sts.Spec.Replicas = fakeapi.Ptr(n - 1) })
		}},
	} {
		t.Run(name, func(t *testing.T) {
			cost := func(n int32) float64 {
				s := serverOf(t, fakeapi.Set("w", 3, 2, tt.made...))
				for range 6 {
					if tt.made != nil {
						advance(t, s, "w")
					}
				}
				tt.change(s, n)
				return testing.AllocsPerRun(2, func() { surveyed(t, sessionOf(s), "w") })
			}
			few := cost(1000)
			for _, n := range []int32{1_000_000, most} {
				many := cost(n)
				expect.That(t, many <= few+few/10+100, "%d groups: %.0f allocations, %.0f for 1000", n, many, few)
			}
		})
	}
}
