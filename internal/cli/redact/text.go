package redact

import (
	_ "embed"
	"reflect"
	"regexp"
	"strings"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
)

// wordList has the words of messages: ours, and those of Kubernetes that are often seen. A test keeps ours complete.
//
//go:embed words.txt
var wordList string

var (
	word = regexp.MustCompile(`[A-Za-z0-9]+`)
	// part is a word within a name such as FailedCreate or maxUnavailable.
	part = regexp.MustCompile(`[A-Z]+[a-z]+|[a-z]+|[A-Z]+|[0-9]+`)
	// piece is what is judged as a whole: a time, an address, or a word.
	piece = regexp.MustCompile(`\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:?\d\d)?|\d+\.\d+\.\d+\.\d+|[A-Za-z0-9]+`)
	// when is a time, address an IP address, and amount a number with its unit.
	when    = regexp.MustCompile(`^\d{4}-\d\d-\d\d[T ]`)
	address = regexp.MustCompile(`^\d+\.\d+\.\d+\.\d+$`)
	amount  = regexp.MustCompile(`^\d{1,5}(ns|us|ms|s|m|h|d|x|i|Ki|Mi|Gi|Ti|k|M|G|T|th|st|nd|rd)?$|^(\d{1,4}[dhms]){2,4}$`)
)

// Text keeps the known words of a text: those of the list, of names in the bundle, and of fields of the API.
// Numbers of at most five digits and times stay too.
func (r *Redactor) Text(text string) string {
	return piece.ReplaceAllStringFunc(text, func(piece string) string {
		if now, ok := r.hashes[piece]; ok {
			return now
		}
		switch {
		case when.MatchString(piece), r.known[piece], strings.Trim(piece, "0.") == "", piece == "127.0.0.1":
			return piece
		case address.MatchString(piece):
			return r.token(piece)
		case len(piece) <= 2, amount.MatchString(piece), isVocabulary(piece):
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

// vocabulary is the list, and the words of the names of fields of the API.
var vocabulary = sync.OnceValue(func() map[string]bool {
	known := map[string]bool{}
	for _, word := range word.FindAllString(wordList, -1) {
		known[strings.ToLower(word)] = true
	}
	seen := map[reflect.Type]bool{}
	for _, of := range []reflect.Type{
		reflect.TypeFor[lwsv1.LeaderWorkerSet](), reflect.TypeFor[corev1.Pod](), reflect.TypeFor[appsv1.StatefulSet](),
		reflect.TypeFor[batchv1.CronJob](), reflect.TypeFor[corev1.PersistentVolume](),
	} {
		fieldNames(of, seen, known)
	}
	return known
})

// fieldNames adds the words of the names of all fields of a type.
func fieldNames(of reflect.Type, seen map[reflect.Type]bool, known map[string]bool) {
	switch of.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		fieldNames(of.Elem(), seen, known)
	case reflect.Struct:
		if seen[of] {
			return
		}
		seen[of] = true
		for i := range of.NumField() {
			for _, part := range part.FindAllString(jsonName(of.Field(i)), -1) {
				known[strings.ToLower(part)] = true
			}
			fieldNames(of.Field(i).Type, seen, known)
		}
	}
}
