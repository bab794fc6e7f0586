package lws_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/intstr"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/lws"
	lwsleaders "lockstep.dev/lockstep/internal/lws/leaders"
	"lockstep.dev/lockstep/internal/lws/workload"
	"lockstep.dev/lockstep/test/fakeapi"
)

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

// foundTemplates are templates that others made for the very spec there is, and Lockstep does not.
var foundTemplates = map[string]func(StatefulSet){
	"of an earlier version": func(sts StatefulSet) { delete(sts.Spec.Template.Annotations, lwsv1.SubGroupPolicyTypeAnnotationKey) },
	"of a later version": func(sts StatefulSet) {
		sts.Spec.Template.Annotations["leaderworkerset.sigs.k8s.io/of-a-later-version"] = "x"
	},
	"that says how groups end": func(sts StatefulSet) {
		sts.Spec.Template.Annotations[lwsv1.PodTerminationPolicyAnnotationKey] = "Parallel"
	},
	"of a webhook": func(sts StatefulSet) { sts.Spec.Template.Spec.Containers[0].Image = "mirror/image:1" },
}

// What stands at the revision of the spec is taken over as it is. A topology that is edited replaces
// all leaders anyway, and the next template is made as this version makes it: the set was about to be
// rolled for ever, with a surge group to spare.
func TestAFoundTemplateStaysUntilTheNextOne(t *testing.T) {
	for name, spoil := range foundTemplates {
		for _, taken := range []step{nothing, settled} { // before the edit, or with it
			c := found(t, spoil)
			before := leadersOf(c).Spec.Template.DeepCopy()
			then(user(func(set Set) { rollingOf(set).MaxSurge = intstr.FromInt32(1) }), node(map[string]string{"rack": "r1"}), taken)(c)
			if diff := cmp.Diff(before, &leadersOf(c).Spec.Template); diff != "" {
				t.Errorf("%s: the template changed (-before +after)\n%s", name, diff)
			}
			place(lwsv1.ExclusiveKeyAnnotationKey, "rack")(c)
			if got := partition(one[action.Apply](t, c.decideSet()).Object.(StatefulSet)); got != 2 {
				t.Errorf("%s: replaces from %d on at once", name, got)
			}
			c.settle()
			checkAvailable(c, 2)
			sts := leadersOf(c)
			if template := sts.Spec.Template; workload.PodsOf(sts) != 2 || sts.Annotations[lws.AsFoundAnnotationKey] != "" ||
				template.Annotations[lwsv1.SubGroupPolicyTypeAnnotationKey] == "" || template.Spec.Containers[0].Image != "image:1" {
				t.Errorf("%s: %d leaders, annotations %v, template %+v", name, workload.PodsOf(sts), sts.Annotations, template)
			}
			checkPlaced(c, lwsv1.ExclusiveKeyAnnotationKey, "rack")
		}
	}
}

var placementKeys = []string{lwsv1.ExclusiveKeyAnnotationKey, lwsv1.SubGroupExclusiveKeyAnnotationKey}

// place changes a placement of a set called w.
func place(key, topology string) step {
	if topology == "" {
		return user(without(key))
	}
	return user(fakeapi.Annotation(key, topology))
}

// checkPlaced checks the placement of all pods.
func checkPlaced(c *cluster, key, topology string) {
	c.t.Helper()
	for _, pod := range fakeapi.All[Pod](c.Objects) {
		if got := pod.Annotations[key]; got != topology {
			c.t.Fatalf("pod %s is placed by %s %q, want %q", pod.Name, key, got, topology)
		}
	}
}

// Workers go to the domain of their leader, where it was sent there by its set: not where the set
// would send another one, nor after a leader whose own template places it.
func TestWorkersGoWhereTheirLeaderWasSent(t *testing.T) {
	const key = lwsv1.ExclusiveKeyAnnotationKey
	labels := map[string]string{"rack": "r1", "zone": "z1", "nameless": ""}
	by := func(topology string) step {
		return on("w-0", func(pod Pod) { pod.Annotations[key] = topology })
	}
	ssd := func(set Set) {
		set.Spec.LeaderWorkerTemplate.WorkerTemplate.Spec.NodeSelector = map[string]string{"disk": "ssd"}
	}
	for name, tt := range map[string]struct {
		edits    []edit
		happens  step
		topology string
		selector map[string]string
	}{
		"its domain":            {[]edit{fakeapi.Annotation(key, "rack")}, nothing, "rack", map[string]string{"rack": "r1"}},
		"a selector of its own": {[]edit{fakeapi.Annotation(key, "rack"), ssd}, nothing, "rack", map[string]string{"rack": "r1", "disk": "ssd"}},
		"the nameless domain":   {[]edit{fakeapi.Annotation(key, "nameless")}, nothing, "nameless", map[string]string{"nameless": ""}},
		"another one since":     {nil, then(by("rack"), place(key, "zone")), "rack", map[string]string{"rack": "r1"}},
		"none before":           {nil, then(pause, place(key, "zone")), "", nil},
	} {
		c := running(t, 1, 3, tt.edits...)
		if node(labels)(c); len(tt.edits) > 0 {
			c.settle()
		}
		then(tt.happens, withoutWorkers)(c)
		sts := one[action.Create](t, c.decideGroup("w-0")).Object.(StatefulSet)
		if template := sts.Spec.Template; !cmp.Equal(template.Spec.NodeSelector, tt.selector) || template.Annotations[key] != tt.topology {
			t.Errorf("%s: placed by %q, %v", name, template.Annotations[key], template.Spec.NodeSelector)
		}
	}
	for _, key := range placementKeys {
		for _, happens := range []edit{func(Set) {}, fakeapi.Annotation(lwsv1.PausedAnnotationKey, lwsv1.PausedValue)} {
			c := running(t, 1, 2, fakeapi.Leader("image:1"), happens, func(set Set) {
				set.Spec.LeaderWorkerTemplate.LeaderTemplate.Annotations = map[string]string{key: "rack"}
			})
			template := find[StatefulSet](c, "w-0").Spec.Template
			if leader := find[Pod](c, "w-0"); leader.Annotations[key] != "rack" || template.Annotations[key] != "" || len(template.Spec.NodeSelector) > 0 {
				t.Errorf("%s: the leader is placed by %q, workers by %q, %v", key, leader.Annotations[key], template.Annotations[key], template.Spec.NodeSelector)
			}
		}
	}
}

// New StatefulSets say their role, and new worker templates where their leader is. One from before is not written for
// it, and no template of leaders has either: pods would be replaced.
func TestNewStatefulSetsSayTheirRole(t *testing.T) {
	const role, address = lwsv1.RoleLabelKey, lwsv1.LeaderAddressAnnotationKey
	for subdomain, want := range map[lwsv1.SubdomainPolicy]string{
		lwsv1.SubdomainShared: "w-0.w.ns", lwsv1.SubdomainUniquePerReplica: "w-0.w-0.ns",
	} {
		c := running(t, 1, 2, func(set Set) { set.Spec.NetworkConfig = &lwsv1.NetworkConfig{SubdomainPolicy: &subdomain} })
		leaders, workers := leadersOf(c), find[StatefulSet](c, "w-0")
		if leaders.Labels[role] != "leader" || workers.Labels[role] != "worker" || workers.Spec.Template.Annotations[address] != want {
			t.Errorf("%s: roles %q and %q, address %q", subdomain, leaders.Labels[role], workers.Labels[role], workers.Spec.Template.Annotations[address])
		}
		for _, sts := range []StatefulSet{leaders, workers} {
			if sts.Spec.Template.Labels[role] != "" || sts.Spec.Selector.MatchLabels[role] != "" {
				t.Errorf("%s: the pods of %s have a role", subdomain, sts.Name)
			}
		}
		if leaders.Spec.Template.Annotations[address] != "" {
			t.Errorf("%s: leaders have an address of their leader", subdomain)
		}
	}
	c := running(t, 2, 2)
	for _, name := range []string{"w", "w-0", "w-1"} {
		on(name, func(sts StatefulSet) {
			delete(sts.Labels, role)
			delete(sts.Spec.Template.Annotations, address)
		})(c)
	}
	on("w", func(sts StatefulSet) { // as an earlier version applied it
		delete(sts.Annotations, lws.AppliedAnnotationKey)
		wanted := lwsleaders.WantedLeaders(c.set())
		sts.Annotations[lws.AppliedAnnotationKey] = lws.Fingerprint(wanted)
	})(c)
	checkAtRest(c)
}

// checkAtRest checks that nothing is written for a set called w and its groups.
func checkAtRest(c *cluster) {
	c.t.Helper()
	for _, plan := range []lws.Plan{c.decideSet(), c.decideGroup("w-0"), c.decideGroup("w-1")} {
		if len(plan.Actions) > 0 {
			c.t.Fatalf("written: %v", spelled(plan))
		}
	}
}
