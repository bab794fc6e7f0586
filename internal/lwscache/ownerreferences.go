package lwscache

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/gangcache"
	"lockstep.dev/lockstep/internal/identity"
)

// chainLength bounds how many owners are followed. Our longest chain has four; the owners of a
// longer one are taken to exist.
const chainLength = 6

// life follows the chain from owner upwards. Only a live read can show that an owner is gone: the
// cache may lack an object that was just created.
func (r *reading) life(ctx context.Context, namespace string, owner *metav1.OwnerReference, links int) (identity.Life, error) {
	if life, ok := r.lives[owner.UID]; ok {
		return life, nil
	}
	if r.memory.IsGone(owner.UID) {
		r.lives[owner.UID] = identity.Gone
		return identity.Gone, nil
	}
	if links == 0 {
		return identity.Alive, nil
	}
	object, err := r.incarnation(ctx, namespace, owner)
	if err != nil {
		return identity.Unknown, err
	}
	life, err := r.lifeOf(ctx, object, links)
	if err != nil {
		return identity.Unknown, err
	}
	r.lives[owner.UID] = life
	return life, nil
}

func (r *reading) lifeOf(ctx context.Context, object metav1.Object, links int) (identity.Life, error) {
	switch {
	case object == nil:
		return identity.Gone, nil
	case object.GetDeletionTimestamp() != nil:
		return identity.Doomed, nil
	}
	owner := metav1.GetControllerOfNoCopy(object)
	if owner == nil {
		return identity.Alive, nil
	}
	above, err := r.life(ctx, object.GetNamespace(), owner, links-1)
	if err != nil {
		return identity.Unknown, err
	}
	if above == identity.Gone || above == identity.Doomed {
		return identity.Doomed, nil
	}
	return identity.Alive, nil
}

// incarnation returns the object that an ownerReference names, or nil if that UID is gone.
func (r *reading) incarnation(ctx context.Context, namespace string, owner *metav1.OwnerReference) (metav1.Object, error) {
	key := types.NamespacedName{Namespace: namespace, Name: owner.Name}
	if form := cachedForms[schema.FromAPIVersionAndKind(owner.APIVersion, owner.Kind)]; form != nil {
		cached := form()
		if err := r.cached.Get(ctx, key, cached); err == nil && cached.GetUID() == owner.UID {
			return cached, nil
		}
	}
	found, err := r.liveMeta(ctx, owner.APIVersion, owner.Kind, key)
	switch {
	case apierrors.IsForbidden(err) || gangcache.Unserved(err):
		return &metav1.ObjectMeta{UID: owner.UID}, nil // it may exist
	case err != nil && !apierrors.IsNotFound(err):
		return nil, fmt.Errorf("read owner %s %q: %w", owner.Kind, key, err)
	case err != nil || found.UID != owner.UID: // a name holds one object at a time
		r.memory.Gone(owner.UID)
		return nil, nil
	}
	return found, nil
}

// cachedForms make empty objects of the kinds that are cached.
var cachedForms = map[schema.GroupVersionKind]func() client.Object{
	appsv1.SchemeGroupVersion.WithKind("StatefulSet"): func() client.Object { return &appsv1.StatefulSet{} },
	appsv1.SchemeGroupVersion.WithKind("Deployment"):  func() client.Object { return &appsv1.Deployment{} },
	appsv1.SchemeGroupVersion.WithKind("ReplicaSet"):  func() client.Object { return &appsv1.ReplicaSet{} },
	corev1.SchemeGroupVersion.WithKind("Pod"):         func() client.Object { return &corev1.Pod{} },
	lwsv1.GroupVersion.WithKind("LeaderWorkerSet"):    func() client.Object { return &lwsv1.LeaderWorkerSet{} },
}
