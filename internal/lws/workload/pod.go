package workload

import (
	"maps"
	"slices"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"lockstep.dev/lockstep/internal/identity"
)

// Leader is the pod that the StatefulSet controller would create at an ordinal, at the
// update revision.
func Leader(sts *appsv1.StatefulSet, ordinal int) *corev1.Pod {
	template := sts.Spec.Template.DeepCopy()
	name := identity.LeaderName(sts.Name, ordinal)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:    sts.Namespace,
			Name:         name,
			GenerateName: sts.Name + "-",
			Labels: labels.Merge(template.Labels, labels.Set{
				appsv1.StatefulSetPodNameLabel:  name,
				appsv1.PodIndexLabel:            strconv.Itoa(ordinal),
				appsv1.StatefulSetRevisionLabel: sts.Status.UpdateRevision,
			}),
			Annotations:     template.Annotations,
			Finalizers:      template.Finalizers,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(sts, appsv1.SchemeGroupVersion.WithKind("StatefulSet"))},
		},
		Spec: template.Spec,
	}
	pod.Spec.Hostname = name
	pod.Spec.Subdomain = sts.Spec.ServiceName
	pod.Spec.Volumes = volumesOf(sts, name, pod.Spec.Volumes)
	return pod
}

// volumesOf mounts a pod's own PVCs, in place of volumes of the template with equal names.
func volumesOf(sts *appsv1.StatefulSet, podName string, volumes []corev1.Volume) []corev1.Volume {
	var claimed []corev1.Volume
	own := map[string]bool{}
	for i := range sts.Spec.VolumeClaimTemplates {
		name := sts.Spec.VolumeClaimTemplates[i].Name
		own[name] = true
		claimed = append(claimed, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: pvcName(name, podName)},
		}})
	}
	rest := slices.DeleteFunc(slices.Clone(volumes), func(v corev1.Volume) bool { return own[v.Name] })
	return append(claimed, rest...)
}

// PVCs are those that the StatefulSet controller would create for a pod. They have no
// owner.
func PVCs(sts *appsv1.StatefulSet, podName string) []*corev1.PersistentVolumeClaim {
	var pvcs []*corev1.PersistentVolumeClaim
	for i := range sts.Spec.VolumeClaimTemplates {
		template := &sts.Spec.VolumeClaimTemplates[i]
		pvcs = append(pvcs, &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{
				Namespace:   sts.Namespace,
				Name:        pvcName(template.Name, podName),
				Labels:      labels.Merge(template.Labels, sts.Spec.Selector.MatchLabels),
				Annotations: maps.Clone(template.Annotations),
			},
			Spec: *template.Spec.DeepCopy(),
		})
	}
	return pvcs
}

func pvcName(template, podName string) string { return template + "-" + podName }
