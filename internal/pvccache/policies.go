package pvccache

import (
	"context"
	"fmt"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	ours           = ".protection.lockstep.dev"
	validatingKind = "ValidatingAdmissionPolicy"
	mutatingKind   = "MutatingAdmissionPolicy"
)

// policies are those that protection depends on: those that install applies by default, and those that the
// configuration chooses. Those that need a mutating one are installed only where the API server serves these.
func policies(alone, initialHold bool) (validating, mutating, needing []string) {
	validating = []string{"refuse-delete", "guard", "refuse-namespace", "guard-namespace", "warn-delete"}
	mutating = []string{"barrier", "gate", "barrier-chosen", "forged", "forged-namespace"}
	needing = []string{"gated"} // without the gate it would refuse all pods
	if alone {
		mutating = append(mutating, "pod-protection", "volume-protection")
	}
	if initialHold {
		mutating = append(mutating, "initial-hold", "initial-hold-chosen")
	}
	return validating, mutating, needing
}

// MissingPolicies returns the names of policies that are not in the API server, or have no binding of their name.
// Mutating policies are not served before 1.36.
func MissingPolicies(ctx context.Context, live client.Reader, alone, initialHold bool) ([]string, error) {
	validating, mutating, needing := policies(alone, initialHold)
	missing, err := missingOf(ctx, live, mutatingKind, mutating)
	switch {
	case err == nil:
		validating = append(validating, needing...)
	case !meta.IsNoMatchError(err):
		return nil, err
	}
	others, err := missingOf(ctx, live, validatingKind, validating)
	return append(missing, others...), err
}

func missingOf(ctx context.Context, live client.Reader, kind string, names []string) (missing []string, err error) {
	for _, name := range names {
		for _, kind := range []string{kind, kind + "Binding"} {
			part := &metav1.PartialObjectMetadata{}
			part.SetGroupVersionKind(admissionv1.SchemeGroupVersion.WithKind(kind))
			err := live.Get(ctx, client.ObjectKey{Name: name + ours}, part)
			if client.IgnoreNotFound(err) != nil {
				return nil, fmt.Errorf("read policy %q: %w", name+ours, err)
			}
			if err != nil {
				missing = append(missing, name+ours)
				break
			}
		}
	}
	return missing, nil
}
