package integration

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/install"
	"lockstep.dev/lockstep/internal/operator"
)

// TestWebhooksThroughTheAPIServer: a real API server calls the real webhooks over TLS, for sets and
// their pods alone.
func TestWebhooksThroughTheAPIServer(t *testing.T) {
	c := newCluster(t)
	r := c.replica(func(o *operator.Options) { o.Controllers = nil })
	c.install(func(o *install.Options) { o.WebhookURL = r.webhookURL() })
	r.start().untilReady()
	if h := c.holder(); h != "" {
		t.Errorf("a replica without controllers holds the lease as %q", h)
	}
	set := newSet("default", "racks")
	c.must(c.Create(t.Context(), set))
	if set.Spec.NetworkConfig == nil || set.Spec.RolloutStrategy.RollingUpdateConfiguration == nil {
		t.Errorf("defaults are missing: %+v", set.Spec)
	}
	// The definition cannot judge an annotation, so the webhook answers.
	set.Annotations = map[string]string{lwsv1.SubGroupExclusiveKeyAnnotationKey: "rack"}
	wantDenial(t, c.Update(t.Context(), set), "vleaderworkerset.kb.io", "without subGroupSize")
	c.must(c.Create(t.Context(), leaderPod("w-3")))
	broken := leaderPod("w-4")
	broken.Annotations = nil
	wantDenial(t, c.Create(t.Context(), broken), "mpod.kb.io", "size annotation")
	r.shut()
	t.Run("pods while the operator is down", c.onlyPodsOfSetsWait)
}

// wantDenial checks that a webhook refuses a request, with this text.
func wantDenial(t *testing.T, err error, webhook, text string) {
	t.Helper()
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), webhook) || !strings.Contains(err.Error(), text) {
		t.Errorf("got %v, want a refusal of %s that says %q", err, webhook, text)
	}
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

func (c *cluster) onlyPodsOfSetsWait(t *testing.T) {
	plain := leaderPod("plain")
	plain.Labels, plain.Annotations = nil, nil
	if err := c.Create(t.Context(), plain); err != nil {
		t.Errorf("a pod of no set waits for the operator: %v", err)
	}
	if err := c.Create(t.Context(), leaderPod("w-5")); err == nil || !strings.Contains(err.Error(), "mpod.kb.io") {
		t.Errorf("a pod of a set was let past: %v", err)
	}
	// A group that restarts must be able to let its pods go meanwhile.
	pod := leaderPod("w-3")
	c.must(c.Get(t.Context(), client.ObjectKeyFromObject(pod), pod))
	was := pod.DeepCopy()
	pod.Finalizers = []string{"example.com/x"}
	if err := c.Patch(context.Background(), pod, client.MergeFrom(was)); err != nil {
		t.Errorf("an update of a pod waits for the operator: %v", err)
	}
}
