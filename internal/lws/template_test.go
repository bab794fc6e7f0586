package lws_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/internal/lws/workload"
	"lockstep.dev/lockstep/test/fakeapi"
)

const future = "leaderworkerset.sigs.k8s.io/of-a-later-version"

// foundTemplates are templates that others made for the very spec there is.
var foundTemplates = []struct {
	name  string
	spoil func(StatefulSet)
	kept  bool
}{
	{"ours", func(StatefulSet) {}, false},
	{"with what the API server fills in", func(sts StatefulSet) { sts.Spec.Template.Spec.DNSPolicy = corev1.DNSClusterFirst }, false},
	{"with another annotation", func(sts StatefulSet) { sts.Spec.Template.Annotations["a"] = "b" }, false},
	{"of an earlier version", func(sts StatefulSet) { delete(sts.Spec.Template.Annotations, lwsv1.SubGroupPolicyTypeAnnotationKey) }, true},
	{"of a later version", func(sts StatefulSet) { sts.Spec.Template.Annotations[future] = "x" }, true},
	{"rewritten by a webhook", func(sts StatefulSet) { sts.Spec.Template.Spec.Containers[0].Image = "mirror/image:1" }, true},
	{"with a container injected", func(sts StatefulSet) {
		sts.Spec.Template.Spec.Containers = append(sts.Spec.Template.Spec.Containers, corev1.Container{
			Name: "sidecar", ImagePullPolicy: corev1.PullIfNotPresent, TerminationMessagePath: corev1.TerminationMessagePathDefault,
		})
	}, true},
}

// found is a set whose leader StatefulSet Lockstep never wrote.
func found(t *testing.T, spoil func(StatefulSet)) *cluster {
	t.Helper()
	c := running(t, 2, 2)
	on("w", func(set Set) {
		set.Spec.LeaderWorkerTemplate.SubGroupPolicy = &lwsv1.SubGroupPolicy{
			Type: fakeapi.Ptr(lwsv1.SubGroupPolicyTypeLeaderWorker), SubGroupSize: fakeapi.Ptr[int32](1),
		}
	})(c)
	atKey(c, data(t, find[Set](c, "w")))
	on("w", func(sts StatefulSet) {
		delete(sts.Annotations, lws.AppliedAnnotationKey)
		sts.Spec.Template.Annotations[lwsv1.SubGroupPolicyTypeAnnotationKey] = "LeaderWorker"
		sts.Spec.Template.Annotations[lwsv1.SubGroupSizeAnnotationKey] = "1"
		spoil(sts)
	})(c)
	return c
}

func leadersOf(c *cluster) StatefulSet { return find[StatefulSet](c, "w") }

// What stands at the revision of the spec is taken over with one write, which leaves its template
// as it is, and nothing is written after. The next revision is made as this version makes it.
func TestAFoundTemplateStaysWithItsRevision(t *testing.T) {
	for _, tt := range foundTemplates {
		t.Run(tt.name, func(t *testing.T) {
			c := found(t, tt.spoil)
			before := leadersOf(c).Spec.Template.DeepCopy()
			plan := c.decideSet()
			if kept := one[action.Apply](t, plan).Object.GetAnnotations()[lws.AsFoundAnnotationKey] != ""; kept != tt.kept || len(plan.Actions) != 1 {
				t.Errorf("kept as found: %t, want %t; %s", kept, tt.kept, spelled(plan))
			}
			c.do(plan)
			if again := spelled(c.decideSet()); len(again) > 0 {
				t.Errorf("the second plan is %s", again)
			}
			if diff := cmp.Diff(before, &leadersOf(c).Spec.Template); tt.kept && diff != "" {
				t.Errorf("the template changed (-before +after)\n%s", diff)
			}
			image(c, "image:2")
			carriedOut(c)
			now := leadersOf(c)
			if now.Annotations[lws.AsFoundAnnotationKey] != "" || now.Spec.Template.Annotations[future] != "" ||
				now.Spec.Template.Annotations[lwsv1.SubGroupPolicyTypeAnnotationKey] == "" || now.Spec.Template.Spec.Containers[0].Image != "image:2" {
				t.Errorf("the next revision: %+v, template %+v", now.Annotations, now.Spec.Template)
			}
		})
	}
}

// A topology that is edited replaces all leaders anyway. The template stayed as it was
// found, and so the set was about to be rolled for ever, with a surge group to spare.
func TestAFoundTemplateGoesWithANewPlacement(t *testing.T) {
	for _, taken := range []step{nothing, settled} { // before the edit, or with it
		c := found(t, foundTemplates[4].spoil)
		then(user(func(set Set) { rollingOf(set).MaxSurge = intstr.FromInt32(1) }), node(map[string]string{"rack": "r1"}), taken)(c)
		place(lwsv1.ExclusiveKeyAnnotationKey, "rack")(c)
		if got := partition(one[action.Apply](t, c.decideSet()).Object.(StatefulSet)); got != 2 {
			t.Errorf("replaces from %d on at once", got)
		}
		c.settle()
		checkAvailable(c, 2)
		if sts := leadersOf(c); workload.PodsOf(sts) != 2 || sts.Annotations[lws.AsFoundAnnotationKey] != "" {
			t.Errorf("%d leaders, annotations %v", workload.PodsOf(sts), sts.Annotations)
		}
		checkPlaced(c, lwsv1.ExclusiveKeyAnnotationKey, "rack")
	}
}
