package plane

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"k8s.io/client-go/rest"
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

// newProber shows the administrator's certificate: etcd speaks only to clients of the cluster, and
// the API server only to users that it knows, before it has created its roles.
func newProber(l Layout, p Ports) (*prober, error) {
	client, err := rest.HTTPClientFor(&rest.Config{
		TLSClientConfig: rest.TLSClientConfig{CAFile: l.cert(clusterCA), CertFile: l.cert(admin), KeyFile: l.key(admin)},
		UserAgent:       userAgent, Timeout: probeTimeout,
	})
	return &prober{client: client, ports: p}, err
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
