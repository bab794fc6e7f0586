package integration

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/install"
)

// wrong are pod templates that no StatefulSet and no Deployment can run, and where they are wrong.
var wrong = map[string]struct {
	edit func(*corev1.PodSpec)
	at   string
}{
	"a name in capitals":       {func(s *corev1.PodSpec) { s.Containers[0].Name = "Main" }, "spec.containers[0].name"},
	"two containers of a name": {func(s *corev1.PodSpec) { s.InitContainers = []corev1.Container{{Name: "c", Image: "i"}} }, "spec.initContainers[0].name"},
	"an init container": {func(s *corev1.PodSpec) {
		s.InitContainers = []corev1.Container{{Name: "i", Image: "i"}, {Name: "I", Image: "i"}}
	}, "spec.initContainers[1].name"},
	"more than its limit": {func(s *corev1.PodSpec) {
		s.Containers[0].Resources = corev1.ResourceRequirements{Requests: cpu("2"), Limits: cpu("1")}
	}, "spec.containers[0].resources.requests"},
	"a port": {func(s *corev1.PodSpec) { s.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 99999}} }, "spec.containers[0].ports[0].containerPort"},
	"two ports of a name": {func(s *corev1.PodSpec) {
		s.Containers[0].Ports = []corev1.ContainerPort{{Name: "a", ContainerPort: 1}, {Name: "a", ContainerPort: 2}}
	}, "spec.containers[0].ports[1].name"},
	"a missing volume": {func(s *corev1.PodSpec) {
		s.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "none", MountPath: "/a"}}
	}, "spec.containers[0].volumeMounts[0].name"},
	"a variable":          {func(s *corev1.PodSpec) { s.Containers[0].Env = []corev1.EnvVar{{Name: "A=B"}} }, "spec.containers[0].env[0].name"},
	"a volume of nothing": {func(s *corev1.PodSpec) { s.Volumes = []corev1.Volume{{Name: "V"}} }, "spec.volumes[0].name"},
	"a pull policy":       {func(s *corev1.PodSpec) { s.Containers[0].ImagePullPolicy = "Sometimes" }, "spec.containers[0].imagePullPolicy"},
	"no probe":            {func(s *corev1.PodSpec) { s.Containers[0].ReadinessProbe = &corev1.Probe{} }, "spec.containers[0].readinessProbe"},
}

func cpu(n string) corev1.ResourceList { return corev1.ResourceList{"cpu": resource.MustParse(n)} }

// setOf is a set with a template for leaders and one for workers.
func setOf(namespace, name string, size int32, edits ...func(*lwsv1.LeaderWorkerSet)) *lwsv1.LeaderWorkerSet {
	set := newSet(namespace, name)
	group := &set.Spec.LeaderWorkerTemplate
	group.Size, group.LeaderTemplate = &size, group.WorkerTemplate.DeepCopy()
	for _, edit := range edits {
		edit(set)
	}
	return set
}

func leading(edit func(*corev1.PodSpec)) func(*lwsv1.LeaderWorkerSet) {
	return func(set *lwsv1.LeaderWorkerSet) { edit(&set.Spec.LeaderWorkerTemplate.LeaderTemplate.Spec) }
}

func working(edit func(*corev1.PodSpec)) func(*lwsv1.LeaderWorkerSet) {
	return func(set *lwsv1.LeaderWorkerSet) { edit(&set.Spec.LeaderWorkerTemplate.WorkerTemplate.Spec) }
}

func withKeys(set *lwsv1.LeaderWorkerSet) { set.Spec.GroupIdentity = lwsv1.HashGroupIdentity }

func claims(spec corev1.PersistentVolumeClaimSpec) func(*lwsv1.LeaderWorkerSet) {
	return func(set *lwsv1.LeaderWorkerSet) {
		set.Spec.LeaderWorkerTemplate.VolumeClaimTemplates = []corev1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: "data"}, Spec: spec}}
	}
}

// heard keeps the warnings of the API server.
type heard struct {
	mu    sync.Mutex
	texts []string
}

func (h *heard) HandleWarningHeaderWithContext(_ context.Context, _ int, _ string, text string) {
	h.HandleWarningHeader(0, "", text)
}

func (h *heard) HandleWarningHeader(_ int, _, text string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.texts = append(h.texts, text)
}

func (h *heard) take() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	said := strings.Join(h.texts, "\n")
	h.texts = nil
	return said
}

func wantDenied(t *testing.T, err error, path string) {
	t.Helper()
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "spec.leaderWorkerTemplate."+path) {
		t.Errorf("want a refusal at %s, got %v", path, err)
	}
}

// What no StatefulSet can run is refused with its path, by a dry run too. A stored set that is wrong can be changed and
// mended.
func TestTemplatesThatNothingCanRunAreRefused(t *testing.T) {
	c := newCluster(t)
	r := c.replica(nil)
	withURL := func(o *install.Options) { o.WebhookURL = r.webhookURL() }
	c.install(withURL)
	c.createSet("good")
	stored := setOf("default", "stored", 2, leading(wrong["a name in capitals"].edit))
	c.create(stored)
	c.install(withURL)
	r.start().untilReady()

	for what, w := range wrong {
		for _, tt := range []struct {
			set *lwsv1.LeaderWorkerSet
			at  string
		}{
			{setOf("default", "w", 2, leading(w.edit)), "leaderTemplate."},
			{setOf("default", "w", 2, working(w.edit)), "workerTemplate."},
			{setOf("default", "w", 1, leading(w.edit)), "leaderTemplate."},
			{setOf("default", "w", 2, leading(w.edit), withKeys), "leaderTemplate."},
			{setOf("default", "w", 2, working(w.edit), withKeys), "workerTemplate."},
		} {
			c.part(what, func() { wantDenied(c.t, c.Create(t.Context(), tt.set, client.DryRunAll), tt.at+w.at) })
		}
	}
	once, size := []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{"storage": resource.MustParse("1Gi")}}
	for path, spec := range map[string]corev1.PersistentVolumeClaimSpec{
		"volumeClaimTemplates[0].spec.accessModes": {Resources: size},
		"volumeClaimTemplates[0].spec.resources":   {AccessModes: once},
	} {
		wantDenied(t, c.Create(t.Context(), setOf("default", "w", 2, claims(spec))), path)
	}
	for _, edit := range []func(*lwsv1.LeaderWorkerSet){func(*lwsv1.LeaderWorkerSet) {}, claims(corev1.PersistentVolumeClaimSpec{AccessModes: once, Resources: size}), withKeys} {
		c.must(c.Create(t.Context(), setOf("default", "w", 2, edit), client.DryRunAll))
	}
	c.must(c.Create(t.Context(), setOf("default", "w", 1, working(wrong["a port"].edit)), client.DryRunAll)) // no worker is made

	labelled := setOf("default", "w", 2)
	labelled.Spec.LeaderWorkerTemplate.LeaderTemplate.Labels = map[string]string{"a": "b c"}
	wantDenied(t, c.Create(t.Context(), labelled, client.DryRunAll), "leaderTemplate.metadata.labels")

	c.part("an update", func() { c.badUpdates() })
	c.part("a stored set", func() { c.storedSet(stored) })
}

// badUpdates changes a good set for the worse.
func (c *cluster) badUpdates() {
	ctx := c.t.Context()
	good := &lwsv1.LeaderWorkerSet{}
	c.must(c.Get(ctx, client.ObjectKey{Namespace: "default", Name: "good"}, good))
	const port = `{"spec":{"leaderWorkerTemplate":{"workerTemplate":{"spec":{"containers":[{"name":"c","image":"i","ports":[{"containerPort":99999}]}]}}}}}`
	wantDenied(c.t, c.Patch(ctx, good.DeepCopy(), merge(port)), "workerTemplate.spec.containers[0].ports[0].containerPort")
	applied := &unstructured.Unstructured{}
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(setOf("default", "good", 2, working(wrong["a port"].edit)))
	c.must(err)
	delete(object, "status")
	applied.Object = object
	applied.SetGroupVersionKind(lwsv1.GroupVersion.WithKind("LeaderWorkerSet"))
	unstructured.RemoveNestedField(applied.Object, "metadata", "creationTimestamp")
	err = c.Apply(ctx, client.ApplyConfigurationFromUnstructured(applied), client.ForceOwnership, client.FieldOwner("test"))
	wantDenied(c.t, err, "workerTemplate.spec.containers[0].ports[0].containerPort")
	c.must(c.Patch(ctx, good, merge(`{"spec":{"leaderWorkerTemplate":{"size":3,"workerTemplate":{"spec":{"containers":[{"name":"c","image":"j"}]}}}}}`)))
}

// storedSet changes a set whose template was wrong before it was checked.
func (c *cluster) storedSet(stored *lwsv1.LeaderWorkerSet) {
	ctx, warned := c.t.Context(), &heard{}
	user := c.as("", warned)
	c.eventually("the set tells what is refused", func(ctx context.Context) bool {
		found := &lwsv1.LeaderWorkerSet{}
		c.must(c.Get(ctx, client.ObjectKeyFromObject(stored), found))
		progressing := meta.FindStatusCondition(found.Status.Conditions, string(lwsv1.LeaderWorkerSetProgressing))
		return progressing != nil && progressing.Reason == "Refused"
	}, nil)
	const group = `{"spec":{"leaderWorkerTemplate":`
	for _, tt := range []struct{ document, warns string }{
		{`{"spec":{"replicas":3}}`, ""},
		{`{"metadata":{"annotations":{"lockstep.dev/paused":"true"}}}`, ""},
		{`{"metadata":{"labels":{"a":"b"},"finalizers":["example.com/f"]}}`, ""},
		{`{"metadata":{"finalizers":null}}`, ""},
		{group + `{"workerTemplate":{"spec":{"containers":[{"name":"c","image":"j"}]}}}}}`, "leaderTemplate.spec.containers[0].name"},
		{group + `{"leaderTemplate":{"spec":{"containers":[{"name":"Main","image":"j"}]}}}}}`, "leaderTemplate.spec.containers[0].name"},
	} {
		c.must(user.Patch(ctx, stored.DeepCopy(), merge(tt.document)))
		if said := warned.take(); tt.warns == "" && said != "" || !strings.Contains(said, tt.warns) {
			c.t.Errorf("%s warns %q, want %q", tt.document, said, tt.warns)
		}
	}
	wantDenied(c.t, user.Patch(ctx, stored.DeepCopy(), merge(group+`{"workerTemplate":{"spec":{"containers":[{"name":"W","image":"j"}]}}}}}`)), "workerTemplate.spec.containers[0].name")
	c.must(user.Patch(ctx, stored.DeepCopy(), merge(group+`{"leaderTemplate":{"spec":{"containers":[{"name":"main","image":"j"}]}}}}}`)))
	c.must(user.Delete(ctx, stored.DeepCopy()))
	if said := warned.take(); strings.Contains(said, fmt.Sprint(http.StatusForbidden)) {
		c.t.Errorf("warned: %s", said)
	}
}
