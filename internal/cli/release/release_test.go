package release_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"lockstep.dev/lockstep/internal/cli/release"
	"lockstep.dev/lockstep/internal/pvc"
)

func claim(edits ...func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
	c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
		Namespace: "prod", Name: "data", UID: "u", Finalizers: []string{pvc.PodsFinalizer}, Annotations: map[string]string{},
	}}
	for _, edit := range edits {
		edit(c)
	}
	return c
}

func words(value string) func(*corev1.PersistentVolumeClaim) {
	return func(c *corev1.PersistentVolumeClaim) { c.Annotations[pvc.HoldersAnnotation] = value }
}

func token(uid string) func(*corev1.PersistentVolumeClaim) {
	return func(c *corev1.PersistentVolumeClaim) { c.Annotations[pvc.ReleaseAnnotation] = uid }
}

func leaving(c *corev1.PersistentVolumeClaim) { c.DeletionTimestamp = &metav1.Time{} }

func TestStanding(t *testing.T) {
	space := func(held, released string) *corev1.Namespace {
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "prod", UID: "n", Annotations: map[string]string{
			pvc.HeldClaimsAnnotation: held, pvc.ReleaseAnnotation: released,
		}}}
	}
	for _, tt := range []struct {
		name   string
		object client.Object
		want   release.Standing
	}{
		{"nothing on it", claim(), release.Free},
		{"words", claim(words("a")), release.Held},
		{"words and its own token", claim(words("a"), token("u")), release.Released},
		{"words and the token of another life", claim(words("a"), token("x")), release.Held},
		{"terminating", claim(leaving), release.Leaving},
		{"terminating, with a token", claim(leaving, token("u")), release.Leaving},
		{"terminating, in words", claim(leaving, words("a")), release.HeldBack},
		{"terminating, in words, released", claim(leaving, words("a"), token("u")), release.Released},
		{"a namespace", space("", ""), release.Free},
		{"a namespace with none held", space("0", ""), release.Free},
		{"a namespace with some", space("2", ""), release.Held},
		{"a namespace released", space("2", "n"), release.Released},
	} {
		if got, err := release.Judge(tt.object); got != tt.want || err != nil {
			t.Errorf("%s: got %d, %v, want %d", tt.name, got, err, tt.want)
		}
	}
	if _, err := release.Judge(&corev1.Pod{}); err == nil {
		t.Error("a pod is judged")
	}
}

// meanwhile is a cluster in which somebody is faster than the first write.
func meanwhile(t *testing.T, c *corev1.PersistentVolumeClaim, change func(*corev1.PersistentVolumeClaim)) (*release.Releaser, *corev1.PersistentVolumeClaim) {
	t.Helper()
	conflicts := 0
	conflict := func() error {
		return apierrors.NewConflict(schema.GroupResource{Resource: "persistentvolumeclaims"}, "data", errors.New("changed"))
	}
	under := fake.NewClientBuilder().WithObjects(c).WithInterceptorFuncs(interceptor.Funcs{
		Patch: func(ctx context.Context, w client.WithWatch, o client.Object, p client.Patch, options ...client.PatchOption) error {
			if conflicts++; conflicts == 1 && change != nil {
				now := &corev1.PersistentVolumeClaim{}
				if err := w.Get(ctx, client.ObjectKeyFromObject(o), now); err != nil {
					return err
				}
				change(now)
				if err := w.Update(ctx, now); err != nil {
					return err
				}
				return conflict()
			}
			return w.Patch(ctx, o, p, options...)
		},
	}).Build()
	shown := &corev1.PersistentVolumeClaim{}
	if err := under.Get(t.Context(), client.ObjectKeyFromObject(c), shown); err != nil {
		t.Fatal(err)
	}
	return &release.Releaser{Client: under}, shown
}

func read(t *testing.T, r *release.Releaser) *corev1.PersistentVolumeClaim {
	t.Helper()
	c := &corev1.PersistentVolumeClaim{}
	if err := r.Get(t.Context(), types.NamespacedName{Namespace: "prod", Name: "data"}, c); err != nil {
		t.Fatal(err)
	}
	return c
}

func TestAReleaseNamesTheVeryLife(t *testing.T) {
	r, shown := meanwhile(t, claim(words("a")), nil)
	if _, err := r.Release(t.Context(), shown); err != nil {
		t.Fatal(err)
	}
	if got := read(t, r).Annotations[pvc.ReleaseAnnotation]; got != "u" {
		t.Errorf("the token is %q", got)
	}
}

func TestAReleaseIsOfWhatWasShown(t *testing.T) {
	for _, tt := range []struct {
		name     string
		change   func(*corev1.PersistentVolumeClaim)
		released bool
	}{
		{"another annotation", func(c *corev1.PersistentVolumeClaim) { c.Annotations["x"] = "y" }, true},
		{"confirmed again", func(c *corev1.PersistentVolumeClaim) { c.Annotations[pvc.VerifiedAnnotation] = "now" }, true},
		{"another holder", words("b"), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, shown := meanwhile(t, claim(words("a")), tt.change)
			_, err := r.Release(t.Context(), shown)
			if tt.released != (err == nil) || err != nil && !errors.Is(err, release.ErrChanged) {
				t.Errorf("got %v", err)
			}
			if got := read(t, r).Annotations[pvc.ReleaseAnnotation]; (got == "u") != tt.released {
				t.Errorf("the token is %q", got)
			}
		})
	}
}

func TestWhatHasNoVersionIsNotReleased(t *testing.T) {
	r, shown := meanwhile(t, claim(words("a")), nil)
	shown.ResourceVersion = ""
	if _, err := r.Release(t.Context(), shown); err == nil {
		t.Error("it was released")
	}
}

// Somebody is faster than the deletion, once.
func TestADeletionIsOfWhatWasShown(t *testing.T) {
	for _, tt := range []struct {
		name    string
		change  func(*corev1.PersistentVolumeClaim)
		deleted bool
	}{
		{"another annotation", func(c *corev1.PersistentVolumeClaim) { c.Annotations[pvc.ReleaseUntilAnnotation] = "later" }, true},
		{"another holder", words("b"), false},
		{"the release is over", token(""), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tried := 0
			under := fake.NewClientBuilder().WithObjects(claim(words("a"), token("u"))).WithInterceptorFuncs(interceptor.Funcs{
				Delete: func(ctx context.Context, w client.WithWatch, o client.Object, options ...client.DeleteOption) error {
					if tried++; tried > 1 {
						return w.Delete(ctx, o)
					}
					now := &corev1.PersistentVolumeClaim{}
					if err := w.Get(ctx, client.ObjectKeyFromObject(o), now); err != nil {
						return err
					}
					tt.change(now)
					if err := w.Update(ctx, now); err != nil {
						return err
					}
					return apierrors.NewConflict(schema.GroupResource{Resource: "persistentvolumeclaims"}, "data", errors.New("changed"))
				},
			}).Build()
			r := &release.Releaser{Client: under}
			err := r.Delete(t.Context(), read(t, r))
			if tt.deleted != (err == nil) || err != nil && !errors.Is(err, release.ErrChanged) {
				t.Errorf("got %v", err)
			}
			if gone := read(t, r).DeletionTimestamp != nil; gone != tt.deleted {
				t.Errorf("deleted: %t", gone)
			}
		})
	}
}

// record notes what reaches the network.
type record struct{ paths []string }

func (r *record) RoundTrip(request *http.Request) (*http.Response, error) {
	r.paths = append(r.paths, request.Method+" "+request.URL.Path)
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(`{"kind":"Status","apiVersion":"v1","status":"Success"}`))}, nil
}

func TestNothingElseIsWritten(t *testing.T) {
	wire := &record{}
	r, err := release.Open(&rest.Config{Host: "http://proxy/prefix", Transport: wire})
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	space := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "prod"}}
	merge := client.RawPatch(types.MergePatchType, []byte(`{}`))
	for what, err := range map[string]error{
		"delete of a namespace":   r.Client.Delete(ctx, space),
		"create of a claim":       r.Create(ctx, claim()),
		"update of a claim":       r.Update(ctx, claim()),
		"status of a claim":       r.Status().Patch(ctx, claim(), merge),
		"delete of many":          r.DeleteAllOf(ctx, claim(), client.InNamespace("prod")),
		"status of a namespace":   r.Status().Patch(ctx, space, merge),
		"creation of a namespace": r.Create(ctx, space),
	} {
		if err == nil || !strings.Contains(err.Error(), "it is no part of a release") {
			t.Errorf("%s: got %v", what, err)
		}
	}
	if len(wire.paths) > 0 {
		t.Errorf("sent: %v", wire.paths)
	}
	for what, err := range map[string]error{
		"patch of a claim": r.Patch(ctx, claim(), merge), "patch of a namespace": r.Patch(ctx, space, merge), "delete of a claim": r.Client.Delete(ctx, claim()),
	} {
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	if len(wire.paths) != 3 {
		t.Errorf("sent: %v", wire.paths)
	}
}
