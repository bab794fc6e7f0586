// Package delay delays and fails what one component asks of an API server: requests, answers, and events of watches.
// So a test meets in seconds the races that are rare in a real cluster.
//
//	component ──► Trouble ──────────────► API server
//	               │ Requests      the API server has done nothing yet
//	               │ Answers       the API server has done it, no client knows
//	               │ Streams       informers lag
//
// It knows requests by verb and resource. It refuses to know their bodies, and changes none.
package delay

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"log"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Stage is the place at which something waits or fails.
type Stage int8

const (
	// Requests wait before the API server sees them.
	Requests Stage = iota
	// Answers wait after the API server has carried out the request.
	Answers
	// Streams are watches: each piece waits.
	Streams
)

// Odds are the probabilities of trouble.
type Odds struct {
	// Late is the share that waits, for at most Most and usually much less.
	Late float64
	Most time.Duration
	// Fail is the share that fails with one of Statuses. Any status ends a watch.
	Fail     float64
	Statuses []int
}

// Trouble is the disturbance of one component.
type Trouble struct {
	rules []*rule
	// Met is set once a request waited or failed.
	Met atomic.Bool
}

// rule disturbs matching requests at one stage.
type rule struct {
	stage Stage
	seed  uint64
	odds  Odds
	match func(*apirequest.RequestInfo) bool

	mu    sync.Mutex
	times map[string]uint64 // how often each request was seen
}

// Add disturbs matching requests at a stage at random. With the same seed, the same request gets the same trouble at
// each repetition.
func (t *Trouble) Add(stage Stage, seed uint64, odds Odds, match func(*apirequest.RequestInfo) bool) {
	t.rules = append(t.rules, &rule{stage: stage, seed: seed, odds: odds, match: match, times: map[string]uint64{}})
}

// draw returns how long a request waits, and the status that it fails with, or zero.
func (r *rule) draw(asked *apirequest.RequestInfo) (wait time.Duration, refuse int) {
	request := asked.Verb + " " + asked.Path
	r.mu.Lock()
	r.times[request]++
	hash := fnv.New64a()
	fmt.Fprint(hash, request, " ", r.times[request])
	r.mu.Unlock()
	random := rand.New(rand.NewPCG(r.seed, hash.Sum64()))
	if random.Float64() < r.odds.Late {
		share := random.Float64()
		wait = time.Duration(share * share * float64(r.odds.Most))
	}
	if random.Float64() < r.odds.Fail {
		refuse = r.odds.Statuses[random.IntN(len(r.odds.Statuses))]
	}
	return wait, refuse
}

// pass waits at a stage. It returns a status to fail with, or zero, and an error if the client is gone.
func (t *Trouble) pass(ctx context.Context, stage Stage, asked *apirequest.RequestInfo) (int, error) {
	for _, rule := range t.rules {
		if rule.stage != stage || !rule.match(asked) {
			continue
		}
		wait, refuse := rule.draw(asked)
		if wait > 0 || refuse != 0 {
			t.Met.Store(true)
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return 0, ctx.Err()
		}
		if refuse != 0 {
			return refuse, nil
		}
	}
	return 0, nil
}

// Wrap returns a transport that meets the trouble.
func (t *Trouble) Wrap(next http.RoundTripper) http.RoundTripper { return &transport{next, t} }

type transport struct {
	http.RoundTripper
	*Trouble
}

var requests = apirequest.RequestInfoFactory{
	APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api"),
}

func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	asked, err := requests.NewRequestInfo(r)
	if err != nil {
		return nil, err
	}
	if refuse, err := t.pass(r.Context(), Requests, asked); err != nil || refuse != 0 {
		if r.Body != nil {
			_ = r.Body.Close()
		}
		return refused(r, refuse), err
	}
	answer, err := t.RoundTripper.RoundTrip(r)
	switch {
	case err != nil:
		return nil, err
	case asked.Verb == "watch":
		answer.Body = &stream{answer.Body, func() (int, error) { return t.pass(r.Context(), Streams, asked) }}
		return answer, nil
	}
	if refuse, err := t.pass(r.Context(), Answers, asked); err != nil || refuse != 0 {
		_ = answer.Body.Close()
		return refused(r, refuse), err
	}
	return answer, nil
}

func refused(r *http.Request, status int) *http.Response {
	if status == 0 {
		return nil
	}
	return &http.Response{
		StatusCode: status, Status: http.StatusText(status), ProtoMajor: 1, ProtoMinor: 1, Request: r, Header: http.Header{}, Body: http.NoBody,
	}
}

// stream holds each piece of a watch until pass returns.
type stream struct {
	io.ReadCloser
	pass func() (int, error)
}

func (s *stream) Read(into []byte) (int, error) {
	n, err := s.ReadCloser.Read(into)
	if n == 0 {
		return n, err
	}
	if refuse, gone := s.pass(); gone != nil || refuse != 0 {
		return 0, errors.Join(gone, errors.New("cut off by the test"))
	}
	return n, err
}

// Serve serves an API server on loopback to a program, by the transport and with the rights of a configuration.
func Serve(config *rest.Config) (*httptest.Server, error) {
	target, err := url.Parse(config.Host)
	if err != nil {
		return nil, err
	}
	transport, err := rest.TransportFor(config)
	if err != nil {
		return nil, err
	}
	return httptest.NewServer(&httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:     transport,
		FlushInterval: -1, // each event is flushed at once
		ErrorLog:      log.New(io.Discard, "", 0),
	}), nil
}

// WriteKubeconfig writes a configuration to a file.
func WriteKubeconfig(config *rest.Config, path string) error {
	const name = "test"
	file := clientcmdapi.NewConfig()
	file.Clusters[name] = &clientcmdapi.Cluster{Server: config.Host, CertificateAuthorityData: config.CAData}
	file.AuthInfos[name] = &clientcmdapi.AuthInfo{
		ClientCertificateData: config.CertData, ClientKeyData: config.KeyData, Token: config.BearerToken,
		Impersonate: config.Impersonate.UserName, ImpersonateGroups: config.Impersonate.Groups,
	}
	file.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	file.CurrentContext = name
	return clientcmd.WriteToFile(*file, path)
}
