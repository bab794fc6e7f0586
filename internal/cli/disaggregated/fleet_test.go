package disaggregated

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	dsv1 "lockstep.dev/lockstep/api/disaggregatedset/v1"
	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/cli/cluster"
	"lockstep.dev/lockstep/internal/cli/fleet"
	"lockstep.dev/lockstep/internal/cli/lws"
	"lockstep.dev/lockstep/internal/cli/page"
	"lockstep.dev/lockstep/internal/disaggregated"
	"lockstep.dev/lockstep/internal/disaggregated/set"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/test/expect"
)

// partOf is the line of a child whose groups are all ready, each with two pods of one GPU.
func partOf(child *lwsv1.LeaderWorkerSet) fleet.Line {
	n := int64(*child.Spec.Replicas)
	return fleet.Line{
		State: fleet.Ready, Groups: fleet.Count{Wanted: n, Existing: n, Ready: n, Updated: n}, Pods: fleet.Count{Wanted: 2 * n, Existing: 2 * n, Ready: 2 * n, Updated: 2 * n},
		Accelerators: fleet.Accelerators{{Resource: "nvidia.com/gpu", Held: 2 * n}}, On: sets.New(fmt.Sprint("node-of-", child.Name), "shared"),
	}
}

func conditions(all ...string) (found []metav1.Condition) {
	for _, text := range all {
		part := strings.Split(text, " ")
		found = append(found, metav1.Condition{Type: part[0], Status: metav1.ConditionStatus(part[1]), Reason: part[2], Message: "why " + part[2]})
	}
	return found
}

// A DisaggregatedSet has one line: its wanted groups, and what its children have. Groups of older revisions are not updated.
func TestALineIsForAllChildren(t *testing.T) {
	w := rolling(t)
	w.Set.Spec.Roles[1] = external(w.Set.Spec.Roles[1])
	w.Set.Status.Conditions = conditions("Ready False " + set.CodeInProgress)
	all := newWhole(w.Set)
	for _, child := range w.Children.Owned {
		all.Add(child, partOf(child))
	}
	found := fleet.Of(fleet.Question{Format: "wide"}, []fleet.Line{all.Line(nil)}, "")
	golden(t, "fleet.txt", page.Text(found, now))
}

func TestTheStateOfASet(t *testing.T) {
	usual := "Ready False " + set.CodeInProgress
	stopped := metav1.NewTime(now)
	for name, tt := range map[string]struct {
		conditions []metav1.Condition
		child      fleet.State
		edit       func(*dsv1.DisaggregatedSet)
		want       fleet.State
		says       string
	}{
		"new":                            {nil, fleet.Ready, nil, fleet.Updating, ""},
		"ready":                          {conditions("Ready True AllRolesReady"), fleet.Ready, nil, fleet.Ready, "why AllRolesReady"},
		"a rollout":                      {conditions(usual), fleet.Ready, nil, fleet.Updating, "why " + set.CodeInProgress},
		"a rollout, and a failed group":  {conditions(usual), fleet.Restarting, nil, fleet.Restarting, "llama-0-"},
		"ready, but a child is not":      {conditions("Ready True AllRolesReady"), fleet.Unready, nil, fleet.Unready, "llama-0-"},
		"blocked":                        {conditions("Ready False RolloutBlocked", "Stalled True RolloutBlocked"), fleet.Waiting, nil, fleet.Stalled, "why RolloutBlocked"},
		"a role waits":                   {conditions("Ready False " + set.CodeRoleStalled), fleet.Waiting, nil, fleet.Waiting, "why " + set.CodeRoleStalled},
		"paused":                         {conditions("Ready False " + set.CodePaused), fleet.Ready, nil, fleet.Paused, "why " + set.CodePaused},
		"of a later version":             {conditions("Unsupported True UnknownFields", "Ready True AllRolesReady"), fleet.Ready, nil, fleet.Stalled, "why UnknownFields"},
		"not observed":                   {conditions("Ready True AllRolesReady"), fleet.Ready, func(s *dsv1.DisaggregatedSet) { s.Generation = 2 }, fleet.Unattended, "no operator"},
		"deleted, and a child is stuck":  {conditions(usual), fleet.Stalled, func(s *dsv1.DisaggregatedSet) { s.DeletionTimestamp = &stopped }, fleet.Deleting, "finalizers"},
		"observed, without any operator": {conditions("Ready True AllRolesReady"), fleet.Ready, func(s *dsv1.DisaggregatedSet) { s.Status.ObservedGeneration = 1 }, fleet.Ready, ""},
	} {
		w := rolling(t)
		if w.Set.Status.Conditions = tt.conditions; tt.edit != nil {
			tt.edit(w.Set)
		}
		all := newWhole(w.Set)
		for i, child := range w.Children.Owned {
			part := partOf(child)
			if i == 0 {
				part.State, part.Reason, part.Message = tt.child, "Code", "why"
			}
			all.Add(child, part)
		}
		l := all.Line(&action.Reason{Code: "NoOperator", Sentence: "no operator"})
		expect.That(t, l.State == tt.want && strings.Contains(l.Message, tt.says), "%s: got %s, %s: %s", name, l.State, l.Reason, l.Message)
	}
	single := newWhole(newSet(1, newRole("prefill", 1, 1, "engine:1")))
	expect.Equalf(t, fleet.Starting, single.Line(nil).State, "a set without children")
}

// sessionOf is a session of an API server that answers lists of DisaggregatedSets with an error.
func sessionOf(err error, objects ...client.Object) *cluster.Session {
	live := interceptor.NewClient(newClient(objects...), interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			if _, is := list.(*dsv1.DisaggregatedSetList); is && err != nil {
				return err
			}
			return c.List(ctx, list, options...)
		},
	})
	flags := &cluster.Flags{ConfigFlags: genericclioptions.NewConfigFlags(true), At: now}
	return &cluster.Session{Cluster: &cluster.Cluster{Flags: flags, Namespace: key.Namespace}, Session: &lws.Session{Cached: live, Live: live}}
}

// Where DisaggregatedSets are not served, or may not be listed, the other sets are shown.
func TestAFleetWithoutDisaggregatedSets(t *testing.T) {
	stored := newSet(1, newRole("prefill", 2, 2, "engine:1"))
	for name, tt := range map[string]struct {
		err    error
		shown  int
		unread string
	}{
		"served":     {nil, 1, ""},
		"not served": {&meta.NoKindMatchError{GroupKind: schema.GroupKind{Kind: string(identity.KindDisaggregatedSet)}}, 0, ""},
		"not found":  {apierrors.NewNotFound(schema.GroupResource{Resource: "disaggregatedsets"}, ""), 0, ""},
		"not allowed": {
			apierrors.NewForbidden(schema.GroupResource{Resource: "disaggregatedsets"}, "", errors.New("no")), 0,
			"DisaggregatedSets are not shown: you need the right to list and watch disaggregatedsets",
		},
	} {
		found := expect.Value(NewFleet(t.Context(), sessionOf(tt.err, stored.DeepCopy())).Read(t.Context(), fleet.Question{}))(t)
		expect.That(t, len(found.Items) == tt.shown && strings.Join(found.Unread, "") == tt.unread, "%s: got %+v", name, found)
	}
	labelled := stored.DeepCopy()
	labelled.Labels = map[string]string{"team": "a"}
	for labels, want := range map[string]int{"team=a": 1, "team=b": 0} {
		found := expect.Value(NewFleet(t.Context(), sessionOf(nil, labelled.DeepCopy())).Read(t.Context(), fleet.Question{Labels: labels}))(t)
		expect.Equalf(t, want, len(found.Items), "%s", labels)
	}
}

// Whatever a child is, it is counted: by the place that its labels say.
func TestAChildWithoutARoleOfTheSetIsCounted(t *testing.T) {
	w := rolling(t)
	child := w.Children.Owned[0].DeepCopy()
	child.Labels = disaggregated.Labels("llama", disaggregated.Place{Revision: "gone", Role: "gone"})
	all := newWhole(w.Set)
	all.Add(child, partOf(child))
	l := all.Line(nil)
	expect.That(t, l.Groups.Existing == 3 && l.Groups.Updated == 0 && l.Groups.Wanted == 6 && l.State == fleet.Updating, "got %+v", l)
}
