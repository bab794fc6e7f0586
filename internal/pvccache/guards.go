package pvccache

import (
	"context"
	"fmt"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// guard is something in the API server that a promise of protection stands on, in any
// one of its forms: before 1.36 some are others.
type guard struct {
	name  string
	forms []form
}

// form is objects of one name; the binding of a policy bears that of the policy.
type form struct {
	name  string
	kinds []string
}

const (
	mutatingPolicy        = "MutatingAdmissionPolicy"
	mutatingPolicyBinding = mutatingPolicy + "Binding"
)

func validating(name string) form {
	return form{name, []string{"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}}
}

func mutating(name string) form { return form{name, []string{mutatingPolicy, mutatingPolicyBinding}} }

// ofWebhooks is where entries stand for the policies that give something.
var ofWebhooks = form{"lockstep-protection-webhook-configuration", []string{"MutatingWebhookConfiguration"}}

const ours = ".protection.lockstep.dev"

func refusing(name string) guard { return guard{name + ours, []form{validating(name + ours)}} }

func giving(name string) guard { return guard{name + ours, []form{mutating(name + ours), ofWebhooks}} }

// relieving takes words off where its older form refuses what bears them.
func relieving(name string) guard {
	return guard{name + ours, []form{mutating(name + ours), validating("refuse-" + name + ours)}}
}

// guarding are all that install applies where nothing is chosen.
var guarding = []guard{
	refusing("refuse-delete"), refusing("guard"), refusing("refuse-namespace"), refusing("guard-namespace"),
	refusing("warn-delete"), refusing("gated"), giving("gate"), giving("barrier"), giving("barrier-chosen"),
	relieving("forged"), relieving("forged-namespace"),
}

// Guards sees whether the policies that protection stands on are in the API server.
// Those that it loaded from files nobody can see.
type Guards struct {
	live client.Reader
	want []guard
}

// NewGuards returns Guards that read through live, with those that are chosen: where
// protection is alone, and where claims are held from birth.
func NewGuards(live client.Reader, alone, initialHold bool) *Guards {
	want := guarding[:len(guarding):len(guarding)]
	if alone {
		want = append(want, giving("pod-protection"), giving("volume-protection"))
	}
	if initialHold {
		for _, name := range []string{"initial-hold" + ours, "initial-hold-chosen" + ours} {
			want = append(want, guard{name, []form{mutating(name)}})
		}
	}
	return &Guards{live: live, want: want}
}

// Missing names those that are not there, or are there without their binding.
func (g *Guards) Missing(ctx context.Context) ([]string, error) {
	var missing []string
	for _, wanted := range g.want {
		there, err := g.there(ctx, wanted)
		if err != nil {
			return nil, fmt.Errorf("look for policy %q: %w", wanted.name, err)
		}
		if !there {
			missing = append(missing, wanted.name)
		}
	}
	return missing, nil
}

func (g *Guards) there(ctx context.Context, wanted guard) (bool, error) {
	for _, f := range wanted.forms {
		if whole, err := g.whole(ctx, f); whole || err != nil {
			return whole, err
		}
	}
	return false, nil
}

func (g *Guards) whole(ctx context.Context, f form) (bool, error) {
	for _, kind := range f.kinds {
		part := &metav1.PartialObjectMetadata{}
		part.SetGroupVersionKind(admissionv1.SchemeGroupVersion.WithKind(kind))
		err := g.live.Get(ctx, client.ObjectKey{Name: f.name}, part)
		if apierrors.IsNotFound(err) || unknown(kind, err) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
	}
	return true, nil
}

// unknown tells of the kind that API servers before 1.36 do not know. One that does not
// know the other cannot refuse anything, which is another matter.
func unknown(kind string, err error) bool {
	return (kind == mutatingPolicy || kind == mutatingPolicyBinding) && meta.IsNoMatchError(err)
}
