package pvccache

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/pvc"
)

// sharedWorlds bounds the namespaces of which all that may hold claims is kept for a
// moment: it tells of every pod. They are more than workers look at claims at once, or none
// of these would share what another one has read.
const sharedWorlds = 16

// list reads the workloads of one kind in one namespace from the API server.
type list func(ctx context.Context, namespace string) (runtime.Object, error)

// live is what the workloads of a namespace want, read from the API server now.
func (d *Desired) live(ctx context.Context, namespace string) ([]pvc.Want, error) {
	var wants []pvc.Want
	for _, k := range d.kinds {
		more, err := wantsOf(ctx, namespace, k.list, builtIn)
		if err != nil {
			return nil, fmt.Errorf("list %s of %q: %w", k.resource, namespace, err)
		}
		wants = append(wants, more...)
	}
	for _, k := range d.foreign {
		resource, err := k.served(ctx)
		if err != nil {
			return nil, fmt.Errorf("ask for %s: %w", k, err)
		}
		if resource.Resource == "" {
			continue
		}
		more, err := wantsOf(ctx, namespace, k.list(resource), k.of)
		if err != nil && !apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("list %s of %q: %w", k, namespace, err)
		}
		wants = append(wants, more...)
	}
	return wants, nil
}

func wantsOf(ctx context.Context, namespace string, list list, of func(any) (pvc.Want, error)) ([]pvc.Want, error) {
	found, err := list(ctx, namespace)
	if err != nil {
		return nil, err
	}
	var wants []pvc.Want
	err = meta.EachListItem(found, func(o runtime.Object) error {
		want, err := of(o)
		wants = append(wants, want)
		return err
	})
	return wants, err
}

// Live is a view with all that may hold the claim read from the API server now, for
// what cannot be undone. The claim is that of the view: a write names its version.
func (h *Holds) Live(ctx context.Context, view pvc.HoldView) (pvc.HoldView, error) {
	world, err := h.liveWorld(ctx, view.Claim.Namespace)
	if err != nil {
		return view, err
	}
	view.World = stillWithout(view.World, world)
	return view, nil
}

// LiveShared is Live of a moment after the claim was seen, for what can be undone or is
// for others to do as well: many claims that come together share one reading of their
// namespace.
func (h *Holds) LiveShared(ctx context.Context, view pvc.HoldView) (pvc.HoldView, error) {
	namespace := view.Claim.Namespace
	world, err := h.worlds.in(namespace).of(inquiry[pvc.World]{
		claims: []types.UID{view.Claim.UID}, now: view.Now,
		seen: func() ([]types.UID, error) { return h.seenIn(ctx, namespace) },
		read: func() (pvc.World, error) { return h.liveWorld(ctx, namespace) },
	})
	if err != nil {
		return view, err
	}
	view.World = stillWithout(view.World, world)
	return view, nil
}

// stillWithout is a live world in which the owner that a claim was seen without is gone
// still, if it is not there.
func stillWithout(seen, world pvc.World) pvc.World {
	if gone := seen.GoneOwner; gone != nil && !world.Knows(gone.UID) {
		world.GoneOwner, world.OwnerWasOf = gone, seen.OwnerWasOf
	}
	return world
}

// liveWorld is all of a namespace that may hold claims, read from the API server now.
func (h *Holds) liveWorld(ctx context.Context, namespace string) (pvc.World, error) {
	index, links := pvc.NewIndex(), map[types.UID]pvc.Link{}
	err := pages(ctx, h.live, func(page *corev1.PodList) {
		for i := range page.Items {
			pod := &page.Items[i]
			index.See(pod)
			link := pvc.Link{Object: identity.RefOf(identity.KindPod, pod)}
			if owner := metav1.GetControllerOfNoCopy(pod); owner != nil {
				link.Controller = owner.UID
			}
			links[pod.UID] = link
		}
	}, client.InNamespace(namespace))
	if err != nil {
		return pvc.World{}, fmt.Errorf("list pods of %q: %w", namespace, err)
	}
	wants, err := h.desired.live(ctx, namespace)
	if err != nil {
		return pvc.World{}, err
	}
	return pvc.World{Pods: index, Desire: pvc.NewDesire(namespace, wants), Links: links, Idle: h.settings.Idle}, nil
}

// pages reads a whole list at one resourceVersion, page by page.
func pages[T any, L interface {
	*T
	client.ObjectList
}](ctx context.Context, live client.Reader, see func(L), of ...client.ListOption) error {
	next := ""
	for {
		page := L(new(T))
		if err := live.List(ctx, page, append([]client.ListOption{client.Limit(pageOfPods), client.Continue(next)}, of...)...); err != nil {
			return err
		}
		see(page)
		if next = page.GetContinue(); next == "" {
			return nil
		}
	}
}
