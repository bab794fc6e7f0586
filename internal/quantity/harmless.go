package quantity

import (
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
)

// The definition of a LeaderWorkerSet accepts quantities of 64 characters with an exponent
// of two digits. These limits accept what such a quantity becomes when it is written again:
// 64 digits and "e99" become up to "e163".
const (
	mostCharacters     = 256
	mostExponentDigits = 3
	mostFractionDigits = 2 // of an exponent below zero
)

const advice = "a quantity has at most 64 characters and an exponent of at most two digits: write it like 500m, 1.5Gi or 1e3"

// Harmless reports whether its length bounds the time to decode, compare and write a
// quantity. The result is the same for the form in which a decoder writes the text. Texts
// that are no quantities are harmless: they are refused at once.
func Harmless(text string) bool {
	text = strings.TrimSpace(text) // as the decoder does
	if !short(text) {
		return false
	}
	parsed, err := resource.ParseQuantity(text)
	return err != nil || short(parsed.String())
}

func short(text string) bool {
	if len(text) > mostCharacters {
		return false
	}
	mark := strings.LastIndexAny(text, "eE")
	if mark < 0 {
		return true
	}
	if digits, fraction := strings.CutPrefix(text[mark+1:], "-"); fraction {
		return len(digits) <= mostFractionDigits
	}
	return len(strings.TrimPrefix(text[mark+1:], "+")) <= mostExponentDigits
}

// shown returns the part of a text that errors have.
func shown(text string) string {
	const most = 64
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}
