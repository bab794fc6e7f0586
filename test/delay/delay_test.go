package delay

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

const patience = 20 * time.Second

// server stands for the API server: it says who asks, and streams.
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
	cert, key := certificate(t, "controllers")
	p, err := Start(&rest.Config{Host: s.URL, TLSClientConfig: rest.TLSClientConfig{CAData: encoded(s.Certificate().Raw), CertData: cert, KeyData: key}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p, clientOf(t, p)
}

// clientOf goes the way of a component: by a kubeconfig.
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

func certificate(t *testing.T, name string) (cert, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return encoded(der), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})
}

func encoded(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
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

func TestTheComponentIsWhoItIs(t *testing.T) {
	s := newServer(t)
	p, c := component(t, s)
	const path = "/api/v1/pods?limit=1&labelSelector=a%3Db"
	if _, got := get(t, c, p, path, ""); got != "HTTP/2.0 controllers 1 "+path {
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

func TestAStrangerIsNotSpokenFor(t *testing.T) {
	s := newServer(t)
	p, _ := component(t, s)
	config := p.Config()
	config.CertData, config.KeyData = certificate(t, "controllers") // of that name, and yet another
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

func TestWhatIsHeld(t *testing.T) {
	for _, tt := range []struct {
		stage Stage
		asked int32 // of the server, while it is held
	}{{Requests, 0}, {Answers, 1}} {
		s := newServer(t)
		p, c := component(t, s)
		h := p.Hold(tt.stage, pods)
		done := make(chan string, 1)
		go func() {
			_, text := get(t, c, p, "/api/v1/namespaces/ns/pods", "")
			done <- text
		}()
		if r := held(t, h); r.String() != "controllers list /api/v1/namespaces/ns/pods" || r.Namespace != "ns" {
			t.Errorf("held is %+v", r)
		}
		get(t, c, p, "/api/v1/nodes", "") // the rest is not held
		if got := s.asked.Load() - 1; got != tt.asked {
			t.Errorf("stage %d: the server was asked %d times, want %d", tt.stage, got, tt.asked)
		}
		select {
		case text := <-done:
			t.Fatalf("not held: %q", text)
		default:
		}
		h.Release()
		if text := <-done; !strings.HasSuffix(text, "/api/v1/namespaces/ns/pods") {
			t.Errorf("stage %d: got %q", tt.stage, text)
		}
		get(t, c, p, "/api/v1/pods", "") // nothing is held any more
	}
}

func TestWhatIsRefused(t *testing.T) {
	for stage, want := range map[Stage]int32{Requests: 0, Answers: 1} {
		s := newServer(t)
		p, c := component(t, s)
		p.Hold(stage, pods).Refuse(http.StatusServiceUnavailable)
		if code, _ := get(t, c, p, "/api/v1/pods", ""); code != http.StatusOK {
			t.Errorf("what comes after is refused: %d", code)
		}
		s.asked.Store(0)
		h := p.Hold(stage, pods)
		go func() {
			held(t, h)
			h.Refuse(http.StatusServiceUnavailable)
		}()
		if code, _ := get(t, c, p, "/api/v1/pods", ""); code != http.StatusServiceUnavailable {
			t.Errorf("stage %d: got %d", stage, code)
		}
		if got := s.asked.Load(); got != want {
			t.Errorf("stage %d: the server was asked %d times, want %d", stage, got, want)
		}
	}
}

// TestTheSameSeedDisturbsTheSameRequests, and others are let pass.
func TestTheSameSeedDisturbsTheSameRequests(t *testing.T) {
	s := newServer(t)
	odds := Odds{Fail: 0.5, Statuses: []int{http.StatusServiceUnavailable}}
	codes := func(seed uint64) (all []int) {
		p, c := component(t, s)
		p.Disturb(Requests, Erratic(seed, odds, pods))
		for range 20 {
			code, _ := get(t, c, p, "/api/v1/pods", "")
			all = append(all, code)
		}
		for range 20 {
			if code, _ := get(t, c, p, "/api/v1/nodes", ""); code != http.StatusOK {
				t.Errorf("what nobody disturbs got %d", code)
			}
		}
		p.Calm()
		for range 20 {
			if code, _ := get(t, c, p, "/api/v1/pods", ""); code != http.StatusOK {
				t.Errorf("after all is calm: %d", code)
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

func TestWhatIsDenied(t *testing.T) {
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

// TestAnOpenWatchIsHeld: informers are made to lag whose watch was there before.
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

func TestRequestsByTheirPath(t *testing.T) {
	for _, tt := range []struct {
		method, path string
		want         Request
	}{
		{"GET", "/version", Request{Verb: "get"}},
		{"GET", "/api/v1/namespaces/ns/pods/a", Request{Verb: "get", Resource: "pods", Namespace: "ns", Name: "a"}},
		{"GET", "/api/v1/pods?watch=1", Request{Verb: "watch", Resource: "pods"}},
		{"GET", "/api/v1/pods?watch=false", Request{Verb: "list", Resource: "pods"}},
		{"POST", "/api/v1/namespaces/ns/pods/a/binding", Request{Verb: "create", Resource: "pods", Namespace: "ns", Name: "a", Subresource: "binding"}},
		{"PUT", "/apis/apps/v1/namespaces/ns/statefulsets/a", Request{Verb: "update", Resource: "statefulsets", Namespace: "ns", Name: "a"}},
		{"PATCH", "/api/v1/namespaces/ns/persistentvolumeclaims/a/status", Request{Verb: "patch", Resource: "persistentvolumeclaims", Namespace: "ns", Name: "a", Subresource: "status"}},
		{"DELETE", "/api/v1/namespaces/ns/pods", Request{Verb: "deletecollection", Resource: "pods", Namespace: "ns"}},
		{"DELETE", "/api/v1/namespaces/ns", Request{Verb: "delete", Resource: "namespaces", Name: "ns"}},
		{"PUT", "/api/v1/namespaces/ns/finalize", Request{Verb: "update", Resource: "namespaces", Name: "ns", Subresource: "finalize"}},
	} {
		r := httptest.NewRequest(tt.method, tt.path, nil)
		tt.want.Path = r.URL.Path
		if got := parse(r); got != tt.want {
			t.Errorf("%s %s: got %+v, want %+v", tt.method, tt.path, got, tt.want)
		}
	}
}
