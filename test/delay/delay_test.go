package delay

import (
	"crypto/tls"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"
)

// TestCertificates checks that the proxy lends the component's certificate to no other client.
func TestCertificates(t *testing.T) {
	api := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, r.Proto, " ", r.TLS.PeerCertificates[0].Subject.CommonName, " ", r.URL.RequestURI())
	}))
	api.EnableHTTP2, api.TLS = true, &tls.Config{ClientAuth: tls.RequireAnyClientCert}
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
	const path = "/api/v1/pods?limit=1&labelSelector=a%3Db"
	ask := func(config *rest.Config) (string, error) {
		client, err := rest.HTTPClientFor(config)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := client.Get(config.Host + path)
		if err != nil {
			return "", err
		}
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		return string(text), err
	}
	own, err := ask(p.Config())
	controllers, _ := cert.ParseCertsPEM(config.CertData)
	if want := "HTTP/2.0 " + controllers[0].Subject.CommonName + " " + path; own != want || err != nil {
		t.Errorf("its own certificate: got %q and %v, want %q", own, err, want)
	}
	other := p.Config()
	other.CertData, other.KeyData, _ = cert.GenerateSelfSignedCertKey("controllers", nil, nil)
	if got, err := ask(other); err == nil {
		t.Errorf("another certificate of the name: got %q", got)
	}
	if seen := p.Seen(func(Request) bool { return true }); len(seen) != 1 {
		t.Errorf("the proxy saw %v", seen)
	}
}
