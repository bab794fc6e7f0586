package apply

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"

	"lockstep.dev/lockstep/internal/pvc"
)

// errUngated says that a lifting came from no judgement.
var errUngated = errors.New("nothing was judged: a gate is lifted off a pod that was written on its claims")

// lift takes the gate of mode strict off the exact version that was judged.
func (a *Actor) lift(ctx context.Context, what pvc.Lifting) error {
	if what.Target().UID == "" {
		return errUngated
	}
	stays := what.Gates()
	if stays == nil {
		stays = []corev1.PodSchedulingGate{}
	}
	return a.merge(ctx, what.Target(), map[string]any{}, map[string]any{"spec": map[string]any{"schedulingGates": stays}})
}
