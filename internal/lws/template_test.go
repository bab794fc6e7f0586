package lws_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/internal/lws/workload"
	"lockstep.dev/lockstep/test/fakeapi"
)

const future = "leaderworkerset.sigs.k8s.io/of-a-later-version"

// Templates that others made for the very spec there is.
var foundTemplates = []struct {
	name  string
	spoil func(*appsv1.StatefulSet)
	kept  bool
}{
	{"ours", func(*appsv1.StatefulSet) {}, false},
	{"with what the API server fills in", func(sts *appsv1.StatefulSet) { sts.Spec.Template.Spec.DNSPolicy = corev1.DNSClusterFirst }, false},
	{"with an annotation of somebody's", func(sts *appsv1.StatefulSet) { sts.Spec.Template.Annotations["a"] = "b" }, false},
	{"of an earlier version", func(sts *appsv1.StatefulSet) {
		delete(sts.Spec.Template.Annotations, lwsv1.SubGroupPolicyTypeAnnotationKey)
	}, true},
	{"of a later version", func(sts *appsv1.StatefulSet) { sts.Spec.Template.Annotations[future] = "x" }, true},
	{"rewritten by a webhook", func(sts *appsv1.StatefulSet) { sts.Spec.Template.Spec.Containers[0].Image = "mirror/image:1" }, true},
	{"with a container injected", func(sts *appsv1.StatefulSet) {
		sts.Spec.Template.Spec.Containers = append(sts.Spec.Template.Spec.Containers, corev1.Container{
			Name: "sidecar", ImagePullPolicy: corev1.PullIfNotPresent, TerminationMessagePath: corev1.TerminationMessagePathDefault,
		})
	}, true},
}

func bySubgroups(set *lwsv1.LeaderWorkerSet) {
	set.Spec.LeaderWorkerTemplate.SubGroupPolicy = &lwsv1.SubGroupPolicy{
		Type: fakeapi.Ptr(lwsv1.SubGroupPolicyTypeLeaderWorker), SubGroupSize: fakeapi.Ptr[int32](1),
	}
}

// found is a set whose leaders' StatefulSet lockstep has never written.
func found(t *testing.T, spoil func(*appsv1.StatefulSet)) *cluster {
	t.Helper()
	c := running(t, 2, 2)
	fakeapi.Edit(c.Server, "w", func(set *lwsv1.LeaderWorkerSet) { bySubgroups(set) })
	data := data(t, fakeapi.All[*lwsv1.LeaderWorkerSet](c.Objects)[0])
	key := lws.RevisionKey(data)
	fakeapi.Edit(c.Server, revisions(c)[0].Name, func(r *appsv1.ControllerRevision) {
		r.Data.Raw, r.Labels[lwsv1.RevisionKey] = data, key
	})
	fakeapi.Edit(c.Server, "w", func(sts *appsv1.StatefulSet) {
		delete(sts.Annotations, lws.AppliedAnnotationKey)
		sts.Labels[lwsv1.RevisionKey], sts.Spec.Template.Labels[lwsv1.RevisionKey] = key, key
		sts.Spec.Template.Annotations[lwsv1.SubGroupPolicyTypeAnnotationKey] = "LeaderWorker"
		sts.Spec.Template.Annotations[lwsv1.SubGroupSizeAnnotationKey] = "1"
		spoil(sts)
	})
	for _, name := range []string{"w-0", "w-1"} {
		fakeapi.Edit(c.Server, name, func(pod *corev1.Pod) { pod.Labels[lwsv1.RevisionKey] = key })
		fakeapi.Edit(c.Server, name, func(sts *appsv1.StatefulSet) {
			sts.Labels[lwsv1.RevisionKey], sts.Spec.Template.Labels[lwsv1.RevisionKey] = key, key
		})
	}
	return c
}

func leadersOf(c *cluster) *appsv1.StatefulSet {
	for _, sts := range fakeapi.All[*appsv1.StatefulSet](c.Objects) {
		if sts.Name == "w" {
			return sts
		}
	}
	return nil
}

// What stands at the revision of the spec is taken over with one write, which
// leaves its template as it is, and nothing is written after.
func TestTheTemplateThatWasFoundStays(t *testing.T) {
	for _, tt := range foundTemplates {
		t.Run(tt.name, func(t *testing.T) {
			c := found(t, tt.spoil)
			before := leadersOf(c).Spec.Template.DeepCopy()
			plan := c.decideSet()
			if diff := cmp.Diff([]string{"apply statefulset w"}, spelled(plan)); diff != "" {
				t.Fatalf("taking over (-want +got)\n%s", diff)
			}
			apply := one[action.Apply](t, plan)
			desired, _ := apply.Object.(*appsv1.StatefulSet)
			if kept := desired.Annotations[lws.AsFoundAnnotationKey] != ""; kept != tt.kept {
				t.Errorf("kept as found: %t, want %t", kept, tt.kept)
			}
			c.do(plan)
			if again := spelled(c.decideSet()); len(again) > 0 {
				t.Errorf("the second look wants %s", again)
			}
			if tt.kept {
				if diff := cmp.Diff(before, &leadersOf(c).Spec.Template); diff != "" {
					t.Errorf("the template changed (-before +after)\n%s", diff)
				}
			}
		})
	}
}

// Whoever takes the mark away has the template applied over.
func TestTheTemplateThatWasFoundGoesWithItsMark(t *testing.T) {
	c := found(t, foundTemplates[3].spoil)
	c.do(c.decideSet())
	fakeapi.Edit(c.Server, "w", func(sts *appsv1.StatefulSet) { delete(sts.Annotations, lws.AsFoundAnnotationKey) })
	c.do(c.decideSet())
	if leadersOf(c).Spec.Template.Annotations[lwsv1.SubGroupPolicyTypeAnnotationKey] == "" {
		t.Errorf("got %v", leadersOf(c).Spec.Template.Annotations)
	}
	if again := spelled(c.decideSet()); len(again) > 0 {
		t.Errorf("the look after wants %s", again)
	}
}

// The next revision is made as this version makes it.
func TestTheTemplateThatWasFoundGoesWithItsRevision(t *testing.T) {
	for _, tt := range foundTemplates {
		t.Run(tt.name, func(t *testing.T) {
			c := found(t, tt.spoil)
			c.do(c.decideSet())
			image(c, "image:2")
			c.do(c.decideSet())
			now := leadersOf(c)
			if now.Annotations[lws.AsFoundAnnotationKey] != "" || now.Spec.Template.Annotations[future] != "" ||
				now.Spec.Template.Annotations[lwsv1.SubGroupPolicyTypeAnnotationKey] == "" || now.Spec.Template.Spec.Containers[0].Image != "image:2" {
				t.Errorf("got %+v, template %+v", now.Annotations, now.Spec.Template)
			}
		})
	}
}

// A topology that is edited replaces all leaders anyway. The template stayed as it was
// found, and so the set was about to be rolled for ever, with a surge group to spare.
func TestTheTemplateThatWasFoundGoesWithANewPlacement(t *testing.T) {
	for _, taken := range []bool{true, false} { // before the edit, or with it
		c := found(t, foundTemplates[4].spoil)
		fakeapi.Edit(c.Server, "w", func(set *lwsv1.LeaderWorkerSet) { rollingOf(set).MaxSurge = intstr.FromInt32(1) })
		node := &corev1.Node{}
		node.Name, node.Labels = fakeapi.Node, map[string]string{"rack": "r1"}
		fakeapi.Add(c.Server, node)
		if taken {
			c.settleAll()
		}
		place(c, lwsv1.ExclusiveKeyAnnotationKey, "rack")
		apply := one[action.Apply](t, c.decideSet()).Object.(*appsv1.StatefulSet)
		if got := partition(apply); got != 2 {
			t.Errorf("taken over %t: replaces from %d on at once", taken, got)
		}
		c.settleAll()
		if sts := leadersOf(c); workload.PodsOf(sts) != 2 || sts.Annotations[lws.AsFoundAnnotationKey] != "" || brief(c.status())[available] != isAvailable {
			t.Errorf("taken over %t: %d leaders, annotations %v, %v", taken, workload.PodsOf(sts), sts.Annotations, brief(c.status()))
		}
		for _, pod := range fakeapi.All[*corev1.Pod](c.Objects) {
			if got := pod.Annotations[lwsv1.ExclusiveKeyAnnotationKey]; got != "rack" {
				t.Errorf("taken over %t: pod %s is placed by %q", taken, pod.Name, got)
			}
		}
	}
}

// Another version did not write a topology into the template: nobody edited it, and no
// pod is replaced for it, whether or not the rollout is paused meanwhile.
func TestTheTemplateThatWasFoundStaysThoughItsPlacementIsSpeltOtherwise(t *testing.T) {
	c := found(t, func(sts *appsv1.StatefulSet) { sts.Annotations[lwsv1.SubGroupExclusiveKeyAnnotationKey] = "rack" })
	place(c, lwsv1.SubGroupExclusiveKeyAnnotationKey, "rack")
	before := leadersOf(c).Spec.DeepCopy()
	look := func() {
		t.Helper()
		c.settleAll()
		if diff := cmp.Diff(before, &leadersOf(c).Spec, cmpopts.IgnoreFields(appsv1.StatefulSetSpec{}, "UpdateStrategy")); diff != "" {
			t.Errorf("(-before +after)\n%s", diff)
		}
		if got := brief(c.status())[available]; got != isAvailable {
			t.Errorf("got %v", brief(c.status()))
		}
	}
	look()
	fakeapi.Edit(c.Server, "w", fakeapi.Annotation(lwsv1.PausedAnnotationKey, lwsv1.PausedValue))
	look()
	for _, topology := range []string{"zone", "rack"} { // and back
		place(c, lwsv1.SubGroupExclusiveKeyAnnotationKey, topology)
		c.settleAll()
	}
	look()
	fakeapi.Edit(c.Server, "w", func(set *lwsv1.LeaderWorkerSet) { delete(set.Annotations, lwsv1.PausedAnnotationKey) })
	look()
}

// What lockstep made itself is repaired.
func TestAnOwnTemplateThatWasSpoiltIsRepaired(t *testing.T) {
	for _, tt := range foundTemplates {
		if !tt.kept || tt.name == "of a later version" {
			continue
		}
		t.Run(tt.name, func(t *testing.T) {
			c := found(t, func(*appsv1.StatefulSet) {})
			c.do(c.decideSet())
			want := leadersOf(c).Spec.Template.DeepCopy()
			fakeapi.Edit(c.Server, "w", func(sts *appsv1.StatefulSet) { tt.spoil(sts); sts.Generation++ })
			c.do(c.decideSet())
			if diff := cmp.Diff(want, &leadersOf(c).Spec.Template); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

// An annotation of ours on the set says nothing of its leaders.
func TestASetCannotSayThatItsTemplateWasFound(t *testing.T) {
	_, plan := firstLook(t, fakeapi.Annotation(lws.AsFoundAnnotationKey, "x"))
	sts, _ := created[*appsv1.StatefulSet](t, plan)
	if _, there := sts.Annotations[lws.AsFoundAnnotationKey]; there {
		t.Errorf("got %v", sts.Annotations)
	}
}
