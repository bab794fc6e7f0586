package apply

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/pvc"
)

// judged are the writes that a reading without any pods allows.
func judged(claims ...*corev1.PersistentVolumeClaim) (writes []action.Action) {
	view := pvc.Settings{Alone: true}.Take("ns", claims).Look(func(string, func(*corev1.Pod)) error { return nil })
	releases, _ := view.Judge()
	for _, r := range releases {
		writes = append(writes, r)
	}
	for _, r := range view.Forget() {
		writes = append(writes, r)
	}
	return writes
}

func claimWith(record string, going bool, finalizers ...string) *corev1.PersistentVolumeClaim {
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "data", UID: "u", ResourceVersion: "7", Finalizers: finalizers}}
	if record != "" {
		claim.Annotations = map[string]string{pvc.UsersAnnotation: record}
	}
	if going {
		claim.DeletionTimestamp = &metav1.Time{}
	}
	return claim
}

func TestMarksNameTheIncarnationAndTheVersionJudged(t *testing.T) {
	onto := identity.Ref{Kind: identity.KindPersistentVolumeClaim, Namespace: "ns", Name: "data", UID: "u", ResourceVersion: "7"}
	const head, tail = `{"metadata":{`, `"resourceVersion":"7","uid":"u"}}`
	for want, what := range map[string]action.Action{
		head + `"finalizers":["a/b"],` + tail:                                   judged(claimWith("", true, "a/b", pvc.BarrierFinalizer))[0],
		head + `"finalizers":["protection.lockstep.dev/barrier"],` + tail:       judged(claimWith("", true, pvc.PodsFinalizer, pvc.BarrierFinalizer))[0],
		head + `"finalizers":[],` + tail:                                        judged(claimWith("", true, pvc.BarrierFinalizer))[0],
		head + `"finalizers":["a/b","c/d"],` + tail:                             action.SetFinalizers{Object: onto, Finalizers: []string{"a/b", "c/d"}},
		head + `"annotations":{"protection.lockstep.dev/used-by":null},` + tail: judged(claimWith("p=1", false))[0],
	} {
		writer := &patched{}
		if _, err := New(writer, nil).Do(t.Context(), what); err != nil {
			t.Fatal(err)
		}
		if writer.document != want || writer.waits {
			t.Errorf("%s: got %s, waits %t; want %s", what.Verb(), writer.document, writer.waits, want)
		}
	}
}

// statusPatched records a patch of the subresource status.
type statusPatched struct {
	client.SubResourceWriter
	document string
}

// withStatus is a client of one subresource.
type withStatus struct {
	client.Client
	status client.SubResourceWriter
}

func (w withStatus) Status() client.SubResourceWriter { return w.status }

func (s *statusPatched) Patch(_ context.Context, object client.Object, patch client.Patch, _ ...client.SubResourcePatchOption) error {
	data, err := patch.Data(object)
	s.document = string(patch.Type()) + " " + string(data)
	return err
}

func TestDropUnusedPatchesTheVersionJudgedAndKeepsOtherConditions(t *testing.T) {
	writer := &statusPatched{}
	onto := identity.Ref{Kind: identity.KindPersistentVolumeClaim, Namespace: "ns", Name: "data", UID: "u", ResourceVersion: "7"}
	if _, err := New(withStatus{status: writer}, nil).Do(t.Context(), pvc.DropUnused{PVC: onto}); err != nil {
		t.Fatal(err)
	}
	const want = `application/strategic-merge-patch+json {"metadata":{"resourceVersion":"7","uid":"u"},"status":{"conditions":[{"$patch":"delete","type":"Unused"}]}}`
	if writer.document != want {
		t.Errorf("got %s", writer.document)
	}
}

func TestNothingIsReleasedThatWasNotJudged(t *testing.T) {
	for _, what := range []action.Action{
		pvc.Release{}, pvc.Recording{}, pvc.DropUnused{},
		action.SetFinalizers{Object: identity.Ref{Kind: identity.KindPersistentVolumeClaim, Namespace: "ns", Name: "data"}},
	} {
		if _, err := New(nil, nil).Do(t.Context(), what); err == nil || errors.Is(err, ErrStale) {
			t.Errorf("%s: got %v", what.Verb(), err)
		}
	}
}
