package inquiry

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

// Outcome is the result of a dry-run DELETE.
type Outcome string

// The outcomes.
const (
	Accepted   Outcome = "Accepted"
	Refused    Outcome = "Refused"    // by admission
	NotAllowed Outcome = "NotAllowed" // the user may not delete PVCs
	NotTried   Outcome = "NotTried"   // the API server could not try it
)

// Attempt is the API server's answer to a dry-run DELETE.
type Attempt struct {
	Outcome Outcome
	// By is the policy or webhook that refuses.
	By       string
	Message  string
	Warnings []string
}

// Try sends a dry-run DELETE of a PVC.
func Try(ctx context.Context, config *rest.Config, key types.NamespacedName) (Attempt, error) {
	var seen warnings
	narrow := rest.CopyConfig(config)
	narrow.Wrap(func(next http.RoundTripper) http.RoundTripper { return dryRun{next} })
	narrow.WarningHandler = &seen
	narrow.APIPath, narrow.GroupVersion = "/api", &corev1.SchemeGroupVersion
	narrow.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	c, err := rest.RESTClientFor(narrow)
	if err != nil {
		return Attempt{}, err
	}
	a, err := judge(c.Delete().Namespace(key.Namespace).Resource("persistentvolumeclaims").Name(key.Name).Param("dryRun", "All").Do(ctx).Error())
	a.Warnings = seen
	return a, err
}

// judge distinguishes a refusal by admission from a lack of permission: both are 403.
func judge(err error) (Attempt, error) {
	switch {
	case err == nil:
		return Attempt{Outcome: Accepted}, nil
	case apierrors.IsNotFound(err), apierrors.IsUnauthorized(err):
		return Attempt{}, err
	}
	text := err.Error()
	if _, after, ok := strings.Cut(text, " is forbidden: "); ok {
		text = after
	}
	for _, between := range []string{" denied request: ", " denied the request: "} {
		if by, message, ok := strings.Cut(text, between); ok {
			return Attempt{Outcome: Refused, By: strings.TrimPrefix(by, "admission webhook "), Message: message}, nil
		}
	}
	switch {
	case apierrors.IsForbidden(err) && strings.HasPrefix(text, "User "):
		return Attempt{Outcome: NotAllowed, Message: text}, nil
	case apierrors.IsForbidden(err), apierrors.IsConflict(err), apierrors.IsInvalid(err):
		return Attempt{Outcome: Refused, By: "the API server", Message: text}, nil
	}
	return Attempt{Outcome: NotTried, Message: text}, nil
}

type warnings []string

// HandleWarningHeader implements rest.WarningHandler.
func (w *warnings) HandleWarningHeader(_ int, _, text string) { *w = append(*w, text) }

// dryRun refuses to send a request that is not a dry run.
type dryRun struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (d dryRun) RoundTrip(request *http.Request) (*http.Response, error) {
	if !slices.Equal(request.URL.Query()["dryRun"], []string{"All"}) {
		return nil, fmt.Errorf("refused to send %s %s: %w", request.Method, request.URL.Path, errNotDry)
	}
	return d.next.RoundTrip(request)
}

var errNotDry = errors.New("it is no dry run")
