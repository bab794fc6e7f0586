package pvcfinalizer

import (
	"context"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/pvc"
)

// askNamespace judges anew those claims that would lose B by what the cache shows of
// their namespace, by what that says itself.
func (p *pass) askNamespace(ctx context.Context, pods *pvc.Index) {
	if len(p.ask) == 0 {
		return
	}
	if err := p.readNamespace(ctx); err != nil {
		var keys []types.NamespacedName
		for _, claim := range p.ask {
			keys = append(keys, client.ObjectKeyFromObject(claim))
		}
		p.failed(ctx, keys, err)
		return
	}
	for _, claim := range p.ask {
		p.decide(claim, pods)
	}
}

// readNamespace has the pass go on with what the namespace says itself. All claims of
// the pass were seen before: those that still exist belong to this namespace.
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
