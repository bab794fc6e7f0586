package withdraw

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// subject is one kind of object that may bear something of ours.
type subject struct {
	each func(ctx context.Context, see func(client.Object) error) error
	// off is the merge patch that takes it off, or nil where there is nothing.
	off func(client.Object) patch
	// await, if set, is asked before a pass for what has to come by itself.
	await func(context.Context) error
	// send, if set, writes a patch with its preconditions. Else it is merged onto the object.
	send func(ctx context.Context, o client.Object, text []byte) error
}

// patch is a JSON merge patch, unless its subject sends it as another kind. Metadata is
// there for the preconditions.
type patch map[string]any

// pass goes over all objects of a subject.
type pass struct {
	Withdrawal
	subject
	// bare are the UIDs of what was undressed before.
	bare map[string]bool
	// hindered is why the last pass was not enough.
	hindered error
}

// RegainedError says that somebody still gives what was taken.
type RegainedError struct{ Name string }

// Error implements error.
func (e *RegainedError) Error() string {
	return e.Name + " got back what was taken off it: an operator still runs and protects; stop it, and run this again"
}

// once is one pass, and tells whether it found all bare.
func (p *pass) once(ctx context.Context) (bool, error) {
	p.hindered = nil
	if p.await != nil {
		p.hindered = p.await(ctx)
	}
	found := 0
	err := p.each(ctx, func(o client.Object) error {
		off := p.off(o)
		if off == nil {
			return nil
		}
		found++
		return p.take(ctx, o, off)
	})
	return err == nil && p.hindered == nil && (found == 0 || p.DryRun), err
}

func (p *pass) take(ctx context.Context, o client.Object, off patch) error {
	uid := string(o.GetUID())
	if p.bare[uid] {
		return &RegainedError{named(o)}
	}
	if p.DryRun {
		p.bare[uid] = true
		return nil
	}
	send := p.send
	if send == nil {
		send = p.merge
	}
	done, err := write(ctx, o, off, send)
	if isRefused(err) {
		p.hindered = fmt.Errorf("undress %s: %w", named(o), err)
		return nil
	}
	if done {
		p.bare[uid] = true
	}
	return err
}

// isRefused is true for what an admission policy says.
func isRefused(err error) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "AdmissionPolicy")
}

// merge sends a patch as a JSON merge patch of the object.
func (w Withdrawal) merge(ctx context.Context, o client.Object, text []byte) error {
	return w.Client.Patch(ctx, o, client.RawPatch(types.MergePatchType, text))
}

// write sends a patch onto the very version that was judged. That it has changed or is
// gone is no error, and for the next pass to see.
func write(ctx context.Context, judged client.Object, change patch, send func(context.Context, client.Object, []byte) error) (done bool, err error) {
	metadata := map[string]any{"uid": judged.GetUID(), "resourceVersion": judged.GetResourceVersion()}
	if more, ok := change["metadata"].(map[string]any); ok {
		maps.Copy(metadata, more)
	}
	change["metadata"] = metadata
	text, err := json.Marshal(change)
	if err != nil {
		return false, err
	}
	err = send(ctx, judged, text)
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil, err
}

func named(o client.Object) string {
	kind := strings.ToLower(strings.TrimPrefix(fmt.Sprintf("%T", o), "*v1."))
	if o.GetNamespace() == "" {
		return kind + " " + o.GetName()
	}
	return kind + " " + o.GetNamespace() + "/" + o.GetName()
}

// eachPage reads a list page by page. One that expires in the middle is an error:
// what would be missing is not known.
func eachPage[L client.ObjectList](ctx context.Context, reader client.Reader, list L, see func(L) error, options ...client.ListOption) error {
	for token := ""; ; {
		if err := reader.List(ctx, list, append(options, client.Limit(page), client.Continue(token))...); err != nil {
			return fmt.Errorf("list %T: %w", list, err)
		}
		if err := see(list); err != nil {
			return err
		}
		if token = list.GetContinue(); token == "" {
			return nil
		}
	}
}
