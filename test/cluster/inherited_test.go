package cluster

import (
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/test/standin"
)

// inherited is a set that another implementation has created, at rest.
type inherited struct {
	name     string
	replicas int32
	size     int32
	edit     edit
	// data is how an earlier version encodes the data of a revision.
	data func(string) string
	// key is the key of the revision, if it is not the hash of its data.
	key string
	// spoil changes the leader StatefulSet as an earlier version or a webhook does.
	spoil standin.Change
	// posted is set if the leader StatefulSet was created, not applied.
	posted bool
	// leaked is how many copies of the revision exist.
	leaked int64
	// unplaced is set if no node fits the pods.
	unplaced bool
}

const (
	hostname      = "kubernetes.io/hostname"
	changedClaims = "changed-claims"
)

var heirlooms = []inherited{
	{name: "plain", replicas: 2, size: 2, edit: func(set *lwsv1.LeaderWorkerSet) {
		set.Labels, set.Annotations = map[string]string{"team": "blue"}, map[string]string{"note": "mine"}
	}},
	{name: "leader-template", replicas: 2, size: 3, edit: func(set *lwsv1.LeaderWorkerSet) {
		leader := template(imageA)
		leader.Labels = map[string]string{"role": "leader"}
		leader.Spec.Containers[0].Args = []string{"a<b>&c"}
		leader.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 8080}}
		leader.Spec.Volumes = []corev1.Volume{{Name: "shm", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory}}}}
		set.Spec.LeaderWorkerTemplate.LeaderTemplate = &leader
		set.Spec.LeaderWorkerTemplate.RestartPolicy = lwsv1.RecreateGroupAfterStart
	}},
	{name: "alone", replicas: 2, size: 1},
	{name: "subgroups", replicas: 1, size: 4, edit: subgroupsOf(2, lwsv1.SubGroupPolicyTypeLeaderWorker)},
	{name: "leader-excluded", replicas: 1, size: 3, edit: subgroupsOf(2, lwsv1.SubGroupPolicyTypeLeaderExcluded)},
	{name: "exclusive", replicas: 2, size: 2, edit: func(set *lwsv1.LeaderWorkerSet) {
		set.Annotations = map[string]string{lwsv1.ExclusiveKeyAnnotationKey: hostname}
	}},
	{name: "exclusive-subgroups", replicas: 1, size: 2, edit: func(set *lwsv1.LeaderWorkerSet) {
		subgroupsOf(1, lwsv1.SubGroupPolicyTypeLeaderWorker)(set)
		set.Annotations = map[string]string{lwsv1.SubGroupExclusiveKeyAnnotationKey: hostname}
	}},
	{name: "placed-by-template", replicas: 1, size: 2, edit: func(set *lwsv1.LeaderWorkerSet) { // its leader alone is
		set.Spec.LeaderWorkerTemplate.WorkerTemplate.Annotations = map[string]string{lwsv1.ExclusiveKeyAnnotationKey: hostname}
	}},
	{name: "per-replica", replicas: 2, size: 2, edit: uniquePerReplica},
	{name: "claims", replicas: 2, size: 3, edit: claiming},
	{name: "tpu", replicas: 1, size: 2, unplaced: true, edit: func(set *lwsv1.LeaderWorkerSet) {
		set.Spec.LeaderWorkerTemplate.WorkerTemplate.Spec.Containers[0].Resources.Limits = corev1.ResourceList{"google.com/tpu": resource.MustParse("4")}
	}},
	{name: "leader-ready", replicas: 2, size: 2, edit: func(set *lwsv1.LeaderWorkerSet) { set.Spec.StartupPolicy = lwsv1.LeaderReadyStartupPolicy }},
	{name: "leaked", replicas: 1, size: 2, leaked: 3},

	// What earlier versions left.
	{name: "null-times", replicas: 1, size: 2, data: func(data string) string {
		return strings.ReplaceAll(data, `"metadata":{}`, `"metadata":{"creationTimestamp":null}`)
	}},
	{name: "no-policy-type", replicas: 1, size: 4, edit: subgroupsOf(2, lwsv1.SubGroupPolicyTypeLeaderWorker),
		data: func(data string) string { return strings.ReplaceAll(data, `"subGroupPolicyType":"LeaderWorker",`, "") },
		spoil: func(sts *appsv1.StatefulSet) {
			delete(sts.Spec.Template.Annotations, lwsv1.SubGroupPolicyTypeAnnotationKey)
		}},
	{name: "no-network", replicas: 1, size: 2, data: func(data string) string {
		head, _, _ := strings.Cut(data, `,"networkConfig"`)
		return head + "}}"
	}},
	{name: "other-key", replicas: 1, size: 2, key: "0d1e2f"},
	{name: "posted", replicas: 1, size: 2, posted: true},
	{name: "other-claims", replicas: 1, size: 1, edit: claiming, spoil: func(sts *appsv1.StatefulSet) {
		claim := &sts.Spec.VolumeClaimTemplates[0]
		claim.TypeMeta, claim.Namespace = metav1.TypeMeta{}, ""
	}},
	// The other took a change of the claims, and no StatefulSet did.
	{name: changedClaims, replicas: 1, size: 1,
		edit: func(set *lwsv1.LeaderWorkerSet) {
			claiming(set)
			set.Spec.LeaderWorkerTemplate.VolumeClaimTemplates[0].Name = "cache"
		},
		data:  func(data string) string { return strings.ReplaceAll(data, `"name":"cache"`, `"name":"data"`) },
		spoil: func(sts *appsv1.StatefulSet) { sts.Spec.VolumeClaimTemplates[0].Name = "data" }},
	{name: "mirrored", replicas: 1, size: 2, spoil: func(sts *appsv1.StatefulSet) {
		sts.Spec.Template.Spec.Containers[0].Image = "mirror.example/serve:a"
		sts.Spec.Template.Spec.Containers = append(sts.Spec.Template.Spec.Containers, corev1.Container{Name: "sidecar", Image: imageA})
	}},
	{name: "later", replicas: 1, size: 2, spoil: func(sts *appsv1.StatefulSet) {
		sts.Spec.Template.Annotations["leaderworkerset.sigs.k8s.io/of-a-later-version"] = "x"
	}},
}

func subgroupsOf(size int32, policy lwsv1.SubGroupPolicyType) edit {
	return func(set *lwsv1.LeaderWorkerSet) {
		set.Spec.LeaderWorkerTemplate.SubGroupPolicy = &lwsv1.SubGroupPolicy{Type: &policy, SubGroupSize: &size}
	}
}

// claiming gives every pod a PVC that is deleted with the set.
func claiming(set *lwsv1.LeaderWorkerSet) {
	set.Spec.LeaderWorkerTemplate.VolumeClaimTemplates = []corev1.PersistentVolumeClaim{{
		ObjectMeta: metav1.ObjectMeta{Name: "data"},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		},
	}}
	set.Spec.LeaderWorkerTemplate.PersistentVolumeClaimRetentionPolicy = &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{
		WhenDeleted: appsv1.DeletePersistentVolumeClaimRetentionPolicyType, WhenScaled: appsv1.RetainPersistentVolumeClaimRetentionPolicyType,
	}
}
