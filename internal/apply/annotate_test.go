package apply

import (
	"testing"

	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
)

func TestAnAnnotationNamesTheVersionAndNothingElse(t *testing.T) {
	claim := identity.Ref{Kind: identity.KindPersistentVolumeClaim, Namespace: "ns", Name: "data", UID: "u", ResourceVersion: "7"}
	writer := &patched{answer: `{"metadata":{"uid":"u","resourceVersion":"8"}}`}
	done, err := New(writer, nil).Do(t.Context(), action.Annotate{Object: claim, Annotations: map[string]string{"x/a": "1", "x/b": ""}})
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"metadata":{"annotations":{"x/a":"1","x/b":null},"resourceVersion":"7","uid":"u"}}`
	if writer.document != want || writer.waits {
		t.Errorf("got %s, waits %v", writer.document, writer.waits)
	}
	if done.ResourceVersion != "8" {
		t.Errorf("the next write would be onto version %q", done.ResourceVersion)
	}
}
