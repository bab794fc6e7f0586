// Package scrape knows who may read the operator's metrics: whose bearer token the
// API server knows (TokenReview), and whom it allows to get the path
// (SubjectAccessReview). It knows nothing of what the metrics say, and decides
// nothing itself: where the API server cannot be asked, nobody may read.
//
// The filter that comes with controller-runtime asks the same two questions with
// what API servers are built of. That is 250 packages, gRPC, OpenTelemetry and CEL
// among them, and a sixth of the program's file (docs/design/0016-memory.md).
package scrape

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

const (
	// allowedFor and deniedFor bound how long the API server is not asked again about
	// a token and a path. One that was revoked reads no longer than that.
	allowedFor = time.Minute
	deniedFor  = 10 * time.Second
	// remembered bounds the answers that are kept: tokens come from outside.
	remembered = 1024
	// askWithin bounds how long a reader waits for the API server.
	askWithin = 10 * time.Second

	authenticated = "system:authenticated"
)

// Readers asks the API server behind a configuration who may read metrics. It is a
// FilterProvider of controller-runtime's metrics server.
func Readers(config *rest.Config, client *http.Client) (metricsserver.Filter, error) {
	tokens, err := authenticationclient.NewForConfigAndClient(config, client)
	if err != nil {
		return nil, fmt.Errorf("ask whose a token is: %w", err)
	}
	access, err := authorizationclient.NewForConfigAndClient(config, client)
	if err != nil {
		return nil, fmt.Errorf("ask who may read metrics: %w", err)
	}
	d := &door{tokens: tokens.TokenReviews(), access: access.SubjectAccessReviews(), answers: cache.NewLRUExpireCache(remembered)}
	return d.filter, nil
}

// door stands before the metrics.
type door struct {
	tokens  authenticationclient.TokenReviewInterface
	access  authorizationclient.SubjectAccessReviewInterface
	answers *cache.LRUExpireCache
}

// question is a token, by what it hashes to, with what is done to what.
type question struct {
	token      [sha256.Size]byte
	verb, path string
}

// answer is an HTTP status, OK for whoever may read.
type answer struct {
	status int
	text   string
}

func (d *door) filter(log logr.Logger, metrics http.Handler) (http.Handler, error) {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a, err := d.ask(r)
		if err != nil {
			log.Error(err, "metrics are not shown: the API server did not say whether they may be", "path", r.URL.Path)
			http.Error(w, "the API server did not say whether you may read this", http.StatusInternalServerError)
			return
		}
		if a.status != http.StatusOK {
			http.Error(w, a.text, a.status)
			return
		}
		metrics.ServeHTTP(w, r)
	}), nil
}

func (d *door) ask(r *http.Request) (answer, error) {
	token, ok := bearer(r.Header)
	if !ok {
		return unauthorized, nil
	}
	q := question{token: sha256.Sum256([]byte(token)), verb: strings.ToLower(r.Method), path: r.URL.Path}
	if known, ok := d.answers.Get(q); ok {
		return known.(answer), nil
	}
	ctx, cancel := context.WithTimeout(r.Context(), askWithin)
	defer cancel()
	a, err := d.review(ctx, token, q)
	if err != nil {
		return answer{}, err
	}
	keep := deniedFor
	if a.status == http.StatusOK {
		keep = allowedFor
	}
	d.answers.Add(q, a, keep)
	return a, nil
}

// unauthorized is what who does not say who he is, or is not known, is told.
var unauthorized = answer{http.StatusUnauthorized, "Unauthorized: send a bearer token that the API server knows"}

func (d *door) review(ctx context.Context, token string, q question) (answer, error) {
	known, err := d.tokens.Create(ctx, &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}, metav1.CreateOptions{})
	if err != nil {
		return answer{}, fmt.Errorf("review a token: %w", err)
	}
	if !known.Status.Authenticated {
		return unauthorized, nil
	}
	user := known.Status.User
	verdict, err := d.access.Create(ctx, &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: user.Username, UID: user.UID, Groups: groups(user), Extra: extra(user),
		NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: q.path, Verb: q.verb},
	}}, metav1.CreateOptions{})
	if err != nil {
		return answer{}, fmt.Errorf("review the access of %s: %w", user.Username, err)
	}
	if !verdict.Status.Allowed || verdict.Status.Denied {
		return answer{http.StatusForbidden, fmt.Sprintf("Forbidden: %s may not %s %s; ClusterRole lws-metrics-reader allows it", user.Username, q.verb, q.path)}, nil
	}
	return answer{status: http.StatusOK}, nil
}

// groups are those of a user, and the one of everybody whom the API server knows.
func groups(user authenticationv1.UserInfo) []string {
	if slices.Contains(user.Groups, authenticated) {
		return user.Groups
	}
	return append(slices.Clone(user.Groups), authenticated)
}

func extra(user authenticationv1.UserInfo) map[string]authorizationv1.ExtraValue {
	if len(user.Extra) == 0 {
		return nil
	}
	all := make(map[string]authorizationv1.ExtraValue, len(user.Extra))
	for key, values := range user.Extra {
		all[key] = authorizationv1.ExtraValue(values)
	}
	return all
}

// bearer is the token that a request bears.
func bearer(header http.Header) (string, bool) {
	scheme, token, ok := strings.Cut(strings.TrimSpace(header.Get("Authorization")), " ")
	token = strings.TrimSpace(token)
	return token, ok && strings.EqualFold(scheme, "Bearer") && token != ""
}
