package plane

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"
)

// probeTimeout bounds one question; on a machine under load an answer takes a
// second now and then.
const probeTimeout = 5 * time.Second

// userAgent is what our own requests bear in the audit log.
const userAgent = "lockstep-local"

// prober asks components whether they are well.
type prober struct {
	client *http.Client
	ports  Ports
}

func newProber(l Layout, p Ports) (*prober, error) {
	ca, err := os.ReadFile(l.cert(clusterCA))
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	// etcd speaks only to those who show a certificate of the cluster's, and
	// the API server only to those it knows, before it has made its roles.
	own, err := tls.LoadX509KeyPair(l.cert(admin), l.key(admin))
	if err != nil {
		return nil, err
	}
	transport := &http.Transport{
		TLSClientConfig:   &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{own}},
		DisableKeepAlives: true, // an answer must come from the process that lives now
	}
	return &prober{client: &http.Client{Transport: transport, Timeout: probeTimeout}, ports: p}, nil
}

// endpoint is where a component reports on itself.
func (p Ports) endpoint(c Component) string {
	url := map[Component]string{
		Etcd: "https://%s/health", APIServer: "https://%s/readyz", ControllerManager: "https://%s/healthz?verbose",
		Scheduler: "https://%s/readyz", Kwok: "http://%s/healthz",
	}[c]
	return fmt.Sprintf(url, address(p.of(c)))
}

// probe returns nil if the component says that it is well.
func (p *prober) probe(ctx context.Context, c Component) error {
	url := p.ports.endpoint(c)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	request.Header.Set("User-Agent", userAgent)
	response, err := p.client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, 16<<10))
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s: %s", url, response.Status, complaint(body))
	}
	// The controller manager says that it is well before it has controllers.
	// Once they run, it names a check for each.
	if c == ControllerManager && !bytes.Contains(body, []byte("-controller ok")) {
		return fmt.Errorf("%s: its controllers have not begun", url)
	}
	return nil
}

// complaint picks what matters from a list of checks: the first that fails, or
// else the first line.
func complaint(body []byte) string {
	lines := strings.Split(strings.TrimSpace(string(body)), "\n")
	for _, line := range lines {
		if strings.HasPrefix(line, "[-]") {
			return line
		}
	}
	return lines[0]
}
