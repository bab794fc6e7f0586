package redact

import (
	_ "embed"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"
)

// wordList has the words of messages and the fields of the API: ours, and those of Kubernetes that are often seen. A
// test keeps ours complete.
//
//go:embed words.txt
var wordList string

var (
	word = regexp.MustCompile(`[\pL\pM\pN]+`)
	// credentials are what a URL may have before its host, and after its path.
	credentials = regexp.MustCompile(`//[^\s"'<>]*@|\?[^\s"'<>]+|#[^\s"'<>]*=[^\s"'<>]*`)
	// part is a word within a name such as FailedCreate or maxUnavailable.
	part = regexp.MustCompile(`[A-Z]+[a-z]+|[a-z]+|[A-Z]+|[0-9]+`)
	// lastWord is the end of the name of a field such as imagePullPolicy.
	lastWord = regexp.MustCompile(`[A-Z][a-z]+$`)
	// safe are the words that Kubernetes makes of hashes, without vowels, and the revisions of DisaggregatedSets.
	safe = regexp.MustCompile(`^([bcdfghjklmnpqrstvwxz2456789]{5,10}|[0-9a-f]{8})$`)
	// piece matches credentials, a time, an address or a word. Each is judged as a whole.
	piece = regexp.MustCompile(credentials.String() + `|\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:?\d\d)?|\d+\.\d+\.\d+\.\d+|` +
		`[0-9A-Fa-f:]*::[0-9A-Fa-f:]*[0-9A-Fa-f]|([0-9A-Fa-f]{1,4}:){4,7}[0-9A-Fa-f]{1,4}|` + word.String())
	// plain is a piece that is no secret: a time, an address of every machine, a number with its unit, or two letters.
	plain = regexp.MustCompile(`^(\d{4}-\d\d-\d\d[T ].*|0\.0\.0\.0|127\.0\.0\.1|::1|` +
		`\d{1,5}(ns|us|ms|s|m|h|d|x|i|Ki|Mi|Gi|Ti|k|M|G|T|th|st|nd|rd)?|(\d{1,4}[dhms]){2,4}|..?)$`)
)

// Text keeps the known words of a text: those of the list and of names in the bundle. Numbers of at most five digits
// and times stay too. Credentials of URLs never do.
func (r *Redactor) Text(text string) string {
	return piece.ReplaceAllStringFunc(text, func(piece string) string {
		if secret := strings.Trim(piece, "/?#@"); secret != piece {
			return strings.Replace(piece, secret, r.token(secret), 1)
		}
		if now, ok := r.hashes[piece]; ok {
			return now
		}
		if r.known[piece] || plain.MatchString(piece) || isVocabulary(piece) {
			return piece
		}
		return r.token(piece)
	})
}

// vocabulary is the list, without case.
var vocabulary = sets.New(strings.Fields(strings.ToLower(wordList))...)

// isVocabulary reports whether the list has a word, or all parts of it.
func isVocabulary(text string) bool {
	isUnknown := func(word string) bool { return !vocabulary.Has(strings.ToLower(word)) }
	parts := part.FindAllString(text, -1)
	return !isUnknown(text) || strings.Join(parts, "") == text && !slices.ContainsFunc(parts, isUnknown)
}
