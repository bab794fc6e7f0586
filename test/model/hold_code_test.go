package model

import (
	"maps"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/pvc"
	"lockstep.dev/lockstep/internal/pvc/workloads"
)

// TestTheCodeHoldsAsTheModelDoes puts the code to every claim and workload that the
// model knows: what stands afterwards, and whether the claim is deleted.
func TestTheCodeHoldsAsTheModelDoes(t *testing.T) {
	w, deleted := holdWorld{Holding(), HoldInOrder}, 0
	for bits := range 1 << 6 {
		has := func(bit int) bool { return bits&(1<<bit) != 0 }
		for _, stands := range []words{noWords, heldWords, coolingWords} {
			c := bornClaim{life: 1, exists: true, terminating: has(0), words: stands, cooled: has(1) && stands == coolingWords}
			if has(2) {
				c.wish = 1
			}
			v := view{claim: c, wanted: has(3) && !has(4), blind: has(4), gone: has(5)}
			model := v
			if v.gone && stands != noWords { // a PVC without living owners does not cool
				model.claim.words, model.claim.cooled = coolingWords, true
			}
			d := w.decide(model)
			want := stands
			if d.under && !d.deletes {
				want = d.words
			}
			if v.blind && d.wished {
				d.next, d.deletes = false, false // workloads are read live first: the code does not try
			}
			got, deletes := codeHolds(v)
			if got != want || deletes != (d.next || d.deletes) {
				t.Errorf("%+v: the code has %d stand and deletes: %t; the model %d and %t", v, got, deletes, want, d.next || d.deletes)
			}
			if deletes {
				deleted++
			}
		}
	}
	if deleted < 8 {
		t.Errorf("only %d were deleted: the test has gone blind", deleted)
	}
}

// codeHolds is what stands on the claim by the code, and whether it is deleted.
func codeHolds(v view) (words, bool) {
	now := time.Date(2026, 11, 22, 9, 0, 0, 0, time.UTC)
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: "data-web-0", UID: "c1", ResourceVersion: "7", Annotations: map[string]string{},
	}}
	if v.claim.terminating {
		claim.DeletionTimestamp = &metav1.Time{Time: now}
	}
	until := now.Add(time.Minute)
	if v.claim.cooled {
		until = now
	}
	switch v.claim.words {
	case heldWords:
		claim.Annotations[pvc.HoldersAnnotation] = "StatefulSet/web"
	case coolingWords:
		claim.Annotations[pvc.HoldersAnnotation] = pvc.Words{Names: "StatefulSet/web", Until: until}.String()
	}
	if v.claim.wish != 0 {
		claim.Annotations[pvc.IntentAnnotation] = map[int8]string{1: "c1", 2: "c2"}[v.claim.wish]
	}
	var wants []workloads.Want
	if v.wanted {
		wants = append(wants, workloads.Want{
			Workload: identity.Ref{Kind: identity.KindStatefulSet, Namespace: "ns", Name: "web", UID: "w"},
			Series:   []workloads.Series{{Prefix: "data-web", Spans: []workloads.Span{{From: 0, To: 1}}}},
		})
	}
	view := pvc.HoldView{
		Claim: claim, Mode: pvc.Hold, Now: now, Grace: time.Minute,
		World: pvc.World{Pods: pvc.NewIndex(), Desire: workloads.NewDesire("ns", wants), Links: map[types.UID]workloads.Link{}},
	}
	view.Live, view.World.OwnersGone = !v.blind, v.gone
	d := pvc.DecideHold(view)
	maps.Copy(claim.Annotations, d.Annotations)
	return wordsOf(claim.Annotations[pvc.HoldersAnnotation]), d.Delete != nil
}

func wordsOf(value string) words {
	switch {
	case value == "":
		return noWords
	case pvc.ParseWords(value).Until.IsZero():
		return heldWords
	}
	return coolingWords
}
