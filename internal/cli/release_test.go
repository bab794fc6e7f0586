package cli

import (
	"context"
	"io"
	"strings"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"
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
		{"", false, "", "give one claim, pvc/NAME"},
		{"pvc/a pvc/b", false, "", "each release is confirmed by itself"},
		{"a", false, "", `"a": say what it is: pvc/a`},
		{"pod/a", false, "", "neither a PersistentVolumeClaim nor a namespace"},
		{"pvc/", false, "", "the name is missing"},
		{"pvc", false, "", `"pvc": the name is missing`},
		{"ns", false, "", `"ns": the name is missing`},
		{"NS/a", true, "a", ""},
		{"ns pvc/a", true, "", "there is no / in a name"},
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
