package redact

import (
	_ "embed"
	"regexp"
	"strings"
	"sync"
)

// wordList has the words of messages and the fields of the API: ours, and those of Kubernetes that are often seen. A
// test keeps ours complete.
//
//go:embed words.txt
var wordList string

var (
	word = regexp.MustCompile(`[A-Za-z0-9]+`)
	// part is a word within a name such as FailedCreate or maxUnavailable.
	part = regexp.MustCompile(`[A-Z]+[a-z]+|[a-z]+|[A-Z]+|[0-9]+`)
	// piece is what is judged as a whole: a time, an address, or a word.
	piece = regexp.MustCompile(`\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:?\d\d)?|\d+\.\d+\.\d+\.\d+|[A-Za-z0-9]+`)
	// plain is a piece that is no secret: a time, an address of every machine, a number with its unit, or two letters.
	plain = regexp.MustCompile(`^(\d{4}-\d\d-\d\d[T ].*|0\.0\.0\.0|127\.0\.0\.1|` +
		`\d{1,5}(ns|us|ms|s|m|h|d|x|i|Ki|Mi|Gi|Ti|k|M|G|T|th|st|nd|rd)?|(\d{1,4}[dhms]){2,4}|..?)$`)
)

// Text keeps the known words of a text: those of the list and of names in the bundle. Numbers of at most five digits
// and times stay too.
func (r *Redactor) Text(text string) string {
	return piece.ReplaceAllStringFunc(text, func(piece string) string {
		if now, ok := r.hashes[piece]; ok {
			return now
		}
		if r.known[piece] || plain.MatchString(piece) || isVocabulary(piece) {
			return piece
		}
		return r.token(piece)
	})
}

// isVocabulary reports whether the list has a word, or all parts of it.
func isVocabulary(text string) bool {
	known := vocabulary()
	if known[strings.ToLower(text)] {
		return true
	}
	for _, part := range part.FindAllString(text, -1) {
		if !known[strings.ToLower(part)] {
			return false
		}
	}
	return !strings.ContainsAny(text, "0123456789")
}

// vocabulary is the list as a set.
var vocabulary = sync.OnceValue(func() map[string]bool {
	known := map[string]bool{}
	for _, word := range word.FindAllString(wordList, -1) {
		known[strings.ToLower(word)] = true
	}
	return known
})
