// Package redact replaces what may be secret in Kubernetes objects and texts.
//
// A list of fields decides what stays; everything else becomes a token. Equal values have equal tokens, so what is
// compared still compares. The key of the tokens is random and is not kept. The package knows no cluster and no
// archive.
package redact

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// Redactor redacts the objects and texts of one bundle. Learn must see all objects first.
type Redactor struct {
	key []byte
	// known are the words of the names that stay: a text may have them.
	known map[string]bool
	// hashes are words that were made from redacted content, and what stands for each.
	hashes map[string]string
}

// New returns a redactor with a random key.
func New() *Redactor {
	key := make([]byte, sha256.Size)
	_, _ = rand.Read(key) // never fails
	return &Redactor{key: key, known: map[string]bool{}, hashes: map[string]string{}}
}

// token stands for a value. It is a valid label and DNS name.
func (r *Redactor) token(value string) string {
	if value == "" {
		return ""
	}
	mac := hmac.New(sha256.New, r.key)
	_, _ = mac.Write([]byte(value))
	return "redacted-" + hex.EncodeToString(mac.Sum(nil)[:6])
}

// Object returns a redacted copy of an object.
func (r *Redactor) Object(object client.Object) *unstructured.Unstructured {
	fields, _ := runtime.DefaultUnstructuredConverter.ToUnstructured(object) // the API server encoded it before
	return &unstructured.Unstructured{Object: r.fields("", fields)}
}

// fields redacts the fields of an object in a field of it.
func (r *Redactor) fields(parent string, values map[string]any) map[string]any {
	redacted := make(map[string]any, len(values))
	for field, value := range values {
		if classOf(parent, field) == dropped {
			continue
		}
		key := r.Text(field)
		if keysAreNames(parent) {
			key = r.name(field)
		}
		redacted[key] = r.value(parent, field, value)
	}
	return redacted
}

// value redacts a value of a field. Numbers and booleans stay, and a list is redacted as its members are.
func (r *Redactor) value(parent, field string, value any) any {
	switch value := value.(type) {
	case map[string]any:
		return r.fields(field, value)
	case []any:
		redacted := make([]any, len(value))
		for i := range value {
			redacted[i] = r.value(parent, field, value[i])
		}
		return redacted
	case string:
		return r.string(classOf(parent, field), value)
	}
	return value
}

func (r *Redactor) string(as class, value string) string {
	switch as {
	case hash:
		r.learnHash(value)
		return r.name(value)
	case name:
		return r.name(value)
	case words:
		return r.Text(value)
	case amount:
		if _, err := resource.ParseQuantity(value); err == nil {
			return value
		}
	case document:
		var content any
		if yaml.Unmarshal([]byte(value), &content) == nil {
			redacted, _ := yaml.Marshal(r.value("", "", content)) // it was decoded just now
			return string(redacted)
		}
	}
	return r.token(value)
}

// name keeps a name, so that texts may have its words. Hashes in it are replaced.
func (r *Redactor) name(value string) string {
	return word.ReplaceAllStringFunc(value, func(word string) string {
		r.known[word] = true
		if now, ok := r.hashes[word]; ok {
			return now
		}
		return word
	})
}
