package lws_test

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"

	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/test/fakeapi"
)

// After a quick recreate the leaders of the old life's spec stood for good: their
// StatefulSet had the generation that the operator remembered of its namesake.
// And where a webhook rewrote what was applied, it was applied again for ever.
func TestWhatWasAppliedIsThatOfOneStatefulSet(t *testing.T) {
	tests := []struct {
		name   string
		change func(*lws.Applied)
		apply  bool
	}{
		{"what the server made of the last apply", func(*lws.Applied) {}, false},
		{"a namesake at the same generation", func(a *lws.Applied) { a.UID = "former" }, true},
		{"written by another since", func(a *lws.Applied) { a.Generation-- }, true},
		{"another spec than was applied", func(a *lws.Applied) { a.Fingerprint = "other" }, true},
		{"nothing is remembered", func(a *lws.Applied) { *a = lws.Applied{} }, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := running(t, 1, 1)
			var applied lws.Applied
			fakeapi.Edit(c.Server, "w", func(sts *appsv1.StatefulSet) {
				applied = lws.Applied{UID: sts.UID, Generation: sts.Generation, Fingerprint: sts.Annotations[lws.AppliedAnnotationKey]}
				sts.Spec.Template.Spec.Containers[0].Image = "rewritten"
			})
			tt.change(&applied)
			world := c.set("w")
			world.Applied = applied
			if got := len(of[action.Apply](lws.DecideSet(world))); (got == 1) != tt.apply {
				t.Errorf("%d applies", got)
			}
		})
	}
}
