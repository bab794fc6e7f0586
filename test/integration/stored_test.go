package integration

import (
	"context"
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/install"
	lwsset "lockstep.dev/lockstep/internal/lws/set"
)

// storedSet is a set as a manifest has it.
func storedSet(name string, edit func(spec map[string]any)) *unstructured.Unstructured {
	set := newSet("default", name)
	set.Spec.LeaderWorkerTemplate.Size = new(int32(2))
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(set)
	if err != nil {
		panic(err)
	}
	delete(object, "status")
	edit(object["spec"].(map[string]any)["leaderWorkerTemplate"].(map[string]any))
	u := &unstructured.Unstructured{Object: object}
	u.SetGroupVersionKind(lwsv1.GroupVersion.WithKind("LeaderWorkerSet"))
	return u
}

// broken are sets that admission refuses, by the field that it names.
func broken() map[string]*unstructured.Unstructured {
	without := func(fields ...string) func(map[string]any) {
		return func(template map[string]any) {
			template["leaderTemplate"] = runtime.DeepCopyJSONValue(template["workerTemplate"])
			for _, field := range fields {
				template[field] = map[string]any{"metadata": map[string]any{"labels": map[string]any{"a": "b"}}}
			}
		}
	}
	return map[string]*unstructured.Unstructured{
		"leaderTemplate.spec.containers": storedSet("no-leader-spec", without("leaderTemplate")),
		"workerTemplate.spec.containers": storedSet("no-worker-spec", without("workerTemplate")),
		"metadata.name":                  storedSet(strings.Repeat("a", 51), func(map[string]any) {}),
	}
}

// A set that was stored before a rule admits changes of anything else. Another implementation made its
// StatefulSet, or it has none.
func TestSetsStoredBeforeARuleAreStillWritten(t *testing.T) {
	c := newCluster(t)
	r := c.replica(nil)
	c.install(func(o *install.Options) { o.WebhookURL = r.webhookURL() })
	c.must(c.Delete(t.Context(), c.mutating()))
	c.must(c.Delete(t.Context(), c.validating()))
	c.eventually("sets are stored unseen", func(ctx context.Context) bool { return c.Create(ctx, newSet("default", "unseen")) == nil }, nil)
	for _, set := range broken() {
		c.must(c.Create(t.Context(), set))
	}
	taken := broken()["metadata.name"].DeepCopy()
	taken.SetName(strings.Repeat("t", 51))
	c.must(c.Create(t.Context(), taken))
	c.leadersByOther(taken)
	c.install(func(o *install.Options) { o.WebhookURL = r.webhookURL() })
	r.start().untilReady()

	for path, set := range broken() {
		c.part("new "+path, func() {
			set.SetName(set.GetName()[:len(set.GetName())-1] + "n")
			if err := c.Create(c.t.Context(), set); !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) || !strings.Contains(fmt.Sprint(err), path) {
				c.t.Errorf("a new set without %s: %v", path, err)
			}
		})
		c.part(path, func() { c.changesStored(broken()[path], path) })
	}
	c.part("taken over", func() {
		c.changesStored(taken, "metadata.name")
		sts := &appsv1.StatefulSet{}
		c.must(c.Get(c.t.Context(), client.ObjectKeyFromObject(taken), sts))
		if sts.UID == "" || sts.DeletionTimestamp != nil {
			c.t.Error("the StatefulSet of the other implementation is replaced")
		}
	})
	c.part("scale", c.scalesBeyondItsName)
}

// leadersByOther is the StatefulSet that another implementation made for a set.
func (c *cluster) leadersByOther(set *unstructured.Unstructured) {
	sts := statefulSet("default", func(spec *appsv1.StatefulSetSpec) { spec.VolumeClaimTemplates = nil })
	sts.Name = set.GetName()
	labels := map[string]string{lwsv1.SetNameLabelKey: set.GetName(), lwsv1.WorkerIndexLabelKey: "0"}
	sts.Labels, sts.Spec.Selector.MatchLabels, sts.Spec.Template.Labels = map[string]string{lwsv1.SetNameLabelKey: set.GetName()}, labels, labels
	sts.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(set, lwsv1.GroupVersion.WithKind("LeaderWorkerSet"))}
	c.create(sts)
}

// changesStored labels, pauses, resumes, scales and mends a stored set. Each write but the last one is warned of.
func (c *cluster) changesStored(set *unstructured.Unstructured, path string) {
	warnings := &heard{}
	config := rest.CopyConfig(c.cfg)
	config.WarningHandler = warnings
	user, err := client.New(config, client.Options{Scheme: c.Scheme()})
	c.must(err)
	for _, patch := range []string{
		`{"metadata":{"labels":{"a":"b"}}}`,
		`{"metadata":{"annotations":{"lockstep.dev/paused":"true"}}}`,
		`{"metadata":{"annotations":{"lockstep.dev/paused":null}}}`,
		`{"spec":{"replicas":0}}`,
		`{"spec":{"replicas":12}}`,
		`{"spec":{"leaderWorkerTemplate":{"workerTemplate":{"metadata":{"labels":{"c":"d"}}}}}}`,
	} {
		warnings.take()
		c.must(user.Patch(c.t.Context(), c.raw(set.GetName()), merge(patch)))
		if told := warnings.take(); !strings.Contains(told, path) {
			c.t.Errorf("%s: no warning of %s in %q", patch, path, told)
		}
	}
	if !strings.HasPrefix(path, "workerTemplate") { // no leader runs here that workers are created for
		c.eventually("the set is Stalled", c.isStalled(set.GetName()), nil)
	}
	if path != "metadata.name" {
		warnings.take()
		c.must(user.Patch(c.t.Context(), c.raw(set.GetName()), merge(`{"spec":{"leaderWorkerTemplate":{
			"leaderTemplate":{"spec":{"containers":[{"name":"c","image":"i"}]}},"workerTemplate":{"spec":{"containers":[{"name":"c","image":"i"}]}}}}}`)))
		if told := warnings.take(); told != "" {
			c.t.Errorf("a mended set is warned of: %q", told)
		}
		c.eventually("the mended set has leaders", c.hasLeaders(set.GetName()), nil)
	}
	c.must(user.Patch(c.t.Context(), c.raw(set.GetName()), merge(`{"metadata":{"finalizers":["example.com/a"]}}`)))
	c.must(user.Delete(c.t.Context(), c.raw(set.GetName())))
	c.must(user.Patch(c.t.Context(), c.raw(set.GetName()), merge(`{"metadata":{"finalizers":null}}`)))
}

func (c *cluster) isStalled(name string) func(context.Context) bool {
	return func(context.Context) bool {
		set := &lwsv1.LeaderWorkerSet{}
		c.must(runtime.DefaultUnstructuredConverter.FromUnstructured(c.raw(name).Object, set))
		return meta.IsStatusConditionTrue(set.Status.Conditions, "Stalled")
	}
}

// scalesBeyondItsName scales as an autoscaler does, and reads the limit in the conditions.
func (c *cluster) scalesBeyondItsName() {
	name := strings.Repeat("s", 50)
	set := storedSet(name, func(map[string]any) {})
	c.must(unstructured.SetNestedField(set.Object, int64(10), "spec", "replicas"))
	c.must(c.Create(c.t.Context(), set))
	if err := c.Patch(c.t.Context(), c.raw(name), merge(`{"spec":{"replicas":11}}`)); err == nil || !strings.Contains(err.Error(), " 49 ") {
		c.t.Errorf("an update beyond the name: %v", err)
	}
	scale := &autoscalingv1.Scale{Spec: autoscalingv1.ScaleSpec{Replicas: 11}}
	c.must(c.SubResource("scale").Update(c.t.Context(), c.raw(name), client.WithSubResourceBody(scale)))
	c.eventually("the set is Stalled with the number", func(context.Context) bool {
		set := &lwsv1.LeaderWorkerSet{}
		c.must(runtime.DefaultUnstructuredConverter.FromUnstructured(c.raw(name).Object, set))
		stalled := meta.FindStatusCondition(set.Status.Conditions, "Stalled")
		return stalled != nil && stalled.Reason == lwsset.CodeNameTooLong && strings.Contains(stalled.Message, " 49;")
	}, nil)
}
