package lwscache

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
)

// incarnation is set w with a UID.
func incarnation(uid types.UID) *lwsv1.LeaderWorkerSet {
	return &lwsv1.LeaderWorkerSet{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "w", UID: uid}}
}

var key = client.ObjectKeyFromObject(incarnation(""))

// recalled is what a memory fills into a snapshot.
func recalled(m *Memory, set *lwsv1.LeaderWorkerSet) lws.SetSnapshot {
	w := lws.SetSnapshot{Set: set}
	m.recall(&w)
	return w
}

func after(seconds int) time.Time {
	return time.Unix(1_000_000, 0).Add(time.Duration(seconds) * time.Second)
}

func TestAVigilDatesWhatComesAndGoes(t *testing.T) {
	m := NewMemory()
	type times = map[types.UID]time.Time
	for _, step := range []struct {
		name    string
		at      int
		objects []types.UID
		want    lws.Vigil
	}{
		{"none yet", 1, nil, lws.Vigil{}},
		{"one comes", 2, []types.UID{"a"}, lws.Vigil{Moved: after(2), Seen: times{"a": after(2)}}},
		{"none moves", 3, []types.UID{"a"}, lws.Vigil{Moved: after(2), Seen: times{"a": after(2)}}},
		{"another comes", 4, []types.UID{"a", "b"}, lws.Vigil{Moved: after(4), Seen: times{"a": after(2), "b": after(4)}}},
		{"one goes", 5, []types.UID{"b"}, lws.Vigil{Moved: after(5), Seen: times{"b": after(4)}}},
		{"the last goes", 6, nil, lws.Vigil{Moved: after(6)}},
	} {
		if diff := cmp.Diff(step.want, m.awaits(incarnation("1"), step.objects, nil, after(step.at)), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s (-want +got)\n%s", step.name, diff)
		}
		if got := m.Awaits(key, "a"); got != slices.Contains(step.objects, "a") {
			t.Errorf("%s: Awaits is %t", step.name, got)
		}
	}
	if m.Awaits(types.NamespacedName{Namespace: "other", Name: "w"}, "a") {
		t.Error("a set of another namespace waits")
	}
}

func TestStalledSince(t *testing.T) {
	m := NewMemory()
	for _, step := range []struct {
		name           string
		at             int
		observed, have int32
		stalled        bool
	}{
		{"not observed", 0, 0, 1, false},
		{"lacks pods", 20, 1, 1, false},
		{"creates one", 29, 1, 2, false},
		{"nine seconds later", 38, 1, 2, false},
		{"ten seconds later", 39, 1, 2, true},
		{"has all", 40, 1, 3, false},
		{"lacks one again", 60, 1, 2, false},
	} {
		sts := &appsv1.StatefulSet{
			ObjectMeta: metav1.ObjectMeta{UID: "u", Generation: 1}, Spec: appsv1.StatefulSetSpec{Replicas: new(int32(3))},
			Status: appsv1.StatefulSetStatus{ObservedGeneration: int64(step.observed), Replicas: step.have},
		}
		if got := m.stalledSince(sts, after(step.at)); got.IsZero() == step.stalled {
			t.Errorf("%s: %s", step.name, got)
		}
	}
}

func TestADeletionIsRememberedForAWhile(t *testing.T) {
	m := NewMemory()
	m.Deleted("u", after(0))
	for seconds, want := range map[int]bool{0: true, 10: true, 3600: false} {
		if got := m.WasDeleted("u", after(seconds)); got != want {
			t.Errorf("after %d s: %t", seconds, got)
		}
	}
	if m.WasDeleted("other", after(0)) {
		t.Error("an object that was never deleted")
	}
}

// Each step of a rollout must not wait for as long as a webhook has failed every other call.
func TestARefusalAfterASuccessIsTheFirst(t *testing.T) {
	m, set := NewMemory(), incarnation("1")
	at := func(seconds int) lws.Refusal {
		return lws.Refusal{Sentence: "no", At: after(seconds), Since: after(seconds)}
	}
	m.Refused(set, at(0))
	if going := m.Refused(set, at(20)); !going.Since.Equal(after(0)) {
		t.Errorf("refused since %s", going.Since)
	}
	m.Accepted(set)
	if left := recalled(m, set).Refusal; left != (lws.Refusal{}) {
		t.Errorf("%+v is left of it", left)
	}
	if going := m.Refused(set, at(40)); !going.Since.Equal(after(40)) {
		t.Errorf("refused since %s, and taken after that", going.Since)
	}
}

func TestASetThatIsGoneIsForgotten(t *testing.T) {
	m := NewMemory()
	m.awaits(incarnation("1"), []types.UID{"a"}, nil, after(1))
	m.StatusWritten(incarnation("1"), after(1))
	m.Taken(identity.Ref{Kind: identity.KindStatefulSet, Namespace: "ns", Name: "w-0"})
	if w := recalled(m, incarnation("1")); !w.StatusWritten.Equal(after(1)) {
		t.Errorf("got %+v", w)
	}
	if w := recalled(m, incarnation("2")); !w.StatusWritten.IsZero() {
		t.Errorf("the next incarnation has %+v", w)
	}
	m.forget(key)
	if len(m.sets)+len(m.taken) != 0 {
		t.Errorf("remembered: %v, %v", m.sets, m.taken)
	}
}

// indexes are the functions that Index adds, by the type of their objects.
type indexes map[string]client.IndexerFunc

func (i indexes) IndexField(_ context.Context, object client.Object, _ string, keys client.IndexerFunc) error {
	i[fmt.Sprintf("%T", object)] = keys
	return nil
}

func TestClaimKeys(t *testing.T) {
	added := indexes{}
	if err := Index(t.Context(), added); err != nil {
		t.Fatal(err)
	}
	owned := func(meta metav1.ObjectMeta) metav1.ObjectMeta {
		yes := true
		meta.OwnerReferences = []metav1.OwnerReference{{UID: "not the controller"}, {UID: "u", Controller: &yes}}
		return meta
	}
	labels := map[string]string{lwsv1.SetNameLabelKey: "w"}
	tests := []struct {
		name   string
		object client.Object
		want   []string
	}{
		{"a leader", &corev1.Pod{ObjectMeta: owned(metav1.ObjectMeta{Name: "w-0"})}, []string{"name:w"}},
		{"a worker", &corev1.Pod{ObjectMeta: owned(metav1.ObjectMeta{Name: "w-0-1"})}, []string{"group:w", "name:w-0"}},
		{"a worker of a set whose name ends in a number", &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "w-0-1-2"}}, []string{"group:w-0", "name:w-0-1"}},
		{"without owner", &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "w-0", Labels: labels}}, []string{"name:w"}},
		{"no ordinal", &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "w", Labels: labels}}, nil},
		{"a name that no StatefulSet gives", &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "w-007", Labels: labels}}, nil},
		{"the workers of a group", &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "w-0", Labels: labels}}, []string{"group:w"}},
		{"the Service of a group", &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "w-0", Labels: labels}}, []string{"group:w"}},
		{"the Service of a set", &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "w", Labels: labels}}, nil},
		{"a revision", &appsv1.ControllerRevision{ObjectMeta: owned(metav1.ObjectMeta{Name: "w-x-1", Labels: labels})}, []string{"uid:u", "name:w"}},
	}
	for _, tt := range tests {
		if diff := cmp.Diff(tt.want, added[fmt.Sprintf("%T", tt.object)](tt.object)); diff != "" {
			t.Errorf("%s (-want +got)\n%s", tt.name, diff)
		}
	}
}
