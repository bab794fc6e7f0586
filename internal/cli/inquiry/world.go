package inquiry

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/identity"
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

	// What several claims ask for is read once.
	nodes    map[string]*corev1.Node
	policies *policies
	alone    *bool
	// unconfigured says why kinds that only the configuration describes are not known.
	unconfigured string
	// modes are what the configuration says of them, or nil where it is not known.
	modes *pvc.Settings
}

// World reads what may hold any of the claims. It begins after the claims were
// read: a pod that is bound later cannot start on a claim that is on its way out.
func (i *Inquirer) World(ctx context.Context, namespace string, claims []corev1.PersistentVolumeClaim) (*World, error) {
	w := &World{Namespace: namespace, Pods: map[types.UID]*corev1.Pod{}, At: i.Now(), Live: i.Live, nodes: map[string]*corev1.Node{}}
	if err := i.namespace(ctx, w); err != nil {
		return nil, err
	}
	if err := i.pods(ctx, w, claims); err != nil {
		return nil, err
	}
	wants, err := i.wants(ctx, w)
	if err != nil {
		return nil, err
	}
	w.Holds.Desire = pvc.NewDesire(namespace, wants)
	return w, nil
}

func (i *Inquirer) namespace(ctx context.Context, w *World) error {
	n := &corev1.Namespace{}
	err := i.get(ctx, client.ObjectKey{Name: w.Namespace}, n)
	if err != nil {
		return w.missed("namespace", err, false)
	}
	w.Labels, w.Ending = n.Labels, n.DeletionTimestamp != nil
	return nil
}

// pods are all indexed; those are kept whole that use a claim asked for.
func (i *Inquirer) pods(ctx context.Context, w *World, claims []corev1.PersistentVolumeClaim) error {
	asked := map[string]bool{}
	for _, claim := range claims {
		asked[claim.Name] = true
	}
	w.Holds.Pods, w.Holds.Links = pvc.NewIndex(), map[types.UID]pvc.Link{}
	err := i.each(ctx, &corev1.PodList{}, w.Namespace, func(object client.Object) {
		pod := object.(*corev1.Pod)
		w.Holds.Pods.See(pod)
		link := pvc.Link{Object: identity.RefOf(identity.KindPod, pod)}
		if owner := metav1.GetControllerOfNoCopy(pod); owner != nil {
			link.Controller = owner.UID
		}
		w.Holds.Links[pod.UID] = link
		if slices.ContainsFunc(pvc.ClaimsOf(pod), func(name string) bool { return asked[name] }) {
			w.Pods[pod.UID] = pod
		}
	})
	if err != nil {
		return w.missed(pvc.UnreadPods, err, true)
	}
	return nil
}

// source is one kind of workload, and what one of it wants.
type source struct {
	name string
	list client.ObjectList
	want func(client.Object) (pvc.Want, error)
	// of is where the kind is served, for kinds that not every cluster knows.
	of schema.GroupVersion
}

func of[T client.Object](want func(T) pvc.Want) func(client.Object) (pvc.Want, error) {
	return func(object client.Object) (pvc.Want, error) { return want(object.(T)), nil }
}

// leaderWorkerSets are read as they are served, and of each no more than what tells its
// claims: the definition may be another implementation's.
func leaderWorkerSets() client.ObjectList {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(lwsv1.GroupVersion.WithKind("LeaderWorkerSetList"))
	return list
}

var wantOfSet = pvccache.OfLeaderWorkerSet(lws.LargestStarted)

func sources() []source {
	var builtIn schema.GroupVersion
	return []source{
		{"leaderworkersets", leaderWorkerSets(), func(set client.Object) (pvc.Want, error) { return wantOfSet(set) }, lwsv1.GroupVersion},
		{"statefulsets", &appsv1.StatefulSetList{}, of(pvc.OfStatefulSet), builtIn},
		{"deployments", &appsv1.DeploymentList{}, of(pvc.OfDeployment), builtIn},
		{"replicasets", &appsv1.ReplicaSetList{}, of(pvc.OfReplicaSet), builtIn},
		{"daemonsets", &appsv1.DaemonSetList{}, of(pvc.OfDaemonSet), builtIn},
		{"jobs", &batchv1.JobList{}, of(pvc.OfJob), builtIn},
		{"cronjobs", &batchv1.CronJobList{}, of(pvc.OfCronJob), builtIn},
	}
}

func (i *Inquirer) wants(ctx context.Context, w *World) ([]pvc.Want, error) {
	var wants []pvc.Want
	for _, s := range sources() {
		var astray error
		err := i.each(ctx, s.list, w.Namespace, func(object client.Object) {
			want, err := s.want(object)
			wants, astray = append(wants, want), cmp.Or(astray, err)
		})
		err = cmp.Or(err, astray)
		if apierrors.IsNotFound(err) || meta.IsNoMatchError(err) || apierrors.IsForbidden(err) && i.unheardOf(ctx, s.of) {
			continue // the cluster does not know the kind
		}
		if err != nil {
			if err := w.missed(s.name, err, true); err != nil {
				return nil, err
			}
		}
	}
	more, err := i.described(ctx, w)
	return append(wants, more...), err
}

// goneOwner is the controller of a claim, if it is of a kind that is always read and is not
// there, or nil. Where not all could be read, nobody is missed.
func (w *World) goneOwner(claim *corev1.PersistentVolumeClaim) *identity.Ref {
	owner := metav1.GetControllerOfNoCopy(claim)
	if owner == nil || len(w.Unread) > 0 || w.Holds.Knows(owner.UID) {
		return nil
	}
	ref := identity.OwnerRef(claim.Namespace, *owner)
	switch (metav1.TypeMeta{APIVersion: owner.APIVersion, Kind: owner.Kind}) {
	case metav1.TypeMeta{APIVersion: "v1", Kind: string(identity.KindPod)},
		metav1.TypeMeta{APIVersion: "apps/v1", Kind: string(identity.KindStatefulSet)},
		metav1.TypeMeta{APIVersion: lwsv1.GroupVersion.String(), Kind: string(identity.KindLeaderWorkerSet)}:
		return &ref
	}
	return nil
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
