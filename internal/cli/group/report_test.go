package group

import (
	"encoding/json"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	clilws "lockstep.dev/lockstep/internal/cli/lws"
	"lockstep.dev/lockstep/internal/cli/page"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/test/expect"
	"lockstep.dev/lockstep/test/fakeapi"
)

const key, gpu = "7bdcf6cbd6", corev1.ResourceName("nvidia.com/gpu")

var now = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) metav1.Time { return metav1.NewTime(now.Add(-d)) }

func pod(name, uid, node string, edits ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(uid), CreationTimestamp: ago(2 * time.Minute), Labels: map[string]string{lwsv1.RevisionKey: key}}}
	p.Annotations = map[string]string{lwsv1.SizeAnnotationKey: "3"}
	p.Spec.NodeName, p.Status.Phase = node, corev1.PodRunning
	p.Spec.Containers = []corev1.Container{{Name: "serve", Resources: corev1.ResourceRequirements{Requests: fakeapi.Resources(gpu, "8")}}}
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "serve", Ready: true, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
	return fakeapi.Edited(p, edits...)
}

func ready(p *corev1.Pod) {
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	p.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "load", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}}}
}

// looping is a pod whose container ran out of memory.
func looping(p *corev1.Pod) {
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: "serve", RestartCount: 3, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: "back-off"}},
		LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 137, Reason: "OOMKilled", Message: "loading\nshard 7", FinishedAt: ago(20 * time.Second)}},
	}}
}

func leaving(p *corev1.Pod) { p.DeletionTimestamp = new(ago(time.Minute)) }

// survey is a set of four groups, of which the last has a leader, a worker in a crash loop, a worker that lacks and one
// that is terminating. No other group has an object.
func survey() clilws.Survey {
	set := &lwsv1.LeaderWorkerSet{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "llama", UID: "set", CreationTimestamp: ago(time.Hour)}}
	set.Spec.Replicas, set.Spec.LeaderWorkerTemplate.Size = new(int32(4)), new(int32(3))
	set.Status.Restarts = []lwsv1.GroupRestarts{{Index: 3, Count: 1, Failures: []lwsv1.PodFailure{{Pod: "llama-3-1", Reason: "EvictionByEvictionAPI", At: ago(time.Minute)}},
		Containers: []lwsv1.ContainerFailure{{Pod: "llama-3-1", Name: "serve", ExitCode: 137, Log: "the end", At: ago(time.Minute)}}}}
	s := clilws.Survey{Standing: lws.Standing{Key: key}}
	s.Set.Set = set
	s.Set.StatefulSet.Owned = []*appsv1.StatefulSet{{ObjectMeta: metav1.ObjectMeta{Name: "llama", UID: "leaders"}}}
	g := s.Absent(3)
	g.Leader = pod("llama-3", "leader", "n1", ready)
	g.Workers.Owned = []*appsv1.StatefulSet{{ObjectMeta: metav1.ObjectMeta{Name: "llama-3", UID: "workers"}}}
	g.Pods.Owned = []*corev1.Pod{pod("llama-3-1", "worker", "n1", looping)}
	g.Pods.Previous = []*corev1.Pod{pod("llama-3-2", "previous", "n2", leaving)}
	g.Service.Owned = []*corev1.Service{{ObjectMeta: metav1.ObjectMeta{Name: "llama-3", UID: "service"}}}
	for _, name := range []string{"data-llama-3", "data-llama-3-1", "data-llama-2"} {
		s.Set.PVCs.Owned = append(s.Set.PVCs.Owned, &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}})
	}
	s.Groups = []clilws.Group{g}
	return s
}

func node(name string, status corev1.ConditionStatus, reason string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status, Reason: reason, LastTransitionTime: ago(5 * time.Minute)}}
	n.Status.Allocatable = corev1.ResourceList{gpu: resource.MustParse("16"), corev1.ResourceCPU: resource.MustParse("8")}
	return n
}

func cordoned(since *metav1.Time) *corev1.Node {
	n := node("n1", corev1.ConditionTrue, "KubeletReady")
	n.Spec.Unschedulable = true
	n.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule, TimeAdded: since}}
	return n
}

func event(kind, name, uid, message string, since time.Duration) corev1.Event {
	return corev1.Event{InvolvedObject: corev1.ObjectReference{Kind: kind, Name: name, UID: types.UID(uid)}, Message: message, Type: "Warning", Reason: "R", LastTimestamp: ago(since)}
}

func details() clilws.Details {
	return clilws.Details{
		Nodes:  map[string]*corev1.Node{"n1": cordoned(new(ago(3 * time.Minute))), "n2": node("n2", corev1.ConditionUnknown, "NodeStatusUnknown")},
		Events: []corev1.Event{event("Pod", "llama-3", "leader", "late", 0), event("Pod", "llama-3-1", "gone", "early", time.Minute), event("Pod", "llama-2", "x", "other", 0)},
	}
}

// lines has the lines of a text, with single spaces between columns.
func lines(text string) string {
	var all strings.Builder
	for line := range strings.Lines(text) {
		all.WriteString(strings.Join(strings.Fields(line), " ") + "\n")
	}
	return all.String()
}

func textOf(t *testing.T, s clilws.Survey, group string, d clilws.Details) string {
	t.Helper()
	return lines(page.Text(New(s, expect.Value(Find(s, group))(t), d), now))
}

func TestTextOfAGroup(t *testing.T) {
	text := textOf(t, survey(), "3", details())
	for _, want := range []string{
		"group 3 of llama in namespace ns: 1 of 3 pods ready\nrevision " + key + ", leader created 2m ago\nwaiting: 1 of 2 workers not created yet: llama-3-2 (WaitingForPods)\n" +
			"waiting: 1 pod not ready: llama-3-1 (CrashLoopBackOff) (WaitingForReadyPods)\n",
		"\nPOD READY STATE RESTARTS NODE AGE\nllama-3 1/1 Running 0 n1 2m\nllama-3-1 0/1 Running 3 n1 2m\nllama-3-2 1/1 Terminating 0 n2 2m\n",
		"\nPOD CONTAINER NOW ENDED BEFORE MESSAGE\nllama-3-1 serve CrashLoopBackOff OOMKilled (exit code 137), 20s ago loading shard 7\n\n",
		"\nn1 Ready, cordoned for 3m 16 of 16 nvidia.com/gpu\nn2 NotReady for 5m (NodeStatusUnknown) 8 of 16 nvidia.com/gpu\n",
		"\nDisruption 3 llama-3-1 60s ago 1 - EvictionByEvictionAPI\n", "\nCONTAINERS THAT FAILED WITH GROUP 3\n", "\n| the end\n",
		"\nLAST SEEN COUNT TYPE REASON OBJECT MESSAGE\n60s 1 Warning R pod llama-3-1 (former) early\n0s 1 Warning R pod llama-3 late\n",
	} {
		expect.Says(t, text, want)
	}
	expect.That(t, !strings.Contains(text, "other"), "an event of another group is shown:\n%s", text)
	absent := textOf(t, survey(), "llama-1", details())
	expect.Says(t, absent, "group 1 of llama in namespace ns: 0 of 3 pods ready\nrevision -\nwaiting: leader llama-1 is not created yet (WaitingForPods)\n")
}

// What you may not read is "?", with the right that you need.
func TestWithoutRights(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{}, "", errors.New("no"))
	var d clilws.Details
	d.Miss("nodes", "get nodes", errors.Join(nil, forbidden, forbidden))
	d.Miss("events", "list events", errors.New("timeout"))
	text := textOf(t, survey(), "3", d)
	for _, want := range []string{
		"\n? nodes are not shown: you need the right to get nodes\n? events are not shown: timeout\n", "\nn1 ? 16 of ? nvidia.com/gpu\n", "\nllama-3 1/1 Running",
	} {
		expect.Says(t, text, want)
	}
}

func TestStatesOfNodes(t *testing.T) {
	for want, n := range map[string]*corev1.Node{
		"Ready": node("n1", corev1.ConditionTrue, ""), "NotReady for 5m (KubeletNotReady)": node("n1", corev1.ConditionFalse, "KubeletNotReady"),
		"Gone": nil, "NotReady": {}, "Ready, cordoned for ?": cordoned(nil),
	} {
		got := nodeOf("n1", map[string]*corev1.Node{"n1": n}).health(&page.Page{Now: now})
		expect.Equalf[any](t, want, got.Text, "state")
	}
}

// Events of all that a group consists of are merged, those of its former pods too. Events of the set, or of what makes
// leaders, count if they name a pod of the group.
func TestEventsAboutAGroup(t *testing.T) {
	related := event("LeaderWorkerSet", "llama", "set", "recreated", 0)
	related.Related = &corev1.ObjectReference{Kind: "Pod", Name: "llama-3", UID: "before"}
	for _, tt := range []struct {
		event corev1.Event
		want  bool
	}{
		{event("Pod", "llama-3-1", "worker", "", 0), true},
		{event("Service", "llama-3", "service", "", 0), true},
		{event("PersistentVolumeClaim", "data-llama-3-1", "data-llama-3-1", "", 0), true},
		{event("PersistentVolumeClaim", "data-llama-2", "data-llama-2", "", 0), false},
		{event("StatefulSet", "llama-3", "before", "", 0), true},
		{event("Pod", "llama-3-1", "before", "", 59*time.Minute), true},
		{event("Pod", "llama-3-0", "leader of set llama-3", "", 0), false},
		{event("Pod", "llama-3", "of another set", "", 61*time.Minute), false},
		{event("Pod", "llama-33", "x", "", 0), false},
		{event("StatefulSet", "llama", "leaders", "create Pod llama-3 in StatefulSet llama failed: quota", 0), true},
		{event("StatefulSet", "llama", "leaders", "create Pod llama-30 in StatefulSet llama failed", 0), false},
		{event("StatefulSet", "llama", "another", "create Pod llama-3 in StatefulSet llama failed", 0), false},
		{event("LeaderWorkerSet", "llama", "set", "deleted llama-3, to recreate group 3", 0), true},
		{event("LeaderWorkerSet", "llama", "set", "all is well", 0), false},
		{related, true},
		{event("Node", "llama-3", "x", "", 0), false},
	} {
		s := survey()
		expect.Equalf(t, tt.want, kinOf(s, s.Groups[0]).isAbout(&tt.event), "%s %s: %s", tt.event.InvolvedObject.Kind, tt.event.InvolvedObject.Name, tt.event.Message)
	}
}

// Events of a set are those of all its groups, and its own.
func TestEventsOfASet(t *testing.T) {
	s, d := survey(), details()
	d.Events = append(d.Events, event("LeaderWorkerSet", "llama", "set", "all is well", time.Second))
	for name, all := range map[string]bool{"late,early": false, "late,all is well,early": true} {
		var messages []string
		for _, e := range slices.Backward(EventsOf(s, d, all, s.Groups...).Items) {
			messages = append(messages, e.Message)
		}
		expect.Equalf(t, name, strings.Join(messages, ","), "all: %v", all)
	}
	expect.Says(t, page.Text(EventsOf(s, clilws.Details{}, true), now), "no events; the API server keeps them for an hour")
}

func TestTheLastEventsAreShown(t *testing.T) {
	d := clilws.Details{}
	for i := range 25 {
		d.Events = append(d.Events, event("Pod", "llama-3", "leader", "m", time.Duration(i)*time.Minute))
	}
	d.Events[0].Series = &corev1.EventSeries{Count: 7, LastObservedTime: metav1.NewMicroTime(now)}
	text := textOf(t, survey(), "3", d)
	expect.Says(t, text, "\n0s 7 Warning R pod llama-3 m\nand 5 events before\n")
	expect.Says(t, text, "MESSAGE\n19m 1 Warning")
}

func TestFind(t *testing.T) {
	hash := survey()
	hash.Set.Set.Spec.GroupIdentity, hash.Groups[0].Key, hash.Groups[0].LeaderName = lwsv1.HashGroupIdentity, "2c59901", "llama-x-y"
	for _, tt := range []struct {
		survey     clilws.Survey
		name, want string // with a space: an error
	}{
		{survey(), "3", "llama-3"}, {survey(), "llama-3", "llama-3"}, {survey(), "0", "llama-0"}, {survey(), "4", "llama has groups 0-3;"},
		{survey(), "-1", "groups 0-3;"}, {survey(), "03", "groups 0-3;"}, {survey(), "x", "groups 0-3;"}, {survey(), "qwen-1", "groups 0-3;"}, {hash, "2c59901", "llama-x-y"}, {hash, "llama-x-y", "llama-x-y"}, {hash, "0", "has groups 2c59901;"},
	} {
		g, err := Find(tt.survey, tt.name)
		if strings.Contains(tt.want, " ") {
			expect.ErrorSays(t, err, tt.want)
			continue
		}
		expect.That(t, err == nil && g.LeaderName == tt.want, "%s: got %q, %v", tt.name, g.LeaderName, err)
	}
}

func TestTextOfATree(t *testing.T) {
	text := page.Text(&Tree{Survey: survey(), Details: details()}, now)
	for _, want := range []string{
		"set llama 0/4 - - -\n├─ group 0-2 0/3 - - -\n└─ group 3 1/3 - - -\n├─ pod llama-3 1/1 Running n1 Ready, cordoned for 3m\n",
		"└─ pod llama-3-2 1/1 Terminating n2 NotReady for 5m (NodeStatusUnknown)\n",
	} {
		expect.Says(t, lines(text), want)
	}
	expect.Says(t, text, "\n   └─ pod llama-3-2")
}

// paths adds the paths of all fields of a value.
func paths(path string, value any, into map[string]bool) {
	into[path] = true
	switch value := value.(type) {
	case map[string]any:
		for name, inner := range value {
			paths(strings.TrimPrefix(path+"."+name, "."), inner, into)
		}
	case []any:
		for _, inner := range value {
			paths(path, inner, into)
		}
	}
}

// Programs read the names of the file: they are never changed or removed.
func TestFieldsForPrograms(t *testing.T) {
	s, d := survey(), details()
	d.Unread, d.Events = []string{"nodes"}, slices.Repeat(d.Events, eventsShown)
	text, fields, have := expect.Value(json.Marshal(New(s, s.Groups[0], d)))(t), map[string]any{}, map[string]bool{}
	expect.OK(t, json.Unmarshal(text, &fields))
	paths("", fields, have)
	for want := range strings.FieldsSeq(string(expect.Value(os.ReadFile("testdata/fields.txt"))(t))) {
		expect.That(t, have[want], "no field %s", want)
	}
	expect.Equal[any](t, "GroupReport", fields["kind"])
}
