package model

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/pvc"
	"lockstep.dev/lockstep/internal/pvc/workloads"
)

// holdQuestion is the input of a decision.
type holdQuestion struct {
	hold                hold
	terminating, cooled bool
	wished              bool // for this UID
	wanted              bool
	ownersGone          bool
	live, grace         bool
}

// holdAnswer is what package pvc decides.
type holdAnswer struct {
	hold               hold // after the write
	deletes, needsLive bool
}

var now = time.Date(2026, 11, 22, 9, 0, 0, 0, time.UTC)

func (q holdQuestion) decide() holdAnswer {
	const web = "StatefulSet/web"
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: "data-web-0", UID: "c1", ResourceVersion: "7", CreationTimestamp: metav1.NewTime(now.Add(-time.Hour)),
		Annotations: map[string]string{pvc.VerifiedAnnotation: now.Format(time.RFC3339)},
	}}
	if q.terminating {
		claim.DeletionTimestamp = &metav1.Time{Time: now}
	}
	if q.wished {
		claim.Annotations[pvc.IntentAnnotation] = "c1"
	}
	until := now.Add(time.Minute)
	if q.cooled {
		until = now
	}
	value := map[hold]string{held: web, cooling: pvc.HoldersValue{Names: web, Until: until}.String()}[q.hold]
	if value != "" {
		claim.Annotations[pvc.HoldersAnnotation] = value
	}
	var wants []workloads.Want
	if q.wanted {
		wants = append(wants, workloads.Want{
			Workload: identity.Ref{Kind: identity.KindStatefulSet, Namespace: "ns", Name: "web", UID: "w"},
			Since:    now,
			Series:   []workloads.Series{{Prefix: "data-web", Spans: []workloads.Span{{From: 0, To: 1}}}},
		})
	}
	view := pvc.HoldView{Claim: claim, Mode: pvc.Hold, Now: now, Live: q.live, World: pvc.World{
		Pods: pvc.NewIndex(), Desire: workloads.NewDesire("ns", wants), OwnersGone: q.ownersGone,
	}}
	if q.grace {
		view.Grace = time.Minute
	}
	d := pvc.DecideHold(view)
	if written, writes := d.Annotations[pvc.HoldersAnnotation]; writes {
		value = written
	}
	a := holdAnswer{deletes: d.Delete != nil, needsLive: d.NeedsLive}
	switch {
	case value == "":
	case pvc.ParseHolders(value).Until.IsZero():
		a.hold = held
	default:
		a.hold = cooling
	}
	return a
}
