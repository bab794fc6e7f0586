package pvcfinalizer

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/apply"
	"lockstep.dev/lockstep/internal/pvc"
	"lockstep.dev/lockstep/internal/pvccache"
	"lockstep.dev/lockstep/internal/report"
)

const (
	// lookAgain is when to read again for a user that the watch of pods has not shown: its deletion may never be seen.
	lookAgain = 5 * time.Second
	// lookAtRecords is when to read again for recorded pods that do not name the PVC: no
	// event maps their deletion to it.
	lookAtRecords = time.Minute
)

// pass is one pass over PVCs of one namespace.
type pass struct {
	*Controller
	namespace string
	keys      []types.NamespacedName
	// labels are those of the namespace, as the cache shows them, or read live.
	labels map[string]string
	live   bool
	// readNamespace reads the labels of the namespace live, once. The PVCs of the pass were seen
	// before: those that still exist belong to this incarnation of the namespace.
	readNamespace func() error
	pods          *pvc.Index
	claims        map[types.NamespacedName]*corev1.PersistentVolumeClaim
	// look are PVCs that only a live read of pods can judge.
	look []*corev1.PersistentVolumeClaim
	do   map[types.NamespacedName]action.Action
	// again are PVCs to retry.
	again map[types.NamespacedName]bool
}

// judge reads PVCs of one namespace, and decides what to write.
func (c *Controller) judge(ctx context.Context, keys []types.NamespacedName) *pass {
	p := &pass{
		Controller: c, namespace: keys[0].Namespace, keys: keys, again: map[types.NamespacedName]bool{},
		claims: map[types.NamespacedName]*corev1.PersistentVolumeClaim{}, do: map[types.NamespacedName]action.Action{},
	}
	p.readNamespace = sync.OnceValue(func() error {
		namespace, err := pvccache.NamespaceOf(ctx, p.Live, p.namespace)
		if err == nil {
			p.labels, p.live = namespace.Labels, true
		}
		return err
	})
	if err := p.read(ctx); err != nil {
		p.fail(ctx, err, keys...)
		return p
	}
	for _, key := range keys {
		if claim := p.claims[key]; claim != nil {
			p.decide(ctx, claim)
		} else {
			p.Report.Gone(key)
		}
	}
	p.judgeLive(ctx)
	return p
}

// read reads from the caches.
func (p *pass) read(ctx context.Context) error {
	namespace, err := pvccache.NamespaceOf(ctx, p.Caches, p.namespace)
	if err != nil {
		return err
	}
	p.labels = namespace.Labels
	var names []string
	for _, key := range p.keys {
		claim, err := pvccache.PVC(ctx, p.Caches, key)
		if err != nil {
			return err
		}
		if claim != nil {
			p.claims[key] = claim
			names = append(names, key.Name)
		}
	}
	p.pods = p.Pods.Index(p.namespace, names...)
	return nil
}

// decide judges a PVC by the caches.
func (p *pass) decide(ctx context.Context, claim *corev1.PersistentVolumeClaim) {
	verdict, mode := p.verdict(claim)
	if verdict.Step == pvc.NeedsLive {
		if err := p.readNamespace(); err != nil {
			p.fail(ctx, err, client.ObjectKeyFromObject(claim))
			return
		}
		verdict, mode = p.verdict(claim)
	}
	if mode == pvc.Off && !p.Settings.Alone && !isMarked(claim) {
		p.Report.Gone(client.ObjectKeyFromObject(claim))
		return
	}
	switch verdict.Step {
	case pvc.Write:
		p.do[keyOf(verdict.Write)] = verdict.Write
	case pvc.Keep:
		p.postponed(claim, verdict.Users)
	case pvc.AwaitPods:
		p.Report.Held(claim, report.HeldByOther)
	case pvc.Look:
		p.Report.Held(claim, report.HeldForWriting)
		p.look = append(p.look, claim)
	default:
		p.leave(claim)
	}
}

func (p *pass) verdict(claim *corev1.PersistentVolumeClaim) (pvc.Verdict, pvc.Mode) {
	mode := p.Settings.ModeOf(claim, p.labels)
	return pvc.Decide(pvc.View{Claim: claim, Pods: p.pods, Mode: mode, Settings: p.Settings, NamespaceLive: p.live}), mode
}

// isMarked reports whether a PVC has the barrier or a use record.
func isMarked(claim *corev1.PersistentVolumeClaim) bool {
	return claim.Annotations[pvc.UsersAnnotation] != "" || slices.Contains(claim.Finalizers, pvc.BarrierFinalizer)
}

// leave does nothing about a PVC, unless a pod of its use record seems to be gone: then
// pods are read live. Other finalizers may keep a terminating PVC.
func (p *pass) leave(claim *corev1.PersistentVolumeClaim) {
	p.Report.Gone(client.ObjectKeyFromObject(claim))
	record, err := pvc.ParseRecord(claim.Annotations[pvc.UsersAnnotation])
	gone := func(r pvc.Recorded) bool { return !p.Pods.Has(claim.Namespace, r.UID) }
	if err == nil && slices.ContainsFunc(record, gone) {
		p.look = append(p.look, claim)
	}
}

// postponed reports that a PVC stays because pods use it.
func (p *pass) postponed(claim *corev1.PersistentVolumeClaim, users []pvc.Use) {
	if slices.Contains(claim.Finalizers, pvc.PodsFinalizer) {
		p.Report.Postponed(claim, pvc.InUse(users))
		return
	}
	p.Report.Slipped(claim, pvc.Named(users))
}

// judgeLive reads pods live, once for all PVCs that need it.
func (p *pass) judgeLive(ctx context.Context) {
	batch := p.Settings.Take(p.namespace, p.look)
	live := batch.Look(p.reader.For(ctx, batch))
	if err := live.Err(); err != nil { // living PVCs are retried too: no event need come
		for _, claim := range p.look {
			p.fail(ctx, err, client.ObjectKeyFromObject(claim))
		}
	}
	releases, kept := live.Judge()
	for _, k := range kept {
		p.keep(ctx, k)
	}
	for _, r := range releases {
		p.do[keyOf(r)] = r
	}
	for _, r := range live.Forget() {
		p.do[keyOf(r)] = r
	}
}

// keep postpones a PVC whose users the read found, or that it could not judge.
func (p *pass) keep(ctx context.Context, k pvc.Kept) {
	key := types.NamespacedName{Namespace: k.Claim.Namespace, Name: k.Claim.Name}
	claim := p.claims[key]
	switch {
	case k.Err != nil:
		p.Report.Held(claim, report.HeldUnread)
		p.fail(ctx, k.Err, key)
	case len(k.Users) > 0:
		p.postponed(claim, k.Users)
		if slices.ContainsFunc(k.Users, func(u pvc.Use) bool { return !p.Pods.Has(p.namespace, u.Pod.UID) }) {
			p.queue.AddAfter(key, lookAgain)
		}
	default:
		p.Report.Postponed(claim, pvc.MayBeInUse(k.Recorded))
		p.Report.Held(claim, report.HeldByRecord)
		p.queue.AddAfter(key, lookAtRecords)
	}
}

// fail retries PVCs with back-off. The first failure of a pass is logged: the others mostly have its cause.
func (p *pass) fail(ctx context.Context, err error, keys ...types.NamespacedName) {
	if len(p.again) == 0 && ctx.Err() == nil {
		logr.FromContextOrDiscard(ctx).Error(err, "trying again", "claim", keys[0].String())
	}
	for _, key := range keys {
		p.again[key] = true
	}
}

// write carries out the actions in parallel.
func (p *pass) write(ctx context.Context) {
	for _, key := range p.keys {
		if p.do[key] == nil {
			p.done(key, p.again[key])
		}
	}
	// Workers are reused: the stack of a new goroutine would grow again, at a fifth of the cost of a
	// write. No PVC is left out when ctx ends.
	keys := slices.Collect(maps.Keys(p.do))
	workqueue.ParallelizeUntil(context.WithoutCancel(ctx), writers, len(keys), func(i int) {
		p.writes <- struct{}{}
		again := p.carryOut(ctx, p.do[keys[i]])
		<-p.writes
		p.done(keys[i], again)
	})
}

func keyOf(a action.Action) types.NamespacedName {
	return types.NamespacedName{Namespace: a.Target().Namespace, Name: a.Target().Name}
}

// carryOut does one write, and reports whether to try again. After a conflict the PVC is read and judged again.
func (p *pass) carryOut(ctx context.Context, a action.Action) (again bool) {
	claim := p.claims[keyOf(a)]
	_, err := p.Actor.Do(ctx, a)
	p.Report.Wrote(ctx, a, err)
	switch {
	case err == nil:
		if r, ok := a.(pvc.Release); ok {
			p.Report.Released(claim, r.Takes(), r.Finalizers())
		}
		return false
	case errors.Is(err, apply.ErrGone):
		return false
	case errors.Is(err, apply.ErrStale) || ctx.Err() != nil:
		return true
	}
	p.Report.Held(claim, report.HeldUnwritten)
	logr.FromContextOrDiscard(ctx).Error(err, "trying again", "claim", keyOf(a).String())
	return true
}
