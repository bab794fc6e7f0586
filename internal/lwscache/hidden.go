package lwscache

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/gang"
	"lockstep.dev/lockstep/internal/identity"
)

// lookAgainAfter is how long a hidden object is taken to be still there.
const lookAgainAfter = 5 * time.Second

// Uncover looks live for what bears a name that the cache takes to be free, and
// remembers it. It is called when a create finds the name taken.
func (o *Observer) Uncover(ctx context.Context, ref identity.Ref, now time.Time) error {
	_, _, err := o.at(now).uncover(ctx, name{kind: ref.Kind, namespace: ref.Namespace, name: ref.Name})
	return err
}

// lookAgain returns what is remembered under a name, looked for anew when the
// memory is old.
func (o *Observer) lookAgain(ctx context.Context, n name) (client.Object, bool, error) {
	o.memory.mu.Lock()
	known, ok := o.memory.hidden[n]
	o.memory.mu.Unlock()
	if !ok || o.now.Sub(known.seen) < lookAgainAfter {
		return known.object, ok, nil
	}
	return o.uncover(ctx, n)
}

func (o *Observer) uncover(ctx context.Context, n name) (client.Object, bool, error) {
	object, err := o.whole(ctx, n)
	o.memory.mu.Lock()
	defer o.memory.mu.Unlock()
	if apierrors.IsNotFound(err) || unserved(err) {
		delete(o.memory.hidden, n)
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("look for %s %q: %w", n.kind, n.name, err)
	}
	o.memory.hidden[n] = hidden{object: object, seen: o.now}
	return object, true, nil
}

// whole reads what bears a name, live. It may be our own, and only hidden: because
// the cache lags, or somebody took its labels. Then it is judged by all it says, as
// what the cache shows is.
func (o *Observer) whole(ctx context.Context, n name) (client.Object, error) {
	key := types.NamespacedName{Namespace: n.namespace, Name: n.name}
	object := emptyOf(n.kind)
	if object != nil {
		return object, o.live.Get(ctx, key, object)
	}
	meta, err := o.liveMeta(ctx, apiVersions[n.kind], string(n.kind), key)
	return skeleton(n.kind, meta.ObjectMeta), err
}

// emptyOf is an empty object of a kind that is read whole, or nil.
func emptyOf(kind identity.Kind) client.Object {
	switch kind {
	case identity.KindStatefulSet:
		return &appsv1.StatefulSet{}
	case identity.KindControllerRevision:
		return &appsv1.ControllerRevision{}
	case identity.KindService:
		return &corev1.Service{}
	case identity.KindPod:
		return &corev1.Pod{}
	}
	return nil
}

// hiddenUnder returns what stands unseen under names of a kind that the key's set
// would give, but for those already in shown.
func hiddenUnder[T client.Object](ctx context.Context, o *Observer, kind identity.Kind, key types.NamespacedName, shown []T) ([]T, error) {
	var found []T
	for _, n := range o.memory.hiddenNames(kind, key) {
		if slices.ContainsFunc(shown, func(object T) bool { return object.GetName() == n.name }) {
			o.memory.unhide(n)
			continue
		}
		object, ok, err := o.lookAgain(ctx, n)
		if err != nil {
			return nil, err
		}
		if object, fits := object.(T); ok && fits {
			found = append(found, object)
		}
	}
	return found, nil
}

// unhide forgets what the cache shows again. Remembered as it was, it would be taken for
// that as soon as it is hidden once more.
func (m *Memory) unhide(n name) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.hidden, n)
}

// hiddenNames returns the remembered names of a kind that the key's set would
// give. The pods of another set whose name begins like this one's are not meant.
func (m *Memory) hiddenNames(kind identity.Kind, key types.NamespacedName) []name {
	m.mu.Lock()
	defer m.mu.Unlock()
	var names []name
	for n := range m.hidden {
		parent, _ := identity.ParentAndOrdinal(n.name)
		under := parent == key.Name || (kind != identity.KindPod && strings.HasPrefix(n.name, key.Name+"-"))
		if n.kind == kind && n.namespace == key.Namespace && under {
			names = append(names, n)
		}
	}
	slices.SortFunc(names, func(a, b name) int { return strings.Compare(a.name, b.name) })
	return names
}

var apiVersions = map[identity.Kind]string{
	identity.KindStatefulSet:        "apps/v1",
	identity.KindControllerRevision: "apps/v1",
	identity.KindPod:                "v1",
	identity.KindService:            "v1",

	identity.KindPersistentVolumeClaim: "v1",

	identity.KindPodGroup: gang.Volcano{}.Kind().GroupVersion().String(),
}

// skeleton is an object of a kind of which nothing but its metadata is read.
func skeleton(kind identity.Kind, meta metav1.ObjectMeta) client.Object {
	if kind == identity.KindPodGroup {
		return foreign(kind, meta)
	}
	return &corev1.PersistentVolumeClaim{ObjectMeta: meta}
}

func (o *Observer) liveMeta(ctx context.Context, apiVersion, kind string, key types.NamespacedName) (*metav1.PartialObjectMetadata, error) {
	meta := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: apiVersion, Kind: kind}}
	return meta, o.live.Get(ctx, key, meta)
}
