package delay

import (
	"crypto/tls"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"
)

// TestUsers checks that the API server sees the user of a certificate or a token, and that the proxy
// lends the component's certificate to no other client.
func TestUsers(t *testing.T) {
	asked := 0
	api := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked++
		fmt.Fprintf(w, "%s %s %d %s", r.Proto, user(r), len(r.TLS.PeerCertificates), r.URL.RequestURI())
	}))
	api.EnableHTTP2, api.TLS = true, &tls.Config{ClientAuth: tls.RequestClientCert}
	api.StartTLS()
	t.Cleanup(api.Close)
	config := &rest.Config{Host: api.URL}
	config.CAData = pem.EncodeToMemory(&pem.Block{Type: cert.CertificateBlockType, Bytes: api.Certificate().Raw})
	config.CertData, config.KeyData, _ = cert.GenerateSelfSignedCertKey("controllers", nil, nil)
	p, err := Start(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	other := p.Config()
	other.CertData, other.KeyData, _ = cert.GenerateSelfSignedCertKey("controllers", nil, nil)
	const path, account = "/api/v1/pods?limit=1&labelSelector=a%3Db", "system:serviceaccount:a:b"
	token := "x." + base64.RawURLEncoding.EncodeToString([]byte(`{"sub":"`+account+`"}`)) + ".x"
	for _, tt := range []struct {
		name, token string
		config      *rest.Config
		code        int
		begins      string
		ends        string
	}{
		{"its certificate", "", p.Config(), http.StatusOK, "HTTP/2.0 controllers", " 2 " + path},
		{"a token", token, p.Config(), http.StatusOK, "HTTP/2.0 " + account, " 0 " + path},
		{"another certificate of the name", "", other, http.StatusUnauthorized, "neither", ""},
	} {
		client, err := rest.HTTPClientFor(tt.config)
		if err != nil {
			t.Fatal(err)
		}
		r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, tt.config.Host+path, nil)
		if tt.token != "" {
			r.Header.Set("Authorization", "Bearer "+tt.token)
		}
		answer, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		if got := strings.TrimSpace(string(text)); answer.StatusCode != tt.code || !strings.HasPrefix(got, tt.begins) || !strings.HasSuffix(got, tt.ends) {
			t.Errorf("%s: got %d %q", tt.name, answer.StatusCode, text)
		}
	}
	if seen := p.Seen(func(r Request) bool { return r.User == account }); len(seen) != 1 || asked != 2 {
		t.Errorf("the proxy saw %v, and the API server %d requests", seen, asked)
	}
}
