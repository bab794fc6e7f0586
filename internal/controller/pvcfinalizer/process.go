package pvcfinalizer

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/apply"
	"lockstep.dev/lockstep/internal/pvc"
	"lockstep.dev/lockstep/internal/report"
)

// pass is one pass over claims of one namespace.
type pass struct {
	*Controller
	namespace string
	// labels are those of the namespace: as the cache shows them, until they were read.
	labels map[string]string
	read   bool
	claims map[types.UID]*corev1.PersistentVolumeClaim
	// needsLive are PVCs that lose the barrier if the cache is right about their namespace.
	needsLive []*corev1.PersistentVolumeClaim
	// look are PVCs that only a live read of pods can judge.
	look []*corev1.PersistentVolumeClaim
	do   []action.Action
}

// process reads PVCs of one namespace once, decides, and writes, while other namespaces
// are read. A PVC whose write fails is retried alone.
func (c *Controller) process(ctx context.Context, keys []types.NamespacedName) {
	p := c.lookAt(ctx, keys)
	c.backlog.looked(keys[0].Namespace)
	p.write(ctx)
	p.forgetGone(ctx)
}

// lookAt judges PVCs of one namespace.
func (c *Controller) lookAt(ctx context.Context, keys []types.NamespacedName) *pass {
	p := &pass{Controller: c, namespace: keys[0].Namespace, claims: map[types.UID]*corev1.PersistentVolumeClaim{}}
	namespace, err := c.claims.Namespace(ctx, p.namespace)
	if err != nil {
		c.failed(ctx, keys, err)
		return p
	}
	p.labels = namespace.Labels
	names := make([]string, len(keys))
	for i, key := range keys {
		names[i] = key.Name
	}
	pods := c.pods.Index(p.namespace, names...)
	for _, key := range keys {
		claim, err := c.see(ctx, key)
		if err != nil {
			c.failed(ctx, []types.NamespacedName{key}, err)
			continue
		}
		if claim != nil {
			p.claims[claim.UID] = claim
			p.decide(claim, pods)
		}
	}
	p.decideLive(ctx, pods)
	p.judge(ctx)
	return p
}

// forgetGone forgets PVCs that were deleted during the pass: the pass may have noted them
// after their event.
func (p *pass) forgetGone(ctx context.Context) {
	for uid, claim := range p.claims {
		key := client.ObjectKeyFromObject(claim)
		if cached, err := p.Controller.claims.Get(ctx, key); err == nil && (cached == nil || cached.UID != uid) {
			p.forget(key, uid)
		}
	}
}

// see reads a PVC from the cache, or live if the cache is known to be late. It returns nil
// if the PVC is gone.
func (c *Controller) see(ctx context.Context, key types.NamespacedName) (*corev1.PersistentVolumeClaim, error) {
	claim, err := c.claims.Get(ctx, key)
	if err != nil || claim == nil {
		return nil, err
	}
	if c.isDoubted(key, claim.ResourceVersion) {
		return c.claims.Live(ctx, key)
	}
	return claim, nil
}

// doubt makes see read a PVC live while the cache shows this resourceVersion.
func (c *Controller) doubt(key types.NamespacedName, version string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.doubted[key] = version
}

func (c *Controller) isDoubted(key types.NamespacedName, version string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	doubted, ok := c.doubted[key]
	if ok && doubted != version {
		delete(c.doubted, key)
	}
	return ok && doubted == version
}

// decide judges a PVC by the caches.
func (p *pass) decide(claim *corev1.PersistentVolumeClaim, pods *pvc.Index) {
	mode := p.settings.ModeOf(claim, p.labels)
	if mode < pvc.Barrier && !p.settings.Alone && !slices.Contains(claim.Finalizers, pvc.BarrierFinalizer) && claim.Annotations[pvc.UsersAnnotation] == "" {
		p.observe(claim, mode, pods)
		return
	}
	verdict := pvc.Decide(pvc.View{
		Claim: claim, Pods: pods, Mode: mode, Settings: p.settings, NamespaceLive: p.read,
	})
	switch verdict.Step {
	case pvc.Write:
		p.do = append(p.do, verdict.Write)
	case pvc.Keep:
		p.postponed(claim, verdict)
	case pvc.AwaitPods:
		p.narrate.Held(claim, report.HeldByOther)
	case pvc.Look:
		p.narrate.Held(claim, report.HeldForWriting)
		p.look = append(p.look, claim)
	case pvc.NeedsLive:
		p.needsLive = append(p.needsLive, claim)
	default:
		p.leave(claim)
	}
	if !slices.Contains([]pvc.Step{pvc.Look, pvc.Write, pvc.NeedsLive}, verdict.Step) {
		p.backlog.succeeded(client.ObjectKeyFromObject(claim))
	}
}

// leave does nothing about a PVC, unless a pod of its use record seems to be gone: then
// pods are read live.
func (p *pass) leave(claim *corev1.PersistentVolumeClaim) {
	if claim.DeletionTimestamp != nil {
		p.narrate.Gone(claim.UID) // other finalizers keep it
		return
	}
	record, err := pvc.ParseRecord(claim.Annotations[pvc.UsersAnnotation])
	gone := func(r pvc.Recorded) bool { return !p.pods.Has(claim.Namespace, r.UID) }
	if err == nil && slices.ContainsFunc(record, gone) {
		p.look = append(p.look, claim)
	}
}

// observe reports on a PVC in mode observe, which protects nothing.
func (p *pass) observe(claim *corev1.PersistentVolumeClaim, mode pvc.Mode, pods *pvc.Index) {
	if mode == pvc.Observe && claim.DeletionTimestamp != nil {
		verdict := pvc.Decide(pvc.View{Claim: claim, Pods: pods, Mode: mode, Settings: p.settings})
		if verdict.Step == pvc.Keep {
			p.narrate.Observed(claim, verdict.Because)
			return
		}
		p.narrate.LetGo(claim)
	}
	p.narrate.Gone(claim.UID)
}

// postponed reports that a PVC stays because pods use it.
func (p *pass) postponed(claim *corev1.PersistentVolumeClaim, verdict pvc.Verdict) {
	if slices.Contains(claim.Finalizers, pvc.PodsFinalizer) {
		p.narrate.Postponed(claim, verdict.Because)
		return
	}
	p.narrate.Slipped(claim, podsOf(verdict.Users))
}

// write carries out the actions in parallel. Workers are reused: the stack of a new
// goroutine would grow again, at a fifth of the cost of a write.
func (p *pass) write(ctx context.Context) {
	var writing sync.WaitGroup
	todo := make(chan action.Action)
	for range min(writes, len(p.do)) {
		writing.Go(func() {
			for a := range todo {
				p.carryOut(ctx, a)
			}
		})
	}
	for _, a := range p.do {
		todo <- a
	}
	close(todo)
	writing.Wait()
}

// carryOut does one write. After a conflict the PVC is read and judged again.
func (p *pass) carryOut(ctx context.Context, a action.Action) {
	onto := a.Target()
	key := types.NamespacedName{Namespace: onto.Namespace, Name: onto.Name}
	_, err := p.act.Do(ctx, a)
	p.narrate.Wrote(ctx, a, err)
	switch {
	case err == nil:
		p.doubt(key, onto.ResourceVersion)
		p.backlog.succeeded(key)
		if r, ok := a.(pvc.Release); ok {
			p.narrate.Released(p.claims[onto.UID], r.Takes(), r.Finalizers())
		}
	case errors.Is(err, apply.ErrGone):
		p.narrate.Gone(onto.UID)
	case errors.Is(err, apply.ErrStale):
		p.doubt(key, onto.ResourceVersion)
		p.backlog.retry(key)
	default:
		p.narrate.Held(p.claims[onto.UID], report.HeldUnwritten)
		p.failed(ctx, []types.NamespacedName{key}, err)
	}
}

// failed retries PVCs with back-off.
func (c *Controller) failed(ctx context.Context, keys []types.NamespacedName, err error) {
	if ctx.Err() != nil {
		return
	}
	logr.FromContextOrDiscard(ctx).Error(err, "trying again", "claim", keys[0].String(), "claims", len(keys))
	for _, key := range keys {
		c.backlog.retry(key)
	}
}

func podsOf(users []pvc.Use) string {
	var names []string
	for _, use := range users {
		names = append(names, use.Pod.String()+" on node "+use.Node)
	}
	slices.Sort(names)
	return strings.Join(slices.Compact(names), ", ")
}
