package pvc

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"lockstep.dev/lockstep/test/expect"
)

// Whoever may annotate a PVC writes what is read here. It says the same when it is written and read again, what cannot
// be read keeps the PVC, and no text is decided on for ever.
func FuzzAnnotations(f *testing.F) {
	for _, text := range []string{
		"", "u", "a=u", "a=u,b=v", "a=,", "=u", "a=u,a=u", ",", "Pod/a, +2", "cooling until 2026-11-26T04:36:50Z: Pod/a",
		"cooling until 9999-12-31T23:59:59Z: ", "cooling until 0001-01-01T00:00:00Z: Pod/a", "cooling until cooling until ",
		"cooling until 2026-11-26T04:36:50.999999999+23:59: a", "2026-11-26T04:36:50Z", "9999-12-31T23:59:59Z", "Strict", "Hold",
		strings.Repeat("a=u,", 1000), "\xff=\x00",
	} {
		f.Add(text, text)
	}
	now := time.Date(2026, 11, 26, 4, 36, 50, 0, time.UTC)
	f.Fuzz(func(t *testing.T, one, other string) {
		if record, err := ParseRecord(one); err != nil && len(record) > 0 && record.String() == one {
			t.Fatalf("record %v and error %v", record, err)
		} else if err == nil && record.String() != one {
			t.Fatalf("record %q became %q", one, record.String())
		}
		checkHolders(t, one)
		claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "u", Annotations: map[string]string{
			HoldersAnnotation: one, UsersAnnotation: one, ReleaseAnnotation: one, ReleaseUntilAnnotation: other, HoldAnnotation: one,
			ModeKey: one, VerifiedAnnotation: other, ObservedAnnotation: other,
		}}}
		checkToken(t, claim, now)
	})
}

func checkHolders(t *testing.T, text string) {
	holders := ParseHolders(text)
	expect.Must(t, len(holders.Names) <= len(text), "%q has the names %q", text, holders.Names)
	expect.Must(t, text == "" || holders.String() != "", "%q holds nothing", text)
	once := holders.String()
	again := ParseHolders(once)
	expect.Must(t, again.String() == once, "%q became %q, then %q", text, once, again.String())
}

// checkToken applies what is decided of a token: the next decision changes nothing, and the token ends.
func checkToken(t *testing.T, claim *corev1.PersistentVolumeClaim, now time.Time) {
	const ttl = time.Hour
	verdict := DecideToken(claim, now, ttl)
	expect.Must(t, !verdict.Until.After(now.Add(ttl+2*time.Second)), "it lasts until %s", verdict.Until)
	released := Released(claim)
	expect.Must(t, released == (claim.Annotations[ReleaseAnnotation] == "u"), "released: %t", released)
	for key, value := range verdict.Annotations {
		if claim.Annotations[key] = value; value == "" {
			delete(claim.Annotations, key)
		}
	}
	again := DecideToken(claim, now, ttl)
	expect.Must(t, len(again.Annotations) == 0, "decided %v, and again %v", verdict, again)
	if late := DecideToken(claim, now.Add(ttl+2*time.Second), ttl); released && !verdict.Expired && !late.Expired {
		t.Fatalf("it has no end: %+v", late)
	}
}
