package pvc_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"lockstep.dev/lockstep/internal/pvc"
)

func TestDecideToken(t *testing.T) {
	token, other := annotated(pvc.ReleaseAnnotation, "uid-data"), annotated(pvc.ReleaseAnnotation, "uid-before")
	ends := func(at string) func(*corev1.PersistentVolumeClaim) {
		return annotated(pvc.ReleaseUntilAnnotation, at)
	}
	const now, soon, far, dated = "2026-11-21T12:00:00Z", "2026-11-21T12:01:00Z", "2026-11-23T12:00:00Z", "2026-11-21T13:00:01Z"
	hour := noon.Add(time.Hour).Add(time.Second)
	for _, tt := range []struct {
		name  string
		claim *corev1.PersistentVolumeClaim
		want  pvc.TokenVerdict
	}{
		{"none", claim("data"), pvc.TokenVerdict{}},
		{"new", claim("data", token), pvc.TokenVerdict{Annotations: map[string]string{pvc.ReleaseUntilAnnotation: dated}, Until: hour, Granted: true}},
		{"of another UID", claim("data", other), pvc.TokenVerdict{}},
		{"without UID", claim("data", annotated(pvc.ReleaseAnnotation, ""), func(c *corev1.PersistentVolumeClaim) { c.UID = "" }), pvc.TokenVerdict{}},
		{"young", claim("data", token, ends(soon)), pvc.TokenVerdict{Until: noon.Add(time.Minute)}},
		{"expired", claim("data", token, ends(now)), pvc.TokenVerdict{Annotations: map[string]string{pvc.ReleaseAnnotation: "", pvc.ReleaseUntilAnnotation: ""}, Expired: true}},
		{"of another UID, dated", claim("data", other, ends(now)), pvc.TokenVerdict{Annotations: map[string]string{pvc.ReleaseUntilAnnotation: ""}}},
		{"dated too far", claim("data", token, ends(far)), pvc.TokenVerdict{Annotations: map[string]string{pvc.ReleaseUntilAnnotation: dated}, Until: hour}},
		{"unreadable date", claim("data", token, ends("soon")), pvc.TokenVerdict{Annotations: map[string]string{pvc.ReleaseUntilAnnotation: dated}, Until: hour}},
		{"removed", claim("data", ends(soon)), pvc.TokenVerdict{Annotations: map[string]string{pvc.ReleaseUntilAnnotation: ""}}},
		{"used", claim("data", token, ends(now), dying), pvc.TokenVerdict{}},
	} {
		if diff := cmp.Diff(tt.want, pvc.DecideToken(tt.claim, noon, time.Hour), cmpEmpty); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

func TestCountHeld(t *testing.T) {
	held := annotated(pvc.HoldersAnnotation, "StatefulSet/db")
	two := []corev1.PersistentVolumeClaim{*claim("a", held), *claim("b"), *claim("c", held), *claim("d", held, dying)}
	for _, tt := range []struct {
		name, count string // "-" for none
		ending      bool
		claims      []corev1.PersistentVolumeClaim
		want        map[string]string
	}{
		{"for the first time", "-", false, two, map[string]string{pvc.HeldClaimsAnnotation: "2"}},
		{"as before", "2", false, two, nil},
		{"another number", "7", false, two, map[string]string{pvc.HeldClaimsAnnotation: "2"}},
		{"no more", "2", false, nil, map[string]string{pvc.HeldClaimsAnnotation: ""}},
		{"none, and an empty annotation", "", false, nil, map[string]string{pvc.HeldClaimsAnnotation: ""}},
		{"none, as before", "-", false, nil, nil},
		{"terminating", "-", true, two, nil},
	} {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns, Annotations: map[string]string{}}}
		if tt.count != "-" {
			namespace.Annotations[pvc.HeldClaimsAnnotation] = tt.count
		}
		if tt.ending {
			namespace.DeletionTimestamp = &metav1.Time{Time: noon}
		}
		if diff := cmp.Diff(tt.want, pvc.CountHeld(namespace, tt.claims)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}
