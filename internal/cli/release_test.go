package cli

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"lockstep.dev/lockstep/internal/cli/release"
)

func TestOneThingIsReleasedAtATime(t *testing.T) {
	for _, tt := range []struct {
		args  string
		space bool
		name  string
		says  string
	}{
		{"pvc/a", false, "a", ""},
		{"pvc a", false, "a", ""},
		{"persistentvolumeclaim/a", false, "a", ""},
		{"ns/a", true, "a", ""},
		{"namespace a", true, "a", ""},
		{"", false, "", "give one PVC, pvc/NAME"},
		{"pvc/a pvc/b", false, "", "each release is confirmed by itself"},
		{"a", false, "", "give pvc/NAME"},
		{"pod/a", false, "", "neither a PersistentVolumeClaim nor a namespace"},
		{"pvc/", false, "", "give pvc/NAME"},
		{"pvc", false, "", `"pvc": the name is missing`},
		{"ns", false, "", `"ns": the name is missing`},
		{"NS/a", true, "a", ""},
		{"ns pvc/a", true, "", "give namespace/NAME"},
	} {
		b := &breakage{}
		err := b.read(strings.Fields(tt.args))
		if (err == nil) != (tt.says == "") || err != nil && !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%q: %v", tt.args, err)
		}
		if err == nil && (b.name != tt.name || b.space != tt.space) {
			t.Errorf("%q: got %+v", tt.args, b)
		}
	}
}

func TestTheNameIsTyped(t *testing.T) {
	defer func(was func(io.Reader) bool) { interactive = was }(interactive)
	interactive = func(io.Reader) bool { return true }
	confirm := func(ctx context.Context, in io.Reader) error {
		streams, _, _, _ := genericiooptions.NewTestIOStreams()
		streams.In = in
		r := &releasing{options: &options{IOStreams: streams}, breakage: &breakage{name: "data", dryRun: "none"}}
		return r.consent(ctx)
	}
	for typed, released := range map[string]bool{"data\n": true, "data \n": true, "y\n": false, "": false, "dat\n": false} {
		if err := confirm(t.Context(), strings.NewReader(typed)); (err == nil) != released {
			t.Errorf("typed %q: %v", typed, err)
		}
	}
	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()
	never, _ := io.Pipe()
	if err := confirm(ctx, never); err == nil || !strings.Contains(err.Error(), "interrupted") {
		t.Errorf("interrupted: %v", err)
	}
}

// The error of a failed deletion says whether the PVC was released.
func TestAFailedDeletionReportsTheRelease(t *testing.T) {
	resource := schema.GroupResource{Resource: "persistentvolumeclaims"}
	r := &releasing{breakage: &breakage{name: "data"}}
	for _, tt := range []struct {
		err      error
		standing release.Standing
		says     string
	}{
		{release.ErrChanged, release.Held, "pvc/data was released, and not deleted: it has changed"},
		{release.ErrChanged, release.Free, "pvc/data was not deleted: it has changed"},
		{apierrors.NewForbidden(resource, "data", errors.New("no")), release.Held, "to check: why"},
	} {
		told := r.undeleted(tt.err, "why", tt.standing)
		if !strings.Contains(told.Error(), tt.says) || strings.Contains(told.Error(), "nothing was released") || !errors.Is(told, tt.err) {
			t.Errorf("told %q", told)
		}
	}
}
