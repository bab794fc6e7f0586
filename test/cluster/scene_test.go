package cluster

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
)

// scene is a namespace of one test, and what was seen in it.
type scene struct {
	*testing.T
	*recorder
	namespace string
	client    client.Client
	audited   int // where the audit log stood when the scene began
	words     int // that were made unique
}

// newScene makes a namespace in which pods can be created, and records it.
func newScene(t *testing.T) *scene {
	t.Helper()
	s := &scene{T: t, namespace: bed.nextNamespace(), client: bed.client, audited: bed.audit.position()}
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

// strike clears the scene away: the next test is to have the machine to itself.
func (s *scene) strike() {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	in := client.InNamespace(s.namespace)
	errs := []error{s.client.DeleteAllOf(ctx, &lwsv1.LeaderWorkerSet{}, in)}
	for _, pod := range live[*corev1.Pod](s.recorder) {
		if len(pod.Finalizers) > 0 {
			errs = append(errs, s.client.Patch(ctx, pod.DeepCopy(), client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`))))
		}
	}
	errs = append(errs, s.client.Delete(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.namespace}}))
	if err := errors.Join(errs...); client.IgnoreNotFound(err) != nil {
		s.Logf("clear namespace %s: %v", s.namespace, err)
	}
}

// create creates an object, at once.
func (s *scene) create(o client.Object) {
	s.Helper()
	if _, ok := o.(*lwsv1.LeaderWorkerSet); ok {
		bed.hasSet(s.namespace)
	}
	if err := s.client.Create(s.Context(), o); err != nil {
		s.Fatalf("create %T %s: %v", o, o.GetName(), err)
	}
}

// remove deletes an object, at once.
func (s *scene) remove(o client.Object, options ...client.DeleteOption) {
	s.Helper()
	if err := s.client.Delete(s.Context(), o, options...); err != nil {
		s.Fatalf("delete %T %s: %v", o, o.GetName(), err)
	}
}

// patch merges a JSON document into an object.
func (s *scene) patch(o client.Object, document string) {
	s.Helper()
	o = o.DeepCopyObject().(client.Object) // what the recorder holds is not to be written to
	if err := s.client.Patch(s.Context(), o, client.RawPatch("application/merge-patch+json", []byte(document))); err != nil {
		s.Fatalf("patch %T %s: %v", o, o.GetName(), err)
	}
}

// eventually waits until what holds, that is until lacks returns nil. It looks
// with every change that is seen, and now and then for what is not recorded.
func (s *scene) eventually(what string, lacks func() error) {
	s.Helper()
	deadline := time.After(patience)
	for {
		next := s.change()
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

// change is the recorder's next change; before there is a recorder, never.
func (s *scene) change() <-chan struct{} {
	if s.recorder == nil {
		return nil
	}
	return s.next()
}

// persist does something until it is done, while the API server or the webhooks
// are away or an old object of the name is still there.
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

// passes tells whether an error is one of a fault that was made on purpose.
func passes(err error) bool {
	return apierrors.IsAlreadyExists(err) || apierrors.IsInternalError(err) || apierrors.IsServiceUnavailable(err) ||
		apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err) || apierrors.IsTooManyRequests(err) ||
		utilnet.IsConnectionRefused(err) || utilnet.IsConnectionReset(err) || utilnet.IsProbableEOF(err) ||
		utilnet.IsHTTP2ConnectionLost(err) || utilnet.IsTimeout(err)
}

// check fails the test when something that must hold now does not.
func (s *scene) check(what string, err error) {
	s.Helper()
	if err != nil {
		s.dump()
		s.Fatalf("%s: %v", what, err)
	}
}

// lockstepWrote returns what the operator wrote in the scene's namespace since a
// position in the audit log.
func (s *scene) lockstepWrote(since int) []request {
	s.Helper()
	s.check("read the audit log", bed.audit.sync())
	return bed.audit.writes(since, func(r request) bool { return byLockstep(r) && r.Namespace == s.namespace })
}

// lacking is an error when want differs from have.
func lacking[T comparable](what string, want, have T) error {
	if want == have {
		return nil
	}
	return fmt.Errorf("%s: want %v, have %v", what, want, have)
}

// propagation is how a deletion reaches what the object owns.
func propagation(policy metav1.DeletionPropagation) client.DeleteOption {
	return client.PropagationPolicy(policy)
}
