package apply

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
)

func TestAnApplySendsWhatIsSetAndNothingElse(t *testing.T) {
	onto := identity.Ref{Kind: identity.KindStatefulSet, Namespace: "ns", Name: "w", UID: "u", ResourceVersion: "3"}
	head := `"apiVersion":"apps/v1","kind":"StatefulSet","metadata":{"annotations":{"a":"b"},"name":"w","namespace":"ns","resourceVersion":"4","uid":"u"}`
	meta := metav1.ObjectMeta{Annotations: map[string]string{"a": "b"}}
	revision := onto
	revision.Kind = identity.KindControllerRevision
	for _, tt := range []struct {
		name   string
		object action.Object
		onto   identity.Ref
		want   string
	}{
		{"metadata only", &appsv1.StatefulSet{ObjectMeta: meta}, onto, "{" + head + "}"},
		{
			"a retention policy only, and not even an empty template",
			&appsv1.StatefulSet{ObjectMeta: meta, Spec: appsv1.StatefulSetSpec{
				PersistentVolumeClaimRetentionPolicy: &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{WhenDeleted: "Retain", WhenScaled: "Retain"},
			}},
			onto,
			"{" + head + `,"spec":{"persistentVolumeClaimRetentionPolicy":{"whenDeleted":"Retain","whenScaled":"Retain"}}}`,
		},
		{
			"empty choices stay, empty status goes",
			&appsv1.StatefulSet{ObjectMeta: meta, Spec: appsv1.StatefulSetSpec{
				Selector: &metav1.LabelSelector{}, ServiceName: "w",
				VolumeClaimTemplates: []corev1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: "data"}}},
				Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
					Volumes: []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}},
				}},
			}},
			onto,
			"{" + head + `,"spec":{"selector":{},"serviceName":"w","template":{"metadata":{},"spec":{"volumes":[{"emptyDir":{},"name":"v"}]}},"updateStrategy":{},"volumeClaimTemplates":[{"metadata":{"name":"data"},"spec":{"resources":{}}}]}}`,
		},
		{
			"a revision without a number", &appsv1.ControllerRevision{ObjectMeta: meta}, revision,
			`{"apiVersion":"apps/v1","kind":"ControllerRevision","metadata":{"annotations":{"a":"b"},"name":"w","namespace":"ns","resourceVersion":"4","uid":"u"}}`,
		},
		{
			"a revision with one", &appsv1.ControllerRevision{ObjectMeta: meta, Revision: 7}, revision,
			`{"apiVersion":"apps/v1","kind":"ControllerRevision","metadata":{"annotations":{"a":"b"},"name":"w","namespace":"ns","resourceVersion":"4","uid":"u"},"revision":7}`,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			fields, err := applied(tt.object, tt.onto, "4")
			if err != nil {
				t.Fatal(err)
			}
			got, err := json.Marshal(fields)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(parsed(t, tt.want), parsed(t, string(got))); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
	if _, err := applied(&corev1.Pod{}, named("w-0"), "4"); err == nil {
		t.Error("a pod was applied")
	}
}
