package survey

import (
	"fmt"
	"net/http"

	"k8s.io/client-go/rest"
)

// ReadOnly returns a config whose clients cannot write: any request but a read
// is refused before it leaves this process.
func ReadOnly(config *rest.Config) *rest.Config {
	safe := rest.CopyConfig(config)
	safe.Wrap(func(next http.RoundTripper) http.RoundTripper { return reader{next} })
	return safe
}

type reader struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (r reader) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.Method != http.MethodGet && request.Method != http.MethodHead {
		return nil, fmt.Errorf("refused to send %s %s: a survey only reads", request.Method, request.URL.Path)
	}
	return r.next.RoundTrip(request)
}
