package scheduling

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kube-scheduler/framework"

	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/pvc"
)

// attempts bound how often claims are read again after one changed in between. A
// pod that is refused then is tried again, when its claims change or a while later.
const attempts = 5

// errRoomMade has the claims read once more: their records have got shorter.
var errRoomMade = errors.New("pods that are gone were taken off a full use record")

// PreBindPreFlight skips pods that use no protected claim, as the cache shows.
func (p *Plugin) PreBindPreFlight(_ context.Context, _ framework.CycleState, pod *corev1.Pod, _ string) (*framework.PreBindPreFlightResult, *framework.Status) {
	names := pvc.ClaimsOf(pod)
	if len(names) == 0 {
		return nil, framework.NewStatus(framework.Skip)
	}
	labels, err := p.labels(pod.Namespace)
	if err != nil {
		return nil, framework.AsStatus(err)
	}
	claims, err := read(names, p.claims.PersistentVolumeClaims(pod.Namespace).Get)
	if err != nil {
		return nil, framework.AsStatus(err)
	}
	for _, name := range names {
		// One that has gone since is looked for live, and refuses the pod.
		if claim := claims[name]; claim == nil || p.settings.Records(claim, labels) {
			return nil, nil
		}
	}
	return nil, framework.NewStatus(framework.Skip)
}

// PreBind writes the pod on its claims as they are in the API server. Only when
// all of them name it may it be bound.
func (p *Plugin) PreBind(ctx context.Context, state framework.CycleState, pod *corev1.Pod, _ string) *framework.Status {
	labels, err := p.labels(pod.Namespace)
	if err != nil {
		return framework.AsStatus(err)
	}
	chosen, err := chosenFor(state)
	if err != nil {
		return framework.AsStatus(err)
	}
	defer p.turns.take(pod)()
	b := &binding{plugin: p, pod: pod, labels: labels, chosen: chosen, written: pvc.Claims{}, sure: map[string]bool{}}
	status := b.run(ctx)
	if !status.IsSuccess() {
		b.takeBack(ctx)
	}
	return status
}

func chosenFor(state framework.CycleState) (lives, error) {
	data, err := state.Read(stateKey)
	if chosen, ok := data.(lives); ok && err == nil {
		return chosen, nil
	}
	return nil, fmt.Errorf("%s is enabled at PreBind and not at PreFilter: enable it under multiPoint: %w", Name, err)
}

// binding is one pod on its way to a node.
type binding struct {
	plugin *Plugin
	pod    *corev1.Pod
	labels map[string]string
	chosen lives
	// written are the claims that this pod was written on just now, as the API
	// server returned them.
	written pvc.Claims
	// sure are the claims that were written onto at all: no taking back from before
	// can take this pod off them any more.
	sure map[string]bool
	// asked is the claim and version of the last write of this look, or zero, and
	// denied that of the last one which was forbidden.
	asked  identity.Ref
	denied *identity.Ref
}

// run looks and writes, and looks again as long as a claim changes in between.
func (b *binding) run(ctx context.Context) *framework.Status {
	var err error
	for range attempts {
		var status *framework.Status
		if status, err = b.once(ctx); err == nil {
			return status
		}
		if !movedOn(err) || b.deniedAgain(err) {
			return framework.AsStatus(err)
		}
	}
	return framework.NewStatus(framework.Unschedulable, fmt.Sprintf("claims changed %d times while the pod was written on them: %v", attempts, err))
}

// once reads the claims and writes the pod on those that do not name it. An error
// is one of the API server; what the claims themselves say is a status.
func (b *binding) once(ctx context.Context) (*framework.Status, error) {
	b.asked = identity.Ref{}
	live, err := b.read(ctx)
	if err != nil {
		return nil, err
	}
	if why := b.anotherLife(live); why != "" {
		return framework.NewStatus(framework.UnschedulableAndUnresolvable, why), nil
	}
	writes, err := b.plugin.settings.Bind(b.pod, live, b.labels)
	switch {
	case errors.Is(err, pvc.ErrFull):
		return b.full(ctx, live, err)
	case err != nil:
		return framework.NewStatus(framework.UnschedulableAndUnresolvable, err.Error()), nil
	}
	for _, write := range writes {
		if write.Anew() && b.sure[write.Target().Name] {
			continue
		}
		b.asked = write.Target()
		claim, err := b.plugin.write(ctx, write)
		if err != nil {
			return nil, err
		}
		b.sure[claim.Name] = true
		if !write.Anew() {
			b.written[claim.Name] = claim
		}
	}
	return nil, nil
}

// full waits for a pod to leave, unless one has left unnoticed.
func (b *binding) full(ctx context.Context, live pvc.Claims, why error) (*framework.Status, error) {
	found, err := b.forget(ctx, live)
	switch {
	case err != nil:
		return nil, err
	case found:
		return nil, errRoomMade
	}
	return framework.NewStatus(framework.Unschedulable, why.Error()), nil
}

// read reads the claims from the API server itself.
func (b *binding) read(ctx context.Context) (pvc.Claims, error) {
	claims := b.plugin.client.CoreV1().PersistentVolumeClaims(b.pod.Namespace)
	return read(pvc.ClaimsOf(b.pod), func(name string) (*corev1.PersistentVolumeClaim, error) {
		return claims.Get(ctx, name, metav1.GetOptions{})
	})
}

// anotherLife tells of a claim that was deleted and created again since the pod's
// node was chosen: that was for another volume.
func (b *binding) anotherLife(live pvc.Claims) string {
	for _, name := range pvc.ClaimsOf(b.pod) {
		if claim := live[name]; claim != nil && claim.DeletionTimestamp == nil && claim.UID != b.chosen[name] {
			return fmt.Sprintf("persistentvolumeclaim %q was created anew after a node was chosen", name)
		}
	}
	return ""
}

// deniedAgain reports whether what was forbidden is so a second time, of a claim that is
// what it was at the first: then it is this scheduler that may not, and no change of the
// claim is to be waited for.
func (b *binding) deniedAgain(err error) bool {
	if !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) {
		return false
	}
	before, asked := b.denied, b.asked
	b.denied = &asked
	return before != nil && *before == asked
}

// movedOn reports whether a write was refused for what the claim has become. A guard
// refuses before the version is compared, and says that it is forbidden.
func movedOn(err error) bool {
	return errors.Is(err, errRoomMade) || apierrors.IsConflict(err) || apierrors.IsNotFound(err) || apierrors.IsForbidden(err) || apierrors.IsInvalid(err)
}
