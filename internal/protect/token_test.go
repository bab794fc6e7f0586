package protect_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"lockstep.dev/lockstep/internal/protect"
)

func TestAReleaseTokenLastsForAWhile(t *testing.T) {
	token := annotated(protect.ReleaseAnnotation, "uid-data")
	other := annotated(protect.ReleaseAnnotation, "another-life")
	until := func(at time.Time) func(*corev1.PersistentVolumeClaim) {
		return annotated(protect.ReleaseUntilAnnotation, at.Format(time.RFC3339))
	}
	const dated = "2026-11-21T13:00:01Z"
	both := map[string]string{protect.ReleaseAnnotation: "", protect.ReleaseUntilAnnotation: ""}
	hour := noon.Add(time.Hour).Add(time.Second)
	for _, tt := range []struct {
		name  string
		claim *corev1.PersistentVolumeClaim
		want  protect.TokenVerdict
	}{
		{"none", claim("data"), protect.TokenVerdict{}},
		{"new", claim("data", token), protect.TokenVerdict{Annotations: map[string]string{protect.ReleaseUntilAnnotation: dated}, Until: hour, Granted: true}},
		{"of another life", claim("data", other), protect.TokenVerdict{}},
		{"young", claim("data", token, until(noon.Add(time.Minute))), protect.TokenVerdict{Until: noon.Add(time.Minute)}},
		{"over", claim("data", token, until(noon)), protect.TokenVerdict{Annotations: both, Expired: true}},
		{"of another life, with a date", claim("data", other, until(noon)), protect.TokenVerdict{Annotations: map[string]string{protect.ReleaseUntilAnnotation: ""}}},
		{"with a date too far", claim("data", token, until(noon.Add(48*time.Hour))), protect.TokenVerdict{Annotations: map[string]string{protect.ReleaseUntilAnnotation: dated}, Until: hour}},
		{"with a date that is none", claim("data", token, annotated(protect.ReleaseUntilAnnotation, "soon")), protect.TokenVerdict{Annotations: map[string]string{protect.ReleaseUntilAnnotation: dated}, Until: hour}},
		{"taken back", claim("data", until(noon.Add(time.Minute))), protect.TokenVerdict{Annotations: map[string]string{protect.ReleaseUntilAnnotation: ""}}},
		{"made use of", claim("data", token, until(noon), dying), protect.TokenVerdict{}},
	} {
		if diff := cmp.Diff(tt.want, protect.DecideToken(tt.claim, noon, time.Hour)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

// Where a release takes two people, the first one's word lasts no longer than a release
// does, and goes with it.
func TestAConfirmationLastsForAWhile(t *testing.T) {
	confirmed := annotated(protect.ConfirmedAnnotation, "alice")
	until := func(at time.Time) func(*corev1.PersistentVolumeClaim) {
		return annotated(protect.ConfirmedUntilAnnotation, at.Format(time.RFC3339))
	}
	const dated = "2026-11-21T13:00:01Z"
	hour := noon.Add(time.Hour).Add(time.Second)
	token := annotated(protect.ReleaseAnnotation, "uid-data")
	for _, tt := range []struct {
		name  string
		claim *corev1.PersistentVolumeClaim
		want  protect.TokenVerdict
	}{
		{"new", claim("data", confirmed), protect.TokenVerdict{Annotations: map[string]string{protect.ConfirmedUntilAnnotation: dated}, Until: hour}},
		{"young", claim("data", confirmed, until(noon.Add(time.Minute))), protect.TokenVerdict{Until: noon.Add(time.Minute)}},
		{"over", claim("data", confirmed, until(noon)), protect.TokenVerdict{Annotations: map[string]string{protect.ConfirmedAnnotation: "", protect.ConfirmedUntilAnnotation: ""}}},
		{"taken back", claim("data", until(noon.Add(time.Minute))), protect.TokenVerdict{Annotations: map[string]string{protect.ConfirmedUntilAnnotation: ""}}},
		{"released", claim("data", confirmed, until(noon), token), protect.TokenVerdict{Annotations: map[string]string{protect.ReleaseUntilAnnotation: dated}, Until: hour, Granted: true}},
		{"released, and over", claim("data", confirmed, until(noon), token, annotated(protect.ReleaseUntilAnnotation, noon.Format(time.RFC3339))), protect.TokenVerdict{
			Annotations: map[string]string{protect.ReleaseAnnotation: "", protect.ReleaseUntilAnnotation: "", protect.ConfirmedAnnotation: "", protect.ConfirmedUntilAnnotation: ""}, Expired: true,
		}},
		{"made use of", claim("data", confirmed, until(noon), dying), protect.TokenVerdict{}},
	} {
		if diff := cmp.Diff(tt.want, protect.DecideToken(tt.claim, noon, time.Hour)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

func TestHeldClaimsAreCounted(t *testing.T) {
	held := annotated(protect.HoldersAnnotation, "StatefulSet/db")
	claims := []corev1.PersistentVolumeClaim{*claim("a", held), *claim("b"), *claim("c", held), *claim("d", held, dying)}
	namespace := func(count string) *corev1.Namespace {
		n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns, Annotations: map[string]string{}}}
		if count != "-" {
			n.Annotations[protect.HeldClaimsAnnotation] = count
		}
		return n
	}
	ending := namespace("-")
	dyingNamespace := metav1.Time{Time: noon}
	ending.DeletionTimestamp = &dyingNamespace
	for _, tt := range []struct {
		name      string
		namespace *corev1.Namespace
		claims    []corev1.PersistentVolumeClaim
		want      map[string]string
	}{
		{"for the first time", namespace("-"), claims, map[string]string{protect.HeldClaimsAnnotation: "2"}},
		{"as before", namespace("2"), claims, nil},
		{"another number", namespace("7"), claims, map[string]string{protect.HeldClaimsAnnotation: "2"}},
		{"no more", namespace("2"), nil, map[string]string{protect.HeldClaimsAnnotation: ""}},
		{"none, and a word that says nothing", namespace(""), nil, map[string]string{protect.HeldClaimsAnnotation: ""}},
		{"none, as before", namespace("-"), nil, nil},
		{"on its way out", ending, claims, nil},
	} {
		if diff := cmp.Diff(tt.want, protect.CountHeld(tt.namespace, tt.claims)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}
