package podgate

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"lockstep.dev/lockstep/internal/pvc"
	"lockstep.dev/lockstep/internal/pvccache"
)

func TestWhatAPodMayHaveWaitedFor(t *testing.T) {
	word := func(key, value string) func(*corev1.PersistentVolumeClaim) {
		return func(c *corev1.PersistentVolumeClaim) { c.Annotations = map[string]string{key: value} }
	}
	nothing := func(*corev1.PersistentVolumeClaim) {}
	for _, tt := range []struct {
		name    string
		was, is func(*corev1.PersistentVolumeClaim)
		want    bool
	}{
		{"another claim of the name", nothing, func(c *corev1.PersistentVolumeClaim) { c.UID = "2" }, true},
		{"it is bound", nothing, func(c *corev1.PersistentVolumeClaim) { c.Status.Phase = corev1.ClaimBound }, true},
		{"another mode", nothing, word(pvc.ModeKey, "off"), true},
		{"one pod less", word(pvc.UsersAnnotation, "a=1,b=2"), word(pvc.UsersAnnotation, "a=1"), true},
		{"one pod more", word(pvc.UsersAnnotation, "a=1"), word(pvc.UsersAnnotation, "a=1,b=2"), false},
		{"something else", nothing, word(pvc.VerifiedAnnotation, "now"), false},
	} {
		was, is := &corev1.PersistentVolumeClaim{}, &corev1.PersistentVolumeClaim{}
		tt.was(was)
		tt.is(is)
		if got := easing().Update(event.TypedUpdateEvent[*corev1.PersistentVolumeClaim]{ObjectOld: was, ObjectNew: is}); got != tt.want {
			t.Errorf("%s: got %t", tt.name, got)
		}
	}
	one := &corev1.PersistentVolumeClaim{}
	if !easing().Create(event.TypedCreateEvent[*corev1.PersistentVolumeClaim]{Object: one}) || !easing().Delete(event.TypedDeleteEvent[*corev1.PersistentVolumeClaim]{Object: one}) {
		t.Error("a claim that comes or goes is passed over")
	}
}

func TestAnotherModeOfANamespaceIsNews(t *testing.T) {
	was, is := pvccache.NewNamespace("ns"), pvccache.NewNamespace("ns")
	changed := event.TypedUpdateEvent[*metav1.PartialObjectMetadata]{ObjectOld: was, ObjectNew: is}
	if relabelled().Update(changed) {
		t.Error("nothing changed")
	}
	is.Labels = map[string]string{pvc.ModeKey: "off"}
	if !relabelled().Update(changed) {
		t.Error("it chose another mode")
	}
}
