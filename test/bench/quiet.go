package main

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/test/drill"
)

// An hour in which nothing changes brings heartbeats, resyncs, lost watches and
// writes of others that mean nothing. Compressed, that is each of them this often.
const (
	idleRounds  = 12
	idleStarts  = 2
	idleTouched = 20 // objects of each kind in a round
)

// idle changes what means nothing on every kind of child, starts the API server's
// watches anew, and counts what the operator writes: nothing.
func idle(ctx context.Context, b *bed) (figures, error) {
	s, err := b.standing(ctx, own(100, 8))
	if err != nil {
		return nil, err
	}
	defer s.strikeEmpty(ctx)
	if err := s.settle(ctx); err != nil {
		return nil, err
	}
	touched := 0
	do := func() error {
		for round := range idleRounds {
			n, err := s.touch(ctx, round)
			if touched += n; err != nil {
				return err
			}
		}
		for range idleStarts { // every watch ends with the API server
			if err := s.plane.Restart(drill.APIServer); err != nil {
				return err
			}
		}
		return nil
	}
	c, err := s.spend(ctx, "the set stands", do, s.complete)
	if err != nil {
		return nil, err
	}
	if touched != idleRounds*3*idleTouched || c.pods > 0 {
		return nil, fmt.Errorf("%w: %d objects were touched, %d pods created", errInvalid, touched, c.pods)
	}
	var f figures
	f.add("idle-100x8.writes", float64(c.writes+c.events))
	f.add("idle-100x8.reads", float64(c.reads))
	f.add("idle-100x8.touched", float64(touched))
	f.add("idle-100x8.cpu-seconds", c.cpu.Seconds())
	return f, nil
}

// settle returns once what may still be written of a set that stands was written.
func (s *stage) settle(ctx context.Context) error {
	if err := pause(ctx, 10*time.Second); err != nil {
		return err
	}
	return s.rest(ctx)
}

// touch changes something that means nothing on some objects of each kind.
func (s *stage) touch(ctx context.Context, round int) (int, error) {
	document := fmt.Appendf(nil, `{"metadata":{"annotations":{"bench/touched":"%d"}}}`, round)
	var objects []client.Object
	for i := range idleTouched {
		meta := func(format string) metav1.ObjectMeta {
			return metav1.ObjectMeta{Namespace: s.namespace, Name: fmt.Sprintf(format, i)}
		}
		objects = append(objects, &corev1.Pod{ObjectMeta: meta("a-%d")}, &corev1.Pod{ObjectMeta: meta("a-%d-1")}, &appsv1.StatefulSet{ObjectMeta: meta("a-%d")})
	}
	err := together(objects, func(object client.Object) error {
		return s.client.Patch(ctx, object, client.RawPatch(types.MergePatchType, document))
	})
	return len(objects), err
}

// restartOperator starts the operator again beside a large set, and then compares
// what an event of one worker pod costs there and beside a small one.
func restartOperator(ctx context.Context, b *bed) (figures, error) {
	const groups, size = 1000, 8
	s, err := b.standing(ctx, own(groups, size))
	if err != nil {
		return nil, err
	}
	defer s.leave(ctx)
	if err := s.settle(ctx); err != nil {
		return nil, err
	}
	var f figures
	f.add("restart-1000x8.rss-before-mib", usageOf(b.operator.PID()).rss)
	if err := b.operator.Kill(); err != nil {
		return nil, err
	}
	began := time.Now()
	var ready time.Duration
	start := func() error {
		err := b.operator.Start(b.flags...)
		ready = time.Since(began)
		return err
	}
	c, err := s.spend(ctx, "the set stands", start, s.complete)
	if err != nil {
		return nil, err
	}
	used := usageOf(b.operator.PID())
	f.add("restart-1000x8.ready-seconds", ready.Seconds())
	f.add("restart-1000x8.writes", float64(c.writes+c.events))
	f.add("restart-1000x8.reads", float64(c.reads))
	f.add("restart-1000x8.pods-created", float64(c.pods))
	f.add("restart-1000x8.cpu-seconds", used.cpu.Seconds())
	f.add("restart-1000x8.rss-mib", used.rss)
	f.add("restart-1000x8.rss-peak-mib", used.peak)
	return f, s.eventCost(ctx, &f)
}

// eventCost tells what an event of a worker pod that has to be looked into costs the
// operator, beside a set of 10 groups and beside this one: in CPU, and in requests.
func (s *stage) eventCost(ctx context.Context, f *figures) error {
	small, err := s.standing(ctx, own(10, s.size))
	if err != nil {
		return err
	}
	defer small.strikeEmpty(ctx)
	few, err := small.labelled(ctx, 10)
	if err != nil {
		return err
	}
	many, err := s.labelled(ctx, s.groups)
	if err != nil {
		return err
	}
	f.add("event.cpu-ms-10-groups", few.cpu.Seconds()*1000/labels)
	f.add("event.cpu-ms-1000-groups", many.cpu.Seconds()*1000/labels)
	f.add("event.cpu-growth", many.cpu.Seconds()/max(few.cpu.Seconds(), 0.01))
	f.add("event.requests", float64(many.writes+many.events+many.reads)/labels)
	return nil
}

// labels is how many events of worker pods are made to measure one.
const labels = 1000

// labelled changes a label on worker pods, one after the other. A pod's labels are
// what its group is judged by, so that each change is looked into.
func (s *stage) labelled(ctx context.Context, groups int) (cost, error) {
	return s.spend(ctx, "the labels are seen", func() error {
		for i := range labels {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: fmt.Sprintf("a-%d-%d", i%groups, 1+i/groups%(s.size-1))}}
			document := fmt.Appendf(nil, `{"metadata":{"labels":{"bench/round":"%d"}}}`, i)
			if err := s.client.Patch(ctx, pod, client.RawPatch(types.MergePatchType, document)); err != nil {
				return err
			}
		}
		return nil
	}, func() bool { return available(s.sets["a"], s.groups) })
}
