package apply

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/test/expect"
)

func named(name string) identity.Ref { return identity.Ref{Kind: identity.KindPod, Name: name} }

func TestOnlyNeighbouringDeletesGoTogether(t *testing.T) {
	remove, write, apply := action.Delete{Object: named("a")}, action.WriteStatus{}, action.Apply{}
	make, any := action.Create{Object: &corev1.Pod{}}, action.Delete{Object: named("b"), AnyVersion: true}
	after := action.Delete{Object: named("a"), After: true}
	sts := action.Delete{Object: identity.Ref{Kind: identity.KindStatefulSet, Name: "a"}}
	for _, tt := range []struct {
		actions []action.Action
		want    []int
	}{
		{nil, nil},
		{[]action.Action{remove, remove, remove}, []int{3}},
		{[]action.Action{make, make}, []int{1, 1}},
		{[]action.Action{remove, apply, remove, remove, write}, []int{1, 1, 2, 1}},
		{[]action.Action{any, any, remove}, []int{3}}, // a group's leader goes with its workers
		{[]action.Action{any, any, after}, []int{2, 1}},
		{[]action.Action{sts, remove, any, any}, []int{1, 3}}, // a group's StatefulSet goes before its pods
		{[]action.Action{apply, sts, write, sts}, []int{1, 1, 1, 1}},
	} {
		var sizes []int
		var all []action.Action
		for _, run := range Batch(tt.actions) {
			sizes, all = append(sizes, len(run)), append(all, run...)
		}
		expect.Equalf(t, tt.want, sizes, "%v", tt.actions)
		expect.Equalf(t, tt.actions, all, "the order changed")
	}
}

func ties(n int) (actions []action.Action) {
	for i := range n {
		actions = append(actions, action.SetOwner{Object: named(fmt.Sprint(i))})
	}
	return actions
}

// An error must not be hidden by a write beside it that found the cluster changed.
func TestSlowStartBeginsWithOneAndDoubles(t *testing.T) {
	boom, stale := errors.New("boom"), fmt.Errorf("conflict: %w", ErrStale)
	for _, tt := range []struct {
		run   int
		fails map[int]error
		calls int
		want  error
	}{
		{0, nil, 0, nil},
		{1, nil, 1, nil},
		{10, nil, 10, nil},
		{10, map[int]error{0: boom}, 1, boom},
		{10, map[int]error{1: boom}, 3, boom},
		{10, map[int]error{2: boom}, 3, boom},
		{10, map[int]error{3: boom}, 7, boom},
		{100, map[int]error{7: boom}, 15, boom},
		{1000, map[int]error{600: boom}, 63 + 9*atMost, boom},
		{3, map[int]error{1: boom, 2: stale}, 3, boom},
		{3, map[int]error{1: stale, 2: boom}, 3, boom},
		{3, map[int]error{1: stale}, 3, ErrStale},
		{3, map[int]error{1: stale, 2: stale}, 3, ErrStale},
	} {
		var mu sync.Mutex
		calls := 0
		err := SlowStart(t.Context(), ties(tt.run), AtOnce, func(_ context.Context, a action.Action) error {
			mu.Lock()
			defer mu.Unlock()
			calls++
			var i int
			_, _ = fmt.Sscan(a.Target().Name, &i)
			return tt.fails[i]
		})
		if calls != tt.calls || !errors.Is(err, tt.want) || errors.Is(err, ErrStale) != errors.Is(tt.want, ErrStale) {
			t.Errorf("%d actions, of which fail %v: %d calls, %v", tt.run, tt.fails, calls, err)
		}
	}
}

// The pods of a group that is deleted do not wait for each other: all have one grace period.
func TestDeletesOfAGroupGoOutTogether(t *testing.T) {
	var deletes []action.Action
	for i := range atOnce {
		deletes = append(deletes, action.Delete{Object: named(fmt.Sprint(i)), AnyVersion: true})
	}
	var begun sync.WaitGroup
	begun.Add(len(deletes))
	err := SlowStart(t.Context(), deletes, AtOnce, func(context.Context, action.Action) error {
		begun.Done()
		begun.Wait() // for ever, if one of them waits for another
		return nil
	})
	expect.That(t, err == nil, "%v", err)
}

func TestAnApplySendsWhatIsSetAndNothingElse(t *testing.T) {
	onto := identity.Ref{Kind: identity.KindStatefulSet, Namespace: "ns", Name: "w", UID: "u", ResourceVersion: "3"}
	head := `"apiVersion":"apps/v1","kind":"StatefulSet","metadata":{"annotations":{"a":"b"},"name":"w","namespace":"ns","resourceVersion":"4","uid":"u"}`
	meta := metav1.ObjectMeta{Annotations: map[string]string{"a": "b"}}
	revision, set := onto, onto
	revision.Kind, set.Kind = identity.KindControllerRevision, identity.KindLeaderWorkerSet
	for _, tt := range []struct {
		name   string
		object action.Object
		onto   identity.Ref
		want   string
	}{
		{"metadata only", &appsv1.StatefulSet{ObjectMeta: meta}, onto, "{" + head + "}"},
		{
			"a retention policy only, and not even an empty template",
			&appsv1.StatefulSet{ObjectMeta: meta, Spec: appsv1.StatefulSetSpec{
				PersistentVolumeClaimRetentionPolicy: &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{WhenDeleted: "Retain", WhenScaled: "Retain"},
			}},
			onto,
			"{" + head + `,"spec":{"persistentVolumeClaimRetentionPolicy":{"whenDeleted":"Retain","whenScaled":"Retain"}}}`,
		},
		{
			"empty choices stay, empty status goes",
			&appsv1.StatefulSet{ObjectMeta: meta, Spec: appsv1.StatefulSetSpec{
				Selector: &metav1.LabelSelector{}, ServiceName: "w",
				VolumeClaimTemplates: []corev1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: "data"}}},
				Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
					Volumes: []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}},
				}},
			}},
			onto,
			"{" + head + `,"spec":{"selector":{},"serviceName":"w","template":{"metadata":{},"spec":{"volumes":[{"emptyDir":{},"name":"v"}]}},"updateStrategy":{},"volumeClaimTemplates":[{"metadata":{"name":"data"},"spec":{"resources":{}}}]}}`,
		},
		{
			"a revision without a number", &appsv1.ControllerRevision{ObjectMeta: meta}, revision,
			`{"apiVersion":"apps/v1","kind":"ControllerRevision","metadata":{"annotations":{"a":"b"},"name":"w","namespace":"ns","resourceVersion":"4","uid":"u"}}`,
		},
		{
			"a revision with one", &appsv1.ControllerRevision{ObjectMeta: meta, Revision: 7}, revision,
			`{"apiVersion":"apps/v1","kind":"ControllerRevision","metadata":{"annotations":{"a":"b"},"name":"w","namespace":"ns","resourceVersion":"4","uid":"u"},"revision":7}`,
		},
		{
			"replicas of a set only, and not even an empty template", &lwsv1.LeaderWorkerSet{ObjectMeta: meta, Spec: lwsv1.LeaderWorkerSetSpec{Replicas: new(int32(0))}}, set,
			`{"apiVersion":"leaderworkerset.x-k8s.io/v1","kind":"LeaderWorkerSet","metadata":{"annotations":{"a":"b"},"name":"w","namespace":"ns","resourceVersion":"4","uid":"u"},"spec":{"replicas":0}}`,
		},
	} {
		fields := expect.Value(applied(tt.object, tt.onto, "4"))(t)
		got := expect.Value(json.Marshal(fields))(t)
		expect.Equalf(t, parsed(t, tt.want), parsed(t, string(got)), "%s", tt.name)
	}
	_, err := applied(&corev1.Pod{}, named("w-0"), "4")
	expect.That(t, err != nil, "a pod was applied")
}
