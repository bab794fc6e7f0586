package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/test/drill"
)

// scene is the namespace of one test, and what its recorder has seen.
type scene struct {
	*testing.T
	*recorder
	namespace string
	client    client.Client
	audited   int // position of the audit log when the scene began
	words     int // unique names so far
}

// asideScene is a scene of a test that runs beside others.
func asideScene(t *testing.T) *scene {
	t.Helper()
	aside(t)
	return newScene(t)
}

// aside runs the test beside others, but in a soak.
func aside(t *testing.T) {
	if !soak() {
		t.Parallel()
	}
}

// newScene creates a namespace in which pods can be created, and records it.
func newScene(t *testing.T) *scene {
	t.Helper()
	s := &scene{T: t, namespace: bed.nextNamespace(), client: bed.client, audited: bed.position()}
	s.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.namespace}})
	recording, stop := context.WithCancel(context.Background())
	t.Cleanup(stop)
	var err error
	if s.recorder, err = startRecorder(recording, bed.client, s.namespace); err != nil {
		t.Fatalf("record namespace %s: %v", s.namespace, err)
	}
	t.Cleanup(s.strike)
	s.eventually("the namespace's default service account exists", func() error {
		return s.client.Get(t.Context(), client.ObjectKey{Namespace: s.namespace, Name: "default"}, &corev1.ServiceAccount{})
	})
	return s
}

// strike deletes the scene, so that the next test has the machine.
func (s *scene) strike() {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	in := client.InNamespace(s.namespace)
	errs := []error{s.client.DeleteAllOf(ctx, &lwsv1.LeaderWorkerSet{}, in)}
	for _, pod := range live[*corev1.Pod](s.recorder) {
		if len(pod.Finalizers) > 0 {
			errs = append(errs, s.client.Patch(ctx, pod.DeepCopy(), merge(noFinalizers)))
		}
	}
	errs = append(errs, s.client.Delete(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.namespace}}))
	if err := errors.Join(errs...); client.IgnoreNotFound(err) != nil {
		s.Logf("clear namespace %s: %v", s.namespace, err)
	}
}

func (s *scene) create(o client.Object) {
	s.Helper()
	if _, ok := o.(*lwsv1.LeaderWorkerSet); ok {
		bed.hasSet(s.namespace)
	}
	if err := s.client.Create(s.Context(), o); err != nil {
		s.Fatalf("create %T %s: %v", o, o.GetName(), err)
	}
}

func (s *scene) remove(o client.Object, options ...client.DeleteOption) {
	s.Helper()
	if err := s.client.Delete(s.Context(), o, options...); err != nil {
		s.Fatalf("delete %T %s: %v", o, o.GetName(), err)
	}
}

// settled creates a set and waits until it is settled.
func (s *scene) settled(set *lwsv1.LeaderWorkerSet) *lwsv1.LeaderWorkerSet {
	s.Helper()
	s.create(set)
	return s.awaitSettled(set)
}

// patch merges a JSON document into an object.
func (s *scene) patch(o client.Object, document string) {
	s.Helper()
	o = o.DeepCopyObject().(client.Object) // objects of the recorder must not change
	if err := s.client.Patch(s.Context(), o, merge(document)); err != nil {
		s.Fatalf("patch %T %s: %v", o, o.GetName(), err)
	}
}

// eventually waits until lacks returns nil. It asks with every change of the recorder, and now
// and then for what the recorder does not watch.
func (s *scene) eventually(what string, lacks func() error) {
	s.Helper()
	s.within(patience, what, lacks)
}

func (s *scene) within(limit time.Duration, what string, lacks func() error) {
	s.Helper()
	deadline := time.After(limit)
	for {
		next := s.next()
		err := lacks()
		if err == nil {
			return
		}
		select {
		case <-next:
		case <-time.After(200 * time.Millisecond):
		case <-s.Context().Done():
			s.Fatalf("%s: %v", what, s.Context().Err())
		case <-deadline:
			s.dump()
			s.Fatalf("never came true: %s\nlast: %v", what, err)
		}
	}
}

// persist repeats something while the API server or the webhooks are away, or a previous object
// has the name.
func (s *scene) persist(what string, do func() error) {
	s.Helper()
	s.eventually(what, func() error {
		err := do()
		if err != nil && !passes(err) {
			s.dump()
			s.Fatalf("%s: %v", what, err)
		}
		return err
	})
}

// passes reports whether an error comes of a fault that a drill made.
func passes(err error) bool {
	return apierrors.IsAlreadyExists(err) || apierrors.IsInternalError(err) || apierrors.IsServiceUnavailable(err) ||
		apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err) || apierrors.IsTooManyRequests(err) ||
		utilnet.IsConnectionRefused(err) || utilnet.IsConnectionReset(err) || utilnet.IsProbableEOF(err) ||
		utilnet.IsHTTP2ConnectionLost(err) || utilnet.IsTimeout(err)
}

// check ends the test on an error.
func (s *scene) check(what string, err error) {
	s.Helper()
	if err != nil {
		s.dump()
		s.Fatalf("%s: %v", what, err)
	}
}

// lockstepWrote returns the operator's writes in the scene since a position of the audit log.
func (s *scene) lockstepWrote(since int) []request {
	s.Helper()
	s.check("read the audit log", bed.audit.Sync())
	return bed.audit.Kept(since, func(r request) bool { return drill.ByLockstep(r) && r.Namespace == s.namespace })
}

// lacking is an error if want differs from have.
func lacking[T comparable](what string, want, have T) error {
	if want == have {
		return nil
	}
	return fmt.Errorf("%s: want %v, have %v", what, want, have)
}

// restartOperator kills the operator and starts it with flags.
func (s *scene) restartOperator(flags ...string) {
	s.Helper()
	s.check("restart the operator", errors.Join(bed.operator.Kill(), bed.operator.Start(flags...)))
}

// errStill is returned while something has not happened.
var errStill = errors.New("not yet")

// awaitAnother waits until another incarnation of an object has its name, and returns it.
func awaitAnother[T client.Object](s *scene, former T) (now T) {
	s.Helper()
	s.eventually(fmt.Sprintf("another %T %s", former, former.GetName()), func() (err error) {
		found, ok := find[T](s.recorder, former.GetName())
		if now = found; !ok || now.GetUID() == former.GetUID() {
			return errStill
		}
		return nil
	})
	return now
}

// awaitEvent waits for an event about an object, with these parts in its action, its related kind
// or its note.
func (s *scene) awaitEvent(name, reason string, parts ...string) {
	s.Helper()
	s.eventually(fmt.Sprintf("%s has an event %s %v", name, reason, parts), func() error {
		for _, e := range live[*eventsv1.Event](s.recorder) {
			text := e.Action + " " + e.Note
			if e.Related != nil {
				text = e.Related.Kind + " " + text
			}
			lacks := func(part string) bool { return !strings.Contains(text, part) }
			if e.Regarding.Name == name && e.Reason == reason && !slices.ContainsFunc(parts, lacks) {
				return nil
			}
		}
		return errStill
	})
}

func keyOf(o client.Object) client.ObjectKey { return client.ObjectKeyFromObject(o) }

func propagation(policy metav1.DeletionPropagation) client.DeleteOption {
	return client.PropagationPolicy(policy)
}
