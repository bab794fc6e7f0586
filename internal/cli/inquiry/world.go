package inquiry

import (
	"context"
	"errors"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/internal/pvc"
	"lockstep.dev/lockstep/internal/pvccache"
)

// pageSize is how many objects are asked for at once.
const pageSize = 1000

// World is what one namespace says of all its claims.
type World struct {
	Namespace string
	// Labels of the namespace; Ending tells that it is being deleted.
	Labels map[string]string
	Ending bool
	// Pods by UID: those that name a claim that was asked for.
	Pods   map[types.UID]*corev1.Pod
	Holds  pvc.World
	Unread []pvc.Unread
	// At is when the reading began; Live tells whether it was of the newest.
	At   time.Time
	Live bool

	read *pvccache.Namespace
	// What several claims ask for is read once.
	nodes    map[string]*corev1.Node
	policies *policies
	alone    *bool
	// unconfigured says why kinds that only the configuration describes are not known.
	unconfigured string
	// modes are what the configuration says of them, or nil where it is not known.
	modes *pvc.Settings
}

// World reads what may hold any of the PVCs, by the reader of the operator and with the
// user's credentials. It begins after the PVCs were read: a pod that is bound later cannot
// start on a PVC that is being deleted.
func (i *Inquirer) World(ctx context.Context, namespace string, claims []corev1.PersistentVolumeClaim) (*World, error) {
	asked := map[string]bool{}
	for _, claim := range claims {
		asked[claim.Name] = true
	}
	known := i.registry(ctx)
	w := &World{
		Namespace: namespace, Pods: map[types.UID]*corev1.Pod{}, At: i.Now(), Live: i.Live, nodes: map[string]*corev1.Node{},
		unconfigured: known.unread, modes: known.modes,
	}
	reader := pvccache.Reader{Live: i.reader, Kinds: known.kinds, Started: lws.LargestStarted, FromCache: !i.Live}
	if i.ServedAs != nil {
		reader.Served = i.servedAs
	}
	w.read = reader.Read(ctx, namespace, func(pod *corev1.Pod) {
		if slices.ContainsFunc(pvc.ClaimsOf(pod), func(name string) bool { return asked[name] }) {
			w.Pods[pod.UID] = pod
		}
	})
	w.Labels, w.Ending, w.Holds = w.read.Meta.Labels, w.read.Meta.DeletionTimestamp != nil, w.read.World
	for _, u := range w.read.Unread {
		if err := w.missed(u.What, u.Err, u.What != pvccache.UnreadNamespace); err != nil {
			return nil, err
		}
	}
	return w, nil
}

// missed notes what could not be read. Without credentials, and once nobody waits
// for the answer any more, there is nothing to go on with.
func (w *World) missed(what string, err error, mayHold bool) error {
	if apierrors.IsUnauthorized(err) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	w.Unread = append(w.Unread, pvc.Unread{What: what, Why: why(err), MayHold: mayHold})
	return nil
}

func why(err error) string {
	switch {
	case apierrors.IsForbidden(err):
		return "you may not read it"
	case apierrors.IsNotFound(err):
		return "it is not there"
	}
	return err.Error()
}

func (i *Inquirer) get(ctx context.Context, key client.ObjectKey, into client.Object) error {
	return i.reader.Get(ctx, key, into, &client.GetOptions{Raw: &metav1.GetOptions{ResourceVersion: i.version()}})
}

// each hands every object of a list to see, page by page.
func (i *Inquirer) each(ctx context.Context, list client.ObjectList, namespace string, see func(client.Object)) error {
	options := &client.ListOptions{Namespace: namespace, Raw: &metav1.ListOptions{ResourceVersion: i.version()}}
	if i.Live {
		options.Limit = pageSize // a cache answers at once, and whole
	}
	for {
		page := list.DeepCopyObject().(client.ObjectList) // what was seen may be kept
		if err := i.reader.List(ctx, page, options); err != nil {
			return err
		}
		err := meta.EachListItem(page, func(object runtime.Object) error {
			see(object.(client.Object))
			return nil
		})
		if err != nil || page.GetContinue() == "" {
			return err
		}
		options.Continue = page.GetContinue()
	}
}
