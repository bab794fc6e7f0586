package pvc

import (
	"errors"
	"net/http"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
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
		"terminating and held":                 {claim("a", leaving, held("b")), HeldBack},
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
func TestReleaseAndDelete(t *testing.T) {
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
			r := &Releaser{Client: (&api{}).client(t, claim("a", held("b"), tt.change))}
			if err := r.Release(t.Context(), shown); tt.released != (err == nil) || err != nil && !errors.Is(err, ErrChanged) {
				t.Errorf("release: got %v", err)
			}
			now := &corev1.PersistentVolumeClaim{}
			if err := r.Get(t.Context(), client.ObjectKeyFromObject(shown), now); err != nil {
				t.Fatal(err)
			}
			if got := now.Annotations[pvc.ReleaseAnnotation]; (got == "uid-a") != tt.released {
				t.Errorf("the token is %q", got)
			}
			if err := r.Delete(t.Context(), shown); tt.released != (err == nil) || err != nil && !errors.Is(err, ErrChanged) {
				t.Errorf("delete: got %v", err)
			}
		})
	}
}

// A change between the last read and the DELETE is read: the user has not seen a new holder.
func TestTheDeleteIsOfTheHoldersThatWereShown(t *testing.T) {
	for name, tt := range map[string]struct {
		change  func(*corev1.PersistentVolumeClaim)
		deleted bool
	}{
		"another holder":        {held("b,c"), false},
		"the operator dates it": {annotated(pvc.ReleaseUntilAnnotation, "later"), true},
	} {
		t.Run(name, func(t *testing.T) {
			shown, tries := claim("a", held("b")), 0
			a := &api{deleting: func(c client.WithWatch) {
				now := &corev1.PersistentVolumeClaim{}
				if tries++; tries > 1 {
					return
				}
				if err := c.Get(t.Context(), client.ObjectKeyFromObject(shown), now); err != nil {
					t.Fatal(err)
				}
				tt.change(now)
				if err := c.Update(t.Context(), now); err != nil {
					t.Fatal(err)
				}
			}}
			r := &Releaser{Client: a.client(t, claim("a", held("b")))}
			if err := r.Release(t.Context(), shown); err != nil {
				t.Fatal(err)
			}
			if err := r.Delete(t.Context(), shown); tt.deleted != (err == nil) || err != nil && !errors.Is(err, ErrChanged) {
				t.Errorf("delete: got %v", err)
			}
			err := r.Get(t.Context(), client.ObjectKeyFromObject(shown), &corev1.PersistentVolumeClaim{})
			if tt.deleted != apierrors.IsNotFound(err) {
				t.Errorf("read after the DELETE: got %v", err)
			}
		})
	}
}

func TestOnlyReleasesAreSent(t *testing.T) {
	const claims, space = "http://proxy/prefix/api/v1/namespaces/prod/persistentvolumeclaims", "http://server/api/v1/namespaces/prod"
	for request, want := range map[[2]string]bool{
		{http.MethodPatch, claims + "/a"}: true, {http.MethodDelete, claims + "/a"}: true, {http.MethodPatch, space}: true,
		{http.MethodPost, "http://server/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"}: true,
		{http.MethodPut, claims + "/a"}: false, {http.MethodPost, claims}: false, {http.MethodDelete, claims}: false,
		{http.MethodPatch, claims + "/a/status"}: false, {http.MethodPatch, space + "/status"}: false, {http.MethodDelete, space}: false,
		{http.MethodPatch, space + "/pods/a"}: false, {http.MethodPost, "http://server/api/v1/namespaces"}: false,
	} {
		r, err := http.NewRequestWithContext(t.Context(), request[0], request[1], nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := isRelease(r); got != want {
			t.Errorf("%v: got %t", request, got)
		}
	}
}
