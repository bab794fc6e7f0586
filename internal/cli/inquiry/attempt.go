package inquiry

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

// Outcome is what came of a DELETE that was tried and not done.
type Outcome string

// The outcomes.
const (
	Accepted   Outcome = "Accepted"   // it would be done
	Refused    Outcome = "Refused"    // admission refuses it
	NotAllowed Outcome = "NotAllowed" // the user may not delete the claim at all
	NotTried   Outcome = "NotTried"   // the server could not tell
)

// Attempt is a DELETE as the API server would answer it.
type Attempt struct {
	Outcome Outcome
	// By is who refuses, as the API server names it.
	By       string
	Message  string
	Warnings []string
}

// Prober tries what it does not do.
type Prober struct {
	client *rest.RESTClient
	mu     sync.Mutex
	warned []string
}

// OpenProber returns a Prober, which can send nothing but a DELETE of a claim that
// is not to be carried out.
func OpenProber(config *rest.Config) (*Prober, error) {
	p := &Prober{}
	narrow := rest.CopyConfig(config)
	narrow.Wrap(func(next http.RoundTripper) http.RoundTripper { return dry{next} })
	narrow.WarningHandler = p
	narrow.APIPath = "/api"
	narrow.GroupVersion = &coreV1
	narrow.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	var err error
	p.client, err = rest.RESTClientFor(narrow)
	return p, err
}

// HandleWarningHeader implements rest.WarningHandler.
func (p *Prober) HandleWarningHeader(_ int, _, text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.warned = append(p.warned, text)
}

// Delete tries to delete a claim.
func (p *Prober) Delete(ctx context.Context, key types.NamespacedName) (Attempt, error) {
	err := p.client.Delete().Namespace(key.Namespace).Resource(claims).Name(key.Name).Param(dryRun, all).Do(ctx).Error()
	p.mu.Lock()
	defer p.mu.Unlock()
	a, err := judge(err)
	a.Warnings, p.warned = slices.Clone(p.warned), nil
	return a, err
}

const (
	denied   = " denied request: "
	denied2  = " denied the request: "
	isDenied = " is forbidden: "
)

// judge tells a refusal by admission from a lack of permission: both are answered
// with the same code.
func judge(err error) (Attempt, error) {
	switch {
	case err == nil:
		return Attempt{Outcome: Accepted}, nil
	case apierrors.IsNotFound(err), apierrors.IsUnauthorized(err):
		return Attempt{}, err
	}
	text := err.Error()
	if _, after, ok := strings.Cut(text, isDenied); ok {
		text = after
	}
	for _, between := range []string{denied, denied2} {
		if by, says, ok := strings.Cut(text, between); ok {
			return Attempt{Outcome: Refused, By: strings.TrimPrefix(by, "admission webhook "), Message: says}, nil
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

// dry lets through what cannot do anything.
type dry struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (d dry) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.Method != http.MethodDelete || !slices.Equal(request.URL.Query()[dryRun], []string{all}) || request.ContentLength > 0 ||
		!strings.Contains(request.URL.Path, "/"+claims+"/") {
		return nil, fmt.Errorf("refused to send %s %s: %w", request.Method, request.URL.Path, errNotDry)
	}
	return d.next.RoundTrip(request)
}

var coreV1 = corev1.SchemeGroupVersion

var errNotDry = errors.New("only a DELETE that is not carried out is tried")

const (
	claims = "persistentvolumeclaims"
	dryRun = "dryRun"
	all    = "All"
)
