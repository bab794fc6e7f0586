package lws_test

import (
	"errors"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/internal/lws/lwstest"
)

// carryOut writes a plan as a pass does, for as long as all goes well.
func (w *anyWorld) carryOut(plan lws.Plan, faults bool) {
	w.memory.Found(plan.Finding)
	w.memory.Dismissed(plan.Dismissed)
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

// judge checks that nothing of others is written to (S10).
func (w *anyWorld) judge(a action.Action) {
	w.met.when(a.Why().Code, true)
	w.met.when("workers made anew", a.Why().Code == lws.CodeOutdated && a.Target().Kind == identity.KindStatefulSet)
	if _, creates := a.(action.Create); !creates && w.squatters[a.Target().UID] {
		w.t.Fatalf("%s %s, which is somebody else's", a.Verb(), a.Target())
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
	err := w.Do(a)
	if apierrors.IsAlreadyExists(err) {
		if err := w.observer.Uncover(ctx, a.Target(), w.Now); err != nil {
			w.t.Fatalf("look for %s: %v", a.Target(), err)
		}
	}
	if err != nil {
		return err
	}
	w.checkKept(a)
	w.cached.Deliver(a.Target().Kind)
	w.remember(a)
	return nil
}

func (w *anyWorld) remember(a action.Action) {
	set := lwstest.Find[*lwsv1.LeaderWorkerSet](w.FakeStore, "w")
	sts := lwstest.Find[*appsv1.StatefulSet](w.FakeStore, "w")
	switch a := a.(type) {
	case action.Delete:
		w.memory.Ended(a.Object.UID, w.Now)
	case action.WriteStatus:
		w.memory.StatusWritten(set, w.Now)
		w.memory.StatusGiven(set, a.Status)
	case action.Apply:
		if object, ok := a.Object.(*appsv1.StatefulSet); ok && set != nil && sts != nil && object.Annotations[lws.AppliedAnnotationKey] != "" {
			w.memory.Applied(set, lws.Applied{UID: sts.UID, Generation: sts.Generation, Fingerprint: object.Annotations[lws.AppliedAnnotationKey]})
		}
	}
}

// checkKept checks that no revision was put away that leaders run (S5): nobody who
// lists those in use would find it, and in the end it would be dropped.
func (w *anyWorld) checkKept(a action.Action) {
	if a.Target().Kind != identity.KindControllerRevision || a.Why().Code != lws.CodeSuperseded {
		return
	}
	inUse := map[string]bool{}
	for _, revision := range revisions(w.cluster) {
		if lws.BearsName(revision, "w") {
			inUse[revision.Labels[lwsv1.RevisionKey]] = true
		}
	}
	for _, pod := range lwstest.All[*corev1.Pod](w.Objects) {
		key := pod.Labels[lwsv1.RevisionKey]
		if w.leads(pod) && !inUse[key] {
			w.t.Fatalf("%s %s: %s, and leader %s runs %s", a.Verb(), a.Target(), a.Why().Sentence, pod.Name, key)
		}
	}
}

// leads tells whether a pod is a leader of the set as it lives now, and is to stay.
func (w *anyWorld) leads(pod *corev1.Pod) bool {
	group, worker := indexOf(pod.Name)
	set, sts := lwstest.Find[*lwsv1.LeaderWorkerSet](w.FakeStore, "w"), lwstest.Find[*appsv1.StatefulSet](w.FakeStore, "w")
	return set != nil && sts != nil && worker == 0 && int32(group) < lws.PodsOf(sts) && pod.DeletionTimestamp == nil && metav1.IsControlledBy(sts, set) && metav1.IsControlledBy(pod, sts)
}
