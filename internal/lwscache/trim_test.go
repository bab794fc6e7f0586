package lwscache

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/lws"
)

func TestACachedStatefulSetKeepsTheEntryOfItsCreate(t *testing.T) {
	entry := func(manager string, operation metav1.ManagedFieldsOperationType, subresource string) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{Manager: manager, Operation: operation, Subresource: subresource, FieldsV1: metav1.NewFieldsV1("{}")}
	}
	applied := entry(lws.FieldOwner, metav1.ManagedFieldsOperationApply, "")
	controller := entry("kube-controller-manager", metav1.ManagedFieldsOperationUpdate, "status")
	posted := entry(lws.FieldOwner, metav1.ManagedFieldsOperationUpdate, "")
	for name, test := range map[string]struct {
		entries []metav1.ManagedFieldsEntry
		left    bool
	}{
		"by an apply": {[]metav1.ManagedFieldsEntry{applied, controller}, false},
		"by a post":   {[]metav1.ManagedFieldsEntry{controller, posted}, true},
	} {
		sts := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{ManagedFields: test.entries}}
		trimStatefulSet(sts)
		if left := len(sts.ManagedFields) == 1 && lws.LeftByCreate(sts.ManagedFields[0]); left != test.left {
			t.Errorf("%s: %+v", name, sts.ManagedFields)
		}
		for _, kept := range sts.ManagedFields {
			if kept.FieldsV1 != nil {
				t.Errorf("%s: fields are kept", name)
			}
		}
	}
}

// A set's own StatefulSet is compared with what it should be; of its workers' there
// is one for each group, and nothing compares them.
func TestOnlyTheLeaderStatefulSetKeepsItsTemplate(t *testing.T) {
	for name, kept := range map[string]bool{"w": true, "w-0": false} {
		sts := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{lwsv1.SetNameLabelKey: "w"}}}
		sts.Spec.Template.Labels = map[string]string{"a": "b"}
		sts.Spec.Template.Spec.Containers = []corev1.Container{{Name: "w"}}
		trimStatefulSet(sts)
		if (len(sts.Spec.Template.Spec.Containers) > 0) != kept || len(sts.Spec.Template.Labels) != 1 {
			t.Errorf("%s: %+v", name, sts.Spec.Template)
		}
	}
}
