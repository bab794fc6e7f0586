package cli

import (
	"context"
	"io"
	"strings"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"
)

func TestAReleaseIsConfirmedByTheName(t *testing.T) {
	defer func(was func(any) bool) { isTerminal = was }(isTerminal)
	isTerminal = func(any) bool { return true }
	confirm := func(ctx context.Context, in io.Reader) error {
		streams, _, _, _ := genericiooptions.NewTestIOStreams()
		streams.In = in
		return (&release{cluster: &cluster{options: &options{IOStreams: streams}}, name: "data"}).consent(ctx)
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
