package integration

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/install"
	"lockstep.dev/lockstep/internal/operator"
)

// TestWebhooksThroughTheAPIServer: a real API server calls the real webhooks over TLS.
func TestWebhooksThroughTheAPIServer(t *testing.T) {
	c := newCluster(t)
	r := c.replica(func(o *operator.Options) { o.Controllers = nil })
	c.install(func(o *install.Options) { o.WebhookURL = r.webhookURL() })
	r.start().untilReady()
	t.Run("defaults", c.setsAreDefaulted)
	t.Run("refusals", c.faultsAreRefused)
	t.Run("pods of a set", c.podsAreCompleted)
	t.Run("pods of no set", c.podsOfNoSetPass)
	r.shut()
	t.Run("pods while the operator is down", c.onlyPodsOfSetsWait)
}

func (c *cluster) setsAreDefaulted(t *testing.T) {
	set := newSet("default", "plain")
	c.must(c.Create(t.Context(), set))
	switch {
	case set.Spec.LeaderWorkerTemplate.RestartPolicy != lwsv1.RecreateGroupOnPodRestart:
		t.Errorf("restartPolicy is %q", set.Spec.LeaderWorkerTemplate.RestartPolicy)
	case set.Spec.NetworkConfig == nil || ptr.Deref(set.Spec.NetworkConfig.SubdomainPolicy, "") != lwsv1.SubdomainShared:
		t.Errorf("networkConfig is %+v", set.Spec.NetworkConfig)
	case set.Spec.RolloutStrategy.RollingUpdateConfiguration == nil:
		t.Error("rollingUpdateConfiguration is missing")
	}
}

// The annotation is one that the definition cannot judge, so the webhook answers.
func (c *cluster) faultsAreRefused(t *testing.T) {
	bad := newSet("default", "racks")
	bad.Annotations = map[string]string{lwsv1.SubGroupExclusiveKeyAnnotationKey: "rack"}
	c.mustRefuse(t, c.Create(t.Context(), bad))
	good := newSet("default", "racks")
	c.must(c.Create(t.Context(), good))
	good.Annotations = bad.Annotations
	c.mustRefuse(t, c.Update(t.Context(), good))
}

func (c *cluster) mustRefuse(t *testing.T, err error) {
	t.Helper()
	want := `admission webhook "vleaderworkerset.kb.io" denied the request: metadata.annotations.leaderworkerset.sigs.k8s.io/subgroup-exclusive-topology: Invalid value: "rack": cannot have subgroup-exclusive-topology without subGroupSize set`
	if !apierrors.IsForbidden(err) || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

func leaderPod(name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: name,
			Labels:      map[string]string{lwsv1.SetNameLabelKey: "w", lwsv1.WorkerIndexLabelKey: "0"},
			Annotations: map[string]string{lwsv1.SizeAnnotationKey: "2"},
		},
		Spec: corev1.PodSpec{Subdomain: "w", Containers: []corev1.Container{{Name: "c", Image: "i", Env: []corev1.EnvVar{{Name: "MINE", Value: "$(LWS_LEADER_ADDRESS)"}}}}},
	}
}

func (c *cluster) podsAreCompleted(t *testing.T) {
	pod := leaderPod("w-3")
	c.must(c.Create(t.Context(), pod))
	var env []string
	for _, e := range pod.Spec.Containers[0].Env {
		env = append(env, e.Name+"="+e.Value)
	}
	if got, want := strings.Join(env, " "), "LWS_LEADER_ADDRESS=w-3.w.default LWS_GROUP_SIZE=2 LWS_WORKER_INDEX=0 MINE=$(LWS_LEADER_ADDRESS)"; got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
	if pod.Labels[lwsv1.GroupIndexLabelKey] != "3" || pod.Labels[lwsv1.GroupUniqueHashLabelKey] == "" {
		t.Errorf("labels are %v", pod.Labels)
	}
	broken := leaderPod("w-4")
	broken.Annotations = nil
	err := c.Create(t.Context(), broken)
	want := `admission webhook "mpod.kb.io" denied the request: size annotation is unexpectedly missing for pod w-4`
	if !apierrors.IsForbidden(err) || err.Error() != want {
		t.Errorf("got %v\nwant %s", err, want)
	}
}

func (c *cluster) podsOfNoSetPass(t *testing.T) {
	pod := leaderPod("other")
	pod.Labels, pod.Annotations = nil, nil
	c.must(c.Create(t.Context(), pod))
	if len(pod.Labels) > 0 || len(pod.Spec.Containers[0].Env) != 1 {
		t.Errorf("got %v, %v", pod.Labels, pod.Spec.Containers[0].Env)
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
