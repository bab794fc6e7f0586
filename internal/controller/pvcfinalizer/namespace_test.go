package pvcfinalizer

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/pvc"
	"lockstep.dev/lockstep/internal/pvccache"
)

// before shows a namespace as it was, and all else as it is.
type before struct {
	client.Reader
	was *metav1.PartialObjectMetadata
}

func (b before) Get(ctx context.Context, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
	space, ok := o.(*metav1.PartialObjectMetadata)
	if !ok {
		return b.Reader.Get(ctx, key, o, options...)
	}
	b.was.DeepCopyInto(space)
	return nil
}

// counted counts live readings of namespaces, and has them fail.
type counted struct {
	client.Reader
	reads int
	err   error
}

func (c *counted) Get(ctx context.Context, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
	if _, ok := o.(*metav1.PartialObjectMetadata); ok {
		c.reads++
		if c.err != nil {
			return c.err
		}
	}
	return c.Reader.Get(ctx, key, o, options...)
}

// chose is a world whose namespace chose something that its caches do not show.
func chose(t *testing.T, settings pvc.Settings, chosen map[string]string, cached map[string]string, objects ...client.Object) (*world, *counted) {
	w := newWorld(t, settings, objects...)
	space := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ns", Labels: chosen}}
	if err := w.Update(t.Context(), space); err != nil {
		t.Fatal(err)
	}
	was := pvccache.NewNamespace("ns")
	was.Labels = cached
	w.cached = before{w.WithWatch, was}
	live := &counted{Reader: w.WithWatch}
	w.claims = pvccache.NewClaims(w.cached, live)
	return w, live
}

func (w *world) after(d time.Duration) {
	w.clock.Step(d)
	w.drain()
}

func TestBIsNotTakenByWhatACacheSaysOfTheNamespace(t *testing.T) {
	off := pvc.Settings{Mode: pvc.Off}
	mode := func(word string) map[string]string { return map[string]string{pvc.ModeKey: word} }
	for _, tt := range []struct {
		name           string
		chosen, cached map[string]string
		want           []string
	}{
		{"unseen", mode("barrier"), nil, []string{p, b}},
		{"changed just now", mode("strict"), mode("off"), []string{p, b}},
		{"as it says itself", mode("off"), mode("off"), []string{p}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w, live := chose(t, off, tt.chosen, tt.cached, claim("c", p, b))
			w.pass("c")
			w.want("c", tt.want...)
			if live.reads != 1 {
				t.Errorf("%d live readings", live.reads)
			}
		})
	}
}

func TestBStaysWhereTheNamespaceCannotBeRead(t *testing.T) {
	w, live := chose(t, pvc.Settings{Mode: pvc.Off}, nil, nil, claim("living", p, b), deleted(claim("leaving", b)))
	live.err = errors.New("refused")
	w.pass("living", "leaving")
	w.want("living", p, b)
	w.want("leaving")
	live.err = nil
	w.after(lastRetry)
	w.want("living", p)
}

func TestANamespaceIsReadOnceForABatch(t *testing.T) {
	var objects []client.Object
	var names []string
	for i := range 50 {
		names = append(names, fmt.Sprint("c-", i))
		objects = append(objects, deleted(claim(names[i], b)))
	}
	w, live := chose(t, beside, nil, nil, objects...)
	w.pass(names...)
	w.want(names[0])
	w.want(names[49])
	if live.reads != 0 {
		t.Errorf("%d live readings of the namespace, want none", live.reads)
	}
}

// Claims that live, and what their pods leave on record, cost no reading.
func TestClaimsThatLiveCostNoReadingOfTheirNamespace(t *testing.T) {
	c := claim("c", p, b)
	c.Annotations = map[string]string{pvc.UsersAnnotation: "gone=uid-gone"}
	w, live := chose(t, beside, nil, nil, c, claim("bare"))
	w.pass("c", "bare")
	w.want("bare", b)
	if live.reads > 0 {
		t.Errorf("%d live readings", live.reads)
	}
}
