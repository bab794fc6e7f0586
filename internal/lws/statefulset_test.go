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
