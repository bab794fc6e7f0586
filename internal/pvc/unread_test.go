package pvc_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"lockstep.dev/lockstep/internal/pvc"
)

// An operator that starts looks at all claims, and has not read all kinds by then. Nothing
// that happens to a claim tells when it has.
func TestWhatIsToBeDeletedWhenFreeIsLookedAtAgainOnceAllIsRead(t *testing.T) {
	v := holdView(claim("data-db-0", annotated(pvc.IntentAnnotation, "uid-data-db-0")))
	v.Mode, v.Unread = pvc.Barrier, "jobsets"
	d := pvc.DecideHold(v)
	if d.Delete != nil || !d.Next.After(noon) || d.Next.After(noon.Add(time.Minute)) {
		t.Fatalf("unread: %+v", d)
	}
	v.Now, v.Unread = d.Next, ""
	if d := pvc.DecideHold(v); d.Delete == nil || !d.Next.IsZero() {
		t.Errorf("read: %+v", d)
	}
}

// Names on a claim that stand for a kind which is not read now stay, and nothing is
// written twice for that.
func TestWordsThatStandOutlastWhatIsNotRead(t *testing.T) {
	db := pvc.OfStatefulSet(statefulSet("db", 1))
	observes := annotated(pvc.ObservedAnnotation, "LeaderWorkerSet/db")
	holds := []func(*corev1.PersistentVolumeClaim){
		annotated(pvc.HoldersAnnotation, "LeaderWorkerSet/db"), annotated(pvc.DigestAnnotation, "d"),
		annotated(pvc.VerifiedAnnotation, noon.Add(-time.Minute).Format(time.RFC3339)),
	}
	for _, tt := range []struct {
		name string
		mode pvc.Mode
		says []func(*corev1.PersistentVolumeClaim)
		want []pvc.Want
		now  time.Time
		// what is written while not all is read, and once it is
		unread, read string
	}{
		{"warned of, and nobody is found", pvc.Observe, []func(*corev1.PersistentVolumeClaim){observes}, nil, noon, "", "taken off"},
		{"warned of, and another is found", pvc.Observe, []func(*corev1.PersistentVolumeClaim){observes}, []pvc.Want{db}, noon, "", "StatefulSet/db"},
		{"not warned of yet", pvc.Observe, nil, []pvc.Want{db}, noon, "StatefulSet/db", "StatefulSet/db"},
		{"held, and another is found", pvc.Hold, holds, []pvc.Want{db}, noon, "", "StatefulSet/db"},
		{"held, and not confirmed for an hour", pvc.Hold, holds, []pvc.Want{db}, noon.Add(time.Hour), "StatefulSet/db", "StatefulSet/db"},
	} {
		v := holdView(claim("data-db-0", tt.says...), tt.want...)
		v.Mode, v.Now = tt.mode, tt.now
		key := map[pvc.Mode]string{pvc.Observe: pvc.ObservedAnnotation, pvc.Hold: pvc.HoldersAnnotation}[tt.mode]
		written := func() string {
			value, is := pvc.DecideHold(v).Annotations[key]
			if is && value == "" {
				return "taken off"
			}
			return value
		}
		if got := written(); got != tt.read {
			t.Errorf("%s: %q is written, want %q", tt.name, got, tt.read)
		}
		v.Unread = "leaderworkersets"
		if got := written(); got != tt.unread {
			t.Errorf("%s, unread: %q is written, want %q", tt.name, got, tt.unread)
		}
		if d := pvc.DecideHold(v); tt.unread == "" && (len(d.Annotations) > 0 || !d.Next.After(tt.now) || d.Next.After(tt.now.Add(time.Minute))) {
			t.Errorf("%s, unread: %+v", tt.name, d)
		}
	}
}
