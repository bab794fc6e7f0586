package integration

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/install"
)

// Two replicas: ready with a trusted certificate, one leader, bundles restored, a quick handover.
func TestTwoReplicas(t *testing.T) {
	c := newCluster(t)
	first := c.replica(nil)
	c.install(func(o *install.Options) { o.WebhookURL = first.webhookURL() })
	m := c.mutating()
	c.must(c.Delete(t.Context(), m))
	first.start()

	said := ""
	c.eventually("the operator says why it is not ready", func(context.Context) (ok bool) {
		ok, said = first.ready()
		if ok {
			t.Fatal("ready without a webhook configuration")
		}
		return strings.Contains(said, "[-]certificate failed") && strings.Contains(said, "[+]caches ok")
	}, &said)
	c.install(func(o *install.Options) { o.WebhookURL = first.webhookURL() })
	first.untilReady()
	if code, _ := get(first.options.Config.Health.HealthProbeBindAddress + "/healthz"); code != http.StatusOK {
		t.Errorf("/healthz answers %d", code)
	}
	c.eventually("the first replica leads", func(context.Context) bool { return c.holder() != "" }, nil)
	leader := c.holder()

	second := c.replica(nil).start().untilReady()
	if c.holder() != leader {
		t.Error("the second replica took the lease")
	}

	c.wipeBundle()
	c.eventually("the bundle is restored", func(context.Context) bool {
		return string(c.validating().Webhooks[0].ClientConfig.CABundle) == string(c.mutating().Webhooks[0].ClientConfig.CABundle)
	}, nil)
	c.eventually("an event tells of it", func(ctx context.Context) bool {
		events := &corev1.EventList{}
		return c.List(ctx, events) == nil && strings.Contains(fmt.Sprint(events.Items), "CABundleUpdated")
	}, nil)

	if code, body := get(first.options.Config.Metrics.BindAddress + "/metrics"); code != http.StatusOK || !strings.Contains(body, "controller_runtime_webhook_requests_total") {
		t.Errorf("metrics answer %d", code)
	}

	first.shut()
	if h := c.holder(); h == leader {
		t.Error("the lease was not given back")
	}
	c.eventually("the second replica leads", func(context.Context) bool { h := c.holder(); return h != "" && h != leader }, nil)
	second.shut()
	if h := c.holder(); h != "" {
		t.Errorf("the lease is still held by %q", h)
	}
}

func (c *cluster) wipeBundle() {
	c.t.Helper()
	v := c.validating()
	was := v.DeepCopy()
	v.Webhooks[0].ClientConfig.CABundle = []byte("\n")
	c.must(c.Patch(c.t.Context(), v, client.StrategicMergeFrom(was)))
}
