package pvccache

import (
	"context"
	"fmt"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// guard is an admission policy that a promise of protection depends on.
type guard struct {
	name  string
	kinds []string // of the policy and of its binding, which has the same name
	// since136 reports that API servers before 1.36 cannot have it.
	since136 bool
}

const mutatingPolicy = "MutatingAdmissionPolicy"

const ours = ".protection.lockstep.dev"

func refusing(name string) guard {
	return guard{name: name + ours, kinds: []string{"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}}
}

func giving(name string) guard {
	return guard{name: name + ours, kinds: []string{mutatingPolicy, mutatingPolicy + "Binding"}, since136: true}
}

// guarding are all that install applies by default.
var guarding = []guard{
	refusing("refuse-delete"), refusing("guard"), refusing("refuse-namespace"), refusing("guard-namespace"), refusing("warn-delete"),
	{name: "gated" + ours, kinds: refusing("").kinds, since136: true}, // without the gate it would refuse all pods
	giving("gate"), giving("barrier"), giving("barrier-chosen"), giving("forged"), giving("forged-namespace"),
}

// Policies sees whether the policies that protection stands on are in the API server.
// Those that it loaded from files nobody can see.
type Policies struct {
	live client.Reader
	want []guard
}

// NewPolicies returns Policies that read through live, with those that are chosen: where
// protection is alone, and where claims are held from birth.
func NewPolicies(live client.Reader, alone, initialHold bool) *Policies {
	want := guarding[:len(guarding):len(guarding)]
	if alone {
		want = append(want, giving("pod-protection"), giving("volume-protection"))
	}
	if initialHold {
		want = append(want, giving("initial-hold"), giving("initial-hold-chosen"))
	}
	return &Policies{live: live, want: want}
}

// Missing names those that are absent, or are there without their binding.
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
		there, err := p.there(ctx, wanted)
		if err != nil {
			return nil, fmt.Errorf("read policy %q: %w", wanted.name, err)
		}
		if !there {
			missing = append(missing, wanted.name)
		}
	}
	return missing, nil
}

// isOlder reports whether the API server has no mutating policies.
func (p *Policies) isOlder(ctx context.Context) (bool, error) {
	_, err := p.there(ctx, giving("barrier"))
	if meta.IsNoMatchError(err) {
		return true, nil
	}
	return false, err
}

func (p *Policies) there(ctx context.Context, wanted guard) (bool, error) {
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
