package pvccache

import (
	"context"
	"fmt"
	"slices"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Policies finds out whether the API server has the policies that protection depends on, each with
// a binding of its name.
type Policies struct {
	live client.Reader
	// mutating policies are not served before 1.36. Then those that need one are not installed.
	validating, mutating, needing []string
}

const (
	ours           = ".protection.lockstep.dev"
	validatingKind = "ValidatingAdmissionPolicy"
	mutatingKind   = "MutatingAdmissionPolicy"
)

// NewPolicies returns Policies that read live. alone and initialHold add those that the
// configuration chooses to those that install applies by default.
func NewPolicies(live client.Reader, alone, initialHold bool) *Policies {
	p := &Policies{
		live:       live,
		validating: []string{"refuse-delete", "guard", "refuse-namespace", "guard-namespace", "warn-delete"},
		mutating:   []string{"barrier", "gate", "barrier-chosen", "forged", "forged-namespace"},
		needing:    []string{"gated"}, // without the gate it would refuse all pods
	}
	if alone {
		p.mutating = append(p.mutating, "pod-protection", "volume-protection")
	}
	if initialHold {
		p.mutating = append(p.mutating, "initial-hold", "initial-hold-chosen")
	}
	return p
}

// Missing returns the names of policies that do not exist, or have no binding.
func (p *Policies) Missing(ctx context.Context) ([]string, error) {
	missing, err := p.missing(ctx, mutatingKind, p.mutating)
	validating := p.validating
	switch {
	case err == nil:
		validating = slices.Concat(validating, p.needing)
	case !meta.IsNoMatchError(err):
		return nil, err
	}
	others, err := p.missing(ctx, validatingKind, validating)
	return append(missing, others...), err
}

func (p *Policies) missing(ctx context.Context, kind string, names []string) (missing []string, err error) {
	for _, name := range names {
		for _, kind := range []string{kind, kind + "Binding"} {
			part := &metav1.PartialObjectMetadata{}
			part.SetGroupVersionKind(admissionv1.SchemeGroupVersion.WithKind(kind))
			err := p.live.Get(ctx, client.ObjectKey{Name: name + ours}, part)
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
