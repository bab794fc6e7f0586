package plane

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// Condition is how a component is.
type Condition string

// The conditions of a component.
const (
	// Ready: its process runs and says that it is well.
	Ready Condition = "ready"
	// Unready: its process runs, but it does not answer or says that it is not well.
	Unready Condition = "unready"
	// Killed: it was ended by kill, or an up that is under way has not come to it.
	Killed Condition = "killed"
	// Dead: it ended by itself.
	Dead Condition = "dead"
)

// ComponentStatus is one component as it is now.
type ComponentStatus struct {
	Name    Component `json:"name"`
	State   Condition `json:"state"`
	PID     int       `json:"pid,omitempty"`
	Address string    `json:"address"`
	Log     string    `json:"log"`
	// Detail says why it is not ready.
	Detail string `json:"detail,omitempty"`
}

// NodeStatus counts nodes; Ready are those that take pods.
type NodeStatus struct {
	Ready int `json:"ready"`
	Total int `json:"total"`
}

// Status is a cluster as it is now.
type Status struct {
	Dir        string            `json:"dir"`
	Kubeconfig string            `json:"kubeconfig"`
	Settings   Settings          `json:"settings"`
	Ports      Ports             `json:"ports"`
	Components []ComponentStatus `json:"components"`
	// Nodes is missing while the API server does not answer.
	Nodes *NodeStatus `json:"nodes,omitempty"`
}

// Ready reports whether every component is ready.
func (s Status) Ready() bool {
	return !slices.ContainsFunc(s.Components, func(c ComponentStatus) bool { return c.State != Ready })
}

// Status reads a cluster without changing anything, not even when another command is at work on it.
func (c *Cluster) Status(ctx context.Context) (Status, error) {
	state, found, err := loadState(c.Layout)
	if err != nil {
		return Status{}, err
	}
	if !found || !state.Running {
		return Status{}, errNoCluster(c.Layout)
	}
	probe, err := newProber(c.Layout, state.Ports)
	if err != nil {
		return Status{}, err
	}
	components := state.Settings.components()
	status := Status{
		Dir: c.Dir, Kubeconfig: c.Kubeconfig(), Settings: state.Settings, Ports: state.Ports,
		Components: make([]ComponentStatus, len(components)),
	}
	var wait sync.WaitGroup
	for i, component := range components {
		wait.Go(func() { status.Components[i] = c.look(ctx, component, state, probe) })
	}
	wait.Wait()
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	status.Nodes, _ = countNodes(ctx, probe.objects)
	return status, nil
}

func (c *Cluster) look(ctx context.Context, component Component, state State, probe *prober) ComponentStatus {
	status := ComponentStatus{Name: component, State: Ready, Address: address(state.Ports.of(component)), Log: c.Log(component)}
	id, started := state.Processes[component]
	switch {
	case !started:
		status.State, status.Detail = Killed, "not running; restart starts it"
		return status
	case !id.Alive():
		status.State, status.Detail = Dead, "ended by itself: see its log"
		return status
	}
	status.PID = id.PID
	if err := probe.probe(ctx, component); err != nil {
		status.State, status.Detail = Unready, err.Error()
	}
	return status
}

// probeTimeout bounds one question; on a machine under load an answer takes a second now and then.
const probeTimeout = 5 * time.Second

// userAgent marks our own requests in the audit log.
const userAgent = "lockstep-local"

// prober asks components whether they are well, and the API server for objects, without a limit of its own.
type prober struct {
	client  *http.Client
	objects kubernetes.Interface
	ports   Ports
}

// asAdmin shows the administrator's certificate: etcd speaks only to clients of the cluster, and
// the API server only to users that it knows, before it has created its roles.
func (l Layout) asAdmin(p Ports) *rest.Config {
	return &rest.Config{
		TLSClientConfig: rest.TLSClientConfig{CAFile: l.cert(clusterCA), CertFile: l.cert(admin), KeyFile: l.key(admin)},
		Host:            "https://" + address(p.APIServer), UserAgent: userAgent, QPS: -1,
	}
}

func newProber(l Layout, p Ports) (*prober, error) {
	config := l.asAdmin(p)
	objects, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	config.Timeout = probeTimeout
	client, err := rest.HTTPClientFor(config)
	return &prober{client: client, objects: objects, ports: p}, err
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
	// The controller manager says that it is well before it has controllers. Once they run, it names a check for each.
	if c == ControllerManager && !bytes.Contains(body, []byte("-controller ok")) {
		return fmt.Errorf("%s: its controllers have not begun", url)
	}
	return nil
}

// complaint picks what matters from a list of checks: the first that fails, or else the first line.
func complaint(body []byte) string {
	lines := strings.Split(strings.TrimSpace(string(body)), "\n")
	failing := slices.IndexFunc(lines, func(line string) bool { return strings.HasPrefix(line, "[-]") })
	return lines[max(failing, 0)]
}
