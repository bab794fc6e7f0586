package lwscache_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/internal/lws/restart"
	"lockstep.dev/lockstep/internal/lws/workload"
	"lockstep.dev/lockstep/internal/lwscache"
	reconcilelws "lockstep.dev/lockstep/internal/reconcile/lws"
	"lockstep.dev/lockstep/test/expect"
	"lockstep.dev/lockstep/test/fakeapi"
)

// eyes are an observer of a fake API server.
type eyes struct {
	*fakeapi.Server
	t        *testing.T
	cached   *fakeapi.Reader
	live     *fakeapi.Reader
	memory   *lwscache.Memory
	observer *lwscache.Observer
}

func open(t *testing.T) *eyes {
	t.Helper()
	store := fakeapi.New()
	expect.OK(t, lwscache.Index(context.Background(), store))
	e := &eyes{Server: store, t: t, cached: store.Cached(), live: store.Live(), memory: lwscache.NewMemory()}
	e.observer = lwscache.New(e.cached, e.live, e.memory)
	e.observer.Budgets.Reader = func(context.Context, bool) (client.Reader, error) { return nil, nil } // no set wants one
	return e
}

func key(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: fakeapi.Namespace, Name: name}
}

func (e *eyes) set(name string) lws.SetSnapshot {
	e.t.Helper()
	return expect.Value(e.observer.Set(context.Background(), key(name), e.Now))(e.t)
}

// groupPlan reads a group and decides about it, as the operator does.
func (e *eyes) groupPlan(name string) (lws.GroupSnapshot, lws.Plan, error) {
	w, err := e.observer.Group(context.Background(), key(name), e.Now)
	if err != nil {
		return w, lws.Plan{}, err
	}
	plan, err := reconcilelws.PlanGroup(context.Background(), e.observer, &w)
	return w, plan, err
}

// chained is a set with a leader StatefulSet and one leader, all members.
func chained(t *testing.T) (*eyes, *lwsv1.LeaderWorkerSet, *appsv1.StatefulSet) {
	e := open(t)
	set := fakeapi.Add(e.Server, fakeapi.Set("w", 2, 2))
	sts := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: fakeapi.Namespace, Name: "w", Labels: map[string]string{lwsv1.SetNameLabelKey: "w"}}}
	fakeapi.OwnedBy(sts, identity.KindLeaderWorkerSet.APIVersion(), identity.RefOf(identity.KindLeaderWorkerSet, set))
	sts = fakeapi.Add(e.Server, sts)
	leader := fakeapi.Pod("w-0", "w", 0)
	fakeapi.OwnedBy(leader, "apps/v1", identity.RefOf(identity.KindStatefulSet, sts))
	fakeapi.Add(e.Server, leader)
	return e, set, sts
}

func TestASetThatDoesNotExistIsNotFound(t *testing.T) {
	e := open(t)
	_, err := e.observer.Set(context.Background(), key("w"), e.Now)
	expect.That(t, apierrors.IsNotFound(err), "set: %v", err)
	w, plan, err := e.groupPlan("w-0")
	expect.That(t, w.Set == nil && len(plan.Actions) == 0 && err == nil, "its group: %v, %v, %v", w.Set, plan, err)
	for _, name := range []string{"w", "w-00", "w-x", ""} {
		_, err := e.observer.Group(context.Background(), key(name), e.Now)
		expect.That(t, apierrors.IsNotFound(err), "group %q: %v", name, err)
	}
}

func TestAChainOfOwnersIsFollowedByUID(t *testing.T) {
	stsLabels := map[string]string{lwsv1.SetNameLabelKey: "w"}
	for _, tt := range []struct {
		name  string
		world func(*eyes) // gives pod w-0 an owner
		want  identity.Class
	}{
		{"the owner's owner is gone", func(e *eyes) {
			former := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: fakeapi.Namespace, Name: "v", Labels: stsLabels}}
			fakeapi.OwnedBy(former, identity.KindLeaderWorkerSet.APIVersion(), fakeapi.Former(identity.KindLeaderWorkerSet, "w"))
			own(e, identity.RefOf(identity.KindStatefulSet, fakeapi.Add(e.Server, former)))
		}, identity.Previous},
		{"the owner is terminating", func(e *eyes) {
			going := fakeapi.Add(e.Server, &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: fakeapi.Namespace, Name: "v", Labels: stsLabels}})
			fakeapi.Terminate[*appsv1.StatefulSet](e.Server, "v", "foregroundDeletion")
			own(e, identity.RefOf(identity.KindStatefulSet, going))
		}, identity.Previous},
		{"the owner is alive and the cache does not show it", func(e *eyes) {
			hidden := fakeapi.Add(e.Server, &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: fakeapi.Namespace, Name: "v"}})
			own(e, identity.RefOf(identity.KindStatefulSet, hidden))
		}, identity.Foreign},
		{"the owner is not ours to see", func(e *eyes) {
			e.live.Fail = func(n fakeapi.Name) error {
				return apierrors.NewForbidden(schema.GroupResource{Resource: string(n.Kind)}, n.Name, errors.New("no"))
			}
			own(e, fakeapi.Former("Secret", "s"))
		}, identity.Foreign},
		{"the owner's version is served no more", func(e *eyes) {
			e.live.Fail = func(n fakeapi.Name) error {
				return apierrors.NewGenericServerResponse(404, "GET", schema.GroupResource{Resource: string(n.Kind)}, n.Name, "404 page not found", 0, true)
			}
			own(e, fakeapi.Former("Secret", "s"))
		}, identity.Foreign},
	} {
		e, _, _ := chained(t)
		tt.world(e)
		w := e.set("w")
		got := map[identity.Class]int{
			identity.Owned: len(w.Leaders.Owned), identity.Previous: len(w.Leaders.Previous),
			identity.Orphan: len(w.Leaders.Orphans), identity.Foreign: len(w.Leaders.Foreign),
		}
		expect.Equalf(t, 1, got[tt.want], "%s: got %v, of class %d", tt.name, got, tt.want)
	}
}

func own(e *eyes, owner identity.Ref) {
	fakeapi.Edit(e.Server, "w-0", func(pod *corev1.Pod) { fakeapi.OwnedBy(pod, owner.Kind.APIVersion(), owner) })
}

// A complete set is read from the cache, and an owner that is gone is read live once.
func TestLiveReadsOfOwners(t *testing.T) {
	e, _, _ := chained(t)
	e.set("w")
	expect.That(t, e.live.Reads == 0, "%d live reads of a complete set", e.live.Reads)
	own(e, fakeapi.Former(identity.KindStatefulSet, "other"))
	e.set("w")
	reads := e.live.Reads
	e.set("w")
	expect.That(t, reads != 0 && e.live.Reads == reads, "%d live reads at first, %d after another", reads, e.live.Reads)
}

func TestAFailedReadIsNotTakenForAbsence(t *testing.T) {
	e, _, _ := chained(t)
	own(e, fakeapi.Former(identity.KindStatefulSet, "other"))
	e.live.Fail = func(fakeapi.Name) error { return errors.New("down") }
	_, err := e.observer.Set(context.Background(), key("w"), e.Now)
	expect.That(t, err != nil, "an owner that could not be read was classified")
	e.live.Fail = nil
	e.cached.Fail = func(n fakeapi.Name) error {
		if n.Kind == identity.KindStatefulSet {
			return errors.New("down")
		}
		return nil
	}
	_, err = e.observer.Set(context.Background(), key("w"), e.Now)
	expect.That(t, err != nil, "a cache that could not be read was believed")
}

// The leader llama-3-0 of the set llama-3 has the name of a worker of a set llama, and stays.
func TestPodsOfASetWithANumberAreKept(t *testing.T) {
	e := open(t)
	pod := fakeapi.Pod("llama-3-0", "llama-3", 0)
	pod.Finalizers = []string{lwsv1.GroupRestartBudgetFinalizer}
	fakeapi.OwnedBy(pod, "apps/v1", identity.Ref{Kind: identity.KindStatefulSet, Name: "llama-3", UID: "there"})
	fakeapi.Add(e.Server, pod)
	fakeapi.Terminate[*corev1.Pod](e.Server, "llama-3-0", lwsv1.GroupRestartBudgetFinalizer)
	for name, add := range map[string]bool{"no set llama": false, "a set llama": true} {
		if add {
			fakeapi.Add(e.Server, fakeapi.Set("llama", 5, 2))
		}
		_, plan, _ := e.groupPlan("llama-3")
		expect.Emptyf(t, plan.Actions, "%s", name)
	}
}

func TestAnObjectWithoutLabelsUnderATakenNameIsRead(t *testing.T) {
	e, _, _ := chained(t)
	fakeapi.Add(e.Server, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: fakeapi.Namespace, Name: "w"}})
	got := e.set("w")
	expect.Must(t, got.Service.Empty(), "the cache shows %v", got.Service)
	ref := identity.Ref{Kind: identity.KindService, Namespace: fakeapi.Namespace, Name: "w"}
	e.memory.Taken(ref)
	expect.Equalf(t, 1, len(e.set("w").Service.Foreign), "foreign Services")
	fakeapi.Drop[*corev1.Service](e.Server, "w")
	e.memory.Taken(ref)
	got = e.set("w")
	expect.That(t, got.Service.Empty(), "what left is still there: %+v", got.Service)
	fakeapi.Edit(e.Server, "w", func(sts *appsv1.StatefulSet) { // it may be the set's own, and is read whole
		delete(sts.Labels, lwsv1.SetNameLabelKey)
		sts.Spec.Replicas = fakeapi.Ptr[int32](7)
	})
	e.memory.Taken(identity.Ref{Kind: identity.KindStatefulSet, Namespace: fakeapi.Namespace, Name: "w"})
	sts := e.set("w").StatefulSet.Own()
	expect.That(t, sts != nil && workload.PodsOf(sts) == 7, "got %+v", sts)
}

func TestAMissingLeaderIsReadLiveOnceTheStatefulSetStalls(t *testing.T) {
	e, _, _ := chained(t)
	fakeapi.Add(e.Server, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: fakeapi.Namespace, Name: "w-1"}})
	// A set whose name ends in a number is not concerned by the pods of this one.
	fakeapi.Add(e.Server, fakeapi.Set("w-1", 2, 1))
	fakeapi.Edit(e.Server, "w", func(sts *appsv1.StatefulSet) { sts.Status.ObservedGeneration = sts.Generation })
	e.set("w") // the leader is missing from here on
	e.Now = e.Now.Add(10*time.Second - 1)
	leaders := e.set("w").Leaders
	expect.Must(t, len(leaders.Foreign) == 0 && e.live.Reads == 0, "read live at once: %d reads", e.live.Reads)
	e.Now = e.Now.Add(1)
	leaders = e.set("w").Leaders
	expect.That(t, len(leaders.Foreign) == 1 && leaders.Foreign[0].Name == "w-1", "got %+v", leaders)
	fakeapi.Edit(e.Server, "w", func(sts *appsv1.StatefulSet) { sts.Status.Replicas = 2 })
	fakeapi.Drop[*corev1.Pod](e.Server, "w-1")
	member := fakeapi.Pod("w-1", "w", 0)
	fakeapi.OwnedBy(member, "apps/v1", identity.RefOf(identity.KindStatefulSet, fakeapi.Find[*appsv1.StatefulSet](e.Server, "w")))
	fakeapi.Add(e.Server, member)
	leaders = e.set("w").Leaders
	expect.That(t, len(leaders.Foreign) == 0 && len(leaders.Owned) == 2, "the deleted pod is still read: %+v", leaders)
}

// A new leader finds the workers that a StatefulSet of its name controls, in its set and namespace alone.
func TestALeaderFindsTheGroupBeforeIt(t *testing.T) {
	leader := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: fakeapi.Namespace, Name: "w-0", Labels: map[string]string{
		lwsv1.SetNameLabelKey: "w", lwsv1.WorkerIndexLabelKey: "0",
	}}}
	for name, tt := range map[string]struct {
		worker, set, owner string
		elsewhere          bool
		want               bool
	}{
		"a worker":               {worker: "w-0-1", set: "w", owner: "w-0", want: true},
		"above the size":         {worker: "w-0-17", set: "w", owner: "w-0", want: true},
		"of another group":       {worker: "w-1-1", set: "w", owner: "w-1"},
		"of another set":         {worker: "w-0-1", set: "w-0", owner: "w-0"},
		"of no StatefulSet":      {worker: "w-0-1", set: "w"},
		"in another namespace":   {worker: "w-0-1", set: "w", owner: "w-0", elsewhere: true},
		"without a cache, never": {worker: "w-0-1", set: "w", owner: "w-0"},
	} {
		store := fakeapi.New()
		expect.OK(t, lwscache.Index(context.Background(), store))
		pod := fakeapi.Pod(tt.worker, tt.set, 1)
		if tt.owner != "" {
			fakeapi.OwnedBy(pod, "apps/v1", fakeapi.Former(identity.KindStatefulSet, tt.owner))
		}
		if tt.elsewhere {
			pod.Namespace = "elsewhere"
		}
		fakeapi.Add(store, pod)
		fakeapi.Add(store, fakeapi.Set("w", 1, 2))
		kin := lwscache.NewKin(store.Cached(), store.Live(), false)
		if name == "without a cache, never" {
			kin = lwscache.NewKin(nil, store.Live(), false)
		}
		got, err := kin.MustWait(t.Context(), leader, store.Now)
		expect.That(t, err == nil && got == tt.want, "%s: %v, %v", name, got, err)
	}
}

// Another implementation keeps the pods of a group that failed too often. They can end when their
// set is gone too, the worker before its leader.
func TestRetainedPodsEndWhenTheirSetIsGone(t *testing.T) {
	e := open(t)
	for name, leader := range map[string]string{"w-0": "w", "w-0-1": "w-0"} {
		pod := fakeapi.Pod(name, "w", 0)
		pod.Finalizers = []string{"a/b", lwsv1.GroupRestartBudgetFinalizer}
		fakeapi.OwnedBy(pod, "apps/v1", identity.Ref{Kind: identity.KindStatefulSet, Name: leader, UID: "gone"})
		fakeapi.Add(e.Server, pod)
	}
	_, plan, err := e.groupPlan("w-0")
	expect.Must(t, err == nil && len(plan.Actions) == 0, "pods that do not end are left alone: %v, %v", plan, err)
	fakeapi.Terminate[*corev1.Pod](e.Server, "w-0", "a/b", lwsv1.GroupRestartBudgetFinalizer)
	fakeapi.Terminate[*corev1.Pod](e.Server, "w-0-1", "a/b", lwsv1.GroupRestartBudgetFinalizer)
	for _, name := range []string{"w", "w-0-1"} { // StatefulSets and pods have these names, and no group
		_, plan, _ := e.groupPlan(name)
		expect.Emptyf(t, plan.Actions, "as of group %s", name)
	}
	for _, name := range []string{"w-0-1", "w-0"} {
		_, plan, err := e.groupPlan("w-0")
		expect.Must(t, err == nil && len(plan.Actions) == 1, "%s: %v, %v", name, plan.Actions, err)
		took, _ := plan.Actions[0].(action.SetFinalizers)
		expect.Must(t, took.Object.Name == name && slices.Equal(took.Finalizers, []string{"a/b"}), "%s: %+v", name, took)
		fakeapi.Drop[*corev1.Pod](e.Server, name)
	}
}

func TestALeaderIsOwnedThroughTheWholeChain(t *testing.T) {
	for name, tt := range map[string]struct {
		harm   func(*eyes)
		leader bool
	}{
		"whole":                         {func(*eyes) {}, true},
		"the statefulset is a namesake": {func(e *eyes) { own(e, fakeapi.Former(identity.KindStatefulSet, "w")) }, false},
		"the statefulset is going":      {func(e *eyes) { fakeapi.Terminate[*appsv1.StatefulSet](e.Server, "w") }, false},
		"the statefulset is another's": {func(e *eyes) {
			fakeapi.Edit(e.Server, "w", func(sts *appsv1.StatefulSet) { sts.OwnerReferences[0].UID = "former" })
		}, false},
	} {
		e, _, _ := chained(t)
		tt.harm(e)
		w, _, err := e.groupPlan("w-0")
		expect.OK(t, err)
		expect.Equalf(t, tt.leader, w.Leader != nil, "%s: has a leader", name)
	}
}

// A log is read of the pod and container that failed, and its end is added to the decision on the
// leader. One that cannot be read says why.
func TestLogsAreAddedToTheDecision(t *testing.T) {
	e, _, _ := chained(t)
	at := metav1.NewTime(fakeapi.Epoch)
	set := fakeapi.Edit(e.Server, "w", func(set *lwsv1.LeaderWorkerSet) {
		set.Status.RestartsSince, set.Spec.LeaderWorkerTemplate.RestartPolicy = &at, lwsv1.RecreateGroupOnPodRestart
	})
	leader := fakeapi.Find[*corev1.Pod](e.Server, "w-0")
	leader.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c", LastTerminationState: corev1.ContainerState{
		Terminated: &corev1.ContainerStateTerminated{ExitCode: 1, FinishedAt: at},
	}}}
	decision := &restart.Decision{Leader: leader.UID, At: metav1.NewTime(at.Add(time.Minute)), Failure: restart.Failure{Containers: []lwsv1.ContainerFailure{
		{Pod: "w-0", Name: "c", ExitCode: 1, At: at}, {Pod: "w-0", Name: "d", ExitCode: 1, At: at}, {Pod: "w-0-1", Name: "c", ExitCode: 1, At: at},
	}}}
	decision.AwaitLogs()
	leader.Annotations = map[string]string{restart.AnnotationKey: decision.Annotation()}
	leader = fakeapi.Edit(e.Server, "w-0", func(pod *corev1.Pod) { pod.Annotations, pod.Status = leader.Annotations, leader.Status })

	var asked []string
	var fails error
	logs := lwscache.Logs{Lines: 7, Open: func(_ context.Context, pod types.NamespacedName, o *corev1.PodLogOptions) (io.ReadCloser, error) {
		asked = append(asked, fmt.Sprintf("%s %s previous %t lines %d", pod.Name, o.Container, o.Previous, *o.TailLines))
		return io.NopCloser(strings.NewReader(strings.Repeat("x", 9000) + "\nno shard 7\n")), fails
	}}
	e.observer.Logs = &logs
	plan := func() []action.Action {
		_, plan, err := e.observer.LogPlan(t.Context(), key("w-0"))
		expect.OK(t, err)
		return plan.Actions
	}
	fails = errors.New("no kubelet")
	for _, log := range []string{"", "no shard 7"} {
		actions := plan()
		expect.Must(t, len(actions) == 1 && slices.Equal(asked, []string{"w-0 c previous true lines 7"}),
			"plan %v, asked %v", actions, asked)
		written := *leader
		written.Annotations = actions[0].(action.Annotate).Annotations
		got := restart.Of(set, &written).Containers
		expect.That(t, strings.HasSuffix(got[0].Log, log) && len(got[0].Log) <= restart.LogBytes &&
			(log == "") == (got[0].LogUnread == "no kubelet"), "%+v", got[0])
		expect.That(t, got[1].LogUnread != "" && got[2].LogUnread != "", "no reason: %+v", got[1:])
		asked, fails = nil, nil
		if log != "" {
			fakeapi.Edit(e.Server, "w-0", func(pod *corev1.Pod) { pod.Annotations = written.Annotations })
		}
	}
	actions := plan()
	expect.That(t, len(actions) == 0 && len(asked) == 0, "logs are read again: %v", asked)
}
