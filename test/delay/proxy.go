package delay

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/util/sets"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Proxy forwards the requests of one component.
type Proxy struct {
	upstream *rest.Config
	server   *httptest.Server
	closed   chan struct{}

	mu    sync.Mutex
	rules []*rule
	seen  []Request
}

// Start returns a proxy for the component with the configuration upstream. A proxy cannot
// forward a client certificate: it accepts only the component's own one, and connects with it.
func Start(upstream *rest.Config) (*Proxy, error) {
	target, err := url.Parse(upstream.Host)
	if err != nil || target.Scheme != "https" {
		return nil, fmt.Errorf("proxy for %q: want an https address", upstream.Host)
	}
	p := &Proxy{upstream: rest.CopyConfig(upstream), closed: make(chan struct{})}
	if err := rest.LoadTLSFiles(p.upstream); err != nil {
		return nil, err
	}
	own, _ := pem.Decode(p.upstream.CertData)
	if own == nil {
		return nil, errors.New("the component has no certificate")
	}
	transport, err := rest.TransportFor(p.upstream)
	if err != nil {
		return nil, err
	}
	p.server = httptest.NewUnstartedServer(p.handler(&httputil.ReverseProxy{
		Rewrite:        func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:      transport,
		ModifyResponse: p.answer,
		FlushInterval:  -1, // each event is flushed at once
		ErrorLog:       log.New(io.Discard, "", 0),
	}))
	p.server.EnableHTTP2 = true
	p.server.TLS = &tls.Config{
		ClientAuth: tls.RequireAnyClientCert, MinVersion: tls.VersionTLS12,
		VerifyPeerCertificate: func(presented [][]byte, _ [][]*x509.Certificate) error {
			if !bytes.Equal(presented[0], own.Bytes) {
				return errors.New("not the component's certificate")
			}
			return nil
		},
	}
	p.server.Config.ErrorLog = log.New(io.Discard, "", 0)
	p.server.StartTLS()
	return p, nil
}

// Close stops the proxy, and ends every request that it holds.
func (p *Proxy) Close() {
	close(p.closed)
	p.server.CloseClientConnections()
	p.server.Close()
}

// Config returns the configuration for the component.
func (p *Proxy) Config() *rest.Config {
	c := rest.CopyConfig(p.upstream)
	c.Host = p.server.URL
	c.TLSClientConfig = rest.TLSClientConfig{
		CAData:   pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.server.Certificate().Raw}),
		CertData: p.upstream.CertData, KeyData: p.upstream.KeyData,
	}
	return c
}

// WriteKubeconfig writes Config to a file.
func (p *Proxy) WriteKubeconfig(path string) error { return WriteKubeconfig(p.Config(), path) }

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

// Seen returns the matching requests so far, in order.
func (p *Proxy) Seen(match func(Request) bool) []Request {
	p.mu.Lock()
	defer p.mu.Unlock()
	var seen []Request
	for _, r := range p.seen {
		if match(r) {
			seen = append(seen, r)
		}
	}
	return seen
}

func (p *Proxy) handler(forward http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked := parse(r)
		r = r.WithContext(context.WithValue(r.Context(), askedKey{}, asked))
		p.mu.Lock()
		p.seen = append(p.seen, asked)
		p.mu.Unlock()
		refuse, err := p.pass(r.Context(), Requests, asked)
		switch {
		case err != nil:
			panic(http.ErrAbortHandler)
		case refuse != 0:
			http.Error(w, "refused by the test", refuse)
		default:
			forward.ServeHTTP(w, r)
		}
	})
}

// askedKey is the key of the parsed request in the context of its answer.
type askedKey struct{}

// errCut ends a disturbed watch.
var errCut = errors.New("cut off by the test")

// answer passes an answer on, or wraps the body of a watch.
func (p *Proxy) answer(answer *http.Response) error {
	asked, _ := answer.Request.Context().Value(askedKey{}).(Request)
	if asked.Verb == "watch" {
		answer.Body = &stream{ReadCloser: answer.Body, pass: func() error {
			refuse, err := p.pass(answer.Request.Context(), Streams, asked)
			if err == nil && refuse != 0 {
				err = errCut
			}
			return err
		}}
		return nil
	}
	refuse, err := p.pass(answer.Request.Context(), Answers, asked)
	if err == nil && refuse != 0 {
		answer.Body.Close()
		answer.StatusCode, answer.Status = refuse, http.StatusText(refuse)
		answer.Body, answer.ContentLength = io.NopCloser(strings.NewReader("")), 0
		answer.Header = http.Header{}
	}
	return err
}

// stream holds each piece of a watch until pass returns.
type stream struct {
	io.ReadCloser
	pass func() error
}

func (s *stream) Read(into []byte) (int, error) {
	n, err := s.ReadCloser.Read(into)
	if n > 0 {
		if held := s.pass(); held != nil {
			return 0, held
		}
	}
	return n, err
}

// Request is one request to the API server.
type Request struct {
	// Verb is the Kubernetes verb: get, list, watch, create, update, patch, delete or
	// deletecollection.
	Verb        string
	Resource    string
	Namespace   string
	Name        string
	Subresource string
	Path        string
}

func (r Request) String() string { return r.Verb + " " + r.Path }

// Watches matches watches of a resource.
func Watches(resource string) func(Request) bool {
	return func(r Request) bool { return r.Verb == "watch" && r.Resource == resource }
}

// ListsPods matches lists of the pods of a namespace.
func ListsPods(namespace string) func(Request) bool {
	return func(r Request) bool {
		return r.Verb == "list" && r.Resource == "pods" && r.Namespace == namespace
	}
}

// WritesPVC matches requests that can change the finalizers of a PVC.
func WritesPVC(namespace, name string) func(Request) bool {
	return func(r Request) bool {
		return (r.Verb == "update" || r.Verb == "patch") && r.Resource == "persistentvolumeclaims" &&
			r.Namespace == namespace && r.Name == name && r.Subresource == ""
	}
}

var paths = apirequest.RequestInfoFactory{
	APIPrefixes:          sets.NewString("api", "apis"),
	GrouplessAPIPrefixes: sets.NewString("api"),
}

// parse reads a request as the API server does.
func parse(r *http.Request) Request {
	asked := Request{Path: r.URL.Path}
	info, err := paths.NewRequestInfo(r)
	if err != nil {
		return asked
	}
	asked.Verb, asked.Resource, asked.Namespace, asked.Name, asked.Subresource = info.Verb, info.Resource, info.Namespace, info.Name, info.Subresource
	if asked.Resource == "namespaces" {
		asked.Namespace = ""
	}
	return asked
}
