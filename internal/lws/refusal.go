package lws

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
)

const (
	// RetryRefusedFirst is how long what was refused is left alone at first. Each wait
	// is as long as it has been refused by then: what refuses it may be lifted without
	// any event.
	RetryRefusedFirst = time.Second
	// RetryRefusedAfter is the longest of these waits.
	RetryRefusedAfter = 30 * time.Second
	// numbersKept is how long a refusal that differs in numbers and IDs alone, such as what
	// is used of a quota or a port, is told in the words it was first told in.
	numbersKept = time.Minute
)

// sentenceLimit bounds what is quoted of others in a message: an error may quote
// a whole object, and a status that is too large cannot be written.
const sentenceLimit = 1024

// Refusal is what the API server said of a write that it does not take, and will
// not take until somebody does something. The zero value means that nothing was
// refused.
type Refusal struct {
	Sentence string
	// Remedy is what would have it taken, or empty.
	Remedy string
	// At is when it was last refused, and Since since when it has been, over and over.
	At, Since time.Time
	// Said is when the sentence was heard.
	Said time.Time
}

// RefusalOf returns what an error says of a write, and whether it is a refusal at
// all: what passes by itself, such as a server that has too much to do, is none.
func RefusalOf(err error, now time.Time) (Refusal, bool) {
	remedy := remedyFor(err)
	return Refusal{Sentence: err.Error(), Remedy: remedy, At: now, Since: now, Said: now}, remedy != ""
}

const (
	remedyRefused = "change the spec, or what refuses it"
	remedyQuota   = "raise the quota, or free some of it"
	remedyRights  = "give the operator that right: lockstep install does"
	remedyWebhook = "have that webhook answer, or take it away"
	remedyEnding  = "nothing can be made in a namespace that is being deleted"
)

// lacksRight is how an authorizer says that somebody may not do something.
var lacksRight = regexp.MustCompile(`User ".*" cannot [a-z]+ resource`)

// remedyFor is what would have a write taken that ended in this error, or empty if
// the error passes by itself.
func remedyFor(err error) string {
	text := err.Error()
	switch {
	case strings.Contains(text, "failed calling webhook"):
		return remedyWebhook
	case !refuses(err):
		return ""
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return remedyEnding
	case strings.Contains(text, "exceeded quota"), strings.Contains(text, "failed quota"):
		return remedyQuota
	case lacksRight.MatchString(text):
		return remedyRights
	}
	return remedyRefused
}

// refuses tells whether an error is the API server's answer to this very write. A
// webhook may refuse with any code. That a method is not allowed is said of kinds whose
// definition is on its way out, and is over when that is gone.
func refuses(err error) bool {
	return apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || apierrors.IsBadRequest(err) ||
		apierrors.IsRequestEntityTooLargeError(err) ||
		errors.As(err, new(apierrors.APIStatus)) && strings.Contains(err.Error(), "denied the request")
}

// After is the refusal as one that follows another of the same write. It goes on
// being told in the same words while it differs from them in numbers and IDs alone.
func (r Refusal) After(before Refusal) Refusal {
	if before.Sentence == "" || r.At.Sub(before.At) > 2*RetryRefusedAfter {
		return r
	}
	r.Since = before.Since
	if form(r.Sentence) == form(before.Sentence) && r.At.Before(before.Said.Add(numbersKept)) {
		r.Sentence, r.Said = before.Sentence, before.Said
	}
	return r
}

// Again is when what was refused is tried again.
func (r Refusal) Again() time.Time {
	return r.At.Add(min(max(r.At.Sub(r.Since), RetryRefusedFirst), RetryRefusedAfter))
}

// anID is what names one request or one object for good, such as a UID: a webhook that
// quotes that of each request never says the same twice.
var anID = regexp.MustCompile(`\b[0-9a-f]{8,}(-[0-9a-f]{4,})*\b`)

// form is a sentence without its numbers, and without what is never the same twice.
func form(sentence string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsDigit(r) {
			return -1
		}
		return r
	}, anID.ReplaceAllString(sentence, ""))
}

// refused leaves a spec alone that the API server has refused, and says so.
// Another spec is tried at once.
func (d *setDecision) refused() {
	if d.Refusal.Sentence == "" {
		return
	}
	again := d.Refusal.Again()
	if !d.Now.Before(again) {
		return
	}
	d.held = true
	d.refusal = fmt.Sprintf("the API server refuses what the spec asks for: %s; %s",
		clipped(d.Refusal.Sentence), cmp.Or(d.Refusal.Remedy, remedyRefused))
	d.plan.wait(Wait{Reason: because(CodeRefused, d.refusal), Until: again})
}

func (d *setDecision) refusedCondition() metav1.Condition {
	return holding(lwsv1.LeaderWorkerSetProgressing, CodeRefused, d.refusal)
}

// clipped is a sentence within the limit, cut between characters.
func clipped(sentence string) string {
	if len(sentence) <= sentenceLimit {
		return sentence
	}
	return strings.ToValidUTF8(sentence[:sentenceLimit], "") + "…"
}
