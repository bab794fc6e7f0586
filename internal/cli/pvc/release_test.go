package pvc

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/pvc"
)

func held(by string) func(*corev1.PersistentVolumeClaim) {
	return annotated(pvc.HoldersAnnotation, by)
}

func token(uid string) func(*corev1.PersistentVolumeClaim) {
	return annotated(pvc.ReleaseAnnotation, uid)
}

func TestStandings(t *testing.T) {
	leaving := func(c *corev1.PersistentVolumeClaim) { c.DeletionTimestamp = &metav1.Time{} }
	namespace := func(held, released string) *corev1.Namespace {
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns, UID: "n", Annotations: map[string]string{
			pvc.HeldClaimsAnnotation: held, pvc.ReleaseAnnotation: released,
		}}}
	}
	for name, tt := range map[string]struct {
		object client.Object
		want   Standing
	}{
		"free":                                 {claim("a"), Free},
		"held":                                 {claim("a", held("b")), Held},
		"released":                             {claim("a", held("b"), token("uid-a")), Released},
		"a token of another incarnation":       {claim("a", held("b"), token("x")), Held},
		"terminating":                          {claim("a", leaving), Leaving},
		"terminating and released":             {claim("a", leaving, token("uid-a")), Leaving},
		"terminating and held":                 {claim("a", leaving, held("b")), Held},
		"terminating, held and released":       {claim("a", leaving, held("b"), token("uid-a")), Released},
		"a namespace":                          {namespace("", ""), Free},
		"a namespace that counts no held PVCs": {namespace("0", ""), Free},
		"a namespace with held PVCs":           {namespace("2", ""), Held},
		"a released namespace":                 {namespace("2", "n"), Released},
	} {
		if got := StandingOf(tt.object); got != tt.want {
			t.Errorf("%s: got %d, want %d", name, got, tt.want)
		}
	}
}

// A release is of the incarnation and the holders that were shown.
func TestRelease(t *testing.T) {
	for name, tt := range map[string]struct {
		change   func(*corev1.PersistentVolumeClaim)
		released bool
	}{
		"unchanged":                {func(*corev1.PersistentVolumeClaim) {}, true},
		"another annotation":       {annotated("x", "y"), true},
		"confirmed again":          {annotated(pvc.VerifiedAnnotation, "now"), true},
		"another holder":           {held("c"), false},
		"another incarnation":      {func(c *corev1.PersistentVolumeClaim) { c.UID = "another" }, false},
		"released by another user": {token("uid-a"), true},
	} {
		t.Run(name, func(t *testing.T) {
			shown := claim("a", held("b"))
			c := (&api{}).client(t, claim("a", held("b"), tt.change))
			if err := Release(t.Context(), c, shown); tt.released != (err == nil) || err != nil && !errors.Is(err, ErrChanged) {
				t.Errorf("got %v", err)
			}
			now := &corev1.PersistentVolumeClaim{}
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(shown), now); err != nil {
				t.Fatal(err)
			}
			if got := now.Annotations[pvc.ReleaseAnnotation]; (got == "uid-a") != tt.released {
				t.Errorf("the token is %q", got)
			}
		})
	}
}
