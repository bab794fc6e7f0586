package pvc_test

import (
	"testing"

	"lockstep.dev/lockstep/internal/pvc"
)

// What a cache says of a namespace gives up nothing: neither a claim nor its words.
func TestNothingIsGivenUpByACachedNamespace(t *testing.T) {
	held := annotated(pvc.HoldersAnnotation, "StatefulSet/db")
	db := pvc.OfStatefulSet(statefulSet("db", 1))
	ending := func(v *pvc.HoldView) { v.NamespaceEnding = true }
	released := func(v *pvc.HoldView) { v.NamespaceEnding, v.NamespaceReleased = true, true }
	mode := func(m pvc.Mode) func(*pvc.HoldView) { return func(v *pvc.HoldView) { v.Mode = m } }
	for _, tt := range []struct {
		name string
		view pvc.HoldView
		says func(*pvc.HoldView)
		asks bool
	}{
		{"it goes, and was released", holdView(claim("data-db-0", held), db), released, true},
		{"it goes, and was released, and no word stands", holdView(claim("data-db-0"), db), released, true},
		{"it goes, and nobody holds the claim", holdView(claim("data-db-0")), ending, true},
		{"it goes, and the last holder did: no grace", holdView(claim("data-db-0", held)), ending, true},
		{"it goes, and the claim is held", holdView(claim("data-db-0"), db), ending, false},
		{"it goes, and the claim does already", holdView(claim("data-db-0", held, dying), db), ending, false},
		{"it asks for no hold", holdView(claim("data-db-0", held), db), mode(pvc.Barrier), true},
		{"it asks for no hold, and nobody has looked yet", holdView(claim("data-db-0", annotated(pvc.HoldersAnnotation, pvc.Unverified))), mode(pvc.Barrier), true},
		{"it asks for no hold, and none stands", holdView(claim("data-db-0"), db), mode(pvc.Barrier), false},
		{"it asks for no hold, and the claim was to be deleted when free", holdView(claim("data-db-0", annotated(pvc.IntentAnnotation, "uid-data-db-0"))), mode(pvc.Barrier), true},
		{"it asks for a warning, and the claim is held", holdView(claim("data-db-0", held), db), mode(pvc.Observe), true},
		{"it asks for a warning no more", holdView(claim("data-db-0", annotated(pvc.ObservedAnnotation, "StatefulSet/db")), db), mode(pvc.Off), true},
		{"it asks for a warning, and nobody holds the claim any more", holdView(claim("data-db-0", annotated(pvc.ObservedAnnotation, "StatefulSet/db"))), mode(pvc.Observe), false},
		{"it asks for a hold, and nobody holds the claim", holdView(claim("data-db-0", annotated(pvc.HoldersAnnotation, pvc.Unverified))), mode(pvc.Hold), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			v := tt.view
			tt.says(&v)
			v.NamespaceLive = false
			cached := pvc.DecideHold(v)
			if cached.AskNamespace != tt.asks {
				t.Errorf("asks: %t, want %t", cached.AskNamespace, tt.asks)
			}
			if cached.AskNamespace && (cached.Delete != nil || len(cached.Annotations) > 0) {
				t.Errorf("gives up %v, deletes %v", cached.Annotations, cached.Delete)
			}
			v.NamespaceLive = true
			if live := pvc.DecideHold(v); live.AskNamespace || tt.asks && live.Delete == nil && len(live.Annotations) == 0 {
				t.Errorf("read live: %+v", live)
			}
		})
	}
}
