package apply

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
)

// patched notes what is patched and whether later reads are to wait for it.
type patched struct {
	client.Client
	document string
	waits    bool
	// answer is what the API server makes of it, if not just that.
	answer string
}

func (p *patched) Patch(_ context.Context, object client.Object, patch client.Patch, opts ...client.PatchOption) error {
	data, err := patch.Data(object)
	p.document = string(data)
	p.waits = !(&client.PatchOptions{}).ApplyOptions(opts).DisableReadYourWritesConsistency
	return errors.Join(err, json.Unmarshal([]byte(cmp.Or(p.answer, p.document)), object))
}

func TestRelabelNamesTheVersionAndWaitsForWhatTheCacheWillShow(t *testing.T) {
	revision := identity.Ref{Kind: identity.KindControllerRevision, Namespace: "ns", Name: "r", UID: "u", ResourceVersion: "7"}
	tests := []struct {
		name  string
		what  action.Relabel
		want  string
		waits bool
	}{
		{
			"out of the cache", action.Relabel{Object: revision, Labels: map[string]string{lwsv1.SetNameLabelKey: "", "h": "w"}},
			`{"metadata":{"labels":{"h":"w","leaderworkerset.sigs.k8s.io/name":null},"resourceVersion":"7","uid":"u"}}`, false,
		},
		{
			"into it", action.Relabel{Object: revision, Labels: map[string]string{lwsv1.SetNameLabelKey: "w", "h": ""}, Number: 3},
			`{"metadata":{"labels":{"h":null,"leaderworkerset.sigs.k8s.io/name":"w"},"resourceVersion":"7","uid":"u"},"revision":3}`, true,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			writer := &patched{}
			if _, err := New(writer, nil).Do(t.Context(), tt.what); err != nil {
				t.Fatal(err)
			}
			if writer.document != tt.want || writer.waits != tt.waits {
				t.Errorf("got %s, waits %v", writer.document, writer.waits)
			}
		})
	}
}

func TestLabelsStayWhenWhatTheirChangeReliesOnMoved(t *testing.T) {
	survey := func(context.Context, action.Standing) ([]metav1.ObjectMeta, error) {
		return []metav1.ObjectMeta{{Name: "w-0", UID: "u"}}, nil
	}
	writer := &patched{}
	what := action.Relabel{
		Object: identity.Ref{Kind: identity.KindControllerRevision, Namespace: "ns", Name: "w-1", UID: "r", ResourceVersion: "7"},
		Relies: []action.Standing{{Kind: identity.KindPod, None: true}},
	}
	if _, err := New(writer, nil).Surveying(survey).Do(t.Context(), what); !errors.Is(err, ErrStale) || writer.document != "" {
		t.Errorf("got %v, patched %q", err, writer.document)
	}
}

func TestAWriteIsHeldBackWhenWhatItReliesOnMoved(t *testing.T) {
	pod := func(name, uid, version string, going bool) metav1.ObjectMeta {
		owner := metav1.OwnerReference{UID: types.UID("of " + uid), Controller: ptr.To(true)}
		p := metav1.ObjectMeta{Name: name, UID: types.UID(uid), ResourceVersion: version, OwnerReferences: []metav1.OwnerReference{owner}}
		if going {
			p.DeletionTimestamp = &metav1.Time{}
		}
		return p
	}
	survey := func(context.Context, action.Standing) ([]metav1.ObjectMeta, error) {
		return []metav1.ObjectMeta{pod("a-0", "u0", "5", false), pod("a-1", "u1", "6", true)}, nil
	}
	ref := func(uid, version string) identity.Ref {
		return identity.Ref{Kind: identity.KindPod, Name: "a", UID: types.UID(uid), ResourceVersion: version}
	}
	tests := []struct {
		name   string
		relied action.Standing
		holds  bool
	}{
		{"it is there", action.Standing{There: []types.UID{"u0"}}, true},
		{"it is going", action.Standing{There: []types.UID{"u1"}}, false},
		{"it is another by now", action.Standing{There: []types.UID{"u2"}}, false},
		{"it is as it was", action.Standing{Unchanged: []identity.Ref{ref("u0", "5")}}, true},
		{"it changed", action.Standing{Unchanged: []identity.Ref{ref("u0", "4")}}, false},
		{"nobody bears the name", action.Standing{Absent: []string{"a-7"}}, true},
		{"who bears the name is going", action.Standing{Absent: []string{"a-1"}}, true},
		{"somebody bears the name", action.Standing{Absent: []string{"a-0"}}, false},
		{"somebody is there", action.Standing{None: true}, false},
		{"the one it controls is there", action.Standing{None: true, Of: "of u0"}, false},
		{"the one it controls is going", action.Standing{None: true, Of: "of u1"}, true},
		{"it controls none", action.Standing{None: true, Of: "another"}, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.relied.Kind = identity.KindPod
			err := New(nil, nil).Surveying(survey).standing(t.Context(), []action.Standing{tt.relied})
			if tt.holds != (err == nil) || (err != nil && !errors.Is(err, ErrStale)) {
				t.Errorf("got %v", err)
			}
		})
	}
}
