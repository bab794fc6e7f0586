package pvc

import (
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"lockstep.dev/lockstep/internal/action"
)

// Released reports whether a PVC or a namespace bears a release token with its own UID.
func Released(object metav1.Object) bool { return hasUID(object, ReleaseAnnotation) }

// hasUID reports whether an annotation is the UID of its object. A copied manifest has another.
func hasUID(object metav1.Object, key string) bool {
	return object.GetUID() != "" && object.GetAnnotations()[key] == string(object.GetUID())
}

// TokenVerdict is what becomes of a release token.
type TokenVerdict struct {
	// Annotations to set, or with an empty value to remove. Empty: no change.
	Annotations map[string]string
	// Until is when the token expires, or zero.
	Until time.Time
	// Granted: it was seen for the first time. Expired: it is removed unused.
	Granted, Expired bool
}

// Because is why the annotations of a token change.
func (v TokenVerdict) Because() action.Reason {
	if v.Until.IsZero() {
		return action.Reason{Code: "ReleaseOver", Sentence: "a release token lasts no longer"}
	}
	return action.Reason{Code: "ReleaseDated", Sentence: "a release token lasts until " + v.Until.UTC().Format(time.RFC3339)}
}

// DecideToken ends a release token after a time, because admission policies have no clock. A
// token for another UID releases nothing and is left alone.
func DecideToken(object metav1.Object, now time.Time, ttl time.Duration) TokenVerdict {
	stands, dated := object.GetAnnotations()[ReleaseUntilAnnotation]
	switch {
	case object.GetDeletionTimestamp() != nil:
		return TokenVerdict{}
	case !Released(object):
		return TokenVerdict{Annotations: removal(object.GetAnnotations(), ReleaseUntilAnnotation)}
	}
	latest := now.Add(ttl).Truncate(time.Second).Add(time.Second)
	until, err := time.Parse(time.RFC3339, stands)
	switch {
	case err != nil || until.After(latest):
		return TokenVerdict{
			Annotations: map[string]string{ReleaseUntilAnnotation: latest.UTC().Format(time.RFC3339)},
			Until:       latest, Granted: !dated,
		}
	case now.Before(until):
		return TokenVerdict{Until: until}
	}
	return TokenVerdict{Annotations: map[string]string{ReleaseAnnotation: "", ReleaseUntilAnnotation: ""}, Expired: true}
}

// CountHeld is the change that makes a living namespace bear the number of its held PVCs. An
// empty value removes the annotation.
func CountHeld(namespace metav1.Object, pvcs []corev1.PersistentVolumeClaim) map[string]string {
	if namespace.GetDeletionTimestamp() != nil {
		return nil
	}
	held := 0
	for i := range pvcs {
		if pvc := &pvcs[i]; pvc.Annotations[HoldersAnnotation] != "" && pvc.DeletionTimestamp == nil {
			held++
		}
	}
	want := ""
	if held > 0 {
		want = strconv.Itoa(held)
	}
	if stands, ok := namespace.GetAnnotations()[HeldClaimsAnnotation]; stands == want && ok == (want != "") {
		return nil
	}
	return map[string]string{HeldClaimsAnnotation: want}
}
