package pvccache

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"lockstep.dev/lockstep/internal/pvc"
)

// answering is an API server that lists and watches as it is told.
type answering struct {
	fails   error
	more    string
	watched *watch.FakeWatcher
}

func (a *answering) lw() *cache.ListWatch {
	return &cache.ListWatch{
		ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
			list := &unstructured.UnstructuredList{}
			list.SetContinue(a.more)
			return list, a.fails
		},
		WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) {
			a.watched = watch.NewFake()
			return a.watched, a.fails
		},
	}
}

func TestContactIsLostUntilAListOrAWatchAnswers(t *testing.T) {
	c, server, ctx := &contact{}, &answering{}, t.Context()
	lw := c.over(server.lw())
	expect := func(isLost bool, after string) {
		t.Helper()
		if c.isLost.Load() != isLost {
			t.Errorf("after %s: lost is %t", after, !isLost)
		}
	}
	list := func() { _, _ = lw.ListWithContext(ctx, metav1.ListOptions{}) }
	hears := func(w watch.Interface, kind watch.EventType, annotations map[string]string) {
		t.Helper()
		object := &unstructured.Unstructured{Object: map[string]any{}}
		object.SetAnnotations(annotations)
		go server.watched.Action(kind, object)
		if got := <-w.ResultChan(); got.Type != kind {
			t.Fatalf("heard %v", got)
		}
	}
	list()
	expect(false, "a list")
	server.fails = errors.New("conversion webhook failed")
	list()
	expect(true, "a list that fails")
	server.fails, server.more = nil, "more"
	list()
	expect(true, "the first page of a list")
	server.more = ""
	list()
	expect(false, "its last page")
	server.fails = errors.New("forbidden")
	if _, err := lw.WatchWithContext(ctx, metav1.ListOptions{}); err == nil {
		t.Error("a watch that is refused goes on")
	}
	expect(true, "a watch that is refused")
	server.fails = nil
	whole, err := lw.WatchWithContext(ctx, metav1.ListOptions{SendInitialEvents: new(true)})
	if err != nil {
		t.Fatal(err)
	}
	expect(true, "a watch that has yet to send what there is")
	hears(whole, watch.Added, nil)
	expect(true, "the first that it sends")
	hears(whole, watch.Bookmark, map[string]string{metav1.InitialEventsAnnotationKey: "true"})
	expect(false, "the last that there was when it began")
	hears(whole, watch.Added, nil)
	expect(false, "what comes then")
	hears(whole, watch.Error, nil)
	expect(true, "an error that it sends")
	whole.Stop()
	if _, more := <-whole.ResultChan(); more {
		t.Error("a watch that was stopped goes on")
	}
	next, err := lw.WatchWithContext(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	expect(false, "a watch from where the last one ended")
	next.Stop()
}

// Who answers again has yet to be heard out: what came meanwhile is on its way into memory
// when a list is there, and is to come yet when a watch goes on from where it ended.
func TestContactIsLostUntilWhatCameMeanwhileIsTakenIn(t *testing.T) {
	for name, again := range map[string]func(*contact){
		"a list": func(c *contact) {
			_, _ = c.over((&answering{}).lw()).ListWithContext(t.Context(), metav1.ListOptions{})
		},
		"a watch": func(c *contact) {
			w, err := c.over((&answering{}).lw()).WatchWithContext(t.Context(), metav1.ListOptions{})
			if err == nil {
				w.Stop()
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := &contact{}
				c.note(errors.New("not served in this way"))
				again(c)
				if c.lost() {
					t.Error("it is lost before it ever was")
				}
				c.note(errors.New("timeout"))
				again(c)
				if !c.lost() {
					t.Error("it is there again before anything was taken in")
				}
				time.Sleep(takenInAfter)
				if c.lost() {
					t.Error("it is lost for ever")
				}
				again(c)
				if c.lost() {
					t.Error("it is lost by being there")
				}
			})
		})
	}
}

// A client asks ten times, and each time for half a minute, before it says that nobody is
// there, and says nothing when somebody is in the end.
func TestContactIsLostWhileAnAnswerIsOverdue(t *testing.T) {
	for name, ask := range map[string]func(*cache.ListWatch) error{
		"a list": func(lw *cache.ListWatch) error {
			_, err := lw.ListWithContext(t.Context(), metav1.ListOptions{})
			return err
		},
		"a watch": func(lw *cache.ListWatch) error {
			w, err := lw.WatchWithContext(t.Context(), metav1.ListOptions{})
			if err == nil {
				w.Stop()
			}
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, takes := &contact{}, time.Duration(0)
				server := (&answering{}).lw()
				lw := c.over(&cache.ListWatch{
					ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
						time.Sleep(takes)
						return server.ListWithContext(ctx, o)
					},
					WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
						time.Sleep(takes)
						return server.WatchWithContext(ctx, o)
					},
				})
				if err := ask(lw); err != nil || c.lost() {
					t.Fatalf("lost at once: %v", err)
				}
				takes = time.Minute
				go func() { _ = ask(lw) }()
				time.Sleep(answersWithin)
				if !c.lost() {
					t.Error("nobody answers, and it is not lost")
				}
				time.Sleep(takes - answersWithin)
				synctest.Wait()
				if !c.lost() {
					t.Error("it is there again before anything was taken in")
				}
				time.Sleep(takenInAfter)
				if c.lost() {
					t.Error("it is lost for ever")
				}
			})
		})
	}
}

// A kind that was read once and cannot be followed any more may have other workloads by
// now: no hold ends meanwhile.
func TestAKindIsUnreadWhileItCannotBeFollowed(t *testing.T) {
	d := emptyDesired(t)
	k := newForeignKind(d, nil, nil, pvc.JobSet.GroupVersionKind, ofKind(pvc.JobSet))
	watched, again := make(chan *watch.FakeWatcher, 1), make(chan bool, 1)
	lists := 0
	informer, err := d.informer(k.contact.over(&cache.ListWatch{
		DisableChunking: true,
		ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
			if lists++; lists > 1 {
				select {
				case again <- k.known():
				default:
				}
				return nil, errors.New("conversion webhook failed")
			}
			list := &unstructured.UnstructuredList{}
			list.SetResourceVersion("1")
			return list, nil
		},
		WatchFuncWithContext: func(_ context.Context, o metav1.ListOptions) (watch.Interface, error) {
			if o.SendInitialEvents != nil {
				return nil, errors.New("not served")
			}
			w := watch.NewFake()
			watched <- w
			return w, nil
		},
	}), &unstructured.Unstructured{}, k.of)
	if err != nil {
		t.Fatal(err)
	}
	k.now.Store(&serving{watched: informer})
	go informer.RunWithContext(t.Context())
	w := <-watched
	if !cache.WaitForCacheSync(t.Context().Done(), informer.HasSynced) || !k.known() {
		t.Fatal("what was read is not known")
	}
	w.Error(&metav1.Status{Status: metav1.StatusFailure, Code: 500, Reason: metav1.StatusReasonInternalError, Message: "conversion webhook failed"})
	if <-again {
		t.Error("a kind that cannot be followed is taken for known")
	}
}
