package integration

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws/revision"
	"lockstep.dev/lockstep/internal/pvc"
	"lockstep.dev/lockstep/internal/terminal"
	"lockstep.dev/lockstep/test/fakeapi"
)

// hostile clears a terminal, and writes from right to left.
const hostile = "\u202eevil\u200b\x1b[2J\u009b2J\U000e0061\u2028"

// A tenant writes annotations, templates, messages and events. No command shows them to others as they are.
func TestNoTenantSteersATerminal(t *testing.T) {
	namespace := shared(t).namespace()
	p := newPlugin(t, cfg, namespace)
	set := fakeapi.Set("llama", 1, 2, fakeapi.Annotation("kubernetes.io/change-cause", hostile))
	set.ObjectMeta = metav1.ObjectMeta{Namespace: namespace, Name: "llama", Annotations: set.Annotations}
	value := strings.ReplaceAll(hostile, "\u009b", "") // no YAML has it
	set.Spec.LeaderWorkerTemplate.WorkerTemplate.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "A", Value: value}}
	must(t, api.Create(t.Context(), set))
	set.Status.Conditions = []metav1.Condition{{
		Type: string(lwsv1.LeaderWorkerSetProgressing), Status: metav1.ConditionTrue, Reason: "Refused", Message: hostile, LastTransitionTime: metav1.Now(),
	}}
	must(t, api.Status().Update(t.Context(), set))
	former := set.DeepCopy()
	former.Spec.LeaderWorkerTemplate.WorkerTemplate.Spec.Containers[0].Env[0].Value = "before" + value
	data, err := revision.Data(former)
	must(t, err)
	key := revision.Key(data)
	stored := &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: revision.Name(set.Name, key, 1), Annotations: map[string]string{"kubernetes.io/change-cause": hostile},
			Labels: map[string]string{lwsv1.SetNameLabelKey: set.Name, lwsv1.RevisionKey: key},
		},
		Revision: 1, Data: runtime.RawExtension{Raw: data},
	}
	fakeapi.OwnedBy(stored, lwsv1.GroupVersion.String(), identity.Ref{Kind: identity.KindLeaderWorkerSet, Name: set.Name, UID: set.UID})
	must(t, api.Create(t.Context(), stored))
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "data", Annotations: map[string]string{pvc.HoldAnnotation: hostile}},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:   corev1.VolumeResourceRequirements{Requests: fakeapi.Resources(corev1.ResourceStorage, "1Gi")},
		},
	}
	must(t, api.Create(t.Context(), claim))

	told := 0
	for _, line := range []string{
		"status llama", "plan llama", "rollout status llama --watch=false", "rollout history llama", "rollout diff llama",
		"rollout undo llama --dry-run=client", "why pvc/data", "why pvc", "release pvc/data", "check", "check --pre",
	} {
		out, errOut, _ := p.run(t, "", strings.Fields(line)...)
		text := out + errOut
		if text != terminal.Escape(text) {
			t.Errorf("%s printed %q", line, text)
		}
		if strings.Contains(text, `\u202e`) {
			told++
		}
	}
	if told < 4 {
		t.Errorf("only %d commands show what a tenant wrote", told)
	}
}
