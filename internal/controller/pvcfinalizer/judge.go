package pvcfinalizer

import (
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/pvc"
	"lockstep.dev/lockstep/internal/report"
)

const (
	// lookAgain is when to read again for a user that the watch of pods has not shown: its
	// deletion may never be seen.
	lookAgain = 5 * time.Second
	// lookAtRecords is when to read again for recorded pods that do not name the PVC: no
	// event maps their deletion to it.
	lookAtRecords = time.Minute
)

// judge reads pods live, once for all PVCs that need it.
func (p *pass) judge(ctx context.Context) {
	batch := p.settings.Take(p.namespace, p.look)
	if batch.Empty() {
		return
	}
	live := batch.Look(p.Controller.look.For(ctx, batch))
	if err := live.Err(); err != nil {
		p.unread(ctx, err)
		return
	}
	releases, kept := live.Judge()
	for _, k := range kept {
		p.keep(ctx, k)
	}
	for _, r := range releases {
		p.do = append(p.do, r)
	}
	for _, r := range live.Forget() {
		p.do = append(p.do, r)
	}
}

// unread postpones every PVC that needed the read: each may be in use.
func (p *pass) unread(ctx context.Context, err error) {
	var keys []types.NamespacedName
	for _, claim := range p.look {
		p.narrate.Held(claim, report.HeldUnread)
		keys = append(keys, client.ObjectKeyFromObject(claim))
	}
	p.failed(ctx, keys, err)
}

// keep postpones a PVC whose users the read found.
func (p *pass) keep(ctx context.Context, k pvc.Kept) {
	claim := p.claims[k.Claim.UID]
	key := client.ObjectKeyFromObject(claim)
	if k.Err != nil {
		p.narrate.Held(claim, report.HeldUnread)
		p.failed(ctx, []types.NamespacedName{key}, k.Err)
		return
	}
	p.backlog.succeeded(key)
	switch {
	case len(k.Users) > 0:
		p.postponed(claim, pvc.Verdict{Users: k.Users, Because: pvc.InUse(k.Users)})
		if slices.ContainsFunc(k.Users, func(u pvc.Use) bool { return !p.pods.Has(p.namespace, u.Pod.UID) }) {
			p.backlog.remind(key, lookAgain)
		}
	default:
		p.narrate.Postponed(claim, pvc.MayBeInUse(k.Recorded))
		p.narrate.Held(claim, report.HeldByRecord)
		p.backlog.remind(key, lookAtRecords)
	}
}
