package integration

import (
	"bytes"
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
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/install"
	"lockstep.dev/lockstep/internal/operator"
	"lockstep.dev/lockstep/test/drill"
	"lockstep.dev/lockstep/test/expect"
)

// replica is one operator in this process.
type replica struct {
	c       *cluster
	options operator.Options
	stop    context.CancelFunc
	ended   chan error
}

// given has the ports of this run. port returns none of them twice.
var given sync.Map

// port returns a free port, outside the range of outgoing connections.
func port(t *testing.T) int {
	t.Helper()
	for {
		ports := expect.Value(drill.FreePorts(1))(t)
		if _, taken := given.LoadOrStore(ports[0], true); !taken {
			return ports[0]
		}
	}
}

func (c *cluster) replica(change func(*operator.Options)) *replica {
	c.t.Helper()
	config := expect.Value(operator.LoadConfig(""))(c.t)
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

// called has install name the webhooks of the replica.
func (r *replica) called(o *install.Options) { o.WebhookURL = r.webhookURL() }

// serving installs an operator, and starts it.
func (c *cluster) serving() *replica {
	c.t.Helper()
	r := c.replica(nil)
	c.install(r.called)
	return r.start().untilReady()
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
		expect.OKf(r.c.t, err, "the operator ended with")
	case <-time.After(patience):
		r.c.t.Fatal("the operator does not end")
	}
}

// get returns the answer of a server of the operator, or the error.
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

// ready returns what the operator says unless it is ready.
func (r *replica) ready() error {
	code, body := get(r.options.Config.Health.HealthProbeBindAddress + "/readyz?verbose")
	if code == http.StatusOK {
		return nil
	}
	return errors.New(body)
}

func (r *replica) untilReady() *replica {
	r.c.t.Helper()
	r.c.eventually("the operator is ready", func() error {
		select {
		case err := <-r.ended:
			r.c.t.Fatalf("the operator ended: %v", err)
		default:
		}
		return r.ready()
	})
	if r.isCalled() {
		r.untilTrusted()
	}
	return r
}

// isCalled reports whether the webhook configuration names this replica.
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
	r.c.eventually("the API server reaches the webhooks", func() error {
		ctx, pod := r.c.t.Context(), leaderPod("probe-0")
		return errors.Join(r.c.Create(ctx, newSet("default", "probe"), client.DryRunAll), r.c.Create(ctx, pod, client.DryRunAll),
			drill.Lacking("group index", "0", pod.Labels[lwsv1.GroupIndexLabelKey]))
	})
}

// eventually waits until lacks returns nil.
func (c *cluster) eventually(what string, lacks func() error) {
	c.t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(c.t.Context(), 20*time.Millisecond, patience, true, func(context.Context) (bool, error) {
		last = lacks()
		return last == nil, nil
	})
	expect.Must(c.t, err == nil, "never true: %s (%v)", what, last)
}

// until is eventually for a condition that explains itself.
func (c *cluster) until(what string, is func() bool) {
	c.t.Helper()
	c.eventually(what, func() error {
		if is() {
			return nil
		}
		return drill.ErrStill
	})
}

func (c *cluster) holder() string {
	lease := &coordinationv1.Lease{}
	if err := c.Get(c.t.Context(), client.ObjectKey{Namespace: systemName, Name: leaseName}, lease); err != nil {
		return ""
	}
	return ptr.Deref(lease.Spec.HolderIdentity, "")
}

// Two replicas become ready with a trusted certificate, and elect one leader. Install restores a bundle. The second
// one leads after the first has ended.
func TestTwoReplicas(t *testing.T) {
	c := newCluster(t)
	first := c.replica(nil)
	c.install(first.called)
	m := c.mutating()
	c.must(c.Delete(t.Context(), m))
	first.start()

	c.until("readyz names the failed check", func() bool {
		said := first.ready()
		expect.Must(t, said != nil, "ready without a webhook configuration")
		isOK := func(check string) bool { return strings.Contains(said.Error(), "[+]"+check+" ok") }
		return strings.Contains(said.Error(), "[-]certificate failed") && isOK("caches") && isOK("claims") && isOK("pods")
	})
	c.install(first.called)
	first.untilReady()
	code, _ := get(first.options.Config.Health.HealthProbeBindAddress + "/healthz")
	expect.Equalf(t, http.StatusOK, code, "/healthz")
	c.until("the first replica leads", func() bool { return c.holder() != "" })
	leader := c.holder()

	second := c.replica(nil).start().untilReady()
	expect.Equalf(t, leader, c.holder(), "the second replica took the lease")

	c.part("the API server calls the webhooks", c.callWebhooks)
	c.wipeBundle()
	c.until("a replica is not ready without its bundle", func() bool { return second.ready() != nil })
	c.install(first.called)
	second.untilReady()
	if !bytes.Equal(c.validating().Webhooks[0].ClientConfig.CABundle, c.mutating().Webhooks[0].ClientConfig.CABundle) {
		t.Error("install did not restore the bundle")
	}

	if code, body := get(first.options.Config.Metrics.BindAddress + "/metrics"); code != http.StatusOK || !strings.Contains(body, "controller_runtime_webhook_requests_total") {
		t.Errorf("metrics answer %d", code)
	}

	first.shut()
	c.part("only pods of sets wait while the webhooks are down", c.onlyPodsOfSetsWait)
	expect.That(t, c.holder() != leader, "the operator did not release the lease")
	c.until("the second replica leads", func() bool { h := c.holder(); return h != "" && h != leader })
	second.shut()
	expect.Equalf(t, "", c.holder(), "the lease is still held")
}

func (c *cluster) wipeBundle() {
	c.t.Helper()
	v := c.validating()
	was := v.DeepCopy()
	v.Webhooks[0].ClientConfig.CABundle = []byte("\n")
	c.must(c.Patch(c.t.Context(), v, client.StrategicMergeFrom(was)))
}

// callWebhooks checks that the API server calls the webhooks over TLS, for sets and their pods alone.
func (c *cluster) callWebhooks() {
	set := newSet("default", "racks")
	c.create(set)
	expect.That(c.t, set.Spec.NetworkConfig != nil && set.Spec.RolloutStrategy.RollingUpdateConfiguration != nil,
		"defaults are missing: %+v", set.Spec)
	// The definition cannot check annotations, so the webhook does.
	annotated := merge(fmt.Sprintf(`{"metadata":{"annotations":{%q:"rack"}}}`, lwsv1.SubGroupExclusiveKeyAnnotationKey))
	wantError(c.t, c.Patch(c.t.Context(), set, annotated), apierrors.IsForbidden, "vleaderworkerset.kb.io", "without subGroupSize")
	c.create(leaderPod("w-3"))
	broken := leaderPod("w-4")
	broken.Annotations = nil
	wantError(c.t, c.Create(c.t.Context(), broken), apierrors.IsForbidden, "mpod.kb.io", "size annotation")
}

func leaderPod(name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: name,
			Labels:      map[string]string{lwsv1.SetNameLabelKey: "w", lwsv1.WorkerIndexLabelKey: "0"},
			Annotations: map[string]string{lwsv1.SizeAnnotationKey: "2"},
		},
		Spec: corev1.PodSpec{Subdomain: "w", Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
}

func (c *cluster) onlyPodsOfSetsWait() {
	plain := leaderPod("plain")
	plain.Labels, plain.Annotations = nil, nil
	err := c.Create(c.t.Context(), plain)
	expect.That(c.t, err == nil, "a pod of no set waits for the operator: %v", err)
	expect.ErrorSays(c.t, c.Create(c.t.Context(), leaderPod("w-5")), "mpod.kb.io")
	// A pod can lose its finalizers meanwhile, so that a group that restarts can end.
	pod := leaderPod("w-3")
	c.must(c.Get(c.t.Context(), client.ObjectKeyFromObject(pod), pod))
	was := pod.DeepCopy()
	pod.Finalizers = []string{"example.com/x"}
	if err := c.Patch(context.Background(), pod, client.MergeFrom(was)); err != nil {
		c.t.Errorf("an update of a pod waits for the operator: %v", err)
	}
}
