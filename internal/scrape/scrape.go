// Package scrape knows which clients may read the operator's metrics: the API server knows
// their bearer token (TokenReview) and allows them to get the path (SubjectAccessReview). It
// decides nothing itself: if the API server does not answer, no client may read. It paces what strangers can make it ask.
//
// The filter that comes with controller-runtime asks the same two questions with the parts of
// an API server: 250 packages more, gRPC, OpenTelemetry and CEL among them, and a sixth of the
// program's file (docs/design/0016-memory.md).
package scrape

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/time/rate"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/lru"
)

const (
	// patience bounds how long a client waits for the API server.
	patience = 10 * time.Second
	// strangers is how many tokens a second are reviewed that no client read metrics with before, and guesses is how
	// many of them at once. Any client can send such tokens.
	strangers, guesses = 5, 20
	// readers is how many tokens are known that a client read metrics with.
	readers = 64
)

// Readers returns a handler that serves metrics to clients that may read them.
func Readers(config *rest.Config, log logr.Logger, metrics http.Handler) (http.Handler, error) {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("review tokens and access: %w", err)
	}
	return reviewer{log, metrics, client, rate.NewLimiter(strangers, guesses), lru.New(readers)}, nil
}

type reviewer struct {
	log       logr.Logger
	metrics   http.Handler
	client    kubernetes.Interface
	strangers *rate.Limiter
	readers   *lru.Cache // hashes of tokens; it grants nothing, and paces
}

// ServeHTTP implements http.Handler.
func (v reviewer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), patience)
	defer cancel()
	status, text, err := v.review(ctx, r)
	switch {
	case err != nil:
		v.log.Error(err, "the API server did not review a client of the metrics", "path", r.URL.Path)
		http.Error(w, "the API server did not say whether you may read this", http.StatusInternalServerError)
	case status != http.StatusOK:
		http.Error(w, text, status)
	default:
		v.metrics.ServeHTTP(w, r)
	}
}

// review returns the status of a request, and why it is not OK.
func (v reviewer) review(ctx context.Context, r *http.Request) (status int, text string, err error) {
	const unauthorized = "Unauthorized: send a bearer token that the API server knows"
	token, sent := bearer(r.Header)
	if !sent {
		return http.StatusUnauthorized, unauthorized, nil
	}
	hash := sha256.Sum256([]byte(token))
	if _, isReader := v.readers.Get(hash); !isReader && !v.strangers.Allow() {
		return http.StatusTooManyRequests, "Too Many Requests: clients with other tokens ask; try again", nil
	}
	known, err := v.client.AuthenticationV1().TokenReviews().Create(ctx,
		&authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}, metav1.CreateOptions{})
	if err != nil {
		return 0, "", fmt.Errorf("review a token: %w", err)
	}
	if !known.Status.Authenticated {
		return http.StatusUnauthorized, unauthorized, nil
	}
	user, verb := known.Status.User, strings.ToLower(r.Method)
	extra := map[string]authorizationv1.ExtraValue{}
	for key, values := range user.Extra {
		extra[key] = authorizationv1.ExtraValue(values)
	}
	access := v.client.AuthorizationV1().SubjectAccessReviews()
	verdict, err := access.Create(ctx, &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: user.Username, UID: user.UID, Groups: user.Groups, Extra: extra,
		NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: r.URL.Path, Verb: verb},
	}}, metav1.CreateOptions{})
	if err != nil {
		return 0, "", fmt.Errorf("review the access of %s: %w", user.Username, err)
	}
	if !verdict.Status.Allowed || verdict.Status.Denied {
		return http.StatusForbidden, fmt.Sprintf("Forbidden: %s may not %s %s; ClusterRole lws-metrics-reader allows it", user.Username, verb, r.URL.Path), nil
	}
	v.readers.Add(hash, nil)
	return http.StatusOK, "", nil
}

// bearer returns the token of a request.
func bearer(header http.Header) (string, bool) {
	scheme, token, ok := strings.Cut(strings.TrimSpace(header.Get("Authorization")), " ")
	token = strings.TrimSpace(token)
	return token, ok && strings.EqualFold(scheme, "Bearer") && token != ""
}
