package lws_test

import (
	"fmt"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/internal/lws/workload"
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
		{"an apply that changed nothing", "", 1, 1},
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

// A webhook that undoes an apply leaves the generation as it is. The record must not be above it:
// the next change would go unseen.
func TestAScaleIsUndoneUnderAWebhookThatUndoesApplies(t *testing.T) {
	c := newCluster(t)
	c.pass(time.Minute)
	c.Webhook = func(object client.Object) {
		if sts, is := object.(*appsv1.StatefulSet); is {
			sts.Spec.Template.Spec.Containers[0].Image = "rewritten"
		}
	}
	fakeapi.Add(c.Server, fakeapi.Set("w", 2, 1))
	for _, note := range []string{"", "changes metadata alone"} {
		fakeapi.Edit(c.Server, "w", func(set *lwsv1.LeaderWorkerSet) { fakeapi.Annotation("note", note)(set) })
		c.settle("w-0", "w-1")
		if plan := c.decideSet(); len(plan.Actions) != 0 {
			t.Fatalf("it does not come to rest: %v", spelled(plan))
		}
		fakeapi.Edit(c.Server, "w", func(sts *appsv1.StatefulSet) {
			sts.Spec.Replicas = fakeapi.Ptr[int32](1)
			sts.Generation++
		})
		c.settle("w-0", "w-1")
		if got := workload.PodsOf(leadersOf(c)); got != 2 {
			t.Errorf("%q: the StatefulSet has %d replicas", note, got)
		}
	}
}
