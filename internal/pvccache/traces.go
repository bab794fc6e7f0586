package pvccache

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/pvc"
)

// pageOfNodes is how many nodes, or attachments, one answer of a list holds.
const pageOfNodes = 500

// Tracer reads what is left of volumes on nodes. It keeps nothing in memory: few
// claims ask, and nobody pays who does not.
type Tracer struct {
	// live must not read from a cache.
	live client.Reader
}

// NewTracer returns a Tracer that reads the API server itself.
func NewTracer(live client.Reader) *Tracer { return &Tracer{live: live} }

// For returns what answers the questions of one look, and reads for it from the
// first question on. What several of them ask for is read once.
func (t *Tracer) For(ctx context.Context) func(pvc.Question) (pvc.Traces, error) {
	r := &tracing{live: t.live, named: map[string]*corev1.Node{}}
	return func(q pvc.Question) (pvc.Traces, error) { return r.answer(ctx, q) }
}

// tracing is what was read for one look.
type tracing struct {
	live client.Reader
	// attached are the nodes of each volume, or nil before they were read.
	attached map[string][]string
	// named are nodes by name; one that is not there is nil.
	named map[string]*corev1.Node
	// busy are the nodes that have volumes in use, or nil before they were read.
	busy []*corev1.Node
}

// answer asks for attachments first: where there are any, nodes need not be read.
func (r *tracing) answer(ctx context.Context, q pvc.Question) (pvc.Traces, error) {
	name := q.Claim.Spec.VolumeName
	if err := r.readAttachments(ctx); err != nil {
		return pvc.Traces{}, err
	}
	if nodes := r.attached[name]; len(nodes) > 0 {
		return pvc.Traces{Attached: nodes}, nil
	}
	volume := &corev1.PersistentVolume{}
	err := r.live.Get(ctx, types.NamespacedName{Name: name}, volume)
	if apierrors.IsNotFound(err) {
		return pvc.Traces{}, nil // and its data with it
	}
	if err != nil {
		return pvc.Traces{}, fmt.Errorf("read volume: %w", err)
	}
	if len(q.Nodes) == 0 {
		return r.everywhere(ctx, volume)
	}
	return r.on(ctx, q.Nodes, volume)
}

func (r *tracing) readAttachments(ctx context.Context) error {
	if r.attached != nil {
		return nil
	}
	attached := map[string][]string{}
	err := pages(ctx, r.live, func(page *storagev1.VolumeAttachmentList) {
		for i := range page.Items {
			if volume := page.Items[i].Spec.Source.PersistentVolumeName; volume != nil {
				attached[*volume] = append(attached[*volume], page.Items[i].Spec.NodeName)
			}
		}
	})
	if err != nil {
		return fmt.Errorf("list attachments of volumes: %w", err)
	}
	r.attached = attached
	return nil
}

// on looks at nodes by name: one that does not report tells nothing.
func (r *tracing) on(ctx context.Context, nodes []string, volume *corev1.PersistentVolume) (pvc.Traces, error) {
	var found pvc.Traces
	for _, name := range nodes {
		node, err := r.node(ctx, name)
		switch {
		case err != nil:
			return pvc.Traces{}, err
		case !pvc.Reports(node):
			found.Silent = append(found.Silent, name)
		case pvc.MayUse(node, volume):
			found.InUse = append(found.InUse, name)
		}
	}
	return found, nil
}

func (r *tracing) node(ctx context.Context, name string) (*corev1.Node, error) {
	if node, known := r.named[name]; known {
		return node, nil
	}
	node := &corev1.Node{}
	err := r.live.Get(ctx, types.NamespacedName{Name: name}, node)
	if apierrors.IsNotFound(err) {
		node, err = nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read node %q: %w", name, err)
	}
	r.named[name] = node
	return node, nil
}

// everywhere looks at all nodes: also at what one said last that reports no more.
func (r *tracing) everywhere(ctx context.Context, volume *corev1.PersistentVolume) (pvc.Traces, error) {
	if err := r.readNodes(ctx); err != nil {
		return pvc.Traces{}, err
	}
	var found pvc.Traces
	for _, node := range r.busy {
		if pvc.MayUse(node, volume) {
			found.InUse = append(found.InUse, node.Name)
		}
	}
	return found, nil
}

func (r *tracing) readNodes(ctx context.Context) error {
	if r.busy != nil {
		return nil
	}
	busy := []*corev1.Node{}
	err := pages(ctx, r.live, func(page *corev1.NodeList) {
		for i := range page.Items {
			if in := page.Items[i].Status.VolumesInUse; len(in) > 0 {
				node := &corev1.Node{Status: corev1.NodeStatus{VolumesInUse: in}}
				node.Name = page.Items[i].Name
				busy = append(busy, node)
			}
		}
	})
	if err != nil {
		return fmt.Errorf("list nodes: %w", err)
	}
	r.busy = busy
	return nil
}

// pages reads a whole list, page by page, of one moment.
func pages[T any, L interface {
	*T
	client.ObjectList
}](ctx context.Context, live client.Reader, see func(L), of ...client.ListOption) error {
	next := ""
	for {
		page := L(new(T))
		if err := live.List(ctx, page, append([]client.ListOption{client.Limit(pageOfNodes), client.Continue(next)}, of...)...); err != nil {
			return err
		}
		see(page)
		if next = page.GetContinue(); next == "" {
			return nil
		}
	}
}
