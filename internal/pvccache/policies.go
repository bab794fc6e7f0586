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

// policy is an admission policy that protection depends on.
type policy struct {
	name  string
	kinds []string // of the policy and of its binding of the same name
	// since136 reports whether API servers before 1.36 lack its kind.
	since136 bool
}

const mutatingPolicy = "MutatingAdmissionPolicy"

const ours = ".protection.lockstep.dev"

func refusing(name string) policy {
	return policy{name: name + ours, kinds: []string{"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}}
}

func giving(name string) policy {
	return policy{name: name + ours, kinds: []string{mutatingPolicy, mutatingPolicy + "Binding"}, since136: true}
}

// byDefault are the policies that install applies by default.
var byDefault = []policy{
	refusing("refuse-delete"), refusing("guard"), refusing("refuse-namespace"), refusing("guard-namespace"), refusing("warn-delete"),
	{name: "gated" + ours, kinds: refusing("").kinds, since136: true}, // without the gate it would refuse all pods
	giving("gate"), giving("barrier"), giving("barrier-chosen"), giving("forged"), giving("forged-namespace"),
}

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
		want = append(want, giving("pod-protection"), giving("volume-protection"))
	}
	if initialHold {
		want = append(want, giving("initial-hold"), giving("initial-hold-chosen"))
	}
	return &Policies{live: live, want: want}
}

// Missing returns the names of policies that do not exist, or have no binding.
func (p *Policies) Missing(ctx context.Context) ([]string, error) {
	older, err := p.isOlder(ctx)
	if err != nil {
		return nil, err
	}
	var missing []string
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

// isOlder reports whether the API server does not serve mutating policies.
func (p *Policies) isOlder(ctx context.Context) (bool, error) {
	_, err := p.exists(ctx, giving("barrier"))
	if meta.IsNoMatchError(err) {
		return true, nil
	}
	return false, err
}

func (p *Policies) exists(ctx context.Context, wanted policy) (bool, error) {
	for _, kind := range wanted.kinds {
		part := &metav1.PartialObjectMetadata{}
		part.SetGroupVersionKind(admissionv1.SchemeGroupVersion.WithKind(kind))
		err := p.live.Get(ctx, client.ObjectKey{Name: wanted.name}, part)
		if err != nil {
			return false, client.IgnoreNotFound(err)
		}
	}
	return true, nil
}
