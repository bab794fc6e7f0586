package pvc

import (
	"maps"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"lockstep.dev/lockstep/internal/action"
)

// Released tells whether a claim or a namespace bears a release token for its very
// incarnation.
func Released(object metav1.Object) bool {
	return object.GetUID() != "" && object.GetAnnotations()[ReleaseAnnotation] == string(object.GetUID())
}

// TokenVerdict is what becomes of a release token.
type TokenVerdict struct {
	// Annotations to set, or with an empty value to take away. Empty: leave all.
	Annotations map[string]string
	// Until is when the token goes, or zero.
	Until time.Time
	// Granted: it was seen for the first time. Expired: it goes, and was not made use
	// of.
	Granted, Expired bool
}

// Because is why the annotations of a token change.
func (v TokenVerdict) Because() action.Reason {
	if v.Until.IsZero() {
		return action.Reason{Code: "ReleaseOver", Sentence: "a release token lasts no longer"}
	}
	return action.Reason{Code: "ReleaseDated", Sentence: "a release token lasts until " + v.Until.UTC().Format(time.RFC3339)}
}

// DecideToken lets release tokens last for a while and no longer: policies have no
// clock. A token of another incarnation releases nothing, and is left alone. So do
// confirmations of a release that has not come.
func DecideToken(object metav1.Object, now time.Time, ttl time.Duration) TokenVerdict {
	v := decideRelease(object, now, ttl)
	if object.GetDeletionTimestamp() == nil && !Released(object) {
		v.confirmed(object, now, ttl)
	}
	return v
}

// confirmed dates a confirmation, and takes away one whose time is over.
func (v *TokenVerdict) confirmed(object metav1.Object, now time.Time, ttl time.Duration) {
	confirmed, stands := object.GetAnnotations()[ConfirmedAnnotation], object.GetAnnotations()[ConfirmedUntilAnnotation]
	set := func(words map[string]string) {
		if v.Annotations == nil {
			v.Annotations = map[string]string{}
		}
		maps.Copy(v.Annotations, words)
	}
	latest := now.Add(ttl).Truncate(time.Second).Add(time.Second)
	until, err := time.Parse(time.RFC3339, stands)
	switch {
	case confirmed == "" && stands == "":
	case confirmed == "":
		set(map[string]string{ConfirmedUntilAnnotation: ""})
	case err != nil || until.After(latest):
		set(map[string]string{ConfirmedUntilAnnotation: latest.UTC().Format(time.RFC3339)})
		v.Until = latest
	case now.Before(until):
		v.Until = until
	default:
		set(map[string]string{ConfirmedAnnotation: "", ConfirmedUntilAnnotation: ""})
	}
}

func decideRelease(object metav1.Object, now time.Time, ttl time.Duration) TokenVerdict {
	stands, dated := object.GetAnnotations()[ReleaseUntilAnnotation]
	switch {
	case object.GetDeletionTimestamp() != nil:
		return TokenVerdict{}
	case !Released(object) && dated:
		return TokenVerdict{Annotations: map[string]string{ReleaseUntilAnnotation: ""}}
	case !Released(object):
		return TokenVerdict{}
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
	over := map[string]string{ReleaseAnnotation: "", ReleaseUntilAnnotation: ""}
	for _, key := range []string{ConfirmedAnnotation, ConfirmedUntilAnnotation} {
		if _, stands := object.GetAnnotations()[key]; stands {
			over[key] = ""
		}
	}
	return TokenVerdict{Annotations: over, Expired: true}
}
