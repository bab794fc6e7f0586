package operator

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	certutil "k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"lockstep.dev/lockstep/api/config/v1alpha1"
	"lockstep.dev/lockstep/test/expect"
)

// added is a manager that takes servers.
type added struct {
	manager.Manager
	servers map[string]*manager.Server
}

func (a *added) Add(r manager.Runnable) error {
	if s, ok := r.(*manager.Server); ok {
		a.servers[s.Name] = s
	}
	return nil
}

// serversOf returns the servers of an operator on ports of the system's choice.
func serversOf(t *testing.T, change func(*Options)) map[string]*manager.Server {
	t.Helper()
	o := parse(t, "--metrics-bind-address=0.0.0.0:0", "--health-probe-bind-address=127.0.0.1:0", "--pprof-bind-address=127.0.0.1:0", "--webhook-host=127.0.0.1")
	certificate, key, err := certutil.GenerateSelfSignedCertKey("webhooks", nil, nil)
	expect.OK(t, err)
	o.Config.Webhook.Port, o.CertDir = new(int32(0)), t.TempDir() // every address has port 0
	for name, text := range map[string][]byte{"tls.crt": certificate, "tls.key": key} {
		expect.OK(t, os.WriteFile(filepath.Join(o.CertDir, name), text, 0o600))
	}
	o.Log = logr.Discard()
	if change != nil {
		change(&o)
	}
	mgr := &added{servers: map[string]*manager.Server{}}
	expect.OK(t, o.addServers(mgr, nil, http.NotFoundHandler(), http.NotFoundHandler()))
	for _, s := range mgr.servers {
		t.Cleanup(func() { _ = s.Listener.Close() })
	}
	return mgr.servers
}

// Without its bounds a client would hold a server's memory as long as it likes.
func TestEveryServerIsBounded(t *testing.T) {
	servers := serversOf(t, nil)
	for _, name := range []string{"webhooks", "metrics", "probes", "pprof"} {
		s := servers[name]
		if s == nil {
			t.Errorf("no server for %s", name)
			continue
		}
		for what, bound := range map[string]time.Duration{
			"headers": s.Server.ReadHeaderTimeout, "a request": s.Server.ReadTimeout, "an answer": s.Server.WriteTimeout,
		} {
			expect.That(t, bound > 0 && bound < 30*time.Second, "%s waits %s for %s", name, bound, what)
		}
		// An API server, which keeps connections for 90 s, must be the one that closes them.
		idle := s.Server.IdleTimeout
		expect.That(t, idle > 90*time.Second && idle <= 3*time.Minute, "%s keeps idle connections for %s", name, idle)
		expect.That(t, s.Server.MaxHeaderBytes <= 64<<10 && s.Server.ErrorLog != nil,
			"%s: %d bytes of headers", name, s.Server.MaxHeaderBytes)
	}
}

func TestMetricsAreOpenOnLoopbackOnly(t *testing.T) {
	for address, secure := range map[string]bool{"127.0.0.1:0": false, "localhost:0": false, "0.0.0.0:0": true, ":0": true} {
		s := serversOf(t, func(o *Options) { o.Config.Metrics.BindAddress = address })["metrics"]
		go func() { _ = s.Server.Serve(s.Listener) }()
		_, port, _ := net.SplitHostPort(s.Listener.Addr().String())
		scheme, want := "http", http.StatusOK
		if secure {
			scheme, want = "https", http.StatusUnauthorized
		}
		client := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
		answer, err := client.Get(fmt.Sprintf("%s://127.0.0.1:%s/metrics", scheme, port))
		if err != nil {
			t.Errorf("%s: %v", address, err)
			continue
		}
		text, _ := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		expect.That(t, answer.StatusCode == want && secure != strings.Contains(string(text), "go_goroutines"),
			"%s answers %d: %.80s", address, answer.StatusCode, text)
	}
	expect.That(t, serversOf(t, func(o *Options) { o.Config.Metrics.BindAddress = off })["metrics"] == nil,
		"metrics are served though they are off")
}

func TestLoopbackIsRecognised(t *testing.T) {
	for address, is := range map[string]bool{"127.9.9.9:1": true, "[::1]:1": true, "[::]:1": false, "10.0.0.1:1": false, "example.com:1": false} {
		expect.Equalf(t, is, onLoopback(address), "%s", address)
	}
}

func TestTLSFollowsTheConfiguration(t *testing.T) {
	for name, c := range map[string]struct {
		config *v1alpha1.TLS
		min    uint16
		suites int
	}{
		"default":  {min: tls.VersionTLS12, suites: 9},
		"TLS 1.3":  {config: &v1alpha1.TLS{MinVersion: "VersionTLS13"}, min: tls.VersionTLS13, suites: 9},
		"narrowed": {config: &v1alpha1.TLS{MinVersion: "VersionTLS12", CipherSuites: []string{"TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"}}, min: tls.VersionTLS12, suites: 1},
	} {
		got := expect.Value(tlsConfig(c.config))(t)
		if got.MinVersion != c.min || len(got.CipherSuites) != c.suites || len(got.NextProtos) != 1 || got.NextProtos[0] != "http/1.1" {
			t.Errorf("%s: %+v", name, got)
		}
		for _, suite := range got.CipherSuites {
			text := tls.CipherSuiteName(suite)
			expect.That(t, strings.Contains(text, "GCM") || strings.Contains(text, "CHACHA20"), "%s: %s", name, text)
		}
	}
}

// Any client can make handshakes fail as often as it likes: the log has one line, which counts them from the second on.
func TestFailedHandshakesHaveOneLineAMinute(t *testing.T) {
	var lines []map[string]any
	log := funcr.NewJSON(func(line string) {
		entry := map[string]any{}
		expect.OK(t, json.NewDecoder(bytes.NewBufferString(line)).Decode(&entry))
		lines = append(lines, entry)
	}, funcr.Options{})
	now := &serverLog{log: log, server: "webhooks"}
	now.handshakes.Interval = time.Hour
	for i := range 100 {
		_, _ = fmt.Fprintf(now, "http: TLS handshake error from 10.0.0.1:%d: EOF\n", i)
	}
	now.handshakes.Interval = time.Nanosecond
	_, _ = fmt.Fprintf(now, "http: TLS handshake error from 10.0.0.2:1: tls: no cipher suite\n")
	_, _ = fmt.Fprintf(now, "http: panic serving 10.0.0.2:1: oh\ngoroutine 1\n")
	expect.Must(t, len(lines) == 3, "%d lines: %v", len(lines), lines)
	first, second := lines[0]["count"], lines[1]["count"]
	expect.That(t, first == 1.0 && second == 100.0, "counts %v and %v", first, second)
	if lines[1]["server"] != "webhooks" || lines[1]["example"] != "http: TLS handshake error from 10.0.0.2:1: tls: no cipher suite" {
		t.Errorf("got %v", lines[1])
	}
	expect.That(t, strings.HasPrefix(fmt.Sprint(lines[2]["msg"]), "http: panic serving"), "got %v", lines[2])
}

// Without a keeper the webhooks present the certificate of a directory.
func TestWebhooksPresentTheCertificateOfADirectory(t *testing.T) {
	s := serversOf(t, nil)["webhooks"]
	go func() { _ = s.Server.Serve(s.Listener) }()
	connection := expect.Value(tls.Dial("tcp", s.Listener.Addr().String(), &tls.Config{InsecureSkipVerify: true}))(t)
	defer func() { _ = connection.Close() }()
	name := connection.ConnectionState().PeerCertificates[0].DNSNames
	expect.That(t, len(name) == 1 && name[0] == "webhooks", "the certificate is that of %v", name)
}
