package lws_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/test/fakeapi"
)

// strange gives an object another controller, which exists.
func strange(c *cluster, object metav1.Object) {
	owner := fakeapi.Find[*corev1.Pod](c.Server, "stranger")
	if owner == nil {
		owner = fakeapi.Add(c.Server, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: fakeapi.Namespace, Name: "stranger"}})
	}
	fakeapi.OwnedBy(object, "v1", identity.RefOf(identity.KindPod, owner))
}

// A foreign object under a name of the set is reported, is not written, and costs what
// needs its name. The condition ends with the conflict.
func TestNameConflicts(t *testing.T) {
	labels := map[string]string{lwsv1.SetNameLabelKey: "w"}
	tests := []struct {
		name     string
		conflict func(*cluster)
		says     []string
	}{
		{"the leader StatefulSet is a stranger's", func(c *cluster) {
			sts := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: fakeapi.Namespace, Name: "w", Labels: labels}}
			strange(c, sts)
			fakeapi.Drop[*appsv1.StatefulSet](c.Server, "w")
			fakeapi.Drop[*corev1.Pod](c.Server, "w-0")
			fakeapi.Add(c.Server, sts)
		}, []string{"statefulset w ", "pod stranger"}},
		{"the leader StatefulSet has no controller", func(c *cluster) {
			fakeapi.Drop[*appsv1.StatefulSet](c.Server, "w")
			fakeapi.Drop[*corev1.Pod](c.Server, "w-0")
			fakeapi.Add(c.Server, &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: fakeapi.Namespace, Name: "w", Labels: labels}})
		}, []string{"statefulset w ", "no controller"}},
		{"a leader", func(c *cluster) {
			fakeapi.Edit(c.Server, "w-0", func(pod *corev1.Pod) { strange(c, pod) })
		}, []string{"pod w-0 ", "pod stranger", "group 0"}},
		{"the shared Service", func(c *cluster) {
			fakeapi.Edit(c.Server, "w", func(service *corev1.Service) { strange(c, service) })
		}, []string{"service w ", "pod stranger"}},
		{"a worker StatefulSet", func(c *cluster) {
			fakeapi.Edit(c.Server, "w-0", func(sts *appsv1.StatefulSet) { strange(c, sts) })
		}, []string{"statefulset w-0 ", "pod stranger", "group 0"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := running(t, 1, 2)
			tt.conflict(c)
			c.pass(time.Minute)
			plan := c.decideSet()
			if diff := cmp.Diff([]string{"status leaderworkerset w"}, spelled(plan)); diff != "" {
				t.Errorf("plan (-want +got)\n%s", diff)
			}
			write := one[action.WriteStatus](t, plan)
			got, last := condition(write.Status, lws.CodeNameConflict), write.Tell.Done[len(write.Tell.Done)-1]
			if got.Status != metav1.ConditionTrue || got.Reason != "NameConflict" || !last.Warning || last.Reason != "NameConflict" || last.Note != got.Message {
				t.Errorf("got condition %+v, event %+v", got, last)
			}
			for _, part := range tt.says {
				if !strings.Contains(got.Message, part) {
					t.Errorf("%q does not name %q", got.Message, part)
				}
			}
			if wait, ok := waitFor(plan, lws.CodeNameConflict); !ok || !wait.Until.Equal(c.Now.Add(10*time.Second)) {
				t.Errorf("got waits %v", plan.Waits)
			}
			c.do(plan)
			if again := of[action.WriteStatus](c.decideSet()); len(again) != 0 {
				t.Errorf("reported again: %v", brief(again[0].Status))
			}
		})
	}
}

func TestANameConflictEnds(t *testing.T) {
	c := running(t, 1, 1)
	own := fakeapi.Find[*corev1.Service](c.Server, "w").OwnerReferences
	fakeapi.Edit(c.Server, "w", func(service *corev1.Service) { strange(c, service) })
	c.do(c.decideSet())
	fakeapi.Edit(c.Server, "w", func(service *corev1.Service) { service.OwnerReferences = own })
	write := one[action.WriteStatus](t, c.decideSet())
	if got := condition(write.Status, lws.CodeNameConflict); got.Status != metav1.ConditionFalse || got.Reason != "NoNameConflict" {
		t.Errorf("got %+v", got)
	}
	if got := notes(write); !slices.Contains(got, "NameConflictResolved/Wait") {
		t.Errorf("got events %q", got)
	}
}

func TestAForeignGroupServiceCostsTheNamesOnly(t *testing.T) {
	c := withoutWorkers(t, fakeapi.UniquePerReplica)
	fakeapi.Edit(c.Server, "w-0", func(service *corev1.Service) { strange(c, service) })
	plan := c.decideGroup("w-0")
	if diff := cmp.Diff([]string{"create statefulset w-0"}, spelled(plan)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if wait, ok := waitFor(plan, lws.CodeNameConflict); !ok || !strings.Contains(wait.Sentence, "pods of group 0 have no DNS names") {
		t.Errorf("got waits %v", plan.Waits)
	}
}

func TestLeadersAreLeftAloneWhileInStep(t *testing.T) {
	tests := []struct {
		name   string
		change func(*cluster)
		apply  bool
	}{
		{"as applied, with what the server filled in", func(*cluster) {}, false},
		{"others' labels and annotations", func(c *cluster) {
			fakeapi.Edit(c.Server, "w", func(sts *appsv1.StatefulSet) {
				metav1.SetMetaDataLabel(&sts.ObjectMeta, "other", "x")
				metav1.SetMetaDataAnnotation(&sts.ObjectMeta, "other", "x")
			})
		}, false},
		{"a template edited by hand", func(c *cluster) {
			fakeapi.Edit(c.Server, "w", func(sts *appsv1.StatefulSet) {
				sts.Generation++
				sts.Spec.Template.Spec.Containers[0].Image = "hand"
			})
		}, true},
		{"scaled by hand", func(c *cluster) {
			fakeapi.Edit(c.Server, "w", func(sts *appsv1.StatefulSet) { sts.Generation++; sts.Spec.Replicas = fakeapi.Ptr[int32](7) })
		}, true},
		{"a field that is no longer wanted", func(c *cluster) {
			fakeapi.Edit(c.Server, "w", func(set *lwsv1.LeaderWorkerSet) { delete(set.Annotations, "note") })
		}, true},
		{"claims that the set would make otherwise today", func(c *cluster) {
			fakeapi.Edit(c.Server, "w", func(sts *appsv1.StatefulSet) { sts.Spec.VolumeClaimTemplates = nil })
		}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := running(t, 1, 1, claims, fakeapi.Annotation("note", "x"))
			tt.change(c)
			plan := c.decideSet()
			applies := of[action.Apply](plan)
			if tt.apply != (len(applies) == 1) {
				t.Fatalf("got %s", spelled(plan))
			}
			if !tt.apply {
				return
			}
			sts := fakeapi.Find[*appsv1.StatefulSet](c.Server, "w")
			if applies[0].Onto != identity.RefOf(identity.KindStatefulSet, sts) || applies[0].FieldOwner != "lws" || applies[0].Adopter != nil {
				t.Errorf("got %+v", applies[0])
			}
			c.do(plan)
			if again := of[action.Apply](c.decideSet()); len(again) != 0 {
				t.Errorf("it is applied again: %v", again)
			}
		})
	}
}

func TestAnOrphanedStatefulSetIsAdoptedWhole(t *testing.T) {
	c := running(t, 2, 2)
	pods := c.Created[identity.KindPod]
	former := find[*lwsv1.LeaderWorkerSet](c, "w")
	for _, object := range fakeapi.All[*appsv1.ControllerRevision](c.Objects) {
		fakeapi.Edit(c.Server, object.Name, func(r *appsv1.ControllerRevision) { r.OwnerReferences = nil })
	}
	fakeapi.Edit(c.Server, "w", func(sts *appsv1.StatefulSet) { sts.OwnerReferences = nil })
	fakeapi.Edit(c.Server, "w", func(service *corev1.Service) { service.OwnerReferences = nil })
	fakeapi.Drop[*lwsv1.LeaderWorkerSet](c.Server, "w")
	set := fakeapi.Add(c.Server, fakeapi.Set("w", 2, 2))
	if set.UID == former.UID {
		t.Fatal("the set has not changed lives")
	}
	plan := c.decideSet()
	if got := len(of[action.Create](plan)); got != 0 {
		t.Errorf("something is made: %s", spelled(plan))
	}
	for _, a := range of[action.Apply](plan) {
		if a.Adopter == nil || a.Adopter.UID != set.UID {
			t.Errorf("%s is adopted without a look at the set", a.Onto)
		}
	}
	c.settle("w-0", "w-1")
	for _, object := range []metav1.Object{find[*appsv1.StatefulSet](c, "w"), find[*corev1.Service](c, "w"), revisions(c)[0]} {
		if !metav1.IsControlledBy(object, set) {
			t.Errorf("%T %s is not adopted", object, object.GetName())
		}
	}
	if c.Created[identity.KindPod] != pods || c.status().ReadyReplicas != 2 {
		t.Errorf("%d pods were made anew; status %+v", c.Created[identity.KindPod]-pods, c.status())
	}
}

func TestAStatefulSetOfAnotherShapeIsNoOrphan(t *testing.T) {
	c := running(t, 1, 1)
	fakeapi.Edit(c.Server, "w", func(sts *appsv1.StatefulSet) {
		sts.OwnerReferences = nil
		sts.Spec.Selector.MatchLabels["more"] = "x"
	})
	if got := len(c.set("w").StatefulSet.Foreign); got != 1 {
		t.Errorf("got %d squatters", got)
	}
}

// short is a set of two in step, one of whose leaders is missing.
func short(t *testing.T) *cluster {
	c := running(t, 2, 1)
	c.pass(time.Minute)
	fakeapi.Drop[*corev1.Pod](c.Server, "w-1")
	fakeapi.Edit(c.Server, "w", func(sts *appsv1.StatefulSet) { sts.Status.Replicas = 1 })
	c.do(c.decideSet())
	return c
}

func nudges(plan lws.Plan) []string {
	var tokens []string
	for _, a := range of[action.Apply](plan) {
		if token := a.Object.GetAnnotations()[lws.NudgeAnnotationKey]; token != "" && a.Because.Code == lws.CodeNudge {
			tokens = append(tokens, token)
		}
	}
	return tokens
}

// A StatefulSet that creates none of the pods that it lacks is touched while one of their names
// is free: after ten seconds, and then ever more seldom.
func TestAStalledStatefulSetIsTouched(t *testing.T) {
	c := short(t)
	var touched []int
	for second := range 180 {
		plan := c.decideSet()
		if len(nudges(plan)) > 0 {
			touched = append(touched, second)
			c.do(plan)
		}
		c.pass(time.Second)
	}
	if diff := cmp.Diff([]int{10, 40, 80, 160}, touched); diff != "" {
		t.Errorf("touched after seconds (-want +got)\n%s", diff)
	}
	if sts := find[*appsv1.StatefulSet](c, "w"); sts.Generation != 1 || len(sts.Spec.Template.Annotations[lws.NudgeAnnotationKey]) != 0 {
		t.Errorf("a touch changed the spec: generation %d", sts.Generation)
	}
}

func TestAStatefulSetIsNotTouchedWhileTheNameIsTaken(t *testing.T) {
	c := short(t)
	ghost := fakeapi.Pod("w-1", "w", 0)
	fakeapi.OwnedBy(ghost, "apps/v1", fakeapi.Former(identity.KindStatefulSet, "w"))
	fakeapi.Add(c.Server, ghost)
	c.decideSet()
	c.pass(time.Minute)
	if got := nudges(c.decideSet()); len(got) != 0 {
		t.Fatalf("touched while the name is taken: %v", got)
	}
	fakeapi.Drop[*corev1.Pod](c.Server, "w-1")
	if got := nudges(c.decideSet()); len(got) != 1 {
		t.Errorf("touched %d times when the name became free", len(got))
	}
}

// The StatefulSet controller creates pods in batches: a taken name does not hold back the others
// in its batch. A terminating pod of its own is not missing.
func TestAStatefulSetIsTouchedForAFreeNameInTheFirstBatch(t *testing.T) {
	tests := []struct {
		name                          string
		missing, foreign, terminating []int
		touches                       int
	}{
		{"free beside a taken name", []int{4}, []int{3}, nil, 1},
		{"each name is taken", nil, []int{3, 4}, nil, 0},
		{"free in a later batch", []int{7}, []int{3}, nil, 0},
		{"free beyond the replicas", nil, []int{7}, nil, 0},
		{"beside a terminating pod", nil, []int{1}, []int{0}, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := running(t, 8, 1)
			for _, i := range slices.Concat(tt.missing, tt.foreign) {
				fakeapi.Drop[*corev1.Pod](c.Server, identity.LeaderName("w", i))
			}
			for _, i := range tt.foreign {
				squat(c, identity.LeaderName("w", i))
			}
			for _, i := range tt.terminating {
				fakeapi.Terminate[*corev1.Pod](c.Server, identity.LeaderName("w", i), "example.com/held")
			}
			fakeapi.Edit(c.Server, "w", func(sts *appsv1.StatefulSet) {
				sts.Status.Replicas -= int32(len(tt.missing) + len(tt.foreign))
			})
			c.decideSet()
			c.pass(time.Minute)
			if got := len(nudges(c.decideSet())); got != tt.touches {
				t.Errorf("%d touches, want %d", got, tt.touches)
			}
		})
	}
}

// squat adds a pod of another owner under a name of the set.
func squat(c *cluster, name string) {
	pod := fakeapi.Pod(name, "w", 0)
	strange(c, pod)
	fakeapi.Add(c.Server, pod)
}

func TestAWorkerStatefulSetIsNotTouchedForATerminatingPod(t *testing.T) {
	c := running(t, 1, 4)
	fakeapi.Terminate[*corev1.Pod](c.Server, "w-0-1", "example.com/held")
	fakeapi.Drop[*corev1.Pod](c.Server, "w-0-2")
	squat(c, "w-0-2")
	fakeapi.Edit(c.Server, "w-0", func(sts *appsv1.StatefulSet) { sts.Status.Replicas = 2 })
	c.decideGroup("w-0")
	c.pass(time.Minute)
	if got := spelled(c.decideGroup("w-0")); len(got) != 0 {
		t.Errorf("got %v", got)
	}
}

func TestAStalledWorkerStatefulSetIsTouched(t *testing.T) {
	c := running(t, 1, 3, fakeapi.Policy(lwsv1.NoneRestartPolicy))
	fakeapi.Drop[*corev1.Pod](c.Server, "w-0-2")
	fakeapi.Edit(c.Server, "w-0", func(sts *appsv1.StatefulSet) { sts.Status.Replicas = 1 })
	c.decideGroup("w-0")
	c.pass(time.Minute)
	plan := c.decideGroup("w-0")
	if diff := cmp.Diff([]string{"apply statefulset w-0"}, spelled(plan)); diff != "" || len(nudges(plan)) != 1 {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestLeadersBehindATakenNameAreMade(t *testing.T) {
	tests := []struct {
		blocked int
		made    []string
	}{
		{0, []string{"w-1", "w-2", "w-3", "w-4", "w-5", "w-6", "w-7"}},
		{1, []string{"w-3", "w-4", "w-5", "w-6", "w-7"}},
		{2, []string{"w-3", "w-4", "w-5", "w-6", "w-7"}},
		{4, []string{"w-7"}},
		{7, nil},
	}
	for _, tt := range tests {
		c := running(t, 8, 1, claims)
		like := fakeapi.Find[*corev1.Pod](c.Server, "w-3")
		for i := range 8 {
			fakeapi.Drop[*corev1.Pod](c.Server, identity.LeaderName("w", i))
		}
		name := identity.LeaderName("w", tt.blocked)
		squatter := fakeapi.Pod(name, "w", 0)
		strange(c, squatter)
		fakeapi.Add(c.Server, squatter)
		var made []string
		for _, a := range of[action.Create](c.decideSet()) {
			if pod, ok := a.Object.(*corev1.Pod); ok {
				made = append(made, pod.Name)
				checkMadeLeader(t, c, pod, like, a)
			}
		}
		if diff := cmp.Diff(tt.made, made); diff != "" {
			t.Errorf("blocked at %d (-want +got)\n%s", tt.blocked, diff)
		}
		if got := fakeapi.Find[*corev1.Pod](c.Server, name); got.OwnerReferences[0].Name != "stranger" {
			t.Errorf("the foreign pod was written: %+v", got)
		}
	}
}

// checkMadeLeader checks that a leader is what the StatefulSet controller would
// have made.
func checkMadeLeader(t *testing.T, c *cluster, made, like *corev1.Pod, a action.Create) {
	t.Helper()
	sts := find[*appsv1.StatefulSet](c, "w")
	if a.Owner != identity.RefOf(identity.KindStatefulSet, sts) || !metav1.IsControlledBy(made, sts) {
		t.Errorf("%s belongs to %+v", made.Name, made.OwnerReferences)
	}
	if made.Labels[lwsv1.RevisionKey] != like.Labels[lwsv1.RevisionKey] {
		t.Errorf("%s is at revision %q", made.Name, made.Labels[lwsv1.RevisionKey])
	}
}

func TestStartupPolicy(t *testing.T) {
	for _, tt := range []struct {
		policy lwsv1.StartupPolicyType
		ready  bool
		made   bool
	}{
		{lwsv1.LeaderCreatedStartupPolicy, false, true},
		{lwsv1.LeaderReadyStartupPolicy, false, false},
		{lwsv1.LeaderReadyStartupPolicy, true, true},
	} {
		c := withoutWorkers(t, func(set *lwsv1.LeaderWorkerSet) { set.Spec.StartupPolicy = tt.policy })
		fakeapi.Edit(c.Server, "w-0", func(pod *corev1.Pod) {
			if !tt.ready {
				pod.Status.Conditions = nil
			}
		})
		plan := c.decideGroup("w-0")
		_, waits := waitFor(plan, lws.CodeLeaderNotReady)
		if made := len(of[action.Create](plan)) == 1; made != tt.made || waits == tt.made {
			t.Errorf("%s, ready %t: got %s, waits %t", tt.policy, tt.ready, spelled(plan), waits)
		}
	}
}

func TestGroupsThatNeedNothing(t *testing.T) {
	alone := running(t, 1, 1)
	if plan := alone.decideGroup("w-0"); len(plan.Actions)+len(plan.Waits) != 0 {
		t.Errorf("a leader alone: %s, %v", spelled(plan), plan.Waits)
	}
	c := running(t, 1, 3)
	fakeapi.Edit(c.Server, "w-0", func(sts *appsv1.StatefulSet) {
		sts.Spec.Template.Spec.Containers[0].Image = "image:9"
		sts.Generation++
	})
	image(c, "image:2")
	if plan := c.decideGroup("w-0"); len(plan.Actions) != 0 {
		t.Errorf("standing workers are written: %s", spelled(plan))
	}
	if plan := c.decideGroup("w-7"); len(plan.Actions)+len(plan.Waits) != 0 {
		t.Errorf("a group without a leader: %s, %v", spelled(plan), plan.Waits)
	}
}

func TestALeaderWithTheAnnotationOfAWorker(t *testing.T) {
	c := withoutWorkers(t)
	fakeapi.Edit(c.Server, "w-0", func(pod *corev1.Pod) {
		metav1.SetMetaDataAnnotation(&pod.ObjectMeta, lwsv1.LeaderPodNameAnnotationKey, "w-0")
	})
	plan := c.decideGroup("w-0")
	wait, ok := waitFor(plan, lws.CodeMistakenAnnotation)
	if !ok || len(plan.Actions) != 0 {
		t.Fatalf("got %s", spelled(plan))
	}
	if told := wait.Tell; !told.Warning || told.Reason != "FailedCreate" || !strings.Contains(told.Note, lwsv1.LeaderPodNameAnnotationKey) {
		t.Errorf("got %+v", told)
	}
}

func TestPlacementBesideTheLeader(t *testing.T) {
	node := func(labels map[string]string) func(*cluster) {
		return func(c *cluster) {
			n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fakeapi.Node, Labels: labels}}
			fakeapi.Add(c.Server, n)
		}
	}
	unscheduled := func(c *cluster) {
		fakeapi.Edit(c.Server, "w-0", func(pod *corev1.Pod) { pod.Spec.NodeName = "" })
	}
	for name, tt := range map[string]struct {
		world    func(*cluster)
		selector map[string]string
		waits    string
	}{
		"in its domain":          {node(map[string]string{"rack": "r1"}), map[string]string{"rack": "r1", "disk": "ssd"}, ""},
		"in the nameless domain": {node(map[string]string{"rack": ""}), map[string]string{"rack": "", "disk": "ssd"}, ""},
		"not scheduled yet":      {unscheduled, nil, lws.CodeLeaderNotScheduled},
		"a node that is gone":    {func(*cluster) {}, nil, lws.CodeNoTopology},
		"a node without domain":  {node(nil), nil, lws.CodeNoTopology},
	} {
		c := withoutWorkers(t, fakeapi.Annotation(lwsv1.ExclusiveKeyAnnotationKey, "rack"), func(set *lwsv1.LeaderWorkerSet) {
			set.Spec.LeaderWorkerTemplate.WorkerTemplate.Spec.NodeSelector = map[string]string{"disk": "ssd"}
		})
		tt.world(c)
		plan := c.decideGroup("w-0")
		if tt.waits != "" {
			if _, ok := waitFor(plan, tt.waits); !ok || len(plan.Actions) != 0 {
				t.Errorf("%s: got %s, waits %v", name, spelled(plan), plan.Waits)
			}
			continue
		}
		sts, _ := created[*appsv1.StatefulSet](t, plan)
		if diff := cmp.Diff(tt.selector, sts.Spec.Template.Spec.NodeSelector); diff != "" {
			t.Errorf("%s (-want +got)\n%s", name, diff)
		}
	}
}

func TestAnOrphanedGroupServiceIsAdopted(t *testing.T) {
	c := running(t, 1, 2, fakeapi.UniquePerReplica)
	fakeapi.Edit(c.Server, "w-0", func(service *corev1.Service) { service.OwnerReferences = nil })
	if diff := cmp.Diff([]string{"apply service w-0"}, spelled(c.decideGroup("w-0"))); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestNext(t *testing.T) {
	now := fakeapi.Epoch
	for _, tt := range []struct {
		until []time.Time
		want  time.Duration
	}{
		{nil, 0},
		{[]time.Time{{}}, 0},
		{[]time.Time{now.Add(5 * time.Second), {}, now.Add(3 * time.Second)}, 3 * time.Second},
		{[]time.Time{now.Add(-time.Hour)}, time.Millisecond},
	} {
		var plan lws.Plan
		for _, until := range tt.until {
			plan.Waits = append(plan.Waits, lws.Wait{Until: until})
		}
		if got := plan.Next(now); got != tt.want {
			t.Errorf("%v: got %s, want %s", tt.until, got, tt.want)
		}
	}
}

// The status of a StatefulSet lags behind its pods while the controller is busy.
func TestAWorkerStatefulSetIsNotTouchedForAStatusThatLags(t *testing.T) {
	c := running(t, 1, 2)
	fakeapi.Edit(c.Server, "w-0", func(sts *appsv1.StatefulSet) { sts.Status.Replicas = 0 })
	c.decideGroup("w-0")
	c.pass(time.Minute)
	if got := spelled(c.decideGroup("w-0")); len(got) != 0 {
		t.Errorf("got %v", got)
	}
}
