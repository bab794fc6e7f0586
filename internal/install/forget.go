package install

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// noConfiguration is that of an operator which goes by the defaults alone.
const noConfiguration = "apiVersion: config.lws.x-k8s.io/v1alpha1\nkind: Configuration\n"

// replacedFile is the key under which a configuration stays that nobody goes by any more:
// there may be no other copy of it.
const replacedFile = "replaced." + configFile

// forgetConfiguration puts aside what an installation before gave the operator to read, where
// this one gives it nothing: who asks why a claim is held goes by what is there. The ConfigMap
// is not deleted, for pods of that installation may not have been replaced yet, and cannot
// start without it.
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
	if text := replaced(live); text != "" {
		if err := unstructured.SetNestedField(u.Object, text, "data", replacedFile); err != nil {
			return err
		}
	}
	what, err := a.apply(ctx, u)
	if err != nil || what == unchanged {
		return err
	}
	s.say("%s says nothing any more, for no --config was given: what it said stands there under %s", title(u), replacedFile)
	return nil
}

// replaced is the last configuration in a ConfigMap that said anything, or empty.
func replaced(live *unstructured.Unstructured) string {
	text, _, _ := unstructured.NestedString(live.Object, "data", configFile)
	if text != "" && text != noConfiguration {
		return text
	}
	text, _, _ = unstructured.NestedString(live.Object, "data", replacedFile)
	return text
}
