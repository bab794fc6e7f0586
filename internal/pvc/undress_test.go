package pvc

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"
)

func TestUndressing(t *testing.T) {
	gone := &metav1.Time{Time: time.Unix(1, 0)}
	all := []string{PodsFinalizer, "example.com/theirs", BarrierFinalizer}
	words := map[string]string{HoldersAnnotation: "x", UsersAnnotation: "a=1", HoldAnnotation: "mine", ModeKey: "hold", "example.com/theirs": "y"}
	for name, c := range map[string]struct {
		undress Undress
		meta    metav1.ObjectMeta
		want    Undressing
	}{
		"beside the built-in": {
			meta: metav1.ObjectMeta{Finalizers: all, Annotations: words, Labels: map[string]string{ModeKey: "hold"}},
			want: Undressing{Takes: true, Finalizers: []string{PodsFinalizer, "example.com/theirs"}, Annotations: []string{HoldAnnotation, HoldersAnnotation, ModeKey, UsersAnnotation}, Labels: []string{ModeKey}},
		},
		"alone": {
			undress: Undress{Alone: true}, meta: metav1.ObjectMeta{Finalizers: all},
			want: Undressing{Takes: true, Finalizers: []string{"example.com/theirs"}},
		},
		"choices are kept": {
			undress: Undress{KeepChoices: true}, meta: metav1.ObjectMeta{Annotations: words, Labels: map[string]string{ModeKey: "hold"}},
			want: Undressing{Annotations: []string{HoldersAnnotation, UsersAnnotation}},
		},
		"on its way out": {
			undress: Undress{Alone: true}, meta: metav1.ObjectMeta{Finalizers: all, Annotations: words, DeletionTimestamp: gone},
			want: Undressing{Finalizers: all, Annotations: []string{HoldAnnotation, HoldersAnnotation, ModeKey}},
		},
		"nothing of ours": {
			meta: metav1.ObjectMeta{Finalizers: []string{"example.com/theirs"}, Annotations: map[string]string{"example.com/theirs": "y"}},
			want: Undressing{Finalizers: []string{"example.com/theirs"}},
		},
	} {
		if diff := cmp.Diff(c.want, c.undress.Of(&c.meta)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// What others put on a claim stays, and a claim on its way out keeps every
// finalizer: these go by the protocol alone.
func TestUndressingTakesOursAlone(t *testing.T) {
	leaving, taken := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		keys := rapid.SliceOfDistinct(rapid.SampledFrom([]string{PodsFinalizer, BarrierFinalizer, "a/b", "c/d"}), rapid.ID).Draw(t, "finalizers")
		words := rapid.MapOf(rapid.SampledFrom([]string{HoldersAnnotation, ReleaseAnnotation, IntentAnnotation, HoldAnnotation, ModeKey, "a/b"}), rapid.Just("x")).Draw(t, "words")
		meta := &metav1.ObjectMeta{Finalizers: keys, Annotations: words}
		u := Undress{Alone: rapid.Bool().Draw(t, "alone"), KeepChoices: rapid.Bool().Draw(t, "keep")}
		if rapid.Bool().Draw(t, "leaving") {
			meta.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
			leaving++
		}
		off := u.Of(meta)
		if meta.DeletionTimestamp != nil && (off.Takes || !slices.Equal(off.Finalizers, keys)) {
			t.Fatalf("takes finalizers from a claim on its way out: %+v", off)
		}
		if off.Takes {
			taken++
		}
		for _, key := range keys {
			theirs := key != BarrierFinalizer && (key != PodsFinalizer || !u.Alone)
			if theirs && !slices.Contains(off.Finalizers, key) {
				t.Fatalf("takes %s", key)
			}
		}
		if slices.ContainsFunc(off.Annotations, func(key string) bool { return !strings.HasPrefix(key, Prefix) }) {
			t.Fatalf("takes %q", off.Annotations)
		}
	})
	if leaving == 0 || taken == 0 {
		t.Errorf("%d on their way out, %d undressed: the premise was never met", leaving, taken)
	}
}
