package memory

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/test/expect"
)

// incarnationOf is an object called w with a UID.
func incarnationOf(uid types.UID) *lwsv1.LeaderWorkerSet {
	return &lwsv1.LeaderWorkerSet{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "w", UID: uid}}
}

func after(seconds int) time.Time {
	return time.Unix(1_000_000, 0).Add(time.Duration(seconds) * time.Second)
}

// written is when the status of an object was written, as m remembers it.
func written(m *Memory, object client.Object) time.Time {
	at, _ := m.Recall(object)
	return at
}

func TestADeletionIsRememberedForAWhile(t *testing.T) {
	m := New()
	m.Deleted("u", after(0))
	for seconds, want := range map[int]bool{0: true, 10: true, 3600: false} {
		expect.Equalf(t, want, m.WasDeleted("u", after(seconds)), "after %d s", seconds)
	}
	expect.That(t, !m.WasDeleted("other", after(0)), "an object that was never deleted")
}

// Each step of a rollout must not wait for as long as a webhook has failed every other call.
func TestARefusalAfterASuccessIsTheFirst(t *testing.T) {
	m, object := New(), incarnationOf("1")
	at := func(seconds int) action.Refusal {
		return action.Refusal{Sentence: "no", At: after(seconds), Since: after(seconds)}
	}
	m.Refused(object, at(0))
	expect.Equalf(t, after(0), m.Refused(object, at(20)).Since, "refused since")
	m.Accepted(object)
	_, left := m.Recall(object)
	expect.Equalf(t, action.Refusal{}, left, "what is left of it")
	expect.Equalf(t, after(40), m.Refused(object, at(40)).Since, "taken, and refused again since")
}

func TestAnObjectThatIsGoneIsForgotten(t *testing.T) {
	m := New()
	m.StatusWritten(incarnationOf("1"), after(1))
	m.Taken(identity.Ref{Kind: identity.KindStatefulSet, Namespace: "ns", Name: "w-0"})
	expect.Equalf(t, after(1), written(m, incarnationOf("1")), "the status was written at")
	expect.Equalf(t, time.Time{}, written(m, incarnationOf("2")), "the next incarnation has")
	m.Forget(client.ObjectKeyFromObject(incarnationOf("")))
	expect.Equalf(t, 0, len(m.known)+len(m.taken), "remembered: %v, %v", m.known, m.taken)
}
