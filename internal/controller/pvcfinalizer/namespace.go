package pvcfinalizer

import (
	"context"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/pvc"
)

// decideLive judges PVCs that would lose the barrier again, by a live read of their
// namespace.
func (p *pass) decideLive(ctx context.Context, pods *pvc.Index) {
	if len(p.needsLive) == 0 {
		return
	}
	if err := p.readNamespace(ctx); err != nil {
		var keys []types.NamespacedName
		for _, claim := range p.needsLive {
			keys = append(keys, client.ObjectKeyFromObject(claim))
		}
		p.failed(ctx, keys, err)
		return
	}
	for _, claim := range p.needsLive {
		p.decide(claim, pods)
	}
}

// readNamespace reads the labels of the namespace live. The PVCs of the pass were seen
// before: those that still exist belong to this incarnation of the namespace.
func (p *pass) readNamespace(ctx context.Context) error {
	if p.read {
		return nil
	}
	namespace, err := p.Controller.claims.NamespaceNow(ctx, p.namespace)
	if err != nil {
		return err
	}
	p.labels, p.read = namespace.Labels, true
	return nil
}
