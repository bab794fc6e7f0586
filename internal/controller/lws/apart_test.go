package lws

import (
	"errors"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/gang"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/test/fakeapi"
)

// A webhook of the gang scheduler may refuse a PodGroup: of a queue that is closed,
// or because it does not answer.
func TestAPodGroupThatIsRefusedCostsTheGroupNothingElse(t *testing.T) {
	c := newCluster(t, 0, fakeapi.Set("w", 1, 2))
	c.Added = func(object client.Object) {
		if pod, ok := object.(*corev1.Pod); ok && pod.Labels[lwsv1.WorkerIndexLabelKey] == "0" {
			gang.Volcano{}.Tie(pod, gang.NameOf(pod))
		}
	}
	refused := 0
	c.api.refuse = func(kind identity.Kind) error {
		if kind != identity.KindPodGroup {
			return nil
		}
		refused++
		return apierrors.NewForbidden(schema.GroupResource{Resource: "podgroups"}, "w", errors.New("queue is closed"))
	}
	c.look()
	c.Sync(fakeapi.Find[*appsv1.StatefulSet](c.Server, "w"))
	if result, err := c.lookAtGroup("w-0"); err != nil || result.RequeueAfter != lws.RetryRefusedFirst || refused != 1 {
		t.Errorf("no retry with a back-off: %+v, %v, %d tries", result, err, refused)
	}
	if fakeapi.Find[*appsv1.StatefulSet](c.Server, "w-0") == nil {
		t.Error("the group has no workers")
	}
	c.api.refuse = nil
	c.look("w-0")
	if got := len(fakeapi.All[*unstructured.Unstructured](c.Objects)); got != 1 {
		t.Errorf("no longer refused: %d podgroups", got)
	}
}
