package lws_test

import (
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/test/fakeapi"
)

// squattedWorker is a set of one group in step, but that a stranger's pod bears
// the name of worker 1.
func squattedWorker(t *testing.T) *cluster {
	t.Helper()
	c := running(t, 1, 3)
	c.pass(time.Minute)
	squatter := fakeapi.Pod("w-0-1", "w", 1)
	strange(c, squatter)
	fakeapi.Drop[*corev1.Pod](c.Server, "w-0-1")
	fakeapi.Add(c.Server, squatter)
	for range 3 {
		c.Sync(fakeapi.Find[*appsv1.StatefulSet](c.Server, "w-0"))
	}
	return c
}

func TestASquatterOnAWorkersNameIsToldOf(t *testing.T) {
	c := squattedWorker(t)
	write := one[action.WriteStatus](t, c.decideSet())
	if got := condition(write.Status, lws.CodeNameConflict); !strings.Contains(got.Message, "pod w-0-1 belongs to pod stranger") {
		t.Errorf("got %+v", got)
	}
}

func TestTheStatefulSetOfWorkersIsNudgedWhenANameIsFree(t *testing.T) {
	c := squattedWorker(t)
	c.do(c.decideGroup("w-0"))
	c.pass(time.Minute)
	fakeapi.Drop[*corev1.Pod](c.Server, "w-0-1")
	c.settle("w-0")
	if fakeapi.Find[*corev1.Pod](c.Server, "w-0-1") == nil {
		t.Error("worker 1 is never made: its StatefulSet waits out a back-off of up to 1,000 s")
	}
}
