package pvcfinalizer

import (
	"context"
	"slices"

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
// the pass were seen before: those that are there still are of that very life.
func (p *pass) readNamespace(ctx context.Context) error {
	if p.read {
		return nil
	}
	var seen []types.UID
	for _, claim := range slices.Concat(p.ask, p.look) {
		seen = append(seen, claim.UID)
	}
	namespace, err := p.Controller.claims.NamespaceOf(ctx, p.namespace, seen, p.now())
	if err != nil {
		return err
	}
	p.labels, p.read = namespace.Labels, true
	return nil
}
