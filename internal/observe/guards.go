package observe

import (
	"context"
	"fmt"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Guarding are the policies without which nothing is refused; the binding of each bears
// its name.
var Guarding = []string{
	"refuse-delete.protection.lockstep.dev", "guard.protection.lockstep.dev",
	"refuse-namespace.protection.lockstep.dev", "guard-namespace.protection.lockstep.dev",
}

// Guards sees whether the policies that refuse are in the API server. Those that it
// loaded from files nobody can see.
type Guards struct{ live client.Reader }

// NewGuards returns Guards that read through live.
func NewGuards(live client.Reader) *Guards { return &Guards{live: live} }

// Missing names those that are not there, or are there without their binding.
func (g *Guards) Missing(ctx context.Context) ([]string, error) {
	var missing []string
	for _, name := range Guarding {
		there, err := g.there(ctx, name)
		if err != nil {
			return nil, fmt.Errorf("look for policy %q: %w", name, err)
		}
		if !there {
			missing = append(missing, name)
		}
	}
	return missing, nil
}

func (g *Guards) there(ctx context.Context, name string) (bool, error) {
	for _, kind := range []schema.GroupVersionKind{
		admissionv1.SchemeGroupVersion.WithKind("ValidatingAdmissionPolicy"),
		admissionv1.SchemeGroupVersion.WithKind("ValidatingAdmissionPolicyBinding"),
	} {
		part := &metav1.PartialObjectMetadata{}
		part.SetGroupVersionKind(kind)
		err := g.live.Get(ctx, client.ObjectKey{Name: name}, part)
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
	}
	return true, nil
}
