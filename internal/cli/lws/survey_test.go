package lws

import (
	"context"
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
	"lockstep.dev/lockstep/internal/lws"
)

func surveyed(t *testing.T, s *Session, name string) Survey {
	t.Helper()
	found, err := s.Set(t.Context(), types.NamespacedName{Namespace: namespace, Name: name}, epoch.Add(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// verbs are what a plan does, in a form to compare.
func verbs(p lws.Plan) string {
	var all []string
	for _, a := range p.Actions {
		all = append(all, a.Verb()+" "+a.Target().String())
	}
	return strings.Join(all, ", ")
}

func codes(p lws.Plan) []string {
	var all []string
	for _, w := range p.Waits {
		all = append(all, w.Code)
	}
	return all
}

func TestSurveyHasEveryGroupWithItsPods(t *testing.T) {
	set := newSet("a", 3, 4)
	found := surveyed(t, surveyorOf(t, append(children(t, set), set)), "a")
	if len(found.Groups) != 3 {
		t.Fatalf("got %d groups, want 3", len(found.Groups))
	}
	for i, g := range found.Groups {
		if g.Index != i || g.Leader == nil || len(g.Pods.Owned) != 3 || !g.Ready(set) || !g.UpToDate(found.Standing.Key) {
			t.Errorf("group %d: got %+v", i, g.Group)
		}
	}
	if found.Standing.Ready != 3 || found.Standing.Updated != 3 {
		t.Errorf("got %+v", found.Standing)
	}
}

func TestNoSuchSetIsNotFound(t *testing.T) {
	_, err := surveyorOf(t, nil).Set(t.Context(), types.NamespacedName{Namespace: namespace, Name: "a"}, epoch)
	if !apierrors.IsNotFound(err) {
		t.Errorf("got %v", err)
	}
}

func TestSurveyHasGroupsWithoutLeader(t *testing.T) {
	set := newSet("a", 1, 2)
	leftover := pod(owned(metaOf("a-7-1", "leftover"), "StatefulSet", "a-7", "long-gone"), map[string]string{lwsv1.SetNameLabelKey: "a"}, 2)
	found := surveyed(t, surveyorOf(t, append(children(t, set), set, leftover)), "a")
	last := found.Groups[len(found.Groups)-1]
	if last.Index != 7 || len(last.Pods.Previous) != 1 || len(last.Pods.Owned) != 0 {
		t.Errorf("got group %d with %+v", last.Index, last.Pods)
	}
}

func TestPodsOfASetWithALongerNameAreLeftOut(t *testing.T) {
	set, other := newSet("a", 1, 2), newSet("a-0", 1, 2)
	other.UID = "other"
	foreign := pod(owned(metaOf("a-0-1", "foreign"), "StatefulSet", "a-0", "other-leaders"), map[string]string{lwsv1.SetNameLabelKey: "a-0"}, 2)
	found := surveyed(t, surveyorOf(t, []client.Object{set, other, foreign}), "a")
	if len(found.Groups) != 0 {
		t.Errorf("got %+v", found.Groups)
	}
}

func TestAsPlansForAMissingSet(t *testing.T) {
	set := newSet("a", 2, 2)
	set.UID = ""
	found, err := surveyorOf(t, nil).As(t.Context(), set, epoch)
	if err != nil {
		t.Fatal(err)
	}
	if got := verbs(found.Plan); !strings.Contains(got, "create statefulset a, create service a") {
		t.Errorf("got %s", got)
	}
}

func TestAsReplacesTheSpecOfASet(t *testing.T) {
	set := newSet("a", 2, 2)
	s := surveyorOf(t, append(children(t, set), set))
	changed := set.DeepCopy()
	changed.Spec.LeaderWorkerTemplate.WorkerTemplate.Spec.Containers[0].Image = "other"
	found, err := s.As(t.Context(), changed, epoch)
	if err != nil {
		t.Fatal(err)
	}
	if got := verbs(found.Plan); !strings.Contains(got, "create controllerrevision") || !strings.Contains(got, "apply statefulset a") {
		t.Errorf("got %s", got)
	}
	if len(found.Groups) != 2 || found.Groups[0].Set.Spec.LeaderWorkerTemplate.WorkerTemplate.Spec.Containers[0].Image != "other" {
		t.Error("groups do not have the new spec")
	}
}

// The operator has called the pod stuck. A new process must not take that back.
func TestStuckObjectsStayStuck(t *testing.T) {
	set := newSet("a", 1, 1)
	set.CreationTimestamp = metav1.NewTime(epoch.Add(-time.Hour))
	set.Status.Conditions = []metav1.Condition{{
		Type: "Progressing", Status: metav1.ConditionTrue, Reason: lws.CodePreviousIncarnation,
		Message: "waiting for 1 pod; none has left for a minute: …",
	}}
	previous := pod(owned(metaOf("a-0", "previous"), "StatefulSet", "a", "long-gone"), map[string]string{lwsv1.SetNameLabelKey: "a"}, 1)
	previous.CreationTimestamp = metav1.NewTime(epoch.Add(-2 * time.Hour))
	previous.Finalizers = []string{"example.com/hold"}
	gone := metav1.NewTime(epoch.Add(-time.Hour))
	previous.DeletionTimestamp = &gone
	found := surveyed(t, surveyorOf(t, []client.Object{set, previous}), "a")
	message := found.Plan.Waits[0].Sentence
	if !strings.Contains(message, "none has left for a minute") || !strings.Contains(message, "example.com/hold") {
		t.Errorf("got %q", message)
	}
}

// Exclusive placement is decided by the node's labels, and nodes are in no
// namespace.
func TestUsersWithoutNodesSeeTheRest(t *testing.T) {
	set := newSet("a", 1, 2)
	set.Annotations = map[string]string{lwsv1.ExclusiveKeyAnnotationKey: "rack"}
	all := slices.DeleteFunc(children(t, set), func(o client.Object) bool {
		return o.GetName() != "a" && o.GetName() != "a-0" || o.GetUID() == "a-0-workers"
	})
	for _, o := range all {
		if _, leads := o.(*corev1.Pod); leads {
			o.SetAnnotations(set.Annotations) // as its StatefulSet made it
		}
	}
	live := clientOf(t, append(all, set))
	s := &Session{Cached: clientOf(t, append(all, set)), Live: withoutNodes{live}}
	found := surveyed(t, s, "a")
	if len(found.Groups) != 1 || found.Groups[0].Leader == nil || !slices.Contains(codes(found.Groups[0].Plan), CodeNotAllowed) {
		t.Errorf("got %+v", found.Groups)
	}
}

// withoutNodes refuses to read nodes.
type withoutNodes struct{ client.Reader }

func (w withoutNodes) Get(ctx context.Context, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
	if into.GetObjectKind().GroupVersionKind().Kind == "Node" {
		return apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, key.Name, nil)
	}
	return w.Reader.Get(ctx, key, into, options...)
}

// No object says why a pod is missing: the newest event of its StatefulSet does.
func TestRefusalsAreReadFromEvents(t *testing.T) {
	set := newSet("a", 2, 2)
	sts := &appsv1.StatefulSet{ObjectMeta: owned(metaOf("a", "sts-uid"), "LeaderWorkerSet", "a", "set-uid")}
	sts.Labels = map[string]string{lwsv1.SetNameLabelKey: "a"}
	event := func(name, uid, message string, minute int) *corev1.Event {
		e := &corev1.Event{ObjectMeta: metaOf(name, "event-"+name), Reason: "FailedCreate", Message: message}
		e.InvolvedObject.UID, e.LastTimestamp = types.UID(uid), metav1.NewTime(epoch.Add(time.Duration(minute)*time.Minute))
		return e
	}
	found := surveyed(t, surveyorOf(t, []client.Object{set, sts},
		event("a", "sts-uid", "create Pod a-1 in StatefulSet a failed error: too long", 1),
		event("b", "sts-uid", "create Pod a-1 in StatefulSet a failed error: exceeded quota", 2),
		event("c", "sts-uid", "create Pod a-11 in StatefulSet a failed error: another", 3),
		event("d", "former", "create Pod a-1 in StatefulSet a failed error: another incarnation", 4)), "a")
	if got := found.Refusals.OfPod(sts, "a-1"); !strings.Contains(got, "exceeded quota") {
		t.Errorf("got %q", got)
	}
	if got := found.Refusals.OfPod(sts, "a-0"); got != "" {
		t.Errorf("of another pod: %q", got)
	}
}
