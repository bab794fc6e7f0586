package install

import (
	"context"
	"slices"
)

// noConfiguration is that of an operator which goes by the defaults alone.
const noConfiguration = "apiVersion: config.lws.x-k8s.io/v1alpha1\nkind: Configuration\n"

// forgetConfiguration empties what an installation before gave the operator to read, where
// this one gives it nothing: who asks why a claim is held goes by it. It is not deleted, for
// pods of that installation may not have been replaced yet, and cannot start without it.
func (s shape) forgetConfiguration(ctx context.Context, a applier) error {
	if s.Image == "" || len(s.Config) > 0 {
		return nil
	}
	s.Config = []byte(noConfiguration)
	u := s.configMap()
	if err := s.adapt(u); err != nil {
		return err
	}
	live, err := a.get(ctx, u)
	if err != nil || live == nil || !slices.ContainsFunc(live.GetManagedFields(), isOurApply) {
		return err
	}
	what, err := a.apply(ctx, u)
	if err != nil || what == unchanged {
		return err
	}
	s.say("%s emptied", title(u))
	return nil
}
