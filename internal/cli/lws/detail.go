package lws

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// detailsFor is how long details are shown before they are read again, while the pods stay the same.
	detailsFor = 5 * time.Second
	// nodesAtOnce is how many nodes are read at the same time, and eventsAtOnce how many events.
	nodesAtOnce, eventsAtOnce = 32, 500
)

// Details are what a survey lacks. Nodes are nil if they could not be read; one that does not exist is not among them.
type Details struct {
	Nodes  map[string]*corev1.Node
	Events []corev1.Event
	// Unread says what could not be read, and why.
	Unread []string

	of []*corev1.Pod
	at time.Time
}

// Details reads the nodes of pods live, and the events of a namespace if it is named. What was just read stays.
func (s *Session) Details(ctx context.Context, last Details, pods []*corev1.Pod, namespace string) Details {
	isSame := func(a, b *corev1.Pod) bool { return a.UID == b.UID && a.ResourceVersion == b.ResourceVersion }
	if time.Since(last.at) < detailsFor && slices.EqualFunc(last.of, pods, isSame) {
		return last
	}
	d, err := Details{of: pods, at: time.Now()}, error(nil)
	d.Nodes, err = s.nodes(ctx, NodeNames(pods))
	d.Miss("nodes", "get nodes", err)
	if namespace != "" {
		d.Events, err = s.events(ctx, namespace)
		d.Miss("events", "list events in namespace "+namespace, err)
	}
	return d
}

// Miss records what could not be read, and the right that it takes.
func (d *Details) Miss(what, right string, err error) {
	switch {
	case apierrors.IsForbidden(err):
		d.Unread = append(d.Unread, what+" are not shown: you need the right to "+right)
	case err != nil:
		d.Unread = append(d.Unread, what+" are not shown: "+err.Error())
	}
}

// NodeNames returns the nodes of pods, each once.
func NodeNames(pods []*corev1.Pod) []string {
	names := map[string]bool{}
	for _, pod := range pods {
		names[pod.Spec.NodeName] = true
	}
	delete(names, "")
	return slices.Sorted(maps.Keys(names))
}

func (s *Session) nodes(ctx context.Context, names []string) (map[string]*corev1.Node, error) {
	nodes, errs, found := make([]corev1.Node, len(names)), make([]error, len(names)), map[string]*corev1.Node{}
	workqueue.ParallelizeUntil(ctx, nodesAtOnce, len(names), func(i int) {
		errs[i] = client.IgnoreNotFound(s.Live.Get(ctx, client.ObjectKey{Name: names[i]}, &nodes[i]))
	})
	if err := errors.Join(append(errs, ctx.Err())...); err != nil {
		return nil, err
	}
	for i, name := range names {
		if nodes[i].Name != "" {
			found[name] = &nodes[i]
		}
	}
	return found, nil
}

func (s *Session) events(ctx context.Context, namespace string) (all []corev1.Event, err error) {
	for next := ""; ; {
		list := &corev1.EventList{}
		if err := s.Live.List(ctx, list, client.InNamespace(namespace), client.Limit(eventsAtOnce), client.Continue(next)); err != nil {
			return nil, err
		}
		if all, next = append(all, list.Items...), list.Continue; next == "" {
			return all, nil
		}
	}
}
