package lwscache

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	if r.memory.isGone(owner.UID) {
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
	if cached := cachedForm(owner); cached != nil {
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
		r.memory.setGone(owner.UID)
		return nil, nil
	}
	return found, nil
}

// cachedForm returns an empty object of the owner's kind, or nil if that kind is not cached.
func cachedForm(owner *metav1.OwnerReference) client.Object {
	switch owner.APIVersion + "/" + owner.Kind {
	case "apps/v1/StatefulSet":
		return &appsv1.StatefulSet{}
	case "apps/v1/Deployment":
		return &appsv1.Deployment{}
	case "apps/v1/ReplicaSet":
		return &appsv1.ReplicaSet{}
	case "v1/Pod":
		return &corev1.Pod{}
	case lwsv1.GroupVersion.String() + "/LeaderWorkerSet":
		return &lwsv1.LeaderWorkerSet{}
	}
	return nil
}
