//go:build linux

package node

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// life is that of one pod: when it was first seen, asked to end and gone.
type life struct {
	uid            types.UID
	name           string
	born           int // numbers of changes, 0 for what was not seen
	leaving, gone  int
	askedAt, endAt time.Time
	restarts       int32 // the most that any of its containers had
}

// ledger remembers every pod of a namespace by UID, gone ones too. What it numbers came
// in the order in which the API server wrote it.
type ledger struct {
	mu    sync.Mutex
	count int
	all   []*life
	lost  error
}

// keepLedger watches pods until ctx ends.
func keepLedger(ctx context.Context, namespace string) (*ledger, error) {
	changes, err := bed.client.Watch(ctx, &corev1.PodList{}, client.InNamespace(namespace))
	if err != nil {
		return nil, err
	}
	l := &ledger{}
	go func() {
		for change := range changes.ResultChan() {
			l.take(change)
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		if ctx.Err() == nil {
			l.lost = fmt.Errorf("the watch of pods in %s ended", namespace)
		}
	}()
	return l, nil
}

func (l *ledger) take(change watch.Event) {
	pod, ok := change.Object.(*corev1.Pod)
	if !ok {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.count++
	one := l.of(pod)
	for _, c := range pod.Status.ContainerStatuses {
		one.restarts = max(one.restarts, c.RestartCount)
	}
	if pod.DeletionTimestamp != nil && one.leaving == 0 {
		one.leaving, one.askedAt = l.count, time.Now()
	}
	if change.Type == watch.Deleted {
		one.gone, one.endAt = l.count, time.Now()
	}
}

func (l *ledger) of(pod *corev1.Pod) *life {
	for _, one := range l.all {
		if one.uid == pod.UID {
			return one
		}
	}
	one := &life{uid: pod.UID, name: pod.Name, born: l.count}
	l.all = append(l.all, one)
	return one
}

// lives are all that were seen.
func (l *ledger) lives() []life {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lost != nil {
		panic(l.lost)
	}
	lives := make([]life, len(l.all))
	for i, one := range l.all {
		lives[i] = *one
	}
	return lives
}

// life is that of one pod.
func (l *ledger) life(uid types.UID) life {
	for _, one := range l.lives() {
		if one.uid == uid {
			return one
		}
	}
	return life{}
}
