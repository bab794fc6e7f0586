package action

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"lockstep.dev/lockstep/internal/identity"
)

const (
	// RetryRefusedFirst is the first pause before a refused write is tried again. Each pause is
	// as long as the write has been refused by then: no event tells when the cause is gone.
	RetryRefusedFirst = time.Second
	// RetryRefusedAfter is the longest of these pauses.
	RetryRefusedAfter = 30 * time.Second
	// sentenceLimit bounds what a message repeats of others: an error may contain a whole
	// object, and the API server refuses a status that is too large.
	sentenceLimit = 1024
	// listedAtMost bounds how many texts a message has one by one.
	listedAtMost = 8
)

// Refusal is the API server's answer to a write that it will refuse until the write, a
// policy, a quota or a right changes. The zero value means that nothing was refused.
type Refusal struct {
	Sentence string
	// Verb and Kind are of the write, where the error says so.
	Verb string
	Kind identity.Kind
	// At is when the write was last refused, and Since when it first was.
	At, Since time.Time
	// Passes is set where the cause may end by itself.
	Passes bool
}

// Refused is a refusal that costs a part of an object only.
type Refused struct {
	// Index is the index of the part, such as a group, or identity.NoOrdinal for the object itself.
	Index int
	Refusal
}

// RefusalOf returns what an error says of a write, and reports whether the error is a refusal.
// A timeout is none. A webhook without an answer, and a quota that is not counted yet, may pass.
func RefusalOf(err error, now time.Time) (Refusal, bool) {
	passes := strings.Contains(err.Error(), "failed calling webhook") || strings.Contains(err.Error(), "status unknown for quota")
	r := Refusal{Sentence: err.Error(), At: now, Since: now, Passes: passes}
	if write := (*WriteError)(nil); errors.As(err, &write) {
		r.Verb, r.Kind = write.Verb, write.Target.Kind
	}
	return r, refuses(err) || passes
}

// WriteError is the error of one write of a plan.
type WriteError struct {
	Verb   string
	Target identity.Ref
	Err    error
}

// Error implements error.
func (e *WriteError) Error() string { return fmt.Sprintf("%s %s: %v", e.Verb, e.Target, e.Err) }

// Unwrap returns what the API server answered.
func (e *WriteError) Unwrap() error { return e.Err }

// IsCreateOf reports whether an object of a kind could not be created.
func (r Refusal) IsCreateOf(kind identity.Kind) bool { return r.Verb == "create" && r.Kind == kind }

// refuses reports whether an error is the API server's answer to this very write. A webhook
// may refuse with any code, and an apply that the API server cannot read is a 500.
func refuses(err error) bool {
	return apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || apierrors.IsBadRequest(err) ||
		apierrors.IsRequestEntityTooLargeError(err) || apierrors.IsUnsupportedMediaType(err) || apierrors.IsNotAcceptable(err) ||
		errors.As(err, new(apierrors.APIStatus)) && slices.ContainsFunc(refusing, func(said string) bool { return strings.Contains(err.Error(), said) })
}

// refusing has phrases by which the API server refuses a write under another status code: a webhook's answer, and fields
// that do not fit the type of the object, such as two entries of one key.
var refusing = []string{"denied the request", "failed to create typed", "to smd typed"}

// After is the refusal as one that follows another of the same write.
func (r Refusal) After(before Refusal) Refusal {
	if before.Sentence != "" && r.At.Sub(before.At) <= 2*RetryRefusedAfter {
		r.Since = before.Since
	}
	return r
}

// Again is when the refused write is tried again.
func (r Refusal) Again() time.Time {
	return r.At.Add(min(max(r.At.Sub(r.Since), RetryRefusedFirst), RetryRefusedAfter))
}

// RefusedMessage repeats what the API server answered.
func RefusedMessage(refusals ...Refusal) string {
	var said []string
	for _, r := range refusals {
		if sentence := Clipped(r.Sentence); !slices.Contains(said, sentence) {
			said = append(said, sentence)
		}
	}
	return "the API server refuses: " + Listed(said, "; ")
}

// Clipped is a sentence within the limit, cut between characters.
func Clipped(sentence string) string {
	if len(sentence) <= sentenceLimit {
		return sentence
	}
	return strings.ToValidUTF8(sentence[:sentenceLimit], "") + "…"
}

// Listed joins the first texts and counts the others.
func Listed(texts []string, separator string) string {
	if len(texts) <= listedAtMost {
		return strings.Join(texts, separator)
	}
	return fmt.Sprintf("%s and %d more", strings.Join(texts[:listedAtMost], separator), len(texts)-listedAtMost)
}

// CodeUnsupported is the condition of a set that this version of Lockstep leaves alone.
const CodeUnsupported = "Unsupported"

// UnsupportedText says what a set has that this version lacks.
func UnsupportedText(beyond []string) string {
	return "Not managed: the set uses fields this version does not support: " + Clipped(Listed(beyond, ", ")) +
		". Upgrade Lockstep, or remove the fields."
}
