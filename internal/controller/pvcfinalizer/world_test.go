package pvcfinalizer

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/apply"
	"lockstep.dev/lockstep/internal/pvc"
	"lockstep.dev/lockstep/internal/pvccache"
	"lockstep.dev/lockstep/test/fakeapi"
)

const (
	other = "example.com/keep"
	p     = pvc.PodsFinalizer
	b     = pvc.BarrierFinalizer
)

var (
	beside = pvc.Settings{Mode: pvc.Barrier}
	alone  = pvc.Settings{Mode: pvc.Barrier, Alone: true}
)

// world is a running controller and its API server. Time passes only in after.
type world struct {
	*testing.T
	*Controller
	api    *fakeapi.Shared
	events *events.FakeRecorder
}

// inWorld runs a test in a world with objects, after the first pass over all of them.
func inWorld(t *testing.T, settings pvc.Settings, test func(*world), objects ...client.Object) {
	t.Helper()
	inWorldThat(t, settings, func(*fakeapi.Shared) {}, test, objects...)
}

// inWorldThat is inWorld with an API server that was changed before the controller starts.
func inWorldThat(t *testing.T, settings pvc.Settings, change func(*fakeapi.Shared), test func(*world), objects ...client.Object) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		w := &world{T: t, api: fakeapi.NewShared(append(objects, namespace(""))...), events: events.NewFakeRecorder(100)}
		change(w.api)
		pods := pvccache.NewPods(w.api.Pods(), toolscache.DefaultWatchErrorHandler)
		w.Controller = New(Options{
			Settings: settings, Caches: w.api.Caches(), Live: w.api, Pods: pods,
			Actor: apply.New(w.api, w.api), Recorder: w.events, Log: logr.Discard(),
		})
		go pods.Run(ctx)
		go func() { _ = w.Start(ctx) }()
		w.after(0)
		test(w)
		cancel()
		time.Sleep(gatherFor)
		synctest.Wait()
	})
}

// on calls before when the controller sends a request with a verb. Its error is the answer.
func on(verb string, before func() error) func(*fakeapi.Shared) {
	return func(api *fakeapi.Shared) {
		api.Fail = func(sent string, _ fakeapi.Name) error {
			if sent != verb {
				return nil
			}
			return before()
		}
	}
}

// blocks counts requests with a verb, and blocks them until end is called.
func (w *world) blocks(verb string) (count *atomic.Int32, end func()) {
	count, ended := &atomic.Int32{}, make(chan struct{})
	on(verb, func() error {
		count.Add(1)
		<-ended
		return nil
	})(w.api)
	return count, func() {
		close(ended)
		w.after(0)
	}
}

// after lets time pass, and the controller come to rest.
func (w *world) after(d time.Duration) {
	time.Sleep(d + 2*gatherFor + time.Millisecond) // two reads of pods, and the informer starts its watch
	synctest.Wait()
}

// do changes objects, and lets the controller come to rest.
func (w *world) do(change func(*fakeapi.Server)) {
	w.api.Do(change)
	w.after(0)
}

func (w *world) endPod(name string) {
	w.do(func(s *fakeapi.Server) { s.Erase(fakeapi.Find[*corev1.Pod](s, name)) })
}

// touch changes a PVC, so that it is judged again.
func (w *world) touch(name string) {
	w.do(func(s *fakeapi.Server) {
		fakeapi.Edit(s, name, func(c *corev1.PersistentVolumeClaim) { metav1.SetMetaDataAnnotation(&c.ObjectMeta, "touched", "1") })
	})
}

func (w *world) claim(name string) (found *corev1.PersistentVolumeClaim) {
	w.api.Do(func(s *fakeapi.Server) { found = fakeapi.Find[*corev1.PersistentVolumeClaim](s, name) })
	if found == nil {
		found = &corev1.PersistentVolumeClaim{}
	}
	return found
}

// want compares the finalizers of a PVC. One that is gone has none.
func (w *world) want(name string, finalizers ...string) {
	w.Helper()
	if diff := cmp.Diff(finalizers, w.claim(name).Finalizers, cmpopts.EquateEmpty()); diff != "" {
		w.Errorf("PVC %s (-want +got)\n%s", name, diff)
	}
}

// told counts the events since the last call.
func (w *world) told(reasons ...string) {
	w.Helper()
	var got []string
	for len(w.events.Events) > 0 {
		got = append(got, strings.Fields(<-w.events.Events)[1])
	}
	if diff := cmp.Diff(reasons, got, cmpopts.EquateEmpty()); diff != "" {
		w.Errorf("events (-want +got)\n%s", diff)
	}
}

// reads compares the number of live reads of pods since the last call.
func (w *world) reads(want int) {
	w.Helper()
	if got := w.api.Requests("probe", "Pod"); got != want {
		w.Errorf("%d live reads of pods, want %d", got, want)
	}
}

// held compares how many PVCs are counted as held for a reason.
func (w *world) held(reason string, want int) {
	w.Helper()
	if got := int(fakeapi.Metrics(w.T, w.report.Metrics()...)["protection_claims_held "+reason]); got != want {
		w.Errorf("%d PVCs are held for %s, want %d", got, reason, want)
	}
}

func namespace(mode string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ns", Labels: map[string]string{pvc.ModeKey: mode}}}
}

func claim(name string, finalizers ...string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name), Finalizers: finalizers}}
}

func deleted(c *corev1.PersistentVolumeClaim) *corev1.PersistentVolumeClaim {
	c.DeletionTimestamp = &metav1.Time{Time: time.Now().Add(time.Hour)} // after the controller began
	return c
}

func annotated(c *corev1.PersistentVolumeClaim, key, value string) *corev1.PersistentVolumeClaim {
	c.Annotations = map[string]string{key: value}
	return c
}

func user(name string, claims ...string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name)},
		Spec:       corev1.PodSpec{NodeName: "n", Volumes: fakeapi.Using(claims...)},
	}
}
