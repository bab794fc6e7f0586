package lws_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
	lwsrevision "lockstep.dev/lockstep/internal/lws/revision"
	"lockstep.dev/lockstep/test/fakeapi"
)

// firstPlan is the plan of a set that has no objects yet.
func firstPlan(t *testing.T, edits ...func(Set)) (*lwsv1.LeaderWorkerSet, lws.Plan) {
	t.Helper()
	c := newCluster(t)
	set := fakeapi.Add(c.Server, fakeapi.Set("w", 2, 3, edits...))
	return set, c.decideSet()
}

func TestANewSetIsMadeInOrder(t *testing.T) {
	set, plan := firstPlan(t)
	hash := lwsrevision.Key(data(t, set))
	want := []string{"create controllerrevision w-" + hash + "-1", "create statefulset w", "create service w", "status leaderworkerset w"}
	if diff := cmp.Diff(want, spelled(plan)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	for _, a := range of[action.Create](plan) {
		if diff := cmp.Diff(identity.RefOf(identity.KindLeaderWorkerSet, set), a.Owner); diff != "" {
			t.Errorf("owner of %s (-want +got)\n%s", a.Target(), diff)
		}
	}
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

func controllerRef(apiVersion, kind string, owner metav1.Object) []metav1.OwnerReference {
	return []metav1.OwnerReference{{
		APIVersion: apiVersion, Kind: kind, Name: owner.GetName(), UID: owner.GetUID(),
		Controller: fakeapi.Ptr(true), BlockOwnerDeletion: fakeapi.Ptr(true),
	}}
}

func TestASetWithoutDefaultsStillMakesLeaders(t *testing.T) {
	_, plan := firstPlan(t, func(set Set) {
		set.Spec = lwsv1.LeaderWorkerSetSpec{LeaderWorkerTemplate: lwsv1.LeaderWorkerTemplate{WorkerTemplate: fakeapi.Template("worker", "image:1")}}
	})
	sts, _ := created[StatefulSet](t, plan)
	if *sts.Spec.Replicas != 1 || sts.Spec.Template.Annotations[lwsv1.SizeAnnotationKey] != "1" {
		t.Errorf("got %d leaders of groups of %s, want 1 of 1", *sts.Spec.Replicas, sts.Spec.Template.Annotations[lwsv1.SizeAnnotationKey])
	}
}

func TestWorkersAreOfTheirLeadersRevision(t *testing.T) {
	c := running(t, 1, 3, fakeapi.UniquePerReplica, subgroups)
	withoutWorkers(c)
	user(fakeapi.Image("image:2"), func(set Set) {
		set.Spec.NetworkConfig = nil
		set.Spec.LeaderWorkerTemplate.Size = fakeapi.Ptr[int32](9)
		set.Spec.LeaderWorkerTemplate.SubGroupPolicy = nil
		fakeapi.Annotation(lwsv1.SubGroupExclusiveKeyAnnotationKey, "zone")(set)
	})(c)
	got, _ := created[StatefulSet](t, c.decideGroup("w-0"))
	template := got.Spec.Template
	if image := template.Spec.Containers[0].Image; image != "image:1" {
		t.Errorf("got image %q, want the leader's revision's", image)
	}
	if *got.Spec.Replicas != 2 || got.Spec.ServiceName != "w-0" {
		t.Errorf("got %d workers of service %q", *got.Spec.Replicas, got.Spec.ServiceName)
	}
	want := map[string]string{
		lwsv1.SizeAnnotationKey: "3", lwsv1.LeaderPodNameAnnotationKey: "w-0", lwsv1.SubGroupSizeAnnotationKey: "3",
		lwsv1.SubGroupPolicyTypeAnnotationKey: "LeaderWorker", lwsv1.SubGroupExclusiveKeyAnnotationKey: "host",
	}
	if diff := cmp.Diff(want, template.Annotations); diff != "" {
		t.Errorf("annotations (-want +got)\n%s", diff)
	}
}

func TestWorkersLearnThatTheirLeaderAsksForTPUs(t *testing.T) {
	type resources = func(*corev1.PodSpec)
	limits := func(spec *corev1.PodSpec) {
		spec.Containers[0].Resources.Limits = fakeapi.Resources("google.com/tpu", "4")
	}
	requests := func(spec *corev1.PodSpec) {
		spec.Containers[0].Resources.Requests = fakeapi.Resources("google.com/tpu", "4")
	}
	none := func(spec *corev1.PodSpec) {
		spec.Containers[0].Resources.Requests = fakeapi.Resources("google.com/tpu", "0")
	}
	initial := func(spec *corev1.PodSpec) {
		spec.InitContainers = []corev1.Container{{Name: "init", Image: "image:1"}}
		spec.InitContainers[0].Resources.Requests = fakeapi.Resources("google.com/tpu", "4")
	}
	for i, ask := range []resources{limits, requests, initial, none} {
		c := running(t, 1, 3, func(set Set) { ask(&set.Spec.LeaderWorkerTemplate.WorkerTemplate.Spec) })
		withoutWorkers(c)
		got, _ := created[StatefulSet](t, c.decideGroup("w-0"))
		if flag := got.Spec.Template.Annotations[lwsv1.LeaderRequestsTPUsAnnotationKey]; (flag == "true") != (i < 3) {
			t.Errorf("row %d: got %q", i, flag)
		}
	}
}
