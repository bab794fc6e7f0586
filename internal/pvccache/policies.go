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

// policy is an admission policy that protection depends on, with a binding of its name.
type policy struct {
	name, kind string
	// since136 reports whether it is absent from API servers before 1.36.
	since136 bool
}

const (
	ours       = ".protection.lockstep.dev"
	validating = "ValidatingAdmissionPolicy"
	mutating   = "MutatingAdmissionPolicy"
)

// policiesOf returns policies of one kind. API servers before 1.36 serve no mutating ones.
func policiesOf(kind string, names ...string) (all []policy) {
	for _, name := range names {
		all = append(all, policy{name + ours, kind, kind == mutating})
	}
	return all
}

// byDefault are the policies that install applies by default.
var byDefault = slices.Concat(
	policiesOf(validating, "refuse-delete", "guard", "refuse-namespace", "guard-namespace", "warn-delete"),
	[]policy{{"gated" + ours, validating, true}}, // without the gate it would refuse all pods
	policiesOf(mutating, "gate", "barrier", "barrier-chosen", "forged", "forged-namespace"),
)

// Policies finds out whether the API server has the policies that protection depends on.
type Policies struct {
	live client.Reader
	want []policy
}

// NewPolicies returns Policies that read live. alone and initialHold add those that the
// configuration chooses.
func NewPolicies(live client.Reader, alone, initialHold bool) *Policies {
	want := slices.Clone(byDefault)
	if alone {
		want = append(want, policiesOf(mutating, "pod-protection", "volume-protection")...)
	}
	if initialHold {
		want = append(want, policiesOf(mutating, "initial-hold", "initial-hold-chosen")...)
	}
	return &Policies{live: live, want: want}
}

// Missing returns the names of policies that do not exist, or have no binding.
func (p *Policies) Missing(ctx context.Context) (missing []string, err error) {
	_, err = p.exists(ctx, policiesOf(mutating, "barrier")[0])
	older := meta.IsNoMatchError(err)
	if err != nil && !older {
		return nil, err
	}
	for _, wanted := range p.want {
		if older && wanted.since136 {
			continue
		}
		exists, err := p.exists(ctx, wanted)
		if err != nil {
			return nil, fmt.Errorf("read policy %q: %w", wanted.name, err)
		}
		if !exists {
			missing = append(missing, wanted.name)
		}
	}
	return missing, nil
}

func (p *Policies) exists(ctx context.Context, wanted policy) (bool, error) {
	for _, kind := range []string{wanted.kind, wanted.kind + "Binding"} {
		part := &metav1.PartialObjectMetadata{}
		part.SetGroupVersionKind(admissionv1.SchemeGroupVersion.WithKind(kind))
		if err := p.live.Get(ctx, client.ObjectKey{Name: wanted.name}, part); err != nil {
			return false, client.IgnoreNotFound(err)
		}
	}
	return true, nil
}
