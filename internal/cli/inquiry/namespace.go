package inquiry

import (
	"context"
	"errors"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"lockstep.dev/lockstep/internal/lws/restart"
	"lockstep.dev/lockstep/internal/pvc"
	"lockstep.dev/lockstep/internal/pvccache"
)

// Namespace is what one namespace says of its PVCs, as the operator reads it.
type Namespace struct {
	*pvccache.Namespace
	// Pods by UID: those that name one of the PVCs.
	Pods   map[types.UID]*corev1.Pod
	Unread []pvc.Unread
	// At is when the read began.
	At    time.Time
	nodes map[string]*corev1.Node
}

// namespace reads all that may hold one of the PVCs. It begins after the PVCs were read: a
// pod that is bound later cannot start on a terminating PVC.
func (i *Inquirer) namespace(ctx context.Context, name string, claims []corev1.PersistentVolumeClaim) (*Namespace, error) {
	asked := map[string]bool{}
	for _, claim := range claims {
		asked[claim.Name] = true
	}
	n := &Namespace{Pods: map[types.UID]*corev1.Pod{}, At: i.Now(), nodes: map[string]*corev1.Node{}}
	reader := pvccache.Reader{Live: i.reader, Kinds: i.configuration(ctx).kinds, Started: restart.LargestStarted}
	if i.ServedAs != nil {
		reader.Served = i.servedAs
	}
	n.Namespace = reader.Read(ctx, name, func(pod *corev1.Pod) {
		if slices.ContainsFunc(pvc.ClaimsOf(pod), func(name string) bool { return asked[name] }) {
			n.Pods[pod.UID] = pod
		}
	})
	for _, u := range n.Namespace.Unread {
		if err := missed(&n.Unread, u.What, u.Err, u.What != pvccache.UnreadNamespace); err != nil {
			return nil, err
		}
	}
	return n, nil
}

// missed adds what could not be read. Without credentials, and after a timeout, the whole
// read fails.
func missed(unread *[]pvc.Unread, what string, err error, mayHold bool) error {
	if apierrors.IsUnauthorized(err) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	*unread = append(*unread, pvc.Unread{What: what, Why: why(err), MayHold: mayHold})
	return nil
}

func why(err error) string {
	if apierrors.IsForbidden(err) {
		return "you may not read it"
	}
	return err.Error()
}
