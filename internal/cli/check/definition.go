package check

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/install"
)

// definitionHere compares the definitions of an installation with ours, in both directions.
func definitionHere(ctx context.Context, s *site, f *findings) error {
	for _, want := range s.ofKinds("CustomResourceDefinition") {
		live, err := s.get(ctx, want)
		if err != nil {
			return err
		}
		if live == nil {
			f.fail("%s does not exist; run: %s", want.GetName(), s.Command)
			continue
		}
		if !isEstablished(live) {
			f.fail("%s is not established; see its conditions: kubectl get crd %[1]s -o yaml", want.GetName())
		}
		missing, err := install.LostFields(want, live, nil)
		if err != nil {
			return err
		}
		if len(missing) > 0 {
			f.fail("%s lacks fields of this version: %s; run: %s", want.GetName(), few(missing), s.Command)
		}
		if err := s.newer(ctx, f, live, want, Warning, "sets that use them are left alone"); err != nil {
			return err
		}
		if !f.hasFound() {
			f.ok("%s has exactly the fields of this version", want.GetName())
		}
	}
	return nil
}

// definitionBefore finds definitions that install refuses to replace.
func definitionBefore(ctx context.Context, s *site, f *findings) error {
	for _, want := range s.ofKinds("CustomResourceDefinition") {
		live, err := s.get(ctx, want)
		if err != nil {
			return err
		}
		if live == nil {
			f.ok("%s does not exist yet", want.GetName())
			continue
		}
		if err := s.newer(ctx, f, live, want, Failure, "install refuses to remove them; keep them: lockstep install --keep-fields"); err != nil {
			return err
		}
		if !f.hasFound() {
			f.ok("%s exists, and install replaces it without the loss of a field", want.GetName())
		}
	}
	return nil
}

// newer finds fields that a definition in the cluster, or a stored set, has beyond ours.
func (s *site) newer(ctx context.Context, f *findings, live, want *unstructured.Unstructured, result Result, so string) error {
	sets := &unstructured.UnstructuredList{}
	sets.SetGroupVersionKind(lwsv1.GroupVersion.WithKind("LeaderWorkerSetList"))
	if err := s.Client.List(ctx, sets); err != nil && !meta.IsNoMatchError(err) && client.IgnoreNotFound(err) != nil {
		f.take(err) // fields of templates are not compared
	}
	fields, err := install.LostFields(live, want, sets.Items)
	if err == nil && len(fields) > 0 {
		f.add(result, "%s has fields that this version lacks: %s; %s", want.GetName(), few(fields), so)
	}
	return err
}

func isEstablished(definition *unstructured.Unstructured) bool {
	conditions, _, _ := unstructured.NestedSlice(definition.Object, "status", "conditions")
	for _, c := range conditions {
		if c, ok := c.(map[string]any); ok && c["type"] == "Established" {
			return c["status"] == "True"
		}
	}
	return false
}
