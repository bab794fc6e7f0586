package lws_test

import (
	"errors"

	appsv1 "k8s.io/api/apps/v1"
	"pgregory.net/rapid"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/test/fakeapi"
)

// carryOut writes a plan as a pass does, for as long as all goes well.
func (w *anyWorld) carryOut(plan lws.Plan, faults bool) {
	for _, wait := range plan.Waits {
		w.met.when(wait.Code, true)
	}
	for _, a := range plan.Actions {
		w.judge(a)
		write := w.write
		if faults {
			write = w.writeFaultily
		}
		err := write(a)
		var cut *cutError
		if errors.As(err, &cut) {
			return
		}
		if _, deletes := a.(action.Delete); err != nil && !deletes {
			return
		}
	}
}

// cutError ends a pass, whatever was written.
type cutError struct{}

func (*cutError) Error() string { return "cut" }

func (w *anyWorld) writeFaultily(a action.Action) error {
	w.t.Logf("%s %s: %s", a.Verb(), a.Target(), a.Why().Sentence)
	switch rapid.IntRange(0, 24).Draw(w.t, "fault") {
	case 0:
		w.met.when("a crash before a write", true)
		w.restartSlowly()
		return &cutError{}
	case 1:
		w.met.when("a crash after a write", w.Do(a) == nil)
		w.restartSlowly()
		return &cutError{}
	case 2:
		w.met.when("an answer lost", w.Do(a) == nil)
		return errors.New("timeout")
	case 3:
		w.met.when("a write refused", true)
		return errors.New("internal error")
	}
	return w.write(a)
}

// write does and remembers what a pass does and remembers.
func (w *anyWorld) write(a action.Action) error {
	inUse := w.keysInUse()
	err := w.Do(a)
	if taken(err) {
		if err := w.observer.Uncover(ctx, a.Target(), w.Now); err != nil {
			w.t.Fatalf("look for %s: %v", a.Target(), err)
		}
	}
	if err != nil {
		return err
	}
	w.checkKept(a, inUse)
	w.cached.Deliver(a.Target().Kind)
	w.remember(a)
	return nil
}

// remember is what the operator remembers of what it has written.
func (c *cluster) remember(a action.Action) {
	set := fakeapi.Find[*lwsv1.LeaderWorkerSet](c.Server, "w")
	sts := fakeapi.Find[*appsv1.StatefulSet](c.Server, "w")
	switch a := a.(type) {
	case action.Delete:
		c.memory.Ended(a.Object.UID, c.Now)
	case action.WriteStatus:
		c.memory.StatusWritten(set, c.Now)
	case action.Apply:
		if object, ok := a.Object.(*appsv1.StatefulSet); ok && set != nil && sts != nil && object.Annotations[lws.AppliedAnnotationKey] != "" {
			c.memory.Applied(set, lws.Applied{UID: sts.UID, Generation: sts.Generation, Fingerprint: object.Annotations[lws.AppliedAnnotationKey]})
		}
	}
}
