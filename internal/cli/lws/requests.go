package lws

import (
	"context"
	"fmt"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
)

// Scheme returns the types that the commands read.
func Scheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, lwsv1.AddToScheme} {
		if err := add(scheme); err != nil {
			panic(err) // the types are compiled in
		}
	}
	return scheme
}

// Restrict returns a config whose clients send reads, and those other requests that are allowed.
func Restrict(config *rest.Config, allowed func(*http.Request) bool) *rest.Config {
	config = rest.CopyConfig(config)
	config.WarningHandler = rest.NoWarnings{}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return guard{next, allowed} })
	return config
}

// guard refuses requests before they leave this process.
type guard struct {
	next    http.RoundTripper
	allowed func(*http.Request) bool
}

// RoundTrip implements http.RoundTripper.
func (g guard) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.Method != http.MethodGet && request.Method != http.MethodHead && !g.allowed(request) {
		return nil, fmt.Errorf("refused to send %s %s: the command must not", request.Method, request.URL.Path)
	}
	return g.next.RoundTrip(request)
}

// ReadOnly returns a config whose clients send reads only.
func ReadOnly(config *rest.Config) *rest.Config {
	return Restrict(config, func(*http.Request) bool { return false })
}

// IsDryRun reports whether the API server stores nothing by a request.
func IsDryRun(request *http.Request) bool {
	return request.URL.Query().Get("dryRun") == metav1.DryRunAll
}

// Warnings collects the warnings of the API server.
type Warnings []string

// HandleWarningHeaderWithContext implements rest.WarningHandlerWithContext.
func (w *Warnings) HandleWarningHeaderWithContext(_ context.Context, code int, _, text string) {
	if code == 299 && text != "" { // the only code that Kubernetes uses
		*w = append(*w, text)
	}
}
