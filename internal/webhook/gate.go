package webhook

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"reflect"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/sync/semaphore"
	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// docs/design/0040-bounds-of-the-servers.md says where these numbers come from.
const (
	// mostBody is the largest review of an object that can be stored: a request of 3 MiB, an object of etcd of 1.5 MiB,
	// and what an API server says about them.
	mostBody = 5 << 20
	// mostWeight is what the objects of one review may take when they are decoded.
	mostWeight = 12 << 20
	// piece is how much of each body is read whatever others hold. The number of connections bounds it. mostHeld is what
	// all bodies hold besides.
	piece, mostHeld = 64 << 10, 16 << 20
	// Reviews of up to light bytes, decoded ones included, are answered while they are mostLight together. Of heavier ones
	// mostHeavy are answered at a time.
	light, mostLight, mostHeavy = 512 << 10, 12 << 20, 1
)

var (
	errLarge = apierrors.NewRequestEntityTooLargeError("it has more than 5 MiB")
	errHeavy = apierrors.NewRequestEntityTooLargeError("it has too many containers, volumes or other values")
	errBusy  = apierrors.NewTooManyRequests("the webhook server is reading other large requests; try again", 1)
	errForm  = apierrors.NewBadRequest("the request is no JSON object")
)

// gate bounds the memory of reviews, of which any client can send many.
type gate struct{ held, light, heavy *semaphore.Weighted }

// before returns a handler that lets reviews of a weight through to answer.
func (g *gate) before(answer http.Handler, review *weight) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body := &body{Reader: http.MaxBytesReader(w, r.Body, mostBody), held: g.held}
		defer func() { g.held.Release(body.acquired) }()
		leave, err := g.enter(r, body, review)
		if err != nil {
			refuse(w, err)
			return
		}
		defer leave()
		answer.ServeHTTP(w, r)
	})
}

// enter reads and weighs a review, and waits for its turn.
func (g *gate) enter(r *http.Request, body *body, review *weight) (leave func(), err error) {
	if r.ContentLength > mostBody {
		return nil, errLarge
	}
	text, err := io.ReadAll(body)
	if err != nil {
		return nil, err
	}
	size, err := review.of(text, mostWeight)
	if err != nil {
		return nil, err
	}
	r.Body = io.NopCloser(bytes.NewReader(text))
	lane, size := g.light, size+int64(len(text))
	if size > light {
		lane, size = g.heavy, 1
	}
	return func() { lane.Release(size) }, lane.Acquire(r.Context(), size)
}

// body acquires what was read beyond the first piece. A slow client holds only what it has sent.
type body struct {
	io.Reader
	held           *semaphore.Weighted
	read, acquired int64
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	b.read += int64(n)
	if more := b.read - piece - b.acquired; more > 0 {
		if !b.held.TryAcquire(more) {
			return n, errBusy
		}
		b.acquired += more
	}
	return n, err
}

// refuse answers what is not let through, in the form in which an API server repeats it to its client. It waits as long
// as it is told, and tries again.
func refuse(w http.ResponseWriter, err error) {
	if large := (*http.MaxBytesError)(nil); errors.As(err, &large) {
		err = errLarge
	}
	refusal := apierrors.NewBadRequest(err.Error())
	errors.As(err, &refusal)
	status := refusal.Status()
	status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	if seconds, waits := apierrors.SuggestsClientDelay(refusal); waits {
		w.Header().Set("Retry-After", strconv.Itoa(seconds))
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(int(status.Code))
	_ = json.NewEncoder(w).Encode(status)
}

// weight is how many bytes JSON takes when a Go type decodes it: an empty container is two bytes of JSON and 408 of Go.
type weight struct {
	size  int64
	each  *weight            // an element of a list or a map
	named map[string]*weight // the fields of a struct, by exact name
}

// reviewOf returns the weight of an AdmissionReview of objects of type T.
func reviewOf[T any]() *weight {
	type request struct {
		admissionv1.AdmissionRequest `json:",inline"`
		Object                       T `json:"object"`
		OldObject                    T `json:"oldObject"`
	}
	return below(reflect.TypeFor[struct {
		Request *request `json:"request"`
	}]())
}

// below returns the weight of what a value of type t refers to. T must not be recursive.
func below(t reflect.Type) *weight {
	w := &weight{}
	switch {
	case reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]()): // it keeps bytes, or a scalar
	case t.Kind() == reflect.Pointer:
		w = whole(t.Elem())
	case t.Kind() == reflect.Slice:
		w.each = whole(t.Elem())
	case t.Kind() == reflect.Map:
		w.each = whole(t.Elem())
		w.each.size += int64(t.Key().Size())
	case t.Kind() == reflect.Struct:
		w.named = map[string]*weight{}
		for f := range t.Fields() {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if name == "" && f.Anonymous {
				maps.Copy(w.named, below(f.Type).named)
			} else {
				w.named[name] = below(f.Type)
			}
		}
	}
	return w
}

func whole(t reflect.Type) *weight {
	w := below(t)
	w.size += int64(t.Size())
	return w
}

// of returns the weight of a body. It stops at the limit, with errHeavy. It reads JSON alone: a library that is given
// something else would try YAML, whose aliases multiply.
func (w *weight) of(body []byte, limit int64) (int64, error) {
	left := limit
	d := jsontext.NewDecoder(bytes.NewBuffer(body), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	if d.PeekKind() != '{' {
		return 0, errForm
	}
	err := w.value(d, &left)
	if left < 0 {
		return 0, errHeavy
	}
	if err != nil {
		return 0, errForm
	}
	return limit - left, nil
}

// value reads one value, whose nesting is bounded by that of its type. What the type lacks is skipped by the decoder,
// which bounds nesting itself.
func (w *weight) value(d *jsontext.Decoder, left *int64) error {
	if w == nil {
		return d.SkipValue()
	}
	if *left -= w.size; *left < 0 {
		return errHeavy
	}
	token, err := d.ReadToken()
	opened := token.Kind() // the token is valid until the next one is read
	if opened != '{' && opened != '[' {
		return err
	}
	for err == nil && d.PeekKind() != '}' && d.PeekKind() != ']' {
		in := w.each
		if opened == '{' {
			key, err := d.ReadToken()
			if err != nil {
				return err
			}
			if w.named != nil {
				in = w.named[key.String()]
			}
		}
		err = in.value(d, left)
	}
	if err == nil {
		_, err = d.ReadToken()
	}
	return err
}
