package lws

import (
	"errors"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// sentenceLimit bounds what a message repeats of others: an error may contain a whole
// object, and the API server refuses a status that is too large.
const sentenceLimit = 1024

// IsRefusal reports whether an error is the API server's answer to a write that it will refuse
// until the write, a policy, a quota or a right changes. An error that passes by itself, such as
// a timeout, is none.
func IsRefusal(err error) bool {
	return refuses(err) || strings.Contains(err.Error(), "failed calling webhook")
}

// refuses reports whether an error is the API server's answer to this very write. A webhook
// may refuse with any code.
func refuses(err error) bool {
	return apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || apierrors.IsBadRequest(err) ||
		apierrors.IsRequestEntityTooLargeError(err) ||
		errors.As(err, new(apierrors.APIStatus)) && strings.Contains(err.Error(), "denied the request")
}

// refusedMessage repeats what the API server answered, if it refused anything.
func refusedMessage(refusals ...string) string {
	var said []string
	for _, refusal := range refusals {
		if sentence := clipped(refusal); sentence != "" && !slices.Contains(said, sentence) {
			said = append(said, sentence)
		}
	}
	if len(said) == 0 {
		return ""
	}
	return "the API server refuses: " + listed(said, "; ")
}

// clipped is a sentence within the limit, cut between characters.
func clipped(sentence string) string {
	if len(sentence) <= sentenceLimit {
		return sentence
	}
	return strings.ToValidUTF8(sentence[:sentenceLimit], "") + "…"
}
