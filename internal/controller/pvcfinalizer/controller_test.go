package pvcfinalizer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/apply"
	"lockstep.dev/lockstep/internal/pvc"
	"lockstep.dev/lockstep/internal/pvccache"
	"lockstep.dev/lockstep/internal/report"
	"lockstep.dev/lockstep/test/expect"
	"lockstep.dev/lockstep/test/fakeapi"
)

func TestLivingPVCsGetTheirFinalizers(t *testing.T) {
	inWorld(t, beside, func(w *world) {
		w.want("c", other, b)
		w.want("off", other)
		w.do(func(s *fakeapi.Server) { fakeapi.Add(s, claim("later")) })
		w.want("later", b)
		w.do(func(s *fakeapi.Server) { s.Put(namespace("off")) })
		w.want("later")
	}, claim("c", other), annotated(claim("off", other, b), pvc.ModeKey, "off"))
	inWorld(t, alone, func(w *world) { w.want("c", other, p, b) }, claim("c", other))
}

func TestFinalizersGoOneByOne(t *testing.T) {
	inWorld(t, alone, func(w *world) {
		w.want("c", other)
		w.reads(2)
	}, deleted(claim("c", other, p, b)))
	inWorld(t, beside, func(w *world) {
		w.want("c", p, b) // the built-in controller removes P
		w.reads(0)
		w.held(report.HeldByOther, 1)
	}, deleted(claim("c", p, b)))
}

func TestOneReadServesABatch(t *testing.T) {
	objects := []client.Object{user("u", "used"), deleted(claim("used", b))}
	for i := range 50 {
		objects = append(objects, deleted(claim(fmt.Sprint("c-", i), b)))
	}
	inWorld(t, beside, func(w *world) {
		_, end := w.blocks("probe")
		w.do(func(s *fakeapi.Server) {
			for _, object := range objects {
				s.Put(object)
			}
		})
		end()
		w.want("used", b)
		w.want("c-0")
		w.want("c-49")
		if n := w.api.Requests("probe", "Pod"); n > 2 { // the first may begin before all PVCs are queued
			w.Errorf("%d live reads of pods", n)
		}
		n := w.api.Requests("get", "Namespace")
		expect.That(w, n == 0, "%d live reads of the namespace, want none", n)
		expect.That(w, w.depth() == 0, "%d PVCs are unfinished", w.depth())
	})
}

// PVCs that come during a read wait for the next one: they may be newer than it.
func TestPVCsThatComeDuringAReadShareTheNext(t *testing.T) {
	inWorld(t, beside, func(w *world) {
		w.reads(0)
		reading, end := w.blocks("probe")
		for i := range 4 {
			w.do(func(s *fakeapi.Server) { fakeapi.Add(s, deleted(claim(fmt.Sprint("c-", i), b))) })
		}
		expect.Equalf(t, 1, reading.Load(), "reads that run")
		expect.Equalf(t, 4, w.depth(), "PVCs")
		end()
		w.reads(2)
		w.want("c-3")
	})
}

func TestPassesShareTheirWriters(t *testing.T) {
	inWorld(t, beside, func(w *world) {
		writing, end := w.blocks("patch")
		for pass := range 3 {
			w.do(func(s *fakeapi.Server) {
				for i := range writers {
					fakeapi.Add(s, claim(fmt.Sprintf("c-%d-%d", pass, i)))
				}
			})
			expect.Equalf(t, writers, writing.Load(), "writes at a time")
		}
		end()
		for pass := range 3 {
			w.want(fmt.Sprintf("c-%d-%d", pass, writers-1), b)
		}
	})
}

// A read, a write or a release that fails is retried with back-off. A 403 is an ordinary
// failure.
func TestFailuresAreRetried(t *testing.T) {
	forbidden := apierrors.NewForbidden(corev1.Resource("persistentvolumeclaims"), "c", errors.New("guarded"))
	for verb, tt := range map[string]struct {
		err  error
		held string
	}{
		"probe": {errors.New("down"), report.HeldUnread},
		"list":  {errors.New("down"), report.HeldUnread},
		"patch": {forbidden, report.HeldUnwritten},
	} {
		tries := 0
		fail := func(api *fakeapi.Shared) {
			api.Late(verb == "list") // then the informer of pods does not reach the API server
			on(verb, func() error { tries++; return tt.err })(api)
		}
		inWorldThat(t, beside, fail, func(w *world) {
			if verb == "list" {
				w.do(func(s *fakeapi.Server) { fakeapi.Add(s, user("u")) })
				w.after(lastRetry)
			}
			w.want("c", b)
			w.held(tt.held, 1)
			tries = 0
			w.after(time.Hour)
			expect.That(t, tries >= 55 && tries <= 75, "%s: %d tries in an hour, want one each %s", verb, tries, lastRetry)
			w.api.Fail = nil
			w.after(lastRetry)
			w.want("c")
		}, deleted(claim("c", b)))
	}
}

// After a conflict the PVC and its pods are read again.
func TestAConflictBeginsAnew(t *testing.T) {
	var api *fakeapi.Shared
	changed := false
	change := func(s *fakeapi.Server) {
		fakeapi.Edit(s, "c", func(c *corev1.PersistentVolumeClaim) { c.Annotations = map[string]string{"example.com/x": "1"} })
		fakeapi.Add(s, user("slipped", "c"))
	}
	inWorldThat(t, beside, func(shared *fakeapi.Shared) {
		api = shared
		on("patch", func() error {
			if !changed {
				changed = true
				api.Do(change)
			}
			return nil
		})(api)
	}, func(w *world) {
		w.after(firstRetry)
		w.want("c", other, b)
		w.told("UsedWithoutProtection")
		w.endPod("slipped")
		w.want("c", other)
	}, deleted(claim("c", other, b)))
}

// Caches that are late cost a refused write, and the pod that they lack holds the PVC. Its end
// may never be seen.
func TestAPodThatTheInformerLacksHoldsThePVC(t *testing.T) {
	inWorld(t, beside, func(w *world) {
		w.api.Late(true)
		w.do(func(s *fakeapi.Server) { fakeapi.Add(s, user("slipped", "c")) })
		w.api.Late(false)
		w.api.Do(func(s *fakeapi.Server) { fakeapi.Terminate[*corev1.PersistentVolumeClaim](s, "c", other, b) })
		w.after(0)
		w.want("c", other, b)
		w.told("UsedWithoutProtection")
		w.endPod("slipped")
		w.after(lookAgain)
		w.want("c", other)
	}, claim("c", other, b))
}

func TestADeletionIsToldOnceWhenPostponedAndOnceWhenItGoesOn(t *testing.T) {
	inWorld(t, alone, func(w *world) {
		w.touch("c")
		w.told("DeletionPostponed")
		w.held(report.HeldByPods, 1)
		w.endPod("u")
		w.want("c")
		w.told("DeletionReleased")
		w.held(report.HeldByPods, 0)
	}, user("u", "c"), deleted(claim("c", p, b)))
	inWorld(t, beside, func(w *world) { w.told() }, deleted(claim("c", b)))
	inWorld(t, beside, func(w *world) { // nothing else would judge the PVC again before its pod ends
		w.told()
		w.do(func(s *fakeapi.Server) { fakeapi.Add(s, user("u", "c")) })
		w.told("DeletionPostponed")
	}, deleted(claim("c", p, b)))
}

func TestPodsThatAreGoneLeaveTheRecord(t *testing.T) {
	inWorld(t, beside, func(w *world) {
		expect.Equalf(t, "u=u", w.claim("c").Annotations[pvc.UsersAnnotation], "recorded")
		w.reads(1)
		w.touch("c")
		w.reads(0)
	}, user("u", "c"), annotated(claim("c", p, b), pvc.UsersAnnotation, "gone=gone,u=u"))
}

// No event need come after a read of pods that failed once.
func TestARecordIsReadAgainAfterAFailedRead(t *testing.T) {
	failed := 0
	inWorldThat(t, beside, on("probe", func() error {
		if failed++; failed > 1 {
			return nil
		}
		return apierrors.NewTooManyRequests("busy", 0)
	}), func(w *world) {
		w.after(firstRetry)
		expect.Equalf(t, 2, failed, "reads")
		expect.Equalf(t, "", w.claim("c").Annotations[pvc.UsersAnnotation], "the record")
	}, annotated(claim("c", p, b), pvc.UsersAnnotation, "gone=gone"))
}

// A recorded pod that names no PVC is a later version of it, or a forgery.
func TestARecordedPodKeepsItsPVC(t *testing.T) {
	inWorld(t, beside, func(w *world) {
		w.want("c", b)
		w.told("DeletionPostponed")
		w.held(report.HeldByRecord, 1)
		w.endPod("u")
		w.after(lookAtRecords)
		w.want("c")
	}, user("u"), annotated(deleted(claim("c", b)), pvc.UsersAnnotation, "u=u"))
}

// A pass may report a PVC after the event of its end.
func TestAPVCThatIsGoneDuringAPassIsForgotten(t *testing.T) {
	var api *fakeapi.Shared
	inWorldThat(t, beside, func(shared *fakeapi.Shared) {
		api = shared
		on("probe", func() error {
			api.Do(func(s *fakeapi.Server) {
				fakeapi.Add(s, user("slipped", "c"))
				s.Erase(fakeapi.Find[*corev1.PersistentVolumeClaim](s, "c"))
			})
			return nil
		})(api)
	}, func(w *world) {
		w.held(report.HeldBySlipped, 0)
		w.held(report.HeldForWriting, 0)
	}, deleted(claim("c", b)))
}

// Mode observe reports a deletion that others postpone, and does not write.
func TestAnObservedDeletionIsReported(t *testing.T) {
	observed := annotated(deleted(claim("c", other, p)), pvc.ModeKey, "observe")
	inWorld(t, beside, func(w *world) {
		w.told("DeletionPostponed")
		w.held(report.HeldByPods, 1)
		w.endPod("u")
		w.touch("c")
		w.told()
		w.held(report.HeldByPods, 0)
		w.want("c", other, p)
	}, user("u", "c"), observed)
}

// Only a live read of the namespace lets a living PVC lose the barrier.
func TestTheBarrierStaysUntilTheNamespaceIsReadLive(t *testing.T) {
	for _, tt := range []struct {
		name         string
		live, cached string
		want         []string
	}{
		{"unseen", "barrier", "", []string{p, b}},
		{"changed just now", "strict", "off", []string{p, b}},
		{"as cached", "off", "off", []string{p}},
	} {
		inWorldThat(t, pvc.Settings{Mode: pvc.Off}, func(api *fakeapi.Shared) {
			api.Do(func(s *fakeapi.Server) { s.Put(namespace(tt.cached)) })
			api.Late(true)
			api.Do(func(s *fakeapi.Server) { s.Put(namespace(tt.live)) })
		}, func(w *world) {
			w.want("c", tt.want...)
			expect.Equalf(t, 1, w.api.Requests("get", "Namespace"), "%s: live reads of the namespace", tt.name)
		}, claim("c", p, b), claim("d", p, b))
	}
	inWorldThat(t, pvc.Settings{Mode: pvc.Off}, on("get", func() error { return errors.New("down") }), func(w *world) {
		w.want("living", p, b)
		w.want("leaving")
		w.api.Fail = nil
		w.after(lastRetry)
		w.want("living", p)
	}, claim("living", p, b), deleted(claim("leaving", b)))
}

func TestVolumesGetAndLoseTheirFinalizer(t *testing.T) {
	const v = pvc.VolumeFinalizer
	for name, tt := range map[string]struct {
		ending     bool
		phase      corev1.PersistentVolumePhase
		have, want []string
	}{
		"without the finalizer":      {false, corev1.VolumeBound, []string{other}, []string{other, v}},
		"living":                     {false, corev1.VolumeAvailable, []string{v}, []string{v}},
		"bound":                      {true, corev1.VolumeBound, []string{v}, []string{v}},
		"released":                   {true, corev1.VolumeReleased, []string{v, other}, []string{other}},
		"never bound":                {true, "", []string{v}, nil},
		"too late for the finalizer": {true, corev1.VolumeBound, []string{other}, []string{other}},
	} {
		volume := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "v", UID: "1", Finalizers: tt.have}}
		if volume.Status.Phase = tt.phase; tt.ending {
			volume.DeletionTimestamp = &metav1.Time{Time: time.Unix(0, 0)}
		}
		inWorld(t, alone, func(w *world) {
			volumes, key := &Volumes{Cached: w.Caches, Actor: w.Actor, Report: w.Report}, types.NamespacedName{Name: "v"}
			for range 2 { // and when it is gone
				expect.Value(volumes.Reconcile(t.Context(), ctrl.Request{NamespacedName: key}))(t)
			}
			found := &corev1.PersistentVolume{}
			if err := w.api.Get(t.Context(), key, found); client.IgnoreNotFound(err) != nil || !slices.Equal(found.Finalizers, tt.want) {
				t.Errorf("%s: %q, %v", name, found.Finalizers, err)
			}
		}, volume)
	}
}

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
	diff := cmp.Diff(finalizers, w.claim(name).Finalizers, cmpopts.EquateEmpty())
	expect.That(w, diff == "", "PVC %s (-want +got)\n%s", name, diff)
}

// told counts the events since the last call.
func (w *world) told(reasons ...string) {
	w.Helper()
	var got []string
	for len(w.events.Events) > 0 {
		got = append(got, strings.Fields(<-w.events.Events)[1])
	}
	diff := cmp.Diff(reasons, got, cmpopts.EquateEmpty())
	expect.That(w, diff == "", "events (-want +got)\n%s", diff)
}

// reads compares the number of live reads of pods since the last call.
func (w *world) reads(want int) {
	w.Helper()
	expect.Equal(w, want, w.api.Requests("probe", "Pod"))
}

// held compares how many PVCs are counted as held for a reason.
func (w *world) held(reason string, want int) {
	w.Helper()
	got := int(fakeapi.Metrics(w.T, w.Report.Metrics()...)["protection_claims_held "+reason])
	expect.That(w, got == want, "%d PVCs are held for %s, want %d", got, reason, want)
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
