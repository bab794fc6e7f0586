// Package redact replaces what may be secret in Kubernetes objects and texts.
//
// Lists decide what stays; everything else becomes a token. Equal values have equal tokens, so what is compared
// still compares. The key of the tokens is random and is not kept. The package knows no cluster and no archive.
package redact

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"reflect"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"lockstep.dev/lockstep/api/config/v1alpha1"
)

// Redactor redacts the objects and texts of one bundle. Learn must see all objects first.
type Redactor struct {
	key []byte
	// known are the words of the names that stay: a text may have them.
	known map[string]bool
	// hashes are words that were made from redacted content, and what is made from it now.
	hashes map[string]string
	// learning is set while names are collected.
	learning bool
}

// New returns a redactor with a random key.
func New() *Redactor {
	key := make([]byte, sha256.Size)
	_, _ = rand.Read(key) // never fails
	return &Redactor{key: key, known: map[string]bool{}, hashes: map[string]string{}}
}

// tokenMark begins every token. A token is a valid label and DNS name.
const tokenMark = "redacted-"

// token stands for a value.
func (r *Redactor) token(value string) string {
	if value == "" {
		return ""
	}
	return tokenMark + hex.EncodeToString(r.sum(value)[:6])
}

func (r *Redactor) sum(value string) []byte {
	mac := hmac.New(sha256.New, r.key)
	_, _ = mac.Write([]byte(value))
	return mac.Sum(nil)
}

// Object returns a redacted copy of an object.
func (r *Redactor) Object(object client.Object) client.Object {
	redacted := object.DeepCopyObject().(client.Object)
	switch o := redacted.(type) {
	case *unstructured.Unstructured:
		r.untyped(o)
		return redacted
	case *appsv1.ControllerRevision:
		o.Data = r.revisionData(o)
	case *corev1.Node:
		o.Status.Images = nil // those of other workloads
	case *corev1.ConfigMap:
		r.configMap(o)
		return redacted
	}
	r.value(reflect.ValueOf(redacted).Elem(), field{})
	return redacted
}

// configMap keeps of a ConfigMap the operator's configuration, by its fields. Fields that this version does not
// know are left out.
func (r *Redactor) configMap(o *corev1.ConfigMap) {
	text := o.Data[v1alpha1.InstalledKey]
	delete(o.Data, v1alpha1.InstalledKey)
	r.value(reflect.ValueOf(o).Elem(), field{})
	configuration := &v1alpha1.Configuration{}
	if err := yaml.Unmarshal([]byte(text), configuration); text == "" || err != nil {
		return
	}
	r.value(reflect.ValueOf(configuration).Elem(), field{})
	if redacted, err := yaml.Marshal(configuration); err == nil {
		o.Data[v1alpha1.InstalledKey] = string(redacted)
	}
}

// field is where a value stands: the field of a struct, whatever lists and pointers are between.
type field struct{ of, name string }

// value redacts a value in place. Numbers, booleans, times and quantities stay.
func (r *Redactor) value(v reflect.Value, at field) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			r.value(v.Elem(), at)
		}
	case reflect.Interface:
		v.SetZero() // the API has no such field that is decoded
	case reflect.Struct:
		r.structure(v, at)
	case reflect.Slice:
		r.list(v, at)
	case reflect.Map:
		r.mapping(v, at)
	case reflect.String:
		v.SetString(r.text(v.String(), classOf(at, v.Type())))
	}
}

func (r *Redactor) structure(v reflect.Value, at field) {
	switch of := v.Addr().Interface().(type) {
	case *metav1.Time, *metav1.MicroTime, *metav1.Duration, *resource.Quantity:
		return
	case *intstr.IntOrString:
		of.StrVal = r.Text(of.StrVal) // a percentage, or the name of a port
		return
	case *metav1.FieldsV1:
		v.SetZero()
		return
	case *runtime.RawExtension: // that of a ControllerRevision is redacted already
		if at.of != "ControllerRevision" {
			v.SetZero()
		}
		return
	}
	for i := range v.NumField() {
		if f := v.Type().Field(i); f.IsExported() {
			r.value(v.Field(i), field{v.Type().Name(), jsonName(f)})
		}
	}
}

func (r *Redactor) list(v reflect.Value, at field) {
	if v.Type().Elem().Kind() == reflect.Uint8 {
		v.SetBytes([]byte(r.token(string(v.Bytes()))))
		return
	}
	for i := range v.Len() {
		r.value(v.Index(i), at)
	}
}

// mapping redacts keys and values. Keys of a type of their own are names, as of resources.
func (r *Redactor) mapping(v reflect.Value, at field) {
	if v.IsNil() {
		return
	}
	class := classOf(at, v.Type().Elem())
	redacted := reflect.MakeMapWithSize(v.Type(), v.Len())
	for each := v.MapRange(); each.Next(); {
		key, value := each.Key().String(), reflect.New(v.Type().Elem()).Elem()
		value.Set(each.Value())
		switch {
		case at.name == "annotations":
			value.SetString(r.text(value.String(), classOfAnnotation(key)))
		case value.Kind() == reflect.String:
			value.SetString(r.text(value.String(), class))
		default:
			r.value(value, at)
		}
		if at.name != "annotations" && v.Type().Key().PkgPath() == "" {
			key = r.text(key, class)
		}
		if v.Type().Key().PkgPath() != "" {
			key = r.name(key)
		}
		redacted.SetMapIndex(reflect.ValueOf(key).Convert(v.Type().Key()), value)
	}
	v.Set(redacted)
}

// text redacts the text of a class.
func (r *Redactor) text(value string, as class) string {
	switch as {
	case name:
		return r.name(value)
	case words:
		return r.Text(value)
	case scheme:
		before, after, found := strings.Cut(value, "://")
		if !found {
			return r.token(value)
		}
		return r.Text(before) + "://" + r.token(after)
	}
	return r.token(value)
}

// name keeps a name. Hashes in it become those of redacted content.
func (r *Redactor) name(value string) string {
	if r.learning {
		for _, word := range word.FindAllString(value, -1) {
			r.known[word] = true
		}
	}
	return word.ReplaceAllStringFunc(value, func(word string) string {
		if now, ok := r.hashes[word]; ok {
			return now
		}
		return word
	})
}

// untyped redacts an object without a Go type, by the names of its fields. Its metadata has a type.
func (r *Redactor) untyped(object *unstructured.Unstructured) {
	var meta metav1.ObjectMeta
	fields, _ := object.Object["metadata"].(map[string]any)
	if runtime.DefaultUnstructuredConverter.FromUnstructured(fields, &meta) != nil {
		meta = metav1.ObjectMeta{Namespace: object.GetNamespace(), Name: object.GetName(), UID: object.GetUID()}
	}
	r.value(reflect.ValueOf(&meta).Elem(), field{})
	redacted, _ := r.member(object.Object, field{}).(map[string]any)
	redacted["metadata"], _ = runtime.DefaultUnstructuredConverter.ToUnstructured(&meta) // it was decoded just now
	object.Object = redacted
}

// member redacts a value of JSON. A key stays if a text could have it.
func (r *Redactor) member(value any, at field) any {
	switch value := value.(type) {
	case map[string]any:
		redacted := make(map[string]any, len(value))
		for key, of := range value {
			redacted[r.Text(key)] = r.member(of, field{at.name, key})
		}
		return redacted
	case []any:
		redacted := make([]any, len(value))
		for i := range value {
			redacted[i] = r.member(value[i], at)
		}
		return redacted
	case string:
		if _, err := resource.ParseQuantity(value); err == nil && quantities[at.of] {
			return value
		}
		return r.text(value, classOf(at, reflect.TypeFor[string]()))
	}
	return value
}

func jsonName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	return name
}
