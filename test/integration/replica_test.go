package integration

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/operator"
	"lockstep.dev/lockstep/test/drill"
)

// replica is one operator in this process.
type replica struct {
	c       *cluster
	options operator.Options
	stop    context.CancelFunc
	ended   chan error
}

// given are the ports of replicas of this run. None is given twice.
var given sync.Map

// port returns a free port, outside the range of outgoing connections.
func port(t *testing.T) int {
	t.Helper()
	for {
		ports, err := drill.FreePorts(1)
		if err != nil {
			t.Fatal(err)
		}
		if _, taken := given.LoadOrStore(ports[0], true); !taken {
			return ports[0]
		}
	}
}

func (c *cluster) replica(change func(*operator.Options)) *replica {
	c.t.Helper()
	config, err := operator.LoadConfig("")
	if err != nil {
		c.t.Fatal(err)
	}
	config.Webhook.Host, config.Webhook.Port = "127.0.0.1", new(int32(port(c.t)))
	config.Metrics.BindAddress = fmt.Sprintf("127.0.0.1:%d", port(c.t))
	config.Health.HealthProbeBindAddress = fmt.Sprintf("127.0.0.1:%d", port(c.t))
	r := &replica{c: c, ended: make(chan error, 1), options: operator.Options{
		REST: c.cfg, Config: *config, Namespace: systemName, Controllers: operator.Controllers(), Webhooks: true, Log: logr.Discard(),
	}}
	if change != nil {
		change(&r.options)
	}
	return r
}

func (r *replica) webhookURL() string {
	return fmt.Sprintf("https://127.0.0.1:%d", *r.options.Config.Webhook.Port)
}

// start runs the operator until the test ends or shut is called.
func (r *replica) start() *replica {
	r.c.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	r.stop = cancel
	go func() { r.ended <- operator.Run(ctx, r.options) }()
	r.c.t.Cleanup(func() { cancel() })
	return r
}

// shut ends the operator as SIGTERM does.
func (r *replica) shut() {
	r.c.t.Helper()
	r.stop()
	select {
	case err := <-r.ended:
		if err != nil {
			r.c.t.Fatalf("the operator ended with: %v", err)
		}
	case <-time.After(patience):
		r.c.t.Fatal("the operator does not end")
	}
}

// get returns the answer of one of the operator's servers, or the error.
func get(address string) (int, string) {
	response, err := http.Get("http://" + address)
	if err != nil {
		return 0, err.Error()
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, err.Error()
	}
	return response.StatusCode, string(body)
}

func (r *replica) ready() (bool, string) {
	code, body := get(r.options.Config.Health.HealthProbeBindAddress + "/readyz?verbose")
	return code == http.StatusOK, body
}

func (r *replica) untilReady() *replica {
	r.c.t.Helper()
	said := ""
	r.c.eventually("the operator is ready", func(context.Context) (ok bool) {
		select {
		case err := <-r.ended:
			r.c.t.Fatalf("the operator ended: %v", err)
		default:
		}
		ok, said = r.ready()
		return ok
	}, &said)
	if r.isCalled() {
		r.untilTrusted()
	}
	return r
}

// isCalled reports whether the API server calls the webhooks of this replica.
func (r *replica) isCalled() bool {
	if !r.options.Webhooks {
		return false
	}
	url := r.c.mutating().Webhooks[0].ClientConfig.URL
	return url != nil && strings.HasPrefix(*url, r.webhookURL()+"/")
}

// untilTrusted waits until the API server trusts the operator's bundle.
func (r *replica) untilTrusted() {
	r.c.t.Helper()
	said := ""
	r.c.eventually("the API server reaches the webhooks", func(ctx context.Context) bool {
		err := r.c.Create(ctx, newSet("default", "probe"), client.DryRunAll)
		pod := leaderPod("probe-0")
		err = errors.Join(err, r.c.Create(ctx, pod, client.DryRunAll))
		said = fmt.Sprint(err)
		return err == nil && pod.Labels[lwsv1.GroupIndexLabelKey] == "0"
	}, &said)
}

// eventually waits until something is so. A failure shows what was said.
func (c *cluster) eventually(what string, is func(context.Context) bool, said *string) {
	c.t.Helper()
	err := wait.PollUntilContextTimeout(c.t.Context(), 20*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		return is(ctx), nil
	})
	if err != nil {
		c.t.Fatalf("not so: %s (%s)", what, ptr.Deref(said, ""))
	}
}

func (c *cluster) holder() string {
	lease := &coordinationv1.Lease{}
	if err := c.Get(c.t.Context(), client.ObjectKey{Namespace: systemName, Name: "b8b2488c.x-k8s.io"}, lease); err != nil {
		return ""
	}
	return ptr.Deref(lease.Spec.HolderIdentity, "")
}
