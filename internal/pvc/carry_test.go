package pvc_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"lockstep.dev/lockstep/internal/pvc"
)

// carried is what carries out what is decided of a claim, in words.
func carried(v pvc.HoldView, token pvc.TokenVerdict) (told []string) {
	for _, a := range pvc.Carry(v.Claim, pvc.DecideHold(v), token) {
		words := a.Verb() + " " + a.Target().Name + "@" + a.Target().ResourceVersion + " " + a.Why().Code
		for _, event := range a.Telling().Done {
			words += ", " + event.Reason
		}
		told = append(told, words)
	}
	return told
}

func TestAVerdictIsCarriedOutInOrder(t *testing.T) {
	db := wantOf(statefulSet("db", 1))
	stands := annotated(pvc.HoldersAnnotation, "StatefulSet/db")
	cooled := annotated(pvc.HoldersAnnotation, "cooling until 2026-11-21T11:00:00Z: StatefulSet/db")
	gone := func(v pvc.HoldView) pvc.HoldView {
		v.World.OwnersGone = true
		return v
	}
	token := pvc.TokenVerdict{Annotations: map[string]string{pvc.ReleaseUntilAnnotation: "x"}, Until: noon, Granted: true}
	for _, tt := range []struct {
		name  string
		view  pvc.HoldView
		token pvc.TokenVerdict
		want  []string
	}{
		{"nothing", holdView(claim("data-db-0")), pvc.TokenVerdict{}, nil},
		{"held", holdView(claim("data-db-0"), db), pvc.TokenVerdict{}, []string{"annotate data-db-0@7 InUse, Held"}},
		{"held on, without a date", holdView(claim("data-db-0", stands), db), pvc.TokenVerdict{}, []string{"annotate data-db-0@7 InUse"}},
		{"cooling", holdView(claim("data-db-0", stands)), pvc.TokenVerdict{}, []string{"annotate data-db-0@7 Cooling"}},
		{"cooled", holdView(claim("data-db-0", cooled)), pvc.TokenVerdict{}, []string{"annotate data-db-0@7 Free, HoldEnded"}},
		{"cooled, and its owner is gone", gone(holdView(claim("data-db-0", cooled))), pvc.TokenVerdict{},
			[]string{"annotate data-db-0@7 Free, HoldEnded", "delete data-db-0@7 OwnerGone, OwnerGone"}},
		{"asked for", holdView(claim("data-db-0", annotated(pvc.IntentAnnotation, "uid-data-db-0"))), pvc.TokenVerdict{},
			[]string{"delete data-db-0@7 DeleteWhenFree, DeleteWhenFree"}},
		{"terminating, with words", holdView(claim("data-db-0", stands, dying), db), pvc.TokenVerdict{}, []string{"annotate data-db-0@7 Draining"}},
		{"a token", holdView(claim("data-db-0")), token, []string{"annotate data-db-0@7 ReleaseDated, ReleaseGranted"}},
		{"held, with a token", holdView(claim("data-db-0"), db), token, []string{"annotate data-db-0@7 InUse, Held, ReleaseGranted"}},
	} {
		if diff := cmp.Diff(tt.want, carried(tt.view, tt.token)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

func TestADoomedClaimSaysWhatToDo(t *testing.T) {
	d := pvc.DecideHold(holdView(claim("data-db-0", dying), wantOf(statefulSet("db", 1))))
	event := pvc.TellDoomed(d)
	if d.State != pvc.Doomed || !event.Warning || !strings.Contains(event.Note, "StatefulSet/db") || !strings.Contains(event.Note, "Retain") {
		t.Errorf("%s: %+v", d.State, event)
	}
}

// What stood on a claim when it was deleted is told, whoever was away at the time.
func TestAClaimThatLeavesTellsWhatStoodOnIt(t *testing.T) {
	uid := "uid-data-db-0"
	held := annotated(pvc.HoldersAnnotation, "StatefulSet/db")
	for _, tt := range []struct {
		name  string
		edits []func(*corev1.PersistentVolumeClaim)
		want  string
	}{
		{"nothing", nil, ""},
		{"released", []func(*corev1.PersistentVolumeClaim){held, annotated(pvc.ReleaseAnnotation, uid)}, "Released: deleted though it was in use by StatefulSet/db"},
		{"released, another life", []func(*corev1.PersistentVolumeClaim){held, annotated(pvc.ReleaseAnnotation, "other")}, ""},
		{"released, and nobody held it", []func(*corev1.PersistentVolumeClaim){annotated(pvc.ReleaseAnnotation, uid)}, ""},
		{"cooling, and released", []func(*corev1.PersistentVolumeClaim){
			annotated(pvc.HoldersAnnotation, "cooling until 2026-11-21T12:05:00Z: StatefulSet/db"), annotated(pvc.ReleaseAnnotation, uid),
		}, "Released: deleted though it was in use by StatefulSet/db"},
		{"observed", []func(*corev1.PersistentVolumeClaim){annotated(pvc.ObservedAnnotation, "StatefulSet/db (scaled to zero)")},
			"DeletedInUse: deleted though it is wanted by StatefulSet/db (scaled to zero)"},
	} {
		told, ok := pvc.TellLeft(claim("data-db-0", tt.edits...))
		if got := told.Reason + ": " + told.Note; ok != (tt.want != "") || ok && (!told.Warning || !strings.HasPrefix(got, tt.want)) {
			t.Errorf("%s: told %t, %+v", tt.name, ok, told)
		}
	}
}
