package integration

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"lockstep.dev/lockstep/internal/lws/admission"
)

func statefulSet(namespace string, change func(*appsv1.StatefulSetSpec)) *appsv1.StatefulSet {
	labels := map[string]string{"app": "w"}
	set := &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: "w", Namespace: namespace},
		Spec: appsv1.StatefulSetSpec{
			Selector:             &metav1.LabelSelector{MatchLabels: labels},
			Template:             corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: podWith("", "").Spec},
			VolumeClaimTemplates: []corev1.PersistentVolumeClaim{*newClaim("", "data")},
		},
	}
	if change != nil {
		change(&set.Spec)
	}
	return set
}

// Admission refuses only what no StatefulSet takes.
func TestStatefulSetsRefuseWhatAdmissionRefuses(t *testing.T) {
	namespace := newNamespace(t)
	for name, change := range map[string]func(*appsv1.StatefulSetSpec){
		"restartPolicy":         func(s *appsv1.StatefulSetSpec) { s.Template.Spec.RestartPolicy = corev1.RestartPolicyNever },
		"activeDeadlineSeconds": func(s *appsv1.StatefulSetSpec) { s.Template.Spec.ActiveDeadlineSeconds = ptr.To[int64](60) },
		"whenDeleted": func(s *appsv1.StatefulSetSpec) {
			s.PersistentVolumeClaimRetentionPolicy = &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{WhenDeleted: "Recycle"}
		},
	} {
		t.Run(name, func(t *testing.T) {
			wantRefusal(t, api.Create(t.Context(), statefulSet(namespace, change)), name)
		})
	}

	set := statefulSet(namespace, nil)
	must(t, api.Create(t.Context(), set))
	set.Spec.VolumeClaimTemplates[0].Spec.Resources.Requests["storage"] = resource.MustParse("2Gi")
	wantRefusal(t, api.Update(t.Context(), set), "spec.volumeClaimTemplates")
}

func TestPodsRefuseWhatAdmissionRefuses(t *testing.T) {
	namespace := newNamespace(t)
	pod := podWith(namespace, "w-0")
	admission.SetExclusiveAffinities(pod, "key", "no label", "group")
	wantRefusal(t, api.Create(t.Context(), pod), "topologyKey")

	pod.Spec.Affinity = nil
	pod.Labels = map[string]string{appsv1.ControllerRevisionHashLabelKey: strings.Repeat("a", 64)}
	wantRefusal(t, api.Create(t.Context(), pod), "must be no more than 63")
}
