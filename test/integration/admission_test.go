package integration

import (
	_ "embed"
	"fmt"
	"net/http"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	lwsset "lockstep.dev/lockstep/internal/lws/set"
	"lockstep.dev/lockstep/test/expect"
)

//go:embed testdata/wrong.yaml
var wrongTemplates []byte

// wrong returns pod templates that no StatefulSet and no Deployment can run, and where they are wrong.
func wrong(t *testing.T) (all map[string]struct {
	Spec corev1.PodSpec
	At   string
}) {
	t.Helper()
	expect.OK(t, yaml.UnmarshalStrict(wrongTemplates, &all))
	return all
}

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

func leading(spec corev1.PodSpec) func(*lwsv1.LeaderWorkerSet) {
	return func(set *lwsv1.LeaderWorkerSet) { set.Spec.LeaderWorkerTemplate.LeaderTemplate.Spec = spec }
}

func working(spec corev1.PodSpec) func(*lwsv1.LeaderWorkerSet) {
	return func(set *lwsv1.LeaderWorkerSet) { set.Spec.LeaderWorkerTemplate.WorkerTemplate.Spec = spec }
}

func withKeys(set *lwsv1.LeaderWorkerSet) { set.Spec.GroupIdentity = lwsv1.HashGroupIdentity }

func claims(spec corev1.PersistentVolumeClaimSpec) func(*lwsv1.LeaderWorkerSet) {
	return func(set *lwsv1.LeaderWorkerSet) {
		set.Spec.LeaderWorkerTemplate.VolumeClaimTemplates = []corev1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: "data"}, Spec: spec}}
	}
}

func wantDenied(t *testing.T, err error, path string) {
	t.Helper()
	wantError(t, err, apierrors.IsForbidden, "spec.leaderWorkerTemplate."+path)
}

// What no StatefulSet can run is refused with its path, by a dry run too. A stored set that is wrong can be changed and
// mended.
func TestTemplatesThatNothingCanRunAreRefused(t *testing.T) {
	c := newCluster(t)
	r := c.replica(nil)
	c.install(r.called)
	c.createSet("good")
	all := wrong(t)
	stored := setOf("default", "stored", 2, leading(all["a name in capitals"].Spec))
	c.create(stored)
	c.install(r.called)
	r.start().untilReady()

	for what, w := range all {
		for _, tt := range []struct {
			set *lwsv1.LeaderWorkerSet
			at  string
		}{
			{setOf("default", "w", 2, leading(w.Spec)), "leaderTemplate."},
			{setOf("default", "w", 2, working(w.Spec)), "workerTemplate."},
			{setOf("default", "w", 1, leading(w.Spec)), "leaderTemplate."},
			{setOf("default", "w", 2, leading(w.Spec), withKeys), "leaderTemplate."},
			{setOf("default", "w", 2, working(w.Spec), withKeys), "workerTemplate."},
		} {
			c.part(what, func() { wantDenied(c.t, c.Create(t.Context(), tt.set, client.DryRunAll), tt.at+w.At) })
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
	c.must(c.Create(t.Context(), setOf("default", "w", 1, working(all["a port"].Spec)), client.DryRunAll)) // no worker is made

	labelled := setOf("default", "w", 2)
	labelled.Spec.LeaderWorkerTemplate.LeaderTemplate.Labels = map[string]string{"a": "b c"}
	wantDenied(t, c.Create(t.Context(), labelled, client.DryRunAll), "leaderTemplate.metadata.labels")

	c.part("an update", func() { c.badUpdates() })
	c.part("a stored set", func() { c.mendsStored(stored) })
}

// badUpdates changes a good set for the worse.
func (c *cluster) badUpdates() {
	ctx := c.t.Context()
	good := &lwsv1.LeaderWorkerSet{}
	c.must(c.Get(ctx, client.ObjectKey{Namespace: "default", Name: "good"}, good))
	const port = `{"spec":{"leaderWorkerTemplate":{"workerTemplate":{"spec":{"containers":[{"name":"c","image":"i","ports":[{"containerPort":99999}]}]}}}}}`
	wantDenied(c.t, c.Patch(ctx, good.DeepCopy(), merge(port)), "workerTemplate.spec.containers[0].ports[0].containerPort")
	applied := c.manifest(setOf("default", "good", 2, working(wrong(c.t)["a port"].Spec)))
	err := c.Apply(ctx, client.ApplyConfigurationFromUnstructured(applied), client.ForceOwnership, client.FieldOwner("test"))
	wantDenied(c.t, err, "workerTemplate.spec.containers[0].ports[0].containerPort")
	c.must(c.Patch(ctx, good, merge(`{"spec":{"leaderWorkerTemplate":{"size":3,"workerTemplate":{"spec":{"containers":[{"name":"c","image":"j"}]}}}}}`)))
}

// mendsStored changes a set whose template was wrong before it was checked.
func (c *cluster) mendsStored(stored *lwsv1.LeaderWorkerSet) {
	ctx, warned := c.t.Context(), &warnings{}
	user := c.as("", warned)
	c.until("the set tells what is refused", func() bool {
		found := &lwsv1.LeaderWorkerSet{}
		c.must(c.Get(c.t.Context(), client.ObjectKeyFromObject(stored), found))
		progressing := meta.FindStatusCondition(found.Status.Conditions, string(lwsv1.LeaderWorkerSetProgressing))
		return progressing != nil && progressing.Reason == "Refused"
	})
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
		if said := warned.taken(); tt.warns == "" && said != "" || !strings.Contains(said, tt.warns) {
			c.t.Errorf("%s warns %q, want %q", tt.document, said, tt.warns)
		}
	}
	wantDenied(c.t, user.Patch(ctx, stored.DeepCopy(), merge(group+`{"workerTemplate":{"spec":{"containers":[{"name":"W","image":"j"}]}}}}}`)), "workerTemplate.spec.containers[0].name")
	c.must(user.Patch(ctx, stored.DeepCopy(), merge(group+`{"leaderTemplate":{"spec":{"containers":[{"name":"main","image":"j"}]}}}}}`)))
	c.must(user.Delete(ctx, stored.DeepCopy()))
	said := warned.taken()
	expect.That(c.t, !strings.Contains(said, fmt.Sprint(http.StatusForbidden)), "warned: %s", said)
}

// storedSet is a set as a manifest has it.
func (c *cluster) storedSet(name string, edit func(spec map[string]any)) *unstructured.Unstructured {
	u := c.manifest(setOf("default", name, 2))
	template := u.Object["spec"].(map[string]any)["leaderWorkerTemplate"].(map[string]any)
	delete(template, "leaderTemplate")
	edit(template)
	return u
}

// broken are sets that admission refuses, by the field that it names.
func (c *cluster) broken() map[string]*unstructured.Unstructured {
	without := func(fields ...string) func(map[string]any) {
		return func(template map[string]any) {
			template["leaderTemplate"] = runtime.DeepCopyJSONValue(template["workerTemplate"])
			for _, field := range fields {
				template[field] = map[string]any{"metadata": map[string]any{"labels": map[string]any{"a": "b"}}}
			}
		}
	}
	return map[string]*unstructured.Unstructured{
		"leaderTemplate.spec.containers": c.storedSet("no-leader-spec", without("leaderTemplate")),
		"workerTemplate.spec.containers": c.storedSet("no-worker-spec", without("workerTemplate")),
		"metadata.name":                  c.storedSet(strings.Repeat("a", 51), func(map[string]any) {}),
	}
}

// A set that was stored before a rule admits changes of anything else. Another implementation made its
// StatefulSet, or it has none.
func TestSetsStoredBeforeARuleAreStillWritten(t *testing.T) {
	c := newCluster(t)
	r := c.replica(nil)
	c.install(r.called)
	c.must(c.Delete(t.Context(), c.mutating()))
	c.must(c.Delete(t.Context(), c.validating()))
	c.until("sets are stored unseen", func() bool { return c.Create(c.t.Context(), newSet("default", "unseen")) == nil })
	for _, set := range c.broken() {
		c.must(c.Create(t.Context(), set))
	}
	taken := c.broken()["metadata.name"].DeepCopy()
	taken.SetName(strings.Repeat("t", 51))
	c.must(c.Create(t.Context(), taken))
	c.leadersByOther(taken)
	specless := c.withoutSpec()
	c.install(r.called)
	r.start().untilReady()

	for path, set := range c.broken() {
		c.part("new "+path, func() {
			set.SetName(set.GetName()[:len(set.GetName())-1] + "n")
			if err := c.Create(c.t.Context(), set); !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) || !strings.Contains(fmt.Sprint(err), path) {
				c.t.Errorf("a new set without %s: %v", path, err)
			}
		})
		c.part(path, func() { c.changesStored(c.broken()[path], path) })
	}
	c.part("without a spec", func() { // a rule of the definition refuses a new one
		for _, patch := range []string{`{"metadata":{"labels":{"a":"b"}}}`, `{"metadata":{"finalizers":["a/b"]}}`, `{"metadata":{"finalizers":null}}`} {
			c.must(c.Patch(c.t.Context(), c.raw(specless), merge(patch)))
		}
	})
	c.part("taken over", func() {
		c.changesStored(taken, "metadata.name")
		sts := &appsv1.StatefulSet{}
		c.must(c.Get(c.t.Context(), client.ObjectKeyFromObject(taken), sts))
		expect.That(c.t, sts.UID != "" && sts.DeletionTimestamp == nil,
			"the StatefulSet of the other implementation is replaced")
	})
	c.part("scale", c.scalesBeyondItsName)
}

// withoutSpec stores a set without a spec, as a definition without our rules allows, and returns its name.
func (c *cluster) withoutSpec() string {
	definition := &unstructured.Unstructured{}
	definition.SetAPIVersion("apiextensions.k8s.io/v1")
	definition.SetKind("CustomResourceDefinition")
	definition.SetName("leaderworkersets.leaderworkerset.x-k8s.io")
	const rules = `[{"op":"remove","path":"/spec/versions/0/schema/openAPIV3Schema/x-kubernetes-validations"}]`
	c.must(c.Patch(c.t.Context(), definition, client.RawPatch(types.JSONPatchType, []byte(rules))))
	set := c.storedSet("without-a-spec", func(map[string]any) {})
	delete(set.Object, "spec")
	c.until("a set without a spec is stored", func() bool { return c.Create(c.t.Context(), set.DeepCopy()) == nil })
	return set.GetName()
}

// leadersByOther is the StatefulSet that another implementation made for a set.
func (c *cluster) leadersByOther(set *unstructured.Unstructured) {
	name := map[string]string{lwsv1.SetNameLabelKey: set.GetName()}
	labels := map[string]string{lwsv1.SetNameLabelKey: set.GetName(), lwsv1.WorkerIndexLabelKey: "0"}
	sts := &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: set.GetName(), Labels: name},
		Spec: appsv1.StatefulSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: podWith("", "").Spec},
		},
	}
	sts.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(set, lwsv1.GroupVersion.WithKind("LeaderWorkerSet"))}
	c.create(sts)
}

// changesStored labels, pauses, resumes, scales and mends a stored set. Each write of its spec or annotations
// but the last one is warned of.
func (c *cluster) changesStored(set *unstructured.Unstructured, path string) {
	warned := &warnings{}
	user := c.as("", warned)
	warned.taken()
	c.must(user.Patch(c.t.Context(), c.raw(set.GetName()), merge(`{"metadata":{"labels":{"a":"b"}}}`)))
	if told := warned.taken(); told != "" {
		c.t.Errorf("a label of %s is changed, and a webhook was asked: %q", set.GetName(), told)
	}
	for _, patch := range []string{
		`{"metadata":{"annotations":{"lockstep.dev/paused":"true"}}}`,
		`{"metadata":{"annotations":{"lockstep.dev/paused":null}}}`,
		`{"spec":{"replicas":0}}`,
		`{"spec":{"replicas":12}}`,
		`{"spec":{"leaderWorkerTemplate":{"workerTemplate":{"metadata":{"labels":{"c":"d"}}}}}}`,
	} {
		warned.taken()
		c.must(user.Patch(c.t.Context(), c.raw(set.GetName()), merge(patch)))
		expect.Says(c.t, warned.taken(), path, patch)
	}
	if !strings.HasPrefix(path, "workerTemplate") { // no leader runs here that workers are created for
		c.until("the set is Stalled", c.isStalled(set.GetName()))
	}
	if path != "metadata.name" {
		warned.taken()
		c.must(user.Patch(c.t.Context(), c.raw(set.GetName()), merge(`{"spec":{"leaderWorkerTemplate":{
			"leaderTemplate":{"spec":{"containers":[{"name":"c","image":"i"}]}},"workerTemplate":{"spec":{"containers":[{"name":"c","image":"i"}]}}}}}`)))
		expect.Equalf(c.t, "", warned.taken(), "a mended set is warned of")
		c.until("the mended set has leaders", c.hasLeaders(set.GetName()))
	}
	c.must(user.Patch(c.t.Context(), c.raw(set.GetName()), merge(`{"metadata":{"finalizers":["example.com/a"]}}`)))
	c.must(user.Delete(c.t.Context(), c.raw(set.GetName())))
	c.must(user.Patch(c.t.Context(), c.raw(set.GetName()), merge(`{"metadata":{"finalizers":null}}`)))
}

func (c *cluster) isStalled(name string) func() bool {
	return func() bool {
		set := &lwsv1.LeaderWorkerSet{}
		c.must(runtime.DefaultUnstructuredConverter.FromUnstructured(c.raw(name).Object, set))
		return meta.IsStatusConditionTrue(set.Status.Conditions, "Stalled")
	}
}

// scalesBeyondItsName scales as an autoscaler does, and reads the limit in the conditions.
func (c *cluster) scalesBeyondItsName() {
	name := strings.Repeat("s", 50)
	set := c.storedSet(name, func(map[string]any) {})
	c.must(unstructured.SetNestedField(set.Object, int64(10), "spec", "replicas"))
	c.must(c.Create(c.t.Context(), set))
	expect.ErrorSays(c.t, c.Patch(c.t.Context(), c.raw(name), merge(`{"spec":{"replicas":11}}`)), " 49 ")
	scale := &autoscalingv1.Scale{Spec: autoscalingv1.ScaleSpec{Replicas: 11}}
	c.must(c.SubResource("scale").Update(c.t.Context(), c.raw(name), client.WithSubResourceBody(scale)))
	c.until("the set is Stalled with the number", func() bool {
		set := &lwsv1.LeaderWorkerSet{}
		c.must(runtime.DefaultUnstructuredConverter.FromUnstructured(c.raw(name).Object, set))
		stalled := meta.FindStatusCondition(set.Status.Conditions, "Stalled")
		return stalled != nil && stalled.Reason == lwsset.CodeNameTooLong && strings.Contains(stalled.Message, " 49;")
	})
}
