package cluster

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/pvc"
)

func drillForbidden(err error, policy string) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), policy)
}

// TestHolds is whose claims are not deleted in mode hold, and what becomes of them.
func TestHolds(t *testing.T) {
	guard(t)
	t.Run("beside each other", func(t *testing.T) {
		for name, drill := range map[string]func(*testing.T){
			"whoever deletes":                             whoeverDeletes,
			"workloads":                                   workloadsHold,
			"a kind that comes and goes":                  foreignKindsHold,
			"a kind that leads nowhere":                   astrayKindsAreTold,
			"nobody pins what is somebody else's":         nobodyPins,
			"a claim to be deleted when free":             deletedWhenFree,
			"release tokens":                              releaseTokens,
			"a namespace with held claims":                namespaceStays,
			"a namespace that was released":               namespaceReleased,
			"a mistake in mode barrier":                   mistakeInModeBarrier,
			"the set deleted in the foreground":           setDeletedInForeground,
			"a deletion in mode observe":                  deletedInModeObserve,
			"a deletion while a workload is idle":         deletedThoughIdle,
			"the set deleted, its claims to be kept":      func(t *testing.T) { setDeleted(t, keepClaims) },
			"the set deleted, its claims to be deleted":   func(t *testing.T) { setDeleted(t, deleteClaims) },
			"scaled down, its claims to be kept":          func(t *testing.T) { scaledDown(t, keepClaims) },
			"scaled down, its claims to be deleted":       func(t *testing.T) { scaledDown(t, deleteClaims) },
			"scaled down and up, claims to be deleted":    scaledDownAndUp,
			"made again at once, claims to be deleted":    madeAgainAtOnce,
			"made again, and claims of before bound then": boundSinceItWasMadeAgain,
			"the leader StatefulSet of a set that stays":  leadersGoAndTheSetStays,
			"that of a set with claims from before it":    olderClaimsThanTheSet,
			"that of a set which took it over":            takenOverWithItsClaims,
		} {
			t.Run(name, func(t *testing.T) { aside(t); drill(t) })
		}
	})
	t.Run("a mistake while a group restarts", mistakeDuringRestart)
	t.Run("the operator is away", holdsWithoutOperator)
}

// hasty has pods end at once: whoever deletes a namespace waits as long as its pods
// may take.
func hasty(set *lwsv1.LeaderWorkerSet) {
	set.Spec.LeaderWorkerTemplate.WorkerTemplate.Spec.TerminationGracePeriodSeconds = new(int64(1))
}

// settle brings up a set with claims that are held.
func (s *guarded) settle(groups, size int32, edits ...edit) (*lwsv1.LeaderWorkerSet, map[string]types.UID) {
	s.Helper()
	set := s.newSet("a", groups, size, imageA, append(edits, hasty)...)
	s.create(set)
	set = s.awaitSettled(set)
	claims := s.awaitBound(int(groups * size))
	s.awaitHeld(slices.Collect(maps.Keys(claims))...)
	return set, claims
}

// mistakeDuringRestart deletes the claims of a group that is being recreated, in the
// moment in which it has no pod. That is made to last.
func mistakeDuringRestart(t *testing.T) {
	s := newGuarded(t)
	set, claims := s.settle(2, 3, volumes(keepClaims, keepClaims))
	s.says("data-a-1-2", "LeaderWorkerSet/a")
	s.check("kill the controller manager", bed.plane.kill(controllerManager))
	s.remove(s.podNamed("a-1"), client.GracePeriodSeconds(0))
	s.eventually("the group has no pod", func() error {
		pods := s.podsOf("a-1")
		for _, pod := range pods {
			s.check("delete "+pod.Name, client.IgnoreNotFound(s.client.Delete(t.Context(), pod, client.GracePeriodSeconds(0))))
		}
		return lacking("pods", 0, len(pods))
	})
	for _, name := range []string{"data-a-1", "data-a-1-1", "data-a-1-2"} {
		err := s.client.Delete(t.Context(), &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name}})
		if !refused(err) {
			t.Errorf("the deletion of %s ended with %v", name, err)
		}
	}
	s.check("start the controller manager", bed.plane.restart(controllerManager))
	s.eventually("the group is back", func() error { return lacking("pods", 3, len(s.podsOf("a-1"))) })
	s.awaitSettled(set)
	s.awaitClaims("claims are the same", claims)
}

func (s *guarded) podNamed(name string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name}}
}

// podsOf are the pods of a group that are there.
func (s *guarded) podsOf(leader string) (pods []*corev1.Pod) {
	for _, pod := range live[*corev1.Pod](s.recorder) {
		if pod.Name == leader || strings.HasPrefix(pod.Name, leader+"-") {
			pods = append(pods, s.podNamed(pod.Name))
		}
	}
	return pods
}

// whoeverDeletes: the garbage collector is refused, and so is a collection; claims of
// nobody beside them go.
func whoeverDeletes(t *testing.T) {
	s := newGuarded(t)
	_, claims := s.settle(1, 2, volumes(keepClaims, keepClaims))
	for name := range claims {
		err := s.client.DeleteAllOf(t.Context(), &corev1.PersistentVolumeClaim{}, client.InNamespace(s.namespace))
		if !refused(err) {
			t.Errorf("all at once, %s with them: %v", name, err)
		}
	}
	dead := `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"long-gone","uid":"00000000-0000-0000-0000-000000000001"}]}}`
	for name := range claims {
		s.patch(&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name}}, dead)
	}
	s.patch(s.claim("loose", nil), dead)
	s.eventually("the garbage collector takes what is not held", func() error {
		found, err := s.claims()
		if found["loose"] != nil {
			return errors.Join(err, errors.New("it is there"))
		}
		return err
	})
	s.awaitClaims("claims are the same", claims)
}

func setDeleted(t *testing.T, policy retention) {
	s := newGuarded(t)
	set, claims := s.settle(1, 3, volumes(policy, keepClaims))
	if policy == deleteClaims {
		s.awaitOwner("LeaderWorkerSet")
	}
	s.end(set, metav1.DeletePropagationBackground)
	if policy == deleteClaims {
		s.awaitClaims("claims go", nil)
		return
	}
	s.awaitFree(slices.Collect(maps.Keys(claims))...)
	s.awaitClaims("claims are the same", claims)
}

// setDeletedInForeground waits for its claims, which were refused to the garbage
// collector while their pods were there: that would come back in its own time.
func setDeletedInForeground(t *testing.T) {
	s := newGuarded(t)
	set, _ := s.settle(1, 2, volumes(deleteClaims, keepClaims))
	s.awaitOwner("LeaderWorkerSet")
	s.end(set, metav1.DeletePropagationForeground)
	s.awaitClaims("claims go", nil)
}

func scaledDown(t *testing.T, policy retention) {
	s := newGuarded(t)
	set, claims := s.settle(3, 2, volumes(keepClaims, policy))
	s.awaitSettled(s.become(set, `{"spec":{"replicas":1}}`))
	left := maps.Clone(claims)
	maps.DeleteFunc(left, func(name string, _ types.UID) bool { return !strings.HasPrefix(name, "data-a-0") })
	if policy == deleteClaims {
		s.awaitClaims("claims beyond the groups go", left)
	} else {
		s.awaitFree("data-a-1", "data-a-1-1", "data-a-2", "data-a-2-1")
		s.awaitClaims("claims are the same", claims)
	}
	s.awaitHeld(slices.Collect(maps.Keys(left))...)
}

// scaledDownAndUp finds claims that were to go, and waits for their end: they are not held
// for it.
func scaledDownAndUp(t *testing.T) {
	s := newGuarded(t)
	set, claims := s.settle(3, 2, volumes(deleteClaims, deleteClaims))
	set = s.become(set, `{"spec":{"replicas":1}}`)
	s.eventually("a leader has gone", func() error {
		err := s.client.Get(t.Context(), types.NamespacedName{Namespace: s.namespace, Name: "a-2"}, &corev1.Pod{})
		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("a-2 is there: %w", err)
		}
		return nil
	})
	s.awaitSettled(s.become(set, `{"spec":{"replicas":3}}`))
	is := s.awaitBound(6)
	s.awaitHeld(slices.Collect(maps.Keys(is))...)
	for _, name := range []string{"data-a-0", "data-a-0-1"} {
		if is[name] != claims[name] {
			t.Errorf("claim %s of a group that stayed is another one", name)
		}
	}
}

// madeAgainAtOnce finds claims of its former life, and waits for their end.
func madeAgainAtOnce(t *testing.T) {
	s := newGuarded(t)
	edits := volumes(deleteClaims, keepClaims)
	set, former := s.settle(2, 2, edits)
	s.awaitOwner("LeaderWorkerSet")
	s.outlastTheSecond()
	l := s.recreate(set, s.newSet("a", 2, 2, imageB, edits, hasty), metav1.DeletePropagationBackground)
	s.awaitSettled(l.set)
	is := s.awaitBound(4)
	s.awaitHeld(slices.Collect(maps.Keys(is))...)
	for name, uid := range is {
		if former[name] == uid {
			t.Errorf("claim %s is of the last life", name)
		}
	}
}

// boundSinceItWasMadeAgain is the same of claims that were still to be bound: who does that
// is who gave them to the leader StatefulSet, and is noted once.
func boundSinceItWasMadeAgain(t *testing.T) {
	s := newGuarded(t)
	edits := volumes(deleteClaims, keepClaims)
	set, former := s.settle(2, 2, edits)
	s.awaitOwner("LeaderWorkerSet")
	s.outlastTheSecond()
	l := s.recreate(set, s.newSet("a", 2, 2, imageB, edits, hasty), metav1.DeletePropagationBackground)
	for name := range former {
		claim := &corev1.PersistentVolumeClaim{}
		err := s.client.Get(t.Context(), types.NamespacedName{Namespace: s.namespace, Name: name}, claim)
		if owner := metav1.GetControllerOfNoCopy(claim); err != nil || owner == nil || owner.Kind != "StatefulSet" {
			continue
		}
		for _, entry := range claim.ManagedFields {
			if entry.FieldsV1 != nil && strings.Contains(entry.FieldsV1.GetRawString(), "f:ownerReferences") {
				s.outlastTheSecond()
				t.Logf("%s is written to by %s", name, entry.Manager)
				s.check("write as who gave it", s.client.Patch(t.Context(), claim,
					client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"example.com/bound":"yes"}}}`)), client.FieldOwner(entry.Manager)))
			}
		}
	}
	s.awaitSettled(l.set)
	s.awaitBound(4)
}

// outlastTheSecond waits until what is made is younger than what is there, also by the
// whole seconds that objects tell.
func (s *scene) outlastTheSecond() {
	s.Helper()
	until := time.Now().Truncate(time.Second).Add(time.Second)
	s.eventually("the second is over", func() error {
		if time.Now().Before(until) {
			return errors.New("it is not")
		}
		return nil
	})
}

// olderClaimsThanTheSet are of a former life that kept them, or were made before the set, of
// a backup perhaps. They are the set's own all the same.
func olderClaimsThanTheSet(t *testing.T) {
	s := newGuarded(t)
	set, claims := s.settle(2, 2, volumes(keepClaims, keepClaims))
	s.end(set, metav1.DeletePropagationBackground)
	s.awaitFree(slices.Collect(maps.Keys(claims))...)
	s.outlastTheSecond()
	set, is := s.settle(2, 2, volumes(deleteClaims, keepClaims))
	if !maps.Equal(is, claims) {
		t.Fatalf("the set has claims %v, not those that were kept: %v", is, claims)
	}
	s.leadersGo(set, claims)
}

// takenOverWithItsClaims are what was given to the leader StatefulSet before the set was
// made: it was deleted alone, and made again.
func takenOverWithItsClaims(t *testing.T) {
	s := newGuarded(t)
	edits := volumes(deleteClaims, keepClaims)
	set, claims := s.settle(2, 2, edits)
	s.awaitOwner("LeaderWorkerSet")
	s.outlastTheSecond()
	l := s.recreate(set, s.newSet("a", 2, 2, imageA, edits, hasty), metav1.DeletePropagationOrphan)
	set = s.awaitSettled(l.set)
	s.leadersGo(set, claims)
}

// outlastTheGrace waits until what began to cool before is free.
func (s *guarded) outlastTheGrace() {
	s.Helper()
	witness := s.claim("witness", map[string]string{pvc.HoldAnnotation: "for a moment"})
	s.awaitHeld(witness.Name)
	s.patch(witness, `{"metadata":{"annotations":{"protection.lockstep.dev/hold":null}}}`)
	s.awaitFree(witness.Name)
	s.remove(witness)
}

// leadersGoAndTheSetStays has somebody delete what the leaders' claims were to go with. The
// set lives, and wants them: its owner has a way to keep them.
func leadersGoAndTheSetStays(t *testing.T) {
	s := newGuarded(t)
	set, claims := s.settle(2, 2, volumes(deleteClaims, keepClaims))
	s.leadersGo(set, claims)
}

func (s *guarded) leadersGo(set *lwsv1.LeaderWorkerSet, claims map[string]types.UID) {
	s.Helper()
	s.awaitOwner("LeaderWorkerSet")
	leaders := &appsv1.StatefulSet{}
	s.check("read the leader StatefulSet", s.client.Get(s.Context(), types.NamespacedName{Namespace: s.namespace, Name: "a"}, leaders))
	s.remove(leaders, client.PropagationPolicy(metav1.DeletePropagationBackground))
	s.eventually("the leaders have gone", func() error {
		for _, name := range []string{"a-0", "a-1"} {
			pod := &corev1.Pod{}
			err := s.client.Get(s.Context(), types.NamespacedName{Namespace: s.namespace, Name: name}, pod)
			if metav1.IsControlledBy(pod, leaders) {
				return fmt.Errorf("%s is there", name)
			}
			if client.IgnoreNotFound(err) != nil {
				return err
			}
		}
		return nil
	})
	s.outlastTheGrace()
	s.awaitHeld(slices.Collect(maps.Keys(claims))...)
	for name, uid := range claims {
		claim := &corev1.PersistentVolumeClaim{}
		s.check("read claim "+name, s.client.Get(s.Context(), types.NamespacedName{Namespace: s.namespace, Name: name}, claim))
		words := claim.Annotations[pvc.HoldersAnnotation]
		if claim.UID != uid || !pvc.ParseWords(words).Until.IsZero() {
			s.Errorf("claim %s is %s, not %s, and says %q", name, claim.UID, uid, words)
		}
	}
	for name := range claims {
		s.patch(&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name}}, `{"metadata":{"ownerReferences":null}}`)
	}
	s.awaitSettled(set)
	s.awaitClaims("claims are the same", claims)
}
