package withdraw

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// subject is one kind of object that may have something of ours.
type subject struct {
	list    client.ObjectList
	options []client.ListOption
	// off returns the patch that removes it, or nil.
	off func(client.Object) patch
	// await, if set, returns why a pass is not the last one.
	await func(context.Context) error
}

// patch is a JSON merge patch.
type patch map[string]any

// strip makes passes until one finds nothing to remove. An object that changed is read
// again, and so is one that a policy guards: API servers learn late of its removal.
func (w Withdrawal) strip(ctx context.Context, s subject) (int, error) {
	done := map[types.UID]bool{}
	var hindered error
	err := wait.PollUntilContextTimeout(ctx, pause, w.Patience, true, func(ctx context.Context) (bool, error) {
		hindered = nil
		if s.await != nil {
			hindered = s.await(ctx)
		}
		found := 0
		err := w.each(ctx, s.list, func(o client.Object) error {
			off := s.off(o)
			if off == nil {
				return nil
			}
			found++
			if done[o.GetUID()] {
				return fmt.Errorf("%s got back what was removed: an operator still runs and protects; stop it, and run this again", named(o))
			}
			written, err := w.write(ctx, o, off)
			if isRefused(err) {
				hindered, err = fmt.Errorf("strip %s: %w", named(o), err), nil
			}
			if written {
				done[o.GetUID()] = true
			}
			return err
		}, s.options...)
		return hindered == nil && (found == 0 || w.DryRun), err
	})
	if wait.Interrupted(err) && hindered != nil {
		err = hindered
	}
	return len(done), err
}

// isRefused reports whether an admission policy refused a write.
func isRefused(err error) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "AdmissionPolicy")
}

// write patches the very version that was read. It reports false, and no error, if the
// object has changed or is gone.
func (w Withdrawal) write(ctx context.Context, read client.Object, change patch) (bool, error) {
	if w.DryRun {
		return true, nil
	}
	metadata := map[string]any{"uid": read.GetUID(), "resourceVersion": read.GetResourceVersion()}
	if more, ok := change["metadata"].(map[string]any); ok {
		maps.Copy(metadata, more)
	}
	change["metadata"] = metadata
	text, err := json.Marshal(change)
	if err != nil {
		return false, err
	}
	err = w.Client.Patch(ctx, read, client.RawPatch(types.MergePatchType, text))
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil, err
}

func named(o client.Object) string {
	kind := strings.ToLower(strings.TrimPrefix(fmt.Sprintf("%T", o), "*v1."))
	return kind + " " + strings.TrimPrefix(client.ObjectKeyFromObject(o).String(), "/")
}
