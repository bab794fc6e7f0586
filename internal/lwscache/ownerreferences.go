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
	"lockstep.dev/lockstep/internal/identity"
)

// chainLength bounds how many owners are followed. Our longest chain has four; the owners of a
// longer one are taken to exist.
const chainLength = 6

// judge finds out for one snapshot which owners exist.
type judge struct {
	*Observer
	lives identity.Lives
}

func (o *Observer) judge() *judge {
	return &judge{Observer: o, lives: identity.Lives{}}
}

// learn finds out whether the owners of objects exist. Those in known exist, and cost no read.
func learn[T client.Object](ctx context.Context, j *judge, objects []T, known identity.Claimant) error {
	for _, object := range objects {
		owners := object.GetOwnerReferences()
		for i := range owners {
			if isKnown(known, owners[i].UID) {
				continue
			}
			if _, err := j.life(ctx, object.GetNamespace(), &owners[i], chainLength); err != nil {
				return err
			}
		}
	}
	return nil
}

func isKnown(known identity.Claimant, uid types.UID) bool {
	for _, k := range known {
		if k == uid && uid != "" {
			return true
		}
	}
	return false
}

// life follows the chain from owner upwards. Only a live read can tell that an owner is gone: the
// cache may not show an object that was just created.
func (j *judge) life(ctx context.Context, namespace string, owner *metav1.OwnerReference, links int) (identity.Life, error) {
	if life, ok := j.lives[owner.UID]; ok {
		return life, nil
	}
	if j.memory.isGone(owner.UID) {
		j.lives[owner.UID] = identity.Gone
		return identity.Gone, nil
	}
	if links == 0 {
		return identity.Alive, nil
	}
	object, err := j.incarnation(ctx, namespace, owner)
	if err != nil {
		return identity.Unknown, err
	}
	life, err := j.lifeOf(ctx, object, links)
	if err != nil {
		return identity.Unknown, err
	}
	j.lives[owner.UID] = life
	return life, nil
}

func (j *judge) lifeOf(ctx context.Context, object metav1.Object, links int) (identity.Life, error) {
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
	above, err := j.life(ctx, object.GetNamespace(), owner, links-1)
	if err != nil {
		return identity.Unknown, err
	}
	if above == identity.Gone || above == identity.Doomed {
		return identity.Doomed, nil
	}
	return identity.Alive, nil
}

// incarnation returns the object that an ownerReference names, or nil if that UID is gone.
func (j *judge) incarnation(ctx context.Context, namespace string, owner *metav1.OwnerReference) (metav1.Object, error) {
	key := types.NamespacedName{Namespace: namespace, Name: owner.Name}
	if cached := cachedForm(owner); cached != nil {
		if err := j.cached.Get(ctx, key, cached); err == nil && cached.GetUID() == owner.UID {
			return cached, nil
		}
	}
	found, err := j.liveMeta(ctx, owner.APIVersion, owner.Kind, key)
	switch {
	case apierrors.IsForbidden(err) || unserved(err):
		return &metav1.ObjectMeta{UID: owner.UID}, nil // it may exist
	case err != nil && !apierrors.IsNotFound(err):
		return nil, fmt.Errorf("read owner %s %q: %w", owner.Kind, key, err)
	case err != nil || found.UID != owner.UID: // a name holds one object at a time
		j.memory.setGone(owner.UID)
		return nil, nil
	}
	return found, nil
}

// cachedForm returns an empty object of the owner's kind, or nil if that kind is not cached.
func cachedForm(owner *metav1.OwnerReference) client.Object {
	switch owner.APIVersion + "/" + owner.Kind {
	case "apps/v1/StatefulSet":
		return &appsv1.StatefulSet{}
	case "v1/Pod":
		return &corev1.Pod{}
	case lwsv1.GroupVersion.String() + "/LeaderWorkerSet":
		return &lwsv1.LeaderWorkerSet{}
	}
	return nil
}
