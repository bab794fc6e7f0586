package render

import (
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
)

// A write that will be refused must not look due: a plan says what the write relies on.
func TestAPlanSaysWhatAWriteReliesOn(t *testing.T) {
	pod := identity.Ref{Kind: identity.KindPod, Namespace: "ns", Name: "w-0", UID: "u", ResourceVersion: "7"}
	set := action.Standing{Kind: identity.KindStatefulSet, Name: "w", Specified: map[types.UID]int64{"s": 1}}
	leaders := action.Standing{
		Kind: identity.KindPod, There: []types.UID{"a"}, Unchanged: []identity.Ref{pod}, NoOther: []action.Names{{Base: "w", End: 2}},
	}
	none := action.Standing{Kind: identity.KindPod, None: true, Labels: map[string]string{"a": "b"}}
	for _, tt := range []struct {
		write action.Action
		want  []string
	}{
		{action.Apply{Onto: pod, Relies: []action.Standing{set}}, []string{"statefulset w did not change since it was read"}},
		{action.Delete{Object: pod, Relies: []action.Standing{leaders}}, []string{"the judged pods exist (2, unchanged: 1), and no other has one of their names"}},
		{action.Relabel{Object: pod, Relies: []action.Standing{set, none}}, []string{"statefulset w did not change since it was read", "no pod with a=b exists"}},
		{action.SetFinalizers{Object: pod, Relies: []action.Standing{none}}, []string{"no pod with a=b exists"}},
		{action.Ungate{Pod: pod, Relies: []action.Standing{none}}, []string{"no pod with a=b exists"}},
	} {
		shown := actionOf(tt.write)
		if !slices.Equal(shown.Preconditions.Relies, tt.want) {
			t.Errorf("%T: got %q, want %q", tt.write, shown.Preconditions.Relies, tt.want)
		}
		if needs := shown.Preconditions.needs(); needs[len(needs)-1] != tt.want[len(tt.want)-1] {
			t.Errorf("%T: the text has %q", tt.write, needs)
		}
	}
	if shown := actionOf(action.Delete{Object: pod, Foreground: true, After: true}); !shown.Foreground || !shown.After {
		t.Errorf("a delete in the foreground, after others: got %+v", shown)
	}
}
