// Package redact replaces what may be secret in Kubernetes objects and texts.
//
// Lists of fields decide what stays; everything else becomes a token. Equal values have equal tokens, so what is
// compared still compares. The key of the tokens is random and is not kept. The package knows no cluster.
package redact

import (
	"cmp"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	_ "embed" // the lists of fields
	"encoding/hex"
	"encoding/json"
	"regexp"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	dsv1 "lockstep.dev/lockstep/api/disaggregatedset/v1"
	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/disaggregated"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/internal/lws/revision"
)

// Redactor redacts the objects and texts of one bundle. Learn must see all objects first.
type Redactor struct {
	key    []byte
	fields map[string]keep // by field, as its list says
	// keys are the maps with keys that are names.
	keys sets.Set[string]
	// known are the words of the names that stay: a text may have them.
	known map[string]bool
	// hashes are words that were made from redacted content, and what stands for each.
	hashes map[string]string
}

// New returns a redactor with a random key.
func New() *Redactor {
	r := &Redactor{key: []byte(rand.Text()), fields: map[string]keep{}, keys: sets.New[string](), known: map[string]bool{}, hashes: map[string]string{}}
	rules := map[string]keep{
		"names": r.name, "images": r.image, "hashed": r.hash, "texts": r.Text, "amounts": r.amount, "secrets": r.token,
		"documents": r.document, // and none for those that are dropped
	}
	lists := map[string]string{}
	if err := yaml.Unmarshal([]byte(fieldLists), &lists); err != nil {
		panic(err) // they are compiled in
	}
	r.keys.Insert(strings.Fields(lists["keys"])...)
	delete(lists, "keys")
	for list, fields := range lists {
		for field := range strings.FieldsSeq(fields) {
			r.fields[field] = rules[list]
		}
	}
	return r
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

// Learn collects the names of all objects, and the hashes of what will be redacted. Those of revisions are made
// again from redacted content, as are the fingerprints of leader StatefulSets that sets want: each is compared with
// one that an apply left. Other hashes become tokens.
func (r *Redactor) Learn(objects []client.Object, wanted ...*appsv1.StatefulSet) {
	for _, object := range objects {
		r.Object(object)
	}
	for _, object := range objects { // LeaderWorkerSets have the revisions of roles in their labels
		switch o := object.(type) {
		case *dsv1.DisaggregatedSet:
			r.learnRoles(o.Spec.Roles)
		case *appsv1.ControllerRevision:
			if roles, err := disaggregated.RolesOf(o); err == nil && len(roles) > 0 {
				r.learnRoles(roles)
			}
		}
	}
	for _, object := range objects {
		switch o := object.(type) {
		case *appsv1.ControllerRevision:
			r.learnRevision(o.Data.Raw)
		case *lwsv1.LeaderWorkerSet:
			if encoded, err := revision.Data(o); err == nil {
				r.learnRevision(encoded)
			}
		}
	}
	for _, leaders := range wanted {
		redacted := &appsv1.StatefulSet{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(r.Object(leaders).Object, redacted); err == nil {
			r.hashes[lws.Fingerprint(leaders)] = lws.Fingerprint(redacted)
		}
	}
}

// learnRevision makes the key of a revision again, which is a hash of its data.
func (r *Redactor) learnRevision(encoded []byte) {
	of := &appsv1.ControllerRevision{Data: runtime.RawExtension{Raw: encoded}}
	if redacted, err := json.Marshal(r.Object(of).Object["data"]); err == nil {
		r.hashes[revision.Key(encoded)] = revision.Key(redacted)
	}
}

// learnRoles makes the revision of a DisaggregatedSet again, which is a hash of its roles.
func (r *Redactor) learnRoles(roles []dsv1.DisaggregatedRole) {
	redacted := &dsv1.DisaggregatedSet{}
	fields := r.Object(&dsv1.DisaggregatedSet{Spec: dsv1.DisaggregatedSetSpec{Roles: roles}}).Object
	before, err := disaggregated.RevisionOf(roles)
	if err := cmp.Or(err, runtime.DefaultUnstructuredConverter.FromUnstructured(fields, redacted)); err != nil {
		return
	}
	if after, err := disaggregated.RevisionOf(redacted.Spec.Roles); err == nil {
		r.hashes[before] = after
	}
}

// Object returns a redacted copy of an object.
func (r *Redactor) Object(object client.Object) *unstructured.Unstructured {
	fields, _ := runtime.DefaultUnstructuredConverter.ToUnstructured(object) // the API server encoded it before
	return &unstructured.Unstructured{Object: r.mapping("", fields)}
}

// mapping redacts what a field has: an object or a map.
func (r *Redactor) mapping(parent string, values map[string]any) map[string]any {
	redacted := make(map[string]any, len(values))
	for field, value := range values {
		keep := r.rule(parent, field)
		if keep == nil {
			continue
		}
		key := r.Text(field)
		if r.keys.Has(parent) {
			key = r.name(field)
		}
		redacted[key] = r.value(field, value, keep)
	}
	return redacted
}

// value redacts the value of a field. Numbers and booleans stay.
func (r *Redactor) value(field string, value any, keep keep) any {
	switch value := value.(type) {
	case map[string]any:
		return r.mapping(field, value)
	case []any:
		redacted := make([]any, len(value))
		for i := range value {
			redacted[i] = r.value(field, value[i], keep)
		}
		return redacted
	case string:
		return keep(value)
	}
	return value
}

// name keeps a name, so that texts may have its words, unless it is a URL with credentials.
func (r *Redactor) name(value string) string {
	if credentials.MatchString(value) {
		return r.Text(value)
	}
	return r.words(value)
}

// reference is an image as a registry names it, or as a container runtime does.
var reference = regexp.MustCompile(`^(docker(-pullable)?://)?(([A-Za-z0-9-]+(\.[A-Za-z0-9-]+)*|\[[0-9A-Fa-f:]+\])(:[0-9]+)?/)?` +
	`[a-z0-9]+([._-]+[a-z0-9]+)*(/[a-z0-9]+([._-]+[a-z0-9]+)*)*(:\w[\w.-]{0,127})?(@[A-Za-z][A-Za-z0-9+._-]*:[0-9A-Fa-f]{32,})?$`)

func (r *Redactor) image(value string) string {
	if !reference.MatchString(value) {
		return r.token(value)
	}
	return r.words(value)
}

// words keeps the words of a name for texts. Hashes in it are replaced.
func (r *Redactor) words(value string) string {
	return word.ReplaceAllStringFunc(value, func(word string) string {
		r.known[word] = true
		if now, ok := r.hashes[word]; ok {
			return now
		}
		return word
	})
}

// hash keeps a name, but for the hash at its end: who knows the rest of a template could try values of a secret in it.
func (r *Redactor) hash(value string) string {
	word := value[strings.LastIndexByte(value, '-')+1:]
	if _, known := r.hashes[word]; !known && safe.MatchString(word) {
		r.hashes[word] = r.token(word)
	}
	return r.name(value)
}

func (r *Redactor) amount(value string) string {
	if _, err := resource.ParseQuantity(value); err != nil {
		return r.token(value)
	}
	return value
}

func (r *Redactor) document(value string) string {
	var content map[string]any
	if err := yaml.Unmarshal([]byte(value), &content); err != nil {
		return r.token(value)
	}
	redacted, _ := yaml.Marshal(r.mapping("", content)) // it was decoded just now
	return string(redacted)
}

// fieldLists say in YAML what stays of a string, by its field.
//
//go:embed fields.txt
var fieldLists string

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
