package restart_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws/restart"
)

func entryOf(index int32, revision string, count int32) lwsv1.GroupRestarts {
	return lwsv1.GroupRestarts{Index: index, Leader: types.UID('a' + index), Revision: revision, Count: count, Recreations: ptr.To(count)}
}

// counts are the entries of a status, by index.
func counts(s restart.Status) map[int32]int32 {
	found := map[int32]int32{}
	for _, entry := range s.Restarts {
		found[entry.Index] = entry.Count
	}
	return found
}

func TestAGroupInheritsTheHighestCountOfItsRevision(t *testing.T) {
	all := []lwsv1.GroupRestarts{entryOf(1, "r", 2), entryOf(2, "r", 5), entryOf(3, "s", 9), entryOf(4, "r", 1)}
	for name, tt := range map[string]struct {
		owners restart.Owners
		want   map[int32]int32
		isNew  bool
	}{
		"nothing is replaced":          {restart.Owners{Living: map[int]bool{1: true, 2: true, 3: true, 4: true}}, map[int32]int32{1: 2, 2: 5, 3: 9, 4: 1}, false},
		"one is":                       {restart.Owners{Living: map[int]bool{1: true, 3: true, 4: true, 7: true}, Heirs: []restart.Heir{{Index: 7, Revision: "r"}}}, map[int32]int32{1: 2, 7: 5, 3: 9, 4: 1}, true},
		"the highest of two":           {restart.Owners{Living: map[int]bool{3: true, 7: true}, Vacant: 2, Heirs: []restart.Heir{{Index: 7, Revision: "r"}}}, map[int32]int32{7: 5, 1: 2, 3: 9, 4: 1}, true},
		"of another revision, nothing": {restart.Owners{Living: map[int]bool{1: true, 2: true, 4: true, 7: true}, Heirs: []restart.Heir{{Index: 7, Revision: "r"}}}, map[int32]int32{1: 2, 2: 5, 4: 1}, false},
		"one that is stopped keeps it": {restart.Owners{Living: map[int]bool{1: true, 3: true, 4: true, 7: true}, Kept: map[int]bool{2: true}, Heirs: []restart.Heir{{Index: 7, Revision: "r"}}}, map[int32]int32{1: 2, 2: 5, 3: 9, 4: 1}, false},
		"an heir has one already":      {restart.Owners{Living: map[int]bool{1: true, 3: true}, Heirs: []restart.Heir{{Index: 1, Revision: "r"}}, Vacant: 1}, map[int32]int32{1: 2, 2: 5, 3: 9}, false},
	} {
		s := restart.Status{Restarts: all}
		s.Inherit(tt.owners)
		if diff := cmp.Diff(tt.want, counts(s)); diff != "" || s.IsNew != tt.isNew {
			t.Errorf("%s: new %t (-want +got)\n%s", name, s.IsNew, diff)
		}
	}
}

// No entry appears from nothing, none is doubled, and no more stay than living, stopped and vacant groups can have.
func TestInheritanceMakesNoEntries(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s restart.Status
		for index := range int32(6) {
			if rapid.Bool().Draw(t, "entry") {
				s.Restarts = append(s.Restarts, entryOf(index, rapid.SampledFrom([]string{"r", "s"}).Draw(t, "revision"), rapid.Int32Range(0, 9).Draw(t, "count")))
			}
		}
		before := map[types.UID]bool{}
		for _, entry := range s.Restarts {
			before[entry.Leader] = true
		}
		o := restart.Owners{Living: map[int]bool{}, Kept: map[int]bool{}, Vacant: rapid.IntRange(0, 3).Draw(t, "vacant")}
		for index := range 9 {
			switch rapid.IntRange(0, 3).Draw(t, "group") {
			case 0:
				o.Living[index] = true
				if rapid.Bool().Draw(t, "heir") {
					o.Heirs = append(o.Heirs, restart.Heir{Index: index, Revision: "r"})
				}
			case 1:
				o.Kept[index] = true
			}
		}
		s.Inherit(o)
		free := 0
		for _, entry := range s.Restarts {
			if !before[entry.Leader] {
				t.Fatalf("entry %+v comes from nothing", entry)
			}
			delete(before, entry.Leader)
			if index := int(entry.Index); !o.Living[index] && !o.Kept[index] {
				free++
			}
		}
		if free > o.Vacant {
			t.Errorf("%d entries without a group, and %d groups may come", free, o.Vacant)
		}
	})
}

// Another implementation counts the restarts of a Hash group under its key, and of another group under its ordinal.
func TestCountsOfAnotherImplementationHaveTheKeyOfTheGroup(t *testing.T) {
	key, made := strings.Repeat("a", 40), metav1.NewTime(time.Unix(1000, 0))
	index := identity.HashIndex(key)
	leader := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: "w-r-a", CreationTimestamp: made,
		Labels:      map[string]string{lwsv1.RevisionKey: "r", lwsv1.GroupUniqueHashLabelKey: key, lwsv1.GroupIndexLabelKey: key},
		Annotations: map[string]string{lwsv1.GroupIdentityAnnotationKey: string(lwsv1.HashGroupIdentity)},
	}}
	ordinal := leader.DeepCopy()
	ordinal.Name, ordinal.Annotations = "w-3", nil
	for name, tt := range map[string]struct {
		leader   *corev1.Pod
		index    int
		counts   string
		exhausts bool
	}{
		"of its key":       {leader, index, fmt.Sprintf(`{"r/%s": 2}`, key), true},
		"of its number":    {leader, index, fmt.Sprintf(`{"r/%d": 2}`, index), false},
		"of another key":   {leader, index, `{"r/b": 2}`, false},
		"of its ordinal":   {ordinal, 3, `{"r/3": 2}`, true},
		"of no ordinal":    {ordinal, 3, fmt.Sprintf(`{"r/%s": 2}`, key), false},
		"of fewer than it": {leader, index, fmt.Sprintf(`{"r/%s": 1}`, key), false},
	} {
		set := &lwsv1.LeaderWorkerSet{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{lwsv1.GroupRestartCountsAnnotationKey: tt.counts}}}
		set.Spec.LeaderWorkerTemplate.MaxGroupRestarts = ptr.To[int32](2)
		set.Status.RestartsSince = &metav1.Time{Time: made.Add(time.Second)}
		decision := restart.Group{Set: set, Index: tt.index, Leader: tt.leader}.Decide(&restart.Failure{}, made.Time)
		if decision.Exhausted != tt.exhausts {
			t.Errorf("%s: exhausts %v", name, decision.Exhausted)
		}
	}
}
