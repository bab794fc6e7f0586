package pvc_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"lockstep.dev/lockstep/internal/pvc"
)

func TestJudge(t *testing.T) {
	broken := errors.New("the server is not well")
	recorded := annotated(pvc.UsersAnnotation, "web=uid-web")
	tests := []struct {
		name  string
		alone bool
		claim *corev1.PersistentVolumeClaim
		read  pvc.Read
		takes string
		stays []string
		kept  bool
	}{
		{"nobody", false, claim("data", dying, finalizers(b)), reading(nil), b, nil, false},
		{"a bound pod", false, claim("data", dying, finalizers(b)), reading(nil, pod("web", []string{"data"})), "", nil, true},
		{"an unbound pod", false, claim("data", dying, finalizers(b)), reading(nil, pod("web", []string{"data"}, unbound)), b, nil, false},
		{"an error", false, claim("data", dying, finalizers(b)), reading(broken), "", nil, true},
		{"P is there, and the built-in's", false, claim("data", dying), reading(nil), "", nil, false},
		{"P is there, and ours", true, claim("data", dying), reading(nil), p, []string{b}, false},
		{"P is there and ours, and a bound pod", true, claim("data", dying), reading(nil, pod("web", []string{"data"})), "", nil, true},
		{"others' finalizers", false, claim("data", dying, finalizers("x/1", b, "x/2")), reading(nil), b, []string{"x/1", "x/2"}, false},
		{"others' finalizers alone", true, claim("data", dying, finalizers("x/1")), reading(nil), "", nil, false},
		{"not terminating", true, claim("data"), reading(nil), "", nil, false},
		{"recorded, and bound since", false, claim("data", dying, finalizers(b), recorded), reading(nil, pod("web", nil)), "", nil, true},
		{"recorded, and not bound yet", false, claim("data", dying, finalizers(b), recorded), reading(nil, pod("web", nil, unbound)), "", nil, true},
		{"recorded, and gone", false, claim("data", dying, finalizers(b), recorded), reading(nil), b, nil, false},
		{"recorded, and another of the name", false, claim("data", dying, finalizers(b), recorded), reading(nil, pod("web", nil, func(o *corev1.Pod) { o.UID = "next" })), b, nil, false},
		{"a record that cannot be read", false, claim("data", dying, finalizers(b), annotated(pvc.UsersAnnotation, "?")), reading(nil), "", nil, true},
		{"no way to read", false, claim("data", dying, finalizers(b)), nil, "", nil, true},
		{"of no version", false, claim("data", dying, finalizers(b), func(c *corev1.PersistentVolumeClaim) { c.ResourceVersion = "" }), reading(nil), "", nil, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			batch := pvc.Settings{Alone: tt.alone}.Take(ns, []*corev1.PersistentVolumeClaim{tt.claim})
			releases, kept := batch.Look(tt.read).Judge()
			if got := len(kept) == 1; got != tt.kept {
				t.Errorf("kept: got %t, want %t", got, tt.kept)
			}
			if tt.takes == "" {
				if len(releases) > 0 {
					t.Errorf("%s is taken", releases[0].Takes())
				}
				return
			}
			if len(releases) != 1 || releases[0].Takes() != tt.takes || releases[0].Target().UID != tt.claim.UID || releases[0].Target().ResourceVersion != "7" {
				t.Fatalf("got %+v, want %s taken from the version judged", releases, tt.takes)
			}
			if diff := cmp.Diff(tt.stays, releases[0].Finalizers(), cmpEmpty); diff != "" {
				t.Errorf("finalizers that stay (-want +got):\n%s", diff)
			}
		})
	}
}

// A reading that was had before the batch was taken cannot be used: it is called
// after, or not at all.
func TestTheReadingBeginsAfterTheSnapshot(t *testing.T) {
	began := false
	read := func(string, func(*corev1.Pod)) error { began = true; return nil }
	batch := pvc.Settings{}.Take(ns, []*corev1.PersistentVolumeClaim{claim("data", dying, finalizers(b))})
	if began {
		t.Fatal("pods were read before the claims were")
	}
	batch.Look(read)
	if !began {
		t.Fatal("pods were not read at all")
	}
}

func TestAnEmptyBatchReadsNothing(t *testing.T) {
	read := func(string, func(*corev1.Pod)) error { t.Error("pods were read for nothing"); return nil }
	other := claim("data", dying, finalizers(b), func(c *corev1.PersistentVolumeClaim) { c.Namespace = "other" })
	batch := pvc.Settings{}.Take(ns, []*corev1.PersistentVolumeClaim{claim("a"), claim("b", dying), other})
	if releases, kept := batch.Look(read).Judge(); len(releases)+len(kept) > 0 || !batch.Empty() {
		t.Errorf("judged %v %v", releases, kept)
	}
}

func TestTheZeroValuesReleaseNothing(t *testing.T) {
	if releases, _ := (pvc.LiveView{}).Judge(); len(releases) > 0 {
		t.Error("a view of nothing releases")
	}
	if (pvc.LiveView{}).Err() == nil {
		t.Error("a view of nothing is sound")
	}
	if (pvc.Release{}).Target().UID != "" {
		t.Error("a release of nothing has a target")
	}
}
