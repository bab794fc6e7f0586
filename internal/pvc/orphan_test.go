package pvc_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/pvc"
)

func ownedBefore(c *corev1.PersistentVolumeClaim) {
	c.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "db", UID: "life-1", Controller: new(true)}}
}

func ownedByMore(c *corev1.PersistentVolumeClaim) {
	c.OwnerReferences = append(c.OwnerReferences, metav1.OwnerReference{APIVersion: "example.com/v1", Kind: "Backup", Name: "nightly", UID: "b"})
}

// What bears the name of a claim's owner may be the life after: the claim does not go with
// that, and does go as soon as nothing refuses it.
func TestWhyTellsThatTheOwnerIsOfALifeBefore(t *testing.T) {
	const takesIt = "--type=merge -p '" + pvc.Disown + "'"
	for _, tt := range []struct {
		name  string
		gone  bool
		edits []func(*corev1.PersistentVolumeClaim)
		want  []string
		never string
	}{
		{"it is there", false, nil, []string{"StatefulSet/db owns it: it is deleted with that"}, "is gone"},
		{"it is gone", true, nil, []string{"StatefulSet/db (UID life-1), which owned it, is gone", "kubectl patch pvc c -n ns " + takesIt}, "owns it"},
		{"it is gone, and another perhaps not", true, []func(*corev1.PersistentVolumeClaim){ownedByMore}, []string{
			"StatefulSet/db (UID life-1), which owned it, is gone: once all are gone", "(StatefulSet/db (UID life-1), Backup/nightly (UID b))",
		}, takesIt},
		{"both are", true, []func(*corev1.PersistentVolumeClaim){dying}, []string{"StatefulSet/db (UID life-1), which owned it, is gone"}, "to keep it"},
	} {
		c := caseOf(claim("c", append([]func(*corev1.PersistentVolumeClaim){ownedBefore}, tt.edits...)...), pvc.Hold, nil)
		if tt.gone {
			c.World.GoneOwner = &identity.Ref{Kind: identity.KindStatefulSet, Namespace: ns, Name: "db", UID: "life-1"}
		}
		notes := strings.Join(pvc.Why(c).Notes, "\n")
		if strings.Contains(notes, tt.never) || slices.ContainsFunc(tt.want, func(want string) bool { return !strings.Contains(notes, want) }) {
			t.Errorf("%s: %s", tt.name, notes)
		}
	}
}

func TestHeldAndOwned(t *testing.T) {
	words := func(value string) func(*corev1.PersistentVolumeClaim) {
		return annotated(pvc.HoldersAnnotation, value)
	}
	for _, tt := range []struct {
		name  string
		edits []func(*corev1.PersistentVolumeClaim)
		want  string
	}{
		{"held and owned", []func(*corev1.PersistentVolumeClaim){ownedBefore, words("StatefulSet/db")}, "StatefulSet/db"},
		{"nobody's", []func(*corev1.PersistentVolumeClaim){words("StatefulSet/db")}, ""},
		{"not held", []func(*corev1.PersistentVolumeClaim){ownedBefore}, ""},
		{"not looked at", []func(*corev1.PersistentVolumeClaim){ownedBefore, words(pvc.Unverified)}, ""},
		{"cooling", []func(*corev1.PersistentVolumeClaim){ownedBefore, words(pvc.Words{Names: "StatefulSet/db", Until: noon.Add(time.Minute)}.String())}, ""},
		{"going", []func(*corev1.PersistentVolumeClaim){ownedBefore, words("StatefulSet/db"), dying}, ""},
		{"by whoever writes over a terminal", []func(*corev1.PersistentVolumeClaim){ownedBefore, words("db\x1b[2J")}, "db [2J"},
	} {
		if got := pvc.HeldAndOwned(claim("c", tt.edits...)); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

// A wish is granted where claims are protected, and nowhere else.
func TestWhyTellsWhatBecomesOfAWish(t *testing.T) {
	for mode, want := range map[pvc.Mode]string{
		pvc.Off: "in mode off the operator deletes nothing", pvc.Observe: "in mode observe the operator deletes nothing",
		pvc.Barrier: "the operator does that once", pvc.Hold: "the operator does that once",
	} {
		c := caseOf(claim("c", annotated(pvc.IntentAnnotation, "uid-c")), mode, nil)
		if notes := strings.Join(pvc.Why(c).Notes, "\n"); !strings.Contains(notes, want) {
			t.Errorf("%s: %q", mode, notes)
		}
	}
}
