package pvccache

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"lockstep.dev/lockstep/internal/pvc"
)

// Of a large namespace a list was just read. What the watch from version 7 says then
// decides whether the memory is good for version 9.
func TestAWatchThatCatchesUpSparesAList(t *testing.T) {
	at := func(version string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{ResourceVersion: version}}
	}
	nobody, late := tenant("nobody", "8"), tenant("late", "8", "free")
	for name, tt := range map[string]struct {
		events   []watch.Event
		seen     *corev1.Pod // by the memory, meanwhile
		err      error
		by       string
		released int
	}{
		"nothing happened":               {events: []watch.Event{{Type: watch.Bookmark, Object: at("9")}}, by: ByWatch, released: 1},
		"no bookmark":                    {by: ByList, released: 1},
		"not far enough":                 {events: []watch.Event{{Type: watch.Bookmark, Object: at("8")}}, by: ByList, released: 1},
		"what the memory has seen, too":  {events: []watch.Event{{Type: watch.Added, Object: nobody}, {Type: watch.Bookmark, Object: at("9")}}, seen: nobody, by: ByWatch, released: 1},
		"who uses it, and is seen, too":  {events: []watch.Event{{Type: watch.Added, Object: late}, {Type: watch.Bookmark, Object: at("9")}}, seen: late, by: ByWatch},
		"what the memory has yet to see": {events: []watch.Event{{Type: watch.Added, Object: late}, {Type: watch.Bookmark, Object: at("9")}}, by: ByList, released: 1},
		"too old":                        {events: []watch.Event{{Type: watch.Error, Object: &metav1.Status{Code: 410}}}, by: ByList, released: 1},
		"refused":                        {err: errors.New("no"), by: ByList, released: 1},
	} {
		p := NewPods()
		var all []any
		for i := range cheapList + 1 {
			all = append(all, tenant(fmt.Sprint("pod-", i), "1"))
		}
		do(t, p.Sink().Replace(all, "7"))
		live, now := &fakePods{version: "9", page: 100}, time.Unix(0, 0)
		var readings []Reading
		looker := NewLooker(p, live, func() time.Time { return now }, func(r Reading) { readings = append(readings, r) })
		looker.CatchingUp(func(_ context.Context, namespace string, o metav1.ListOptions) (watch.Interface, error) {
			if namespace != "ns" || o.ResourceVersion != "7" || !o.AllowWatchBookmarks {
				t.Errorf("%s: watched %s, %+v", name, namespace, o)
			}
			w := watch.NewFakeWithChanSize(len(tt.events), false)
			for _, e := range tt.events {
				w.Action(e.Type, e.Object)
			}
			w.Stop()
			if tt.seen != nil {
				do(t, p.Sink().Add(tt.seen))
			}
			return w, tt.err
		})
		looker.listed["ns"] = listed{until: now.Add(listShare * time.Second)}
		batch := pvc.Settings{}.Take("ns", []*corev1.PersistentVolumeClaim{going("free", pvc.BarrierFinalizer)})
		released := judged(batch.Look(looker.For(t.Context(), batch)))
		if readings[0].By != tt.by || len(released) != tt.released {
			t.Errorf("%s: read by %s, released %v", name, readings[0].By, released)
		}
		now = now.Add(listShare * time.Second)
		if !looker.mayList("ns") && tt.by == ByWatch {
			t.Errorf("%s: a list is never worth it again", name)
		}
	}
}

func TestListsThatCountNoMoreAreForgotten(t *testing.T) {
	now := time.Unix(0, 0)
	looker := NewLooker(NewPods(), &fakePods{}, func() time.Time { return now }, func(Reading) {})
	looker.listed["gone"] = listed{until: now.Add(time.Second)}
	looker.listed["busy"] = listed{until: now.Add(time.Minute)}
	now = now.Add(time.Second)
	looker.noteList("ns", now, listShare)
	if _, kept := looker.listed["gone"]; kept || len(looker.listed) != 2 {
		t.Errorf("remembered: %v", looker.listed)
	}
}
