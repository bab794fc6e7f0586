package lws

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/cli/fleet"
	"lockstep.dev/lockstep/internal/lws"
	lwsset "lockstep.dev/lockstep/internal/lws/set"
	"lockstep.dev/lockstep/test/expect"
	"lockstep.dev/lockstep/test/fakeapi"
)

// withGPU is a set each of whose pods asks for a GPU.
func withGPU(set *lwsv1.LeaderWorkerSet) {
	gpu := corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("1"), corev1.ResourceCPU: resource.MustParse("1")}
	set.Spec.LeaderWorkerTemplate.WorkerTemplate.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: gpu, Limits: gpu}
}

// counted is a live reader that counts lists by the type of what is listed.
type counted struct {
	client.Reader
	lists map[string]int
}

func (c *counted) List(ctx context.Context, into client.ObjectList, options ...client.ListOption) error {
	c.lists[fmt.Sprintf("%T", into)]++
	return c.Reader.List(ctx, into, options...)
}

func fleetOf(t *testing.T, s *Session, asked fleet.Question) map[string]fleet.Line {
	t.Helper()
	found := map[string]fleet.Line{}
	for _, l := range expect.Value(s.Fleet(t.Context(), asked, epoch.Add(time.Minute)))(t).Items {
		found[l.Name] = l
	}
	return found
}

// Groups that lack a pod hold accelerators that do no work.
func TestALineCountsGroupsPodsAndAccelerators(t *testing.T) {
	server := up(t, fakeapi.Set("a", 2, 3, withGPU))
	for i, pod := range fakeapi.All[*corev1.Pod](server.Objects) {
		fakeapi.Edit(server, pod.Name, func(pod *corev1.Pod) { pod.Spec.NodeName = fmt.Sprint("node-", i%2) })
	}
	ready := fleetOf(t, sessionOf(server), fleet.Question{})["a"]
	expect.Equal(t, fleet.Accelerators{{Resource: "nvidia.com/gpu", Held: 6}}, ready.Accelerators)
	expect.That(t, ready.State == fleet.Ready && ready.Groups.Ready == 2 && ready.Pods.Wanted == 6 && ready.Pods.Ready == 6 && ready.Nodes == 2,
		"got %+v", ready)

	fakeapi.Edit(server, "a-1-2", func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodFailed })
	fakeapi.Edit(server, "a-1", func(pod *corev1.Pod) { pod.DeletionTimestamp = &metav1.Time{Time: epoch} })
	unready := fleetOf(t, sessionOf(server), fleet.Question{})["a"]
	expect.Equalf(t, fleet.Accelerators{{Resource: "nvidia.com/gpu", Held: 5, Idle: 2}}, unready.Accelerators, "of a-1, which terminates, and a-1-1")
	expect.That(t, unready.State != fleet.Ready && unready.Groups.Ready == 1 && unready.Pods.Existing == 3, "got %+v", unready)
}

func TestTheStateOfASetIsThatOfItsConditions(t *testing.T) {
	is := func(kind, status, reason string) metav1.Condition {
		return metav1.Condition{Type: kind, Status: metav1.ConditionStatus(status), Reason: reason, Message: "about " + kind}
	}
	unready := func(reason string) metav1.Condition { return is("Ready", "False", reason) }
	usual, updating := unready("GroupsProgressing"), is("UpdateInProgress", "True", "GroupsUpdating")
	for name, tt := range map[string]struct {
		conditions []metav1.Condition
		group      lws.GroupState
		want       fleet.State
		says       string
	}{
		"a person must act":               {[]metav1.Condition{unready("Refused"), is("Stalled", "True", "Refused"), is("Degraded", "True", "X")}, lws.GroupRefused, fleet.Stalled, "Stalled"},
		"a surge group is stopped":        {[]metav1.Condition{is("Degraded", "True", "X"), is("Ready", "True", "X")}, lws.GroupReady, fleet.Ready, "Ready"},
		"a rollout replaces what stopped": {[]metav1.Condition{usual, updating, is("Degraded", "True", "X")}, lws.GroupExhausted, fleet.Degraded, "Degraded"},
		"a group fails again and again":   {[]metav1.Condition{usual, is(lwsset.ConditionBackoff, "True", "X")}, lws.GroupBackingOff, fleet.BackingOff, lwsset.ConditionBackoff},
		"no node fits":                    {[]metav1.Condition{unready(lws.CodeUnschedulable)}, lws.GroupStarting, fleet.Waiting, "Ready"},
		"paused":                          {[]metav1.Condition{unready(lws.CodePaused), updating}, lws.GroupReady, fleet.Paused, "Ready"},
		"a group failed":                  {[]metav1.Condition{usual}, lws.GroupRestarting, fleet.Restarting, "Ready"},
		"a pod is not ready":              {[]metav1.Condition{usual, updating}, lws.GroupUnready, fleet.Unready, "Ready"},
		"a rollout":                       {[]metav1.Condition{usual, updating}, lws.GroupStarting, fleet.Updating, "Ready"},
		"a new set":                       {[]metav1.Condition{usual}, lws.GroupStarting, fleet.Starting, "Ready"},
	} {
		var s Survey
		s.Set.Set, s.Standing.Conditions = fakeapi.Set("a", 1, 1), tt.conditions
		s.Standing.States[tt.group] = 1
		state, reason, message := stateOf(s)
		expect.That(t, state == tt.want && reason != "" && message == "about "+tt.says, "%s: got %s, %s, %s", name, state, reason, message)
		s.Set.Set.Generation = 2
		s.Unattended = &action.Reason{Code: CodeNotObserved, Sentence: "not observed"}
		state, _, message = stateOf(s)
		expect.That(t, state == fleet.Unattended && message == "not observed", "%s, unobserved: got %s, %s", name, state, message)
		s.Set.Set.DeletionTimestamp = &metav1.Time{Time: epoch}
		state, _, _ = stateOf(s)
		expect.Equalf(t, fleet.Deleting, state, "%s, deleted", name)
	}
}

// A list for each set would be 500 requests.
func TestAFleetListsEachKindOnce(t *testing.T) {
	var sets []client.Object
	for i := range 20 {
		set := fakeapi.Set(fmt.Sprint("s", i), 1, 1, gangOfSet)
		set.Labels = map[string]string{"parity": fmt.Sprint(i % 2)}
		sets = append(sets, set)
	}
	server := serverOf(t, sets...)
	fakeapi.Add(server, &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: fakeapi.Namespace, Name: "s3.groups"}})
	live := &counted{Reader: server.Live(), lists: map[string]int{}}
	s := &Session{Cached: server.Cached(), Live: live}
	expect.Equalf(t, 20, len(fleetOf(t, s, fleet.Question{})), "sets")
	expect.That(t, live.lists["*v1.PodDisruptionBudgetList"] == 1, "lists: %v", live.lists)
	for kind, n := range live.lists {
		expect.That(t, n <= 2, "%s was listed %d times", kind, n)
	}
	expect.Equalf(t, 10, len(fleetOf(t, s, fleet.Question{Labels: "parity=1"})), "sets with a label")
}

// parts is a set that other sets belong to.
type parts struct {
	*corev1.ConfigMap
	added []string
}

func (p *parts) Observed() int64 { return 1 }

func (p *parts) Add(part *lwsv1.LeaderWorkerSet, l fleet.Line) {
	p.added = append(p.added, fmt.Sprint(part.Name, " ", l.State))
}

func (p *parts) Line(unattended *action.Reason) fleet.Line {
	return fleet.Line{Name: p.Name, State: fleet.Updating, Message: codeOf(unattended)}
}

// A set of a whole that is shown has no line of its own, whatever its labels are. One of another has its line.
func TestASetOfAWholeHasNoLine(t *testing.T) {
	ofA, ofB, alone := fakeapi.Set("of-a", 0, 1), fakeapi.Set("of-b", 0, 1), fakeapi.Set("alone", 0, 1)
	for set, owner := range map[*lwsv1.LeaderWorkerSet]types.UID{ofA: "a", ofB: "b"} {
		set.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: string(owner), UID: owner, Controller: new(true)}}
	}
	ofB.Labels, alone.Labels = map[string]string{"team": "x"}, map[string]string{"team": "y"}
	s := sessionOf(serverOf(t, ofA, ofB, alone))
	for labels, want := range map[string]string{"": "a alone of-b", "team=x": "a of-b", "team=z": "a"} {
		a := &parts{ConfigMap: &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "a"}}}
		var names []string
		for _, l := range expect.Value(s.Fleet(t.Context(), fleet.Question{Labels: labels}, epoch, a))(t).Items {
			names = append(names, l.Name)
		}
		slices.Sort(names)
		expect.Equalf(t, want, strings.Join(names, " "), "with labels %q", labels)
		expect.Equal(t, 1, len(a.added))
		expect.Says(t, a.added[0], "of-a ")
	}
}

// Without an operator, a set whose spec it observed is as its conditions say.
func TestWhatNoOperatorActsOnIsUnattended(t *testing.T) {
	seen, unseen := written(2, time.Hour), written(1, time.Hour)
	unseen.Name = "b"
	server := serverOf(t, seen, unseen, leaseOf("home", "x", time.Hour))
	s := sessionOf(server)
	s.Lease = client.ObjectKey{Namespace: "home", Name: "lease"}
	found := expect.Value(s.Fleet(t.Context(), fleet.Question{}, epoch))(t)
	expect.Says(t, found.Unattended, "no operator holds lease")
	lines := fleetOf(t, s, fleet.Question{})
	expect.That(t, lines["a"].State == fleet.Starting && lines["b"].State == fleet.Unattended && lines["b"].Reason == CodeNoOperator, "got %+v", lines)
}
