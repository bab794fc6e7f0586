package admission_test

import (
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/lws/admission"
)

// A cause lies where the user wrote the field, or nowhere.
func TestCausesLieAtThePathsOfTheSet(t *testing.T) {
	const leader, worker = "spec.leaderWorkerTemplate.leaderTemplate", "spec.leaderWorkerTemplate.workerTemplate"
	claims := func(set *lwsv1.LeaderWorkerSet) {
		set.Spec.LeaderWorkerTemplate.VolumeClaimTemplates = []corev1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: "data"}}}
	}
	for _, tt := range []struct {
		set              *lwsv1.LeaderWorkerSet
		cause            string
		leaders, workers string
	}{
		{newSet(), "spec.template.spec.containers[1].ports[0].containerPort", worker + ".spec.containers[1].ports[0].containerPort", worker + ".spec.containers[1].ports[0].containerPort"},
		{newSet(withLeaderTemplate()), "spec.template.spec.initContainers[0].name", leader + ".spec.initContainers[0].name", worker + ".spec.initContainers[0].name"},
		{newSet(withLeaderTemplate()), "spec.template.labels", leader + ".metadata.labels", worker + ".metadata.labels"},
		{newSet(withLeaderTemplate()), "spec.template.annotations", leader + ".metadata.annotations", worker + ".metadata.annotations"},
		{newSet(withLeaderTemplate()), "spec.template.metadata.labels", "", ""},
		{newSet(withLeaderTemplate()), "spec.template.spec.volumes[1].name", leader + ".spec.volumes[1].name", worker + ".spec.volumes[1].name"},
		{newSet(claims), "spec.volumeClaimTemplates[0].spec.resources[storage]", "spec.leaderWorkerTemplate.volumeClaimTemplates[0].spec.resources[storage]", "spec.leaderWorkerTemplate.volumeClaimTemplates[0].spec.resources[storage]"},
		{newSet(), "metadata.ownerReferences[0].uid", "", ""},
		{newSet(), "spec.serviceName", "", ""},
		{newSet(), "", "", ""},
	} {
		drafts := admission.Drafts(tt.set)
		for i, want := range []string{tt.leaders, tt.workers} {
			invalid := apierrors.NewInvalid(schema.GroupKind{}, "w", nil)
			invalid.ErrStatus.Details.Causes = []metav1.StatusCause{{Field: tt.cause, Message: "no"}}
			got := drafts[i].Faults(invalid)
			if want == "" && len(got) > 0 || want != "" && !slices.Equal(got, []string{want + ": no"}) {
				t.Errorf("%s of draft %d: got %q, want %q", tt.cause, i, got, want)
			}
		}
	}
}

// A draft has the template that the operator writes.
func TestDraftsAreWhatTheOperatorMakes(t *testing.T) {
	hash := func(set *lwsv1.LeaderWorkerSet) { set.Spec.GroupIdentity = lwsv1.HashGroupIdentity }
	for _, identity := range []change{func(*lwsv1.LeaderWorkerSet) {}, hash} {
		set := newSet(identity, withLeaderTemplate())
		set.UID = "u"
		drafts := admission.Drafts(set)
		if deployment, isDeployment := drafts[0].Object.(*appsv1.Deployment); isDeployment != (set.Spec.GroupIdentity == lwsv1.HashGroupIdentity) ||
			isDeployment && deployment.Spec.Template.Spec.Containers[0].Image != "image:1" {
			t.Errorf("leaders: got %T", drafts[0].Object)
		}
		for _, draft := range drafts {
			owner := metav1.GetControllerOf(draft.Object)
			if owner == nil || owner.UID == "" || draft.Object.GetName() != "" || draft.Object.GetGenerateName() == "" {
				t.Errorf("%T: owner %+v, name %q", draft.Object, owner, draft.Object.GetName())
			}
		}
	}
}
