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
	lwsrevision "lockstep.dev/lockstep/internal/lws/revision"
	"lockstep.dev/lockstep/test/fakeapi"
	"lockstep.dev/lockstep/test/standin"
)

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
	if diff := cmp.Diff(encode(want), encode(have)); diff != "" {
		t.Fatalf("%s (-theirs +ours)\n%s", what, diff)
	}
}
