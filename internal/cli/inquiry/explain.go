package inquiry

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/pvc"
)

// Explain reads all that explains claims of one namespace. A cache may say that a
// claim is used, never that it is not: if nobody is found for one of them, all is
// read again, live.
func (i *Inquirer) Explain(ctx context.Context, namespace string, claims []corev1.PersistentVolumeClaim) ([]*Found, error) {
	if len(claims) == 0 {
		return nil, nil
	}
	found, err := i.explain(ctx, namespace, claims)
	if err != nil || i.Live || !unheld(found) {
		return found, err
	}
	live := i.live()
	var again []corev1.PersistentVolumeClaim
	for _, claim := range claims {
		now, err := live.Claim(ctx, client.ObjectKeyFromObject(&claim))
		if apierrors.IsNotFound(err) {
			continue // it went meanwhile
		}
		if err != nil {
			return nil, err
		}
		again = append(again, *now)
	}
	return live.explain(ctx, namespace, again)
}

func (i *Inquirer) live() *Inquirer {
	live := *i
	live.Live, live.known = true, nil
	return &live
}

func (i *Inquirer) explain(ctx context.Context, namespace string, claims []corev1.PersistentVolumeClaim) ([]*Found, error) {
	world, err := i.World(ctx, namespace, claims)
	if err != nil {
		return nil, err
	}
	var all []*Found
	for at := range claims {
		found, err := i.About(ctx, world, &claims[at])
		if err != nil {
			return nil, err
		}
		all = append(all, found)
	}
	return all, nil
}

// unheld tells whether nobody is seen to keep one of the claims.
func unheld(all []*Found) bool {
	for _, found := range all {
		keeps := false
		for _, h := range pvc.Why(found.Case).Holders {
			keeps = keeps || h.Holds
		}
		if !keeps {
			return true
		}
	}
	return false
}
