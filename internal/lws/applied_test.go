package lws_test

import (
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"

	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/test/fakeapi"
)

// A webhook that rewrites an apply must not cause an endless series of applies. The annotation
// says which StatefulSet was applied, and its generation after that.
func TestWhatAWebhookMadeOfAnApplyIsAccepted(t *testing.T) {
	tests := []struct {
		name       string
		uid        string
		generation int64
		applies    int
	}{
		{"as it was applied", "", 0, 0},
		{"a StatefulSet with another UID", "former", 0, 1},
		{"changed since", "", -1, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := running(t, 1, 1)
			fakeapi.Edit(c.Server, "w", func(sts *appsv1.StatefulSet) {
				uid := tt.uid
				if uid == "" {
					uid = string(sts.UID)
				}
				sts.Annotations[lws.AppliedAnnotationKey] += fmt.Sprintf(".%d.%s", sts.Generation+tt.generation, uid)
				sts.Spec.Template.Spec.Containers[0].Image = "rewritten"
			})
			plan := c.decideSet()
			if got := len(of[action.Apply](plan)); got != tt.applies {
				t.Errorf("%d applies", got)
			}
		})
	}
}
