package pvc_test

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"lockstep.dev/lockstep/internal/pvc"
)

// TestCarry checks the verb, the version, the reason and the events of each write, in order.
func TestCarry(t *testing.T) {
	db := wantOf(statefulSet("db", 1))
	stands := annotated(pvc.HoldersAnnotation, "StatefulSet/db")
	cooled := annotated(pvc.HoldersAnnotation, "cooling until 2026-11-21T11:00:00Z: StatefulSet/db")
	gone := holdView(claim("data-db-0", cooled))
	gone.World.OwnersGone = true
	none := pvc.TokenVerdict{}
	token := pvc.TokenVerdict{Annotations: map[string]string{pvc.ReleaseUntilAnnotation: "x"}, Until: noon, Granted: true}
	for _, tt := range []struct {
		name  string
		view  pvc.HoldView
		token pvc.TokenVerdict
		want  []string
	}{
		{"nothing", holdView(claim("data-db-0")), none, nil},
		{"held", holdView(claim("data-db-0"), db), none, []string{"annotate @7 InUse, Held"}},
		{"still held", holdView(claim("data-db-0", stands), db), none, []string{"annotate @7 InUse"}},
		{"cooling", holdView(claim("data-db-0", stands)), none, []string{"annotate @7 Cooling"}},
		{"cooled", holdView(claim("data-db-0", cooled)), none, []string{"annotate @7 Free, HoldEnded"}},
		{"cooled, and its owner is gone", gone, none, []string{"annotate @7 Free, HoldEnded", "delete @7 OwnerGone, OwnerGone"}},
		{"to be deleted", holdView(claim("data-db-0", annotated(pvc.IntentAnnotation, "uid-data-db-0"))), none, []string{"delete @7 DeleteWhenFree, DeleteWhenFree"}},
		{"terminating", holdView(claim("data-db-0", stands, dying), db), none, []string{"annotate @7 Draining"}},
		{"a token", holdView(claim("data-db-0")), token, []string{"annotate @7 ReleaseDated, ReleaseGranted"}},
		{"held, with a token", holdView(claim("data-db-0"), db), token, []string{"annotate @7 InUse, Held, ReleaseGranted"}},
	} {
		var got []string
		for _, a := range pvc.Carry(tt.view.Claim, pvc.DecideHold(tt.view), tt.token) {
			write := a.About().Verb + " @" + a.Target().ResourceVersion + " " + a.About().Because.Code
			for _, event := range a.About().Tell.Done {
				write += ", " + event.Reason
			}
			got = append(got, write)
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: %q", tt.name, got)
		}
	}
}

func TestTellDoomed(t *testing.T) {
	d := pvc.DecideHold(holdView(claim("data-db-0", dying), wantOf(statefulSet("db", 1))))
	if event := pvc.TellDoomed(d); d.State != pvc.Doomed || !event.Warning || !strings.Contains(event.Note, "StatefulSet/db") || !strings.Contains(event.Note, "Retain") {
		t.Errorf("%s: %+v", d.State, event)
	}
}

// The annotations of a deleted PVC say how it was deleted, also when no operator ran at the time.
func TestTellLeft(t *testing.T) {
	held, cools := annotated(pvc.HoldersAnnotation, "StatefulSet/db"), annotated(pvc.HoldersAnnotation, "cooling until 2026-11-21T12:05:00Z: StatefulSet/db")
	released := annotated(pvc.ReleaseAnnotation, "uid-data-db-0")
	type edits = []func(*corev1.PersistentVolumeClaim)
	for _, tt := range []struct {
		name  string
		edits edits
		want  string
	}{
		{"no annotations", nil, ""},
		{"held, and released", edits{held, released}, "Released"},
		{"held, and another UID released", edits{held, annotated(pvc.ReleaseAnnotation, "other")}, ""},
		{"released, and not held", edits{released}, ""},
		{"cooling, and released", edits{cools, released}, "Released"},
		{"observed", edits{annotated(pvc.ObservedAnnotation, "StatefulSet/db (scaled to zero)")}, "DeletedInUse"},
	} {
		event, ok := pvc.TellLeft(claim("data-db-0", tt.edits...))
		if event.Reason != tt.want || ok != (tt.want != "") || ok && (!event.Warning || !strings.Contains(event.Note, "StatefulSet/db")) {
			t.Errorf("%s: %t, %+v", tt.name, ok, event)
		}
	}
}
