package lws_test

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/lws"
	lwsleaders "lockstep.dev/lockstep/internal/lws/leaders"
	lwsrevision "lockstep.dev/lockstep/internal/lws/revision"
	"lockstep.dev/lockstep/internal/lws/workload"
	"lockstep.dev/lockstep/test/expect"
	"lockstep.dev/lockstep/test/fakeapi"
	"lockstep.dev/lockstep/test/standin"
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
			expect.Equalf(t, before, &leadersOf(c).Spec.Template, "%s: the template changed", name)
			place(lwsv1.ExclusiveKeyAnnotationKey, "rack")(c)
			expect.Equalf(t, 2, partition(one[action.Apply](t, c.decideSet()).Object.(StatefulSet)), "%s: the group from which it replaces at once", name)
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
			expect.Equalf(t, "", sts.Spec.Template.Labels[role], "%s: the role of pods of %s", subdomain, sts.Name)
			expect.Equalf(t, "", sts.Spec.Selector.MatchLabels[role], "%s: the role in %s", subdomain, sts.Name)
		}
		own := leaders.Spec.Template.Annotations[address]
		expect.Equalf(t, "", own, "%s: leaders have an address of their leader", subdomain)
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

// whole draws a set that says anything that shapes its children.
func whole(t *rapid.T) *lwsv1.LeaderWorkerSet {
	yes := func(what string) bool { return rapid.Bool().Draw(t, what) }
	set := fakeapi.Set("w", rapid.Int32Range(1, 4).Draw(t, "replicas"), rapid.Int32Range(2, 4).Draw(t, "size"))
	edits := map[string]func(*lwsv1.LeaderWorkerSet){
		"labels": func(set *lwsv1.LeaderWorkerSet) {
			set.Labels = map[string]string{"a": "<b>", lwsv1.RevisionKey: "forged"}
		},
		"annotations":         fakeapi.Annotation("c", "d"),
		"exclusive":           fakeapi.Annotation(lwsv1.ExclusiveKeyAnnotationKey, rapid.SampledFrom([]string{"", "rack"}).Draw(t, "topology")),
		"exclusive subgroups": fakeapi.Annotation(lwsv1.SubGroupExclusiveKeyAnnotationKey, "host"),
		"leader template":     fakeapi.Leader("image:l"),
		"subgroups":           subgroups,
		"claims":              claims,
		"per replica":         fakeapi.UniquePerReplica,
		"no network":          func(set *lwsv1.LeaderWorkerSet) { set.Spec.NetworkConfig = nil },
		"template metadata": func(set *lwsv1.LeaderWorkerSet) {
			set.Spec.LeaderWorkerTemplate.WorkerTemplate.ObjectMeta = metav1.ObjectMeta{
				Labels: map[string]string{"e": "f"}, Annotations: map[string]string{lwsv1.SizeAnnotationKey: "forged"}}
		},
		"devices": func(set Set) {
			set.Spec.LeaderWorkerTemplate.WorkerTemplate.Spec.Containers[0].Resources.Limits = fakeapi.Resources("google.com/tpu", "1000m")
		},
		"budget": func(set Set) {
			amounts := []intstr.IntOrString{
				intstr.FromInt32(0), intstr.FromInt32(1), intstr.FromInt32(9), intstr.FromString("25%"), intstr.FromString("50%"),
			}
			set.Spec.RolloutStrategy.RollingUpdateConfiguration = &lwsv1.RollingUpdateConfiguration{
				MaxUnavailable: rapid.SampledFrom(amounts).Draw(t, "unavailable"), MaxSurge: rapid.SampledFrom(amounts).Draw(t, "surge"),
			}
		},
	}
	for _, name := range slices.Sorted(maps.Keys(edits)) {
		if yes(name) {
			edits[name](set)
		}
	}
	if policy := set.Spec.LeaderWorkerTemplate.SubGroupPolicy; policy != nil { // the schema's default
		policy.Type = fakeapi.Ptr(lwsv1.SubGroupPolicyTypeLeaderWorker)
	}
	return set
}

// claims asks for a claim with fields that are kept and fields that are not.
func claims(set Set) {
	set.Spec.LeaderWorkerTemplate.VolumeClaimTemplates = []corev1.PersistentVolumeClaim{{
		ObjectMeta: metav1.ObjectMeta{Name: "data", Labels: map[string]string{"a": "b"}, Annotations: map[string]string{"c": "d"}},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes:               []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			StorageClassName:          fakeapi.Ptr("fast"),
			VolumeMode:                fakeapi.Ptr(corev1.PersistentVolumeBlock),
			VolumeName:                "pv",
			Selector:                  &metav1.LabelSelector{},
			VolumeAttributesClassName: fakeapi.Ptr("gold"),
			DataSource:                &corev1.TypedLocalObjectReference{Name: "source"},
			Resources: corev1.VolumeResourceRequirements{
				Requests: fakeapi.Resources(corev1.ResourceStorage, "1Gi"), Limits: fakeapi.Resources(corev1.ResourceStorage, "2Gi"),
			},
		},
	}}
	set.Spec.LeaderWorkerTemplate.PersistentVolumeClaimRetentionPolicy = &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{
		WhenDeleted: appsv1.DeletePersistentVolumeClaimRetentionPolicyType, WhenScaled: appsv1.RetainPersistentVolumeClaimRetentionPolicyType,
	}
}

func subgroups(set Set) {
	set.Spec.LeaderWorkerTemplate.SubGroupPolicy = &lwsv1.SubGroupPolicy{SubGroupSize: fakeapi.Ptr[int32](3)}
	fakeapi.Annotation(lwsv1.SubGroupExclusiveKeyAnnotationKey, "host")(set)
}

// What Lockstep makes and what LeaderWorkerSet 0.10 would make of one spec are the same, but for what 0.11 adds to
// new objects and for our annotation in the metadata of the first: the implementation that comes second changes nothing.
func TestTheShapeIsTheContract(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := newCluster(t)
		set := fakeapi.Add(c.Server, whole(t))
		encoded, err := lwsrevision.Data(set)
		if err != nil || !bytes.Equal(encoded, standin.Data(set)) || lwsrevision.Key(encoded) != standin.Key(encoded) {
			t.Fatalf("%v: the revision is\n%s, not\n%s", err, encoded, standin.Data(set))
		}
		plan := c.decideSet()
		key := lwsrevision.Key(encoded)
		theirLeaders := standin.Leaders(set, key, 0, *set.Spec.Replicas, nil)
		retains(theirLeaders)
		sameShape(t, "leaders", theirLeaders, madeBy(plan))
		c.do(plan)
		node(map[string]string{"rack": "r1"})(c)
		c.others()
		leader := find[*corev1.Pod](c, "w-0")
		domain := ""
		if set.Annotations[lwsv1.ExclusiveKeyAnnotationKey] != "" {
			domain = "r1"
		}
		theirs := standin.Workers(set, leader, domain)
		retains(theirs)
		sameShape(t, "workers", theirs, madeBy(c.decideGroup("w-0")))
	})
}

// retains turns a StatefulSet that has a retention policy to Retain, as all of ours say.
func retains(sts *appsv1.StatefulSet) {
	if sts.Spec.PersistentVolumeClaimRetentionPolicy == nil {
		return
	}
	sts.Spec.PersistentVolumeClaimRetentionPolicy = &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{
		WhenDeleted: retainClaims, WhenScaled: retainClaims,
	}
}

func madeBy(plan lws.Plan) *appsv1.StatefulSet {
	for _, a := range of[action.Create](plan) {
		if sts, ok := a.Object.(*appsv1.StatefulSet); ok {
			made := sts.DeepCopy()
			delete(made.Annotations, lws.AppliedAnnotationKey)
			delete(made.Labels, lwsv1.RoleLabelKey)
			delete(made.Spec.Template.Annotations, lwsv1.LeaderAddressAnnotationKey)
			return made
		}
	}
	return &appsv1.StatefulSet{}
}

func sameShape(t *rapid.T, what string, want, have *appsv1.StatefulSet) {
	t.Helper()
	want.TypeMeta = metav1.TypeMeta{}
	encode := func(sts *appsv1.StatefulSet) (fields map[string]any) {
		encoded, _ := json.Marshal(sts)
		_ = json.Unmarshal(encoded, &fields)
		return fields
	}
	expect.Equalf(t, encode(want), encode(have), "%s", what)
}
