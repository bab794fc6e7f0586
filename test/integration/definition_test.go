package integration

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	cli "lockstep.dev/lockstep/internal/cli/lws"
	"lockstep.dev/lockstep/internal/install"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/internal/lws/workload"
)

// extend adds fields of a later version to the definition of sets.
func (c *cluster) extend() {
	c.t.Helper()
	crd := &apiextensionsv1.CustomResourceDefinition{}
	c.must(c.Get(c.t.Context(), client.ObjectKey{Name: crdName}, crd))
	schema := crd.Spec.Versions[0].Schema.OpenAPIV3Schema
	schema.Properties["spec"].Properties["placement"] = apiextensionsv1.JSONSchemaProps{
		Type: "string", Default: &apiextensionsv1.JSON{Raw: []byte(`"Any"`)},
	}
	schema.Properties["status"].Properties["forecast"] = apiextensionsv1.JSONSchemaProps{Type: "string"}
	c.must(c.Update(c.t.Context(), crd))
}

// raw returns a set with all of its fields.
func (c *cluster) raw(name string) *unstructured.Unstructured {
	c.t.Helper()
	set := &unstructured.Unstructured{}
	set.SetGroupVersionKind(lwsv1.GroupVersion.WithKind("LeaderWorkerSet"))
	c.must(c.Get(c.t.Context(), client.ObjectKey{Namespace: "default", Name: name}, set))
	return set
}

// createWith creates a set with more fields in its spec.
func (c *cluster) createWith(name string, more map[string]any) {
	c.t.Helper()
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(newSet("default", name))
	c.must(err)
	set := &unstructured.Unstructured{Object: object}
	set.SetGroupVersionKind(lwsv1.GroupVersion.WithKind("LeaderWorkerSet"))
	for field, value := range more {
		c.must(unstructured.SetNestedField(set.Object, value, "spec", field))
	}
	said := ""
	c.eventually("the API server takes the set", func(ctx context.Context) bool {
		err := c.Create(ctx, set.DeepCopy())
		said = fmt.Sprint(err)
		return err == nil
	}, &said)
}

// hasLeaders reports whether this incarnation of a set has a leader StatefulSet: nothing collects that of another.
func (c *cluster) hasLeaders(name string) func(context.Context) bool {
	return func(ctx context.Context) bool {
		sts := &appsv1.StatefulSet{}
		return c.Get(ctx, client.ObjectKey{Namespace: "default", Name: name}, sts) == nil && metav1.IsControlledBy(sts, c.raw(name))
	}
}

func (c *cluster) untilUnsupported(name string, status metav1.ConditionStatus) {
	c.t.Helper()
	set := &lwsv1.LeaderWorkerSet{}
	c.eventually("Unsupported is "+string(status), func(ctx context.Context) bool {
		err := c.Get(ctx, client.ObjectKey{Namespace: "default", Name: name}, set)
		return err == nil && meta.IsStatusConditionPresentAndEqual(set.Status.Conditions, lws.CodeUnsupported, status)
	}, nil)
}

// The operator leaves a set alone that has what this version lacks, and a definition that comes to have
// more fields needs no restart. A field that no decision knows stays, in the spec and in the status.
func TestSetsOfALaterVersionAreLeftAlone(t *testing.T) {
	c := newCluster(t)
	r := c.replica(nil)
	c.install(func(o *install.Options) { o.WebhookURL = r.webhookURL() })
	r.start().untilReady()
	c.createWith("known", nil)
	c.eventually("a set of this version has leaders", c.hasLeaders("known"), nil)

	c.extend()
	var racks *unstructured.Unstructured
	c.eventually("the API server stores the new field", func(ctx context.Context) bool {
		if racks != nil {
			c.must(c.Delete(ctx, racks))
		}
		c.createWith("racks", map[string]any{"placement": "Rack"})
		racks = c.raw("racks")
		stored, _, _ := unstructured.NestedString(racks.Object, "spec", "placement")
		return stored == "Rack" // a set that lost the field shows its default
	}, nil)
	c.untilUnsupported("racks", metav1.ConditionTrue)
	if placement, _, _ := unstructured.NestedString(c.raw("racks").Object, "spec", "placement"); placement != "Rack" {
		t.Errorf("placement became %q", placement)
	}
	if c.hasLeaders("racks")(t.Context()) {
		t.Error("a set with an unknown field got leaders")
	}
	c.plansNothing("racks")

	known := c.raw("known")
	c.must(c.Status().Patch(t.Context(), known, merge(`{"status":{"forecast":"sun"}}`)))
	c.must(c.Patch(t.Context(), known, merge(`{"spec":{"replicas":3}}`)))
	c.eventually("a set with the default of the new field is scaled", func(ctx context.Context) bool {
		sts := &appsv1.StatefulSet{}
		return c.Get(ctx, client.ObjectKey{Namespace: "default", Name: "known"}, sts) == nil && *sts.Spec.Replicas == 3
	}, nil)
	c.eventually("the status is written", func(context.Context) bool {
		observed, _, _ := unstructured.NestedInt64(c.raw("known").Object, "status", "observedGeneration")
		return observed == c.raw("known").GetGeneration()
	}, nil)
	if forecast, _, _ := unstructured.NestedString(c.raw("known").Object, "status", "forecast"); forecast != "sun" {
		t.Errorf("the forecast of the status became %q", forecast)
	}

	c.collect("racks")
	c.must(c.Patch(t.Context(), c.raw("racks"), merge(`{"spec":{"placement":"Any"}}`)))
	c.eventually("the set has leaders once the field is gone", c.hasLeaders("racks"), nil)
	c.untilUnsupported("racks", metav1.ConditionFalse)
	c.leftByADeployment()
}

// plansNothing checks that "kubectl lockstep plan" decides about a set as the operator does.
func (c *cluster) plansNothing(name string) {
	c.t.Helper()
	session, err := cli.Open(c.t.Context(), c.cfg, "default", io.Discard)
	c.must(err)
	found, err := session.Set(c.t.Context(), client.ObjectKey{Namespace: "default", Name: name}, time.Now())
	c.must(err)
	if !found.Plan.IsUnsupported() || len(found.Plan.Actions) > 0 {
		c.t.Errorf("the plan of a set that is left alone: %+v", found.Plan)
	}
}

// collect deletes what earlier incarnations of a set left, as the garbage collector would, which does not run here.
func (c *cluster) collect(name string) {
	c.t.Helper()
	for _, left := range []client.Object{&appsv1.StatefulSet{}, &appsv1.ControllerRevision{}, &corev1.Service{}} {
		c.must(c.DeleteAllOf(c.t.Context(), left, client.InNamespace("default"), client.MatchingLabels{lwsv1.SetNameLabelKey: name}))
	}
}

// leftByADeployment checks a set whose field was removed: its Deployment says what it was.
func (c *cluster) leftByADeployment() {
	c.t.Helper()
	c.createWith("pruned", map[string]any{"placement": "Rack"})
	set, labels := c.raw("pruned"), workload.LeaderSelector("pruned")
	template := newSet("default", "pruned").Spec.LeaderWorkerTemplate.WorkerTemplate
	template.Labels = labels
	c.create(&appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "pruned", Labels: labels, OwnerReferences: []metav1.OwnerReference{
			*metav1.NewControllerRef(set, lwsv1.GroupVersion.WithKind("LeaderWorkerSet")),
		}},
		Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: template},
	})
	c.untilUnsupported("pruned", metav1.ConditionTrue)
	c.must(c.Patch(c.t.Context(), set, merge(`{"spec":{"placement":null}}`)))
	c.eventually("the Deployment is named", func(context.Context) bool {
		conditions, _, _ := unstructured.NestedSlice(c.raw("pruned").Object, "status", "conditions")
		return len(conditions) == 3 && strings.Contains(fmt.Sprint(conditions), "deployment pruned") // Unsupported, Ready, Stalled
	}, nil)
	if c.hasLeaders("pruned")(c.t.Context()) {
		c.t.Error("a set with a Deployment got leaders")
	}
}
