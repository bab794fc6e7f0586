package operator

import (
	"fmt"
	"slices"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
)

// The kinds of admission policies that older API servers lack.
const (
	MutatingPolicy   = "MutatingAdmissionPolicy"   // since 1.36
	ValidatingPolicy = "ValidatingAdmissionPolicy" // since 1.30
)

// Lacks returns the kinds of admission policies that the API server does not serve.
func Lacks(server discovery.ServerResourcesInterface) ([]string, error) {
	served, err := server.ServerResourcesForGroupVersion(admissionv1.SchemeGroupVersion.String())
	if apierrors.IsNotFound(err) {
		served, err = &metav1.APIResourceList{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read which policies the API server serves: %w", err)
	}
	var lacks []string
	for _, kind := range []string{MutatingPolicy, ValidatingPolicy} {
		if !slices.ContainsFunc(served.APIResources, func(r metav1.APIResource) bool { return r.Kind == kind }) {
			lacks = append(lacks, kind)
		}
	}
	return lacks, nil
}
