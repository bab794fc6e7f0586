package webhook

import (
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"

	"golang.org/x/sync/semaphore"
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
	// piece is how much of each body is read whatever others hold. The number of connections bounds it.
	piece = 64 << 10
	// mostHeld is what all bodies hold besides.
	mostHeld = 16 << 20
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

func newGate() *gate {
	return &gate{semaphore.NewWeighted(mostHeld), semaphore.NewWeighted(mostLight), semaphore.NewWeighted(mostHeavy)}
}

// before returns a handler that lets reviews of a weight through to answer.
func (g *gate) before(answer http.Handler, review *weight) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		parts, err := g.read(r)
		defer g.held.Release(heldBy(parts))
		if err == nil {
			var release func()
			if release, err = g.enter(r, parts, review); err == nil {
				defer release()
				r.Body = io.NopCloser(joined(parts))
				answer.ServeHTTP(w, r)
				return
			}
		}
		refuse(w, err)
	})
}

// read returns the body in pieces. A slow client holds only what it has sent.
func (g *gate) read(r *http.Request) (parts net.Buffers, err error) {
	left := r.ContentLength
	if left < 0 {
		left = mostBody + 1 // it is unknown, and ends earlier
	}
	if left > mostBody && r.ContentLength > 0 {
		return nil, errLarge
	}
	for left > 0 {
		if len(parts) > 0 && !g.held.TryAcquire(piece) {
			return parts, errBusy
		}
		part := make([]byte, min(left, piece))
		n, err := io.ReadFull(r.Body, part)
		parts, left = append(parts, part[:n]), left-int64(n)
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return parts, nil
		}
		if err != nil {
			return parts, err
		}
	}
	if r.ContentLength < 0 {
		return parts, errLarge
	}
	return parts, nil
}

// heldBy returns what read acquired.
func heldBy(parts net.Buffers) int64 { return max(int64(len(parts))-1, 0) * piece }

func joined(parts net.Buffers) io.Reader { return new(slices.Clone(parts)) }

// enter weighs a review, and waits for its turn.
func (g *gate) enter(r *http.Request, parts net.Buffers, review *weight) (release func(), err error) {
	size, err := review.of(joined(parts), mostWeight)
	if err != nil {
		return nil, err
	}
	for _, part := range parts {
		size += int64(len(part))
	}
	lane := g.light
	if size > light {
		lane, size = g.heavy, 1
	}
	return func() { lane.Release(size) }, lane.Acquire(r.Context(), size)
}

// refuse answers what is not let through, in the form in which an API server repeats it to its client. It waits as long
// as it is told, and tries again.
func refuse(w http.ResponseWriter, err error) {
	status := apierrors.NewBadRequest(err.Error()).Status()
	if known := apierrors.APIStatus(nil); errors.As(err, &known) {
		status = known.Status()
	}
	status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	w.Header().Set("Content-Type", "application/json")
	if status.Details != nil && status.Details.RetryAfterSeconds > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(status.Details.RetryAfterSeconds)))
	}
	w.WriteHeader(int(status.Code))
	_ = json.NewEncoder(w).Encode(status)
}
