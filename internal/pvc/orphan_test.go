package pvc_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"lockstep.dev/lockstep/internal/pvc"
)

func ownedBefore(c *corev1.PersistentVolumeClaim) {
	c.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "db", UID: "life-1", Controller: new(true)}}
}

func TestWhyReportsTheOwners(t *testing.T) {
	const takesIt = "--type=merge -p '" + pvc.Disown + "'"
	for gone, want := range map[bool]string{false: "owned by StatefulSet/db (UID life-1)", true: "kubectl patch pvc c -n ns " + takesIt} {
		c := caseOf(claim("c", ownedBefore), pvc.Hold, nil)
		c.World.OwnersGone = gone
		if notes := strings.Join(pvc.Why(c).Notes, "\n"); !strings.Contains(notes, want) {
			t.Errorf("gone %t: %s", gone, notes)
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
