package delay

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/cert"
)

const patience = 20 * time.Second

// server stands for the API server: it answers with the user and the path, and streams.
type server struct {
	*httptest.Server
	asked atomic.Int32
	event chan string
}

func newServer(t *testing.T) *server {
	s := &server{event: make(chan string)}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(s.answer))
	s.EnableHTTP2 = true
	s.TLS = &tls.Config{ClientAuth: tls.RequestClientCert}
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

func (s *server) answer(w http.ResponseWriter, r *http.Request) {
	s.asked.Add(1)
	if r.URL.Query().Get("watch") == "" {
		certificates := len(r.TLS.PeerCertificates)
		fmt.Fprintf(w, "%s %s %d %s", r.Proto, user(r), certificates, r.URL.RequestURI())
		return
	}
	for {
		select {
		case event := <-s.event:
			fmt.Fprintln(w, event)
			w.(http.Flusher).Flush()
		case <-r.Context().Done():
			return
		}
	}
}

// component is a client of a proxy before the server.
func component(t *testing.T, s *server) (*Proxy, *http.Client) {
	t.Helper()
	own := ownPair()
	p, err := Start(&rest.Config{Host: s.URL, TLSClientConfig: rest.TLSClientConfig{CAData: encoded(s.Certificate().Raw), CertData: own.cert, KeyData: own.key}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p, clientOf(t, p)
}

// clientOf returns the client that a component builds from a kubeconfig.
func clientOf(t *testing.T, p *Proxy) *http.Client {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := p.WriteKubeconfig(path); err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		t.Fatal(err)
	}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

type pair struct{ cert, key []byte }

func newPair() pair {
	certPEM, key, err := cert.GenerateSelfSignedCertKey("controllers", nil, nil)
	if err != nil {
		panic(err)
	}
	return pair{certPEM, key}
}

// ownPair is the certificate of every component.
var ownPair = sync.OnceValue(newPair)

func encoded(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: cert.CertificateBlockType, Bytes: der})
}

func get(t *testing.T, c *http.Client, p *Proxy, path, token string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, p.Config().Host+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	answer, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(text)
}

func TestTheProxyKeepsTheUser(t *testing.T) {
	s := newServer(t)
	p, c := component(t, s)
	const path = "/api/v1/pods?limit=1&labelSelector=a%3Db"
	if _, got := get(t, c, p, path, ""); !strings.HasPrefix(got, "HTTP/2.0 controllers") || !strings.HasSuffix(got, " 2 "+path) {
		t.Errorf("by certificate: %q", got)
	}
	token := "x." + base64.RawURLEncoding.EncodeToString([]byte(`{"sub":"system:serviceaccount:a:b"}`)) + ".x"
	if _, got := get(t, c, p, path, token); got != "HTTP/2.0 system:serviceaccount:a:b 0 "+path {
		t.Errorf("by token: %q", got)
	}
	if seen := p.Seen(func(r Request) bool { return r.User == "system:serviceaccount:a:b" }); len(seen) != 1 {
		t.Errorf("seen of the token's user: %v", seen)
	}
}

func TestOtherCertificatesAreRefused(t *testing.T) {
	s := newServer(t)
	p, _ := component(t, s)
	config := p.Config()
	other := newPair() // with the same name
	config.CertData, config.KeyData = other.cert, other.key
	stranger, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	if code, _ := get(t, stranger, p, "/api/v1/pods", ""); code != http.StatusUnauthorized {
		t.Errorf("got %d", code)
	}
	if s.asked.Load() != 0 {
		t.Error("the server was asked")
	}
}

func held(t *testing.T, h *Hold) Request {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	r, err := h.Reached(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func pods(r Request) bool { return r.Resource == "pods" }

func TestHeldRequests(t *testing.T) {
	const path = "/api/v1/namespaces/ns/pods"
	for _, tt := range []struct {
		stage  Stage
		refuse int
		asked  int32 // of the server, while it is held
	}{{Requests, 0, 0}, {Answers, 0, 1}, {Requests, http.StatusServiceUnavailable, 0}, {Answers, http.StatusServiceUnavailable, 1}} {
		s := newServer(t)
		p, c := component(t, s)
		h := p.Hold(tt.stage, pods)
		done := make(chan int, 1)
		go func() {
			code, _ := get(t, c, p, path, "")
			done <- code
		}()
		if r := held(t, h); r.Verb != "list" || r.Path != path || r.Namespace != "ns" || !strings.HasPrefix(r.User, "controllers") {
			t.Errorf("held is %+v", r)
		}
		get(t, c, p, "/api/v1/nodes", "") // the rest is not held
		if got := s.asked.Load() - 1; got != tt.asked {
			t.Errorf("stage %d: the server was asked %d times, want %d", tt.stage, got, tt.asked)
		}
		select {
		case code := <-done:
			t.Fatalf("not held: %d", code)
		default:
		}
		h.Refuse(tt.refuse)
		if code := <-done; code != max(tt.refuse, http.StatusOK) {
			t.Errorf("stage %d: got %d, want %d", tt.stage, code, tt.refuse)
		}
		if code, _ := get(t, c, p, path, ""); code != http.StatusOK { // nothing is held any more
			t.Errorf("the next request is refused: %d", code)
		}
	}
}

// Requests that do not match pass.
func TestTheSameSeedDisturbsTheSameRequests(t *testing.T) {
	s := newServer(t)
	odds := Odds{Fail: 0.5, Statuses: []int{http.StatusServiceUnavailable}}
	codes := func(seed uint64) (all []int) {
		p, c := component(t, s)
		p.Disturb(Requests, Erratic(seed, odds, pods))
		code := func(path string) int {
			code, _ := get(t, c, p, path, "")
			return code
		}
		for range 20 {
			if all = append(all, code("/api/v1/pods")); code("/api/v1/nodes") != http.StatusOK {
				t.Error("a request that does not match is disturbed")
			}
		}
		p.Calm()
		for range 20 {
			if code("/api/v1/pods") != http.StatusOK {
				t.Error("a request is disturbed after Calm")
			}
		}
		return all
	}
	first := codes(1)
	if !slices.Equal(first, codes(1)) || slices.Equal(first, codes(2)) {
		t.Errorf("seed 1 gives %v, then another, or seed 2 the same", first)
	}
	if !slices.Contains(first, http.StatusOK) || !slices.Contains(first, http.StatusServiceUnavailable) {
		t.Errorf("got %v", first)
	}
}

func TestDeniedRequests(t *testing.T) {
	s := newServer(t)
	p, c := component(t, s)
	h := p.Deny(http.StatusForbidden, pods)
	for range 2 {
		if code, _ := get(t, c, p, "/api/v1/pods", ""); code != http.StatusForbidden {
			t.Errorf("got %d", code)
		}
	}
	if code, _ := get(t, c, p, "/api/v1/nodes", ""); code != http.StatusOK || s.asked.Load() != 1 {
		t.Errorf("got %d, %d came through", code, s.asked.Load())
	}
	h.Release()
	if code, _ := get(t, c, p, "/api/v1/pods", ""); code != http.StatusOK {
		t.Errorf("got %d once nothing is denied any more", code)
	}
}

// Informers lag whose watch was open before.
func TestAnOpenWatchIsHeld(t *testing.T) {
	s := newServer(t)
	p, c := component(t, s)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, p.Config().Host+"/api/v1/pods?watch=true", nil)
	if err != nil {
		t.Fatal(err)
	}
	go func() { s.event <- "first" }() // an answer begins with what it says first
	answer, err := c.Do(r)             //nolint:bodyclose // closed below, while another goroutine reads it
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	lines := make(chan string)
	go func() {
		for text := bufio.NewScanner(answer.Body); text.Scan(); {
			lines <- text.Text()
		}
	}()
	if got := <-lines; got != "first" {
		t.Errorf("got %q", got)
	}
	h := p.Hold(Streams, pods)
	s.event <- "second"
	held(t, h)
	select {
	case got := <-lines:
		t.Fatalf("not held: %q", got)
	default:
	}
	h.Release()
	if got := <-lines; got != "second" {
		t.Errorf("got %q", got)
	}
}
