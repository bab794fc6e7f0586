package redact

import (
	_ "embed" // the lists of fields
	"strings"
)

// fieldLists say what stays of a string, by its field.
//
//go:embed fields.txt
var fieldLists string

// eachField calls see with each field of each list.
func eachField(see func(list, field string)) {
	list := ""
	for line := range strings.Lines(fieldLists) {
		for _, word := range strings.Fields(line) {
			if word == "#" { // the rest is a comment
				break
			}
			if name, isList := strings.CutSuffix(word, ":"); isList {
				list = name
				continue
			}
			see(list, word)
		}
	}
}

// keep redacts a string of a field.
type keep func(value string) string

// rule returns what redacts the strings of a field. It is nil if the field is dropped.
func (r *Redactor) rule(parent, field string) keep {
	domain, _, _ := strings.Cut(field, "/")
	for _, listed := range []string{
		parent + "." + field, parent + "." + domain + "/", parent + ".*", field, "-" + lastWord.FindString(field),
	} {
		if keep, ok := r.fields[listed]; ok {
			return keep
		}
	}
	return r.token
}
