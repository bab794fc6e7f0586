package pvc_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"lockstep.dev/lockstep/internal/pvc"
)

func TestAReleaseTokenLastsForAWhile(t *testing.T) {
	token := annotated(pvc.ReleaseAnnotation, "uid-data")
	other := annotated(pvc.ReleaseAnnotation, "another-life")
	until := func(at time.Time) func(*corev1.PersistentVolumeClaim) {
		return annotated(pvc.ReleaseUntilAnnotation, at.Format(time.RFC3339))
	}
	const dated = "2026-11-21T13:00:01Z"
	both := map[string]string{pvc.ReleaseAnnotation: "", pvc.ReleaseUntilAnnotation: ""}
	hour := noon.Add(time.Hour).Add(time.Second)
	for _, tt := range []struct {
		name  string
		claim *corev1.PersistentVolumeClaim
		want  pvc.TokenVerdict
	}{
		{"none", claim("data"), pvc.TokenVerdict{}},
		{"new", claim("data", token), pvc.TokenVerdict{Annotations: map[string]string{pvc.ReleaseUntilAnnotation: dated}, Until: hour, Granted: true}},
		{"of another life", claim("data", other), pvc.TokenVerdict{}},
		{"young", claim("data", token, until(noon.Add(time.Minute))), pvc.TokenVerdict{Until: noon.Add(time.Minute)}},
		{"over", claim("data", token, until(noon)), pvc.TokenVerdict{Annotations: both, Expired: true}},
		{"of another life, with a date", claim("data", other, until(noon)), pvc.TokenVerdict{Annotations: map[string]string{pvc.ReleaseUntilAnnotation: ""}}},
		{"with a date too far", claim("data", token, until(noon.Add(48*time.Hour))), pvc.TokenVerdict{Annotations: map[string]string{pvc.ReleaseUntilAnnotation: dated}, Until: hour}},
		{"with a date that is none", claim("data", token, annotated(pvc.ReleaseUntilAnnotation, "soon")), pvc.TokenVerdict{Annotations: map[string]string{pvc.ReleaseUntilAnnotation: dated}, Until: hour}},
		{"taken back", claim("data", until(noon.Add(time.Minute))), pvc.TokenVerdict{Annotations: map[string]string{pvc.ReleaseUntilAnnotation: ""}}},
		{"of a release by two people", claim("data", annotated(pvc.Prefix+"confirmed-by", "jane"), annotated(pvc.Prefix+"confirmed-until", dated)),
			pvc.TokenVerdict{Annotations: map[string]string{pvc.Prefix + "confirmed-by": "", pvc.Prefix + "confirmed-until": ""}}},
		{"made use of", claim("data", token, until(noon), dying), pvc.TokenVerdict{}},
	} {
		if diff := cmp.Diff(tt.want, pvc.DecideToken(tt.claim, noon, time.Hour), cmpEmpty); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

func TestHeldClaimsAreCounted(t *testing.T) {
	held := annotated(pvc.HoldersAnnotation, "StatefulSet/db")
	claims := []corev1.PersistentVolumeClaim{*claim("a", held), *claim("b"), *claim("c", held), *claim("d", held, dying)}
	namespace := func(count string) *corev1.Namespace {
		n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns, Annotations: map[string]string{}}}
		if count != "-" {
			n.Annotations[pvc.HeldClaimsAnnotation] = count
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
		{"for the first time", namespace("-"), claims, map[string]string{pvc.HeldClaimsAnnotation: "2"}},
		{"as before", namespace("2"), claims, nil},
		{"another number", namespace("7"), claims, map[string]string{pvc.HeldClaimsAnnotation: "2"}},
		{"no more", namespace("2"), nil, map[string]string{pvc.HeldClaimsAnnotation: ""}},
		{"none, and a word that says nothing", namespace(""), nil, map[string]string{pvc.HeldClaimsAnnotation: ""}},
		{"none, as before", namespace("-"), nil, nil},
		{"on its way out", ending, claims, nil},
	} {
		if diff := cmp.Diff(tt.want, pvc.CountHeld(tt.namespace, tt.claims)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}
