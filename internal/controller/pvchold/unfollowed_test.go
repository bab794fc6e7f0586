package pvchold

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"lockstep.dev/lockstep/internal/pvc"
)

// unfollowed is an API server that listed pods once and answers no more: there are more of
// them, perhaps, than it can list in time.
type unfollowed struct {
	corev1client.PodInterface
	lists atomic.Int32
	// silent is closed when it does not answer.
	silent chan struct{}
}

// IsWatchListSemanticsUnSupported has it be asked for a list.
func (u *unfollowed) IsWatchListSemanticsUnSupported() bool { return true }

func (u *unfollowed) List(context.Context, metav1.ListOptions) (*corev1.PodList, error) {
	switch u.lists.Add(1) {
	case 1:
		return &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}}, nil
	case 2:
		close(u.silent)
	}
	return nil, errors.New("timeout")
}

func (u *unfollowed) Watch(context.Context, metav1.ListOptions) (watch.Interface, error) {
	return nil, errors.New("timeout")
}

// A pod that came since nobody could follow pods any more may use the claim, as a workload
// may of a kind that cannot be followed: no hold ends meanwhile.
func TestNoHoldEndsWhilePodsCannotBeFollowed(t *testing.T) {
	l := newLaggingFrom(t, unseen(t, &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: "ml", Name: "other", UID: "other"}}))
	server := &unfollowed{silent: make(chan struct{})}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		l.pods.Run(l.Context(), server)
	}()
	t.Cleanup(func() { <-ended })
	<-server.silent
	l.both(space("1", "hold"))
	cooled := heldByHand("data", "1")
	cooled.Annotations = map[string]string{
		pvc.HoldersAnnotation: "cooling until " + l.clock.Add(-time.Minute).Format(time.RFC3339) + ": Pod/shell",
	}
	l.both(cooled)
	if claim := l.pass("data"); !isHeld(claim) {
		t.Errorf("it may be deleted under a pod that was not seen: %v", claim.Annotations)
	}
}
