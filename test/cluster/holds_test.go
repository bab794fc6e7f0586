package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
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

// guarded is a scene in mode hold.
type guarded struct{ *scene }

// guard gives the operator a grace of one second, and returns when the policies refuse deletions.
func guard(t *testing.T) {
	t.Helper()
	config := filepath.Join(t.TempDir(), "config.yaml")
	const text = "apiVersion: config.lws.x-k8s.io/v1alpha1\nkind: Configuration\nprotection: {graceSeconds: 1, releaseTTLSeconds: 5, kinds: [" + shards + "]}\n"
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	(&scene{T: t}).restartOperator("--config", config)
	t.Cleanup(func() { (&scene{T: t}).restartOperator() })

	s := newGuarded(t)
	probe := s.claim("probe")
	s.annotate(probe, pvc.HoldAnnotation, "a probe")
	s.awaitHeld(probe.Name)
	mallory := s.as("mallory")
	s.eventually("the API server refuses to delete a held PVC, and forged annotations", func() error {
		deleted := s.client.Delete(t.Context(), probe.DeepCopy(), client.DryRunAll)
		forged := mallory.Patch(t.Context(), probe.DeepCopy(), merge(`{"metadata":{"annotations":{"protection.lockstep.dev/hold":"mine"}}}`))
		copied := s.newClaim("copied")
		copied.Annotations = map[string]string{pvc.HoldAnnotation: "mine"}
		created := mallory.Create(t.Context(), copied, client.DryRunAll)
		if !refused(deleted) || !deniedBy(forged, "guard") || created != nil || len(copied.Annotations) > 0 {
			return fmt.Errorf("deleted: %w, forged: %w, created: %w %v", deleted, forged, created, copied.Annotations)
		}
		return nil
	})
	itself := s.awaitCounted()
	s.eventually("the API server refuses to delete the namespace", func() error {
		return lacking("refused", true, deniedBy(s.client.Delete(t.Context(), itself.DeepCopy(), client.DryRunAll), "refuse-namespace"))
	})
}

// newGuarded creates a namespace in mode hold.
func newGuarded(t *testing.T) *guarded {
	t.Helper()
	s := &guarded{newScene(t)}
	bed.hasSet(s.namespace)
	s.setMode("hold")
	t.Cleanup(func() { // the namespace ends with its held PVCs
		ctx, itself := context.Background(), s.itself()
		if s.client.Get(ctx, keyOf(itself), itself) == nil {
			_ = s.client.Patch(ctx, itself, released(itself))
		}
	})
	return s
}

func (s *scene) itself() *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.namespace}}
}

func (s *scene) setMode(mode string) {
	s.Helper()
	s.patch(s.itself(), fmt.Sprintf(`{"metadata":{"labels":{%q:%q}}}`, pvc.ModeKey, mode))
}

// released returns the patch that lets the deletion of a PVC or namespace through.
func released(object client.Object) client.Patch {
	return merge(fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, pvc.ReleaseAnnotation, object.GetUID()))
}

// annotate sets an annotation. An empty value removes it.
func (s *scene) annotate(o client.Object, key, value string) {
	s.Helper()
	quoted := fmt.Sprintf("%q", value)
	if value == "" {
		quoted = "null"
	}
	s.patch(o, fmt.Sprintf(`{"metadata":{"annotations":{%q:%s}}}`, key, quoted))
}

// deniedBy reports whether a policy of Lockstep denied a request.
func deniedBy(err error, policy string) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), policy+".protection.lockstep.dev")
}

// refused reports whether a deletion was denied because of a holder.
func refused(err error) bool { return deniedBy(err, "refuse-delete") }

// awaitHolders waits until a PVC has exactly these holders.
func (s *scene) awaitHolders(name, holders string) *corev1.PersistentVolumeClaim {
	s.Helper()
	return s.awaitClaim(name, "is held by "+holders, func(claim *corev1.PersistentVolumeClaim) error {
		return lacking("holders of "+name, holders, claim.Annotations[pvc.HoldersAnnotation])
	})
}

// awaitHeld waits until all PVCs have a holder.
func (s *scene) awaitHeld(names ...string) { s.Helper(); s.awaitHold(true, names) }

// awaitFree waits until no PVC has a holder.
func (s *scene) awaitFree(names ...string) { s.Helper(); s.awaitHold(false, names) }

func (s *scene) awaitHold(want bool, names []string) {
	s.Helper()
	for _, name := range names {
		s.awaitClaim(name, fmt.Sprintf("is held: %t", want), func(claim *corev1.PersistentVolumeClaim) error {
			return lacking("held", want, claim.Annotations[pvc.HoldersAnnotation] != "")
		})
	}
}

// awaitCounted waits until the namespace counts held PVCs.
func (s *scene) awaitCounted() *corev1.Namespace {
	s.Helper()
	itself := s.itself()
	s.eventually("the namespace counts its held PVCs", func() error {
		err := s.client.Get(s.Context(), keyOf(itself), itself)
		return errors.Join(err, lacking("counted", true, itself.Annotations[pvc.HeldClaimsAnnotation] != ""))
	})
	return itself
}

func (s *scene) awaitNamespaceGone() {
	s.Helper()
	s.eventually("the namespace is gone", func() error {
		itself := s.itself()
		err := s.client.Get(s.Context(), keyOf(itself), itself)
		if apierrors.IsNotFound(err) {
			return nil
		}
		return errors.Join(err, fmt.Errorf("it is there: %+v", itself.Status.Conditions))
	})
}

// TestHolds deletes PVCs in mode hold.
func TestHolds(t *testing.T) {
	guard(t)
	t.Run("beside each other", func(t *testing.T) {
		for name, drill := range map[string]func(*guarded){
			"garbage collector and collections":           collectionsAreRefused,
			"workloads":                                   workloadsHold,
			"a kind that comes and goes":                  jobSetsHold,
			"a kind with a path that leads nowhere":       shardsHold,
			"nothing holds PVCs of others":                strangersDoNotHold,
			"a PVC to be deleted when free":               deletedWhenFree,
			"release tokens":                              releaseTokens,
			"a namespace with held PVCs":                  namespaceStays,
			"a namespace that was released":               namespaceReleased,
			"a mistake in mode barrier":                   mistakeInModeBarrier,
			"a deletion in mode observe":                  deletedInModeObserve,
			"a deletion while a workload is idle":         deletedThoughIdle,
			"the set deleted, its PVCs kept":              func(s *guarded) { s.setDeleted(keepClaims, metav1.DeletePropagationBackground) },
			"the set deleted, its PVCs deleted":           func(s *guarded) { s.setDeleted(deleteClaims, metav1.DeletePropagationBackground) },
			"the set deleted in the foreground":           func(s *guarded) { s.setDeleted(deleteClaims, metav1.DeletePropagationForeground) },
			"scaled down, PVCs kept":                      func(s *guarded) { s.scaledDown(keepClaims) },
			"scaled down, PVCs deleted":                   func(s *guarded) { s.scaledDown(deleteClaims) },
			"scaled down and up, PVCs deleted":            scaledDownAndUp,
			"recreated at once, PVCs deleted":             recreatedAtOnce,
			"the leader StatefulSet of a set that stays":  leadersDeleted,
			"leader StatefulSet with PVCs older than set": olderClaimsThanTheSet,
			"leader StatefulSet that the set adopted":     adoptedWithItsClaims,
		} {
			t.Run(name, func(t *testing.T) { aside(t); drill(newGuarded(t)) })
		}
	})
	t.Run("a mistake while a group restarts", func(t *testing.T) { mistakeDuringRestart(newGuarded(t)) })
	t.Run("the operator is away", func(t *testing.T) { holdsWithoutOperator(newGuarded(t)) })
}

// hasty gives pods a short grace period. The deletion of a namespace waits for the longest one.
func hasty(set *lwsv1.LeaderWorkerSet) {
	set.Spec.LeaderWorkerTemplate.WorkerTemplate.Spec.TerminationGracePeriodSeconds = new(int64(1))
}

// settle creates a set with held PVCs.
func (s *guarded) settle(groups, size int32, edits ...edit) (*lwsv1.LeaderWorkerSet, map[string]types.UID) {
	s.Helper()
	set := s.settled(s.newSet("a", groups, size, imageA, append(edits, hasty)...))
	claims := s.awaitBound(int(groups * size))
	s.awaitHeld(slices.Collect(maps.Keys(claims))...)
	return set, claims
}

// mistakeDuringRestart deletes the PVCs of a group that is recreated, at a moment without pods.
// The controller manager is away, so that the moment lasts.
func mistakeDuringRestart(s *guarded) {
	set, claims := s.settle(2, 3, volumes(keepClaims, keepClaims))
	s.awaitHolders("data-a-1-2", "LeaderWorkerSet/a")
	group := func() (pods []*corev1.Pod) {
		return slices.DeleteFunc(s.podsOf(set), func(pod *corev1.Pod) bool { return pod.Labels[lwsv1.GroupIndexLabelKey] != "1" })
	}
	s.check("kill the controller manager", bed.plane.Kill(controllerManager))
	s.evict("a-1")
	s.eventually("the group has no pod", func() error {
		pods := group()
		for _, pod := range pods {
			s.check("delete "+pod.Name, client.IgnoreNotFound(s.client.Delete(s.Context(), pod.DeepCopy(), client.GracePeriodSeconds(0))))
		}
		return lacking("pods", 0, len(pods))
	})
	for _, name := range []string{"data-a-1", "data-a-1-1", "data-a-1-2"} {
		if err := s.client.Delete(s.Context(), s.newClaim(name)); !refused(err) {
			s.Errorf("the deletion of %s ended with %v", name, err)
		}
	}
	s.check("start the controller manager", bed.plane.Restart(controllerManager))
	s.eventually("the group is back", func() error { return lacking("pods", 3, len(group())) })
	s.awaitSettled(set)
	s.awaitClaims("PVCs are the same", claims)
}

// collectionsAreRefused: the garbage collector and a collection delete PVCs without holders only.
func collectionsAreRefused(s *guarded) {
	_, claims := s.settle(1, 2, volumes(keepClaims, keepClaims))
	if err := s.client.DeleteAllOf(s.Context(), &corev1.PersistentVolumeClaim{}, client.InNamespace(s.namespace)); !refused(err) {
		s.Errorf("the deletion of all PVCs ended with %v", err)
	}
	dead := `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"long-gone","uid":"00000000-0000-0000-0000-000000000001"}]}}`
	for name := range claims {
		s.patch(s.newClaim(name), dead)
	}
	loose := s.claim("loose")
	s.patch(loose, dead)
	s.awaitGone(loose)
	s.awaitClaims("PVCs are the same", claims)
}

// setDeleted deletes a set. In the foreground, the garbage collector is refused while pods are
// there, and retries in its own time.
func (s *guarded) setDeleted(retained retention, policy metav1.DeletionPropagation) {
	set, claims := s.settle(1, 3, volumes(retained, keepClaims))
	if retained == deleteClaims {
		s.awaitOwner("LeaderWorkerSet")
	}
	s.end(set, policy)
	if retained == deleteClaims {
		s.awaitClaims("PVCs go", nil)
		return
	}
	s.awaitFree(slices.Collect(maps.Keys(claims))...)
	s.awaitClaims("PVCs are the same", claims)
}

func (s *guarded) scaledDown(policy retention) {
	set, claims := s.settle(3, 2, volumes(keepClaims, policy))
	s.awaitSettled(s.become(set, `{"spec":{"replicas":1}}`))
	left := claimsOfGroup0(claims)
	if policy == deleteClaims {
		s.awaitClaims("PVCs beyond the groups go", left)
	} else {
		s.awaitFree("data-a-1", "data-a-1-1", "data-a-2", "data-a-2-1")
		s.awaitClaims("PVCs are the same", claims)
	}
	s.awaitHeld(slices.Collect(maps.Keys(left))...)
}

// scaledDownAndUp creates groups while PVCs of their names go. Those PVCs are not held for them.
func scaledDownAndUp(s *guarded) {
	set, claims := s.settle(3, 2, volumes(deleteClaims, deleteClaims))
	set = s.become(set, `{"spec":{"replicas":1}}`)
	s.eventually("a leader has gone", func() error {
		err := s.client.Get(s.Context(), types.NamespacedName{Namespace: s.namespace, Name: "a-2"}, &corev1.Pod{})
		return lacking("gone", true, apierrors.IsNotFound(err))
	})
	s.awaitSettled(s.become(set, `{"spec":{"replicas":3}}`))
	is := s.awaitBound(6)
	s.awaitHeld(slices.Collect(maps.Keys(is))...)
	same(s.T, "PVCs of the group that stayed", claimsOfGroup0(claims), claimsOfGroup0(is))
}

// recreatedAtOnce finds PVCs of the previous set, and waits for their end.
func recreatedAtOnce(s *guarded) {
	edits := volumes(deleteClaims, keepClaims)
	set, former := s.settle(2, 2, edits)
	s.awaitOwner("LeaderWorkerSet")
	s.awaitNextSecond()
	l := s.recreate(set, s.newSet("a", 2, 2, imageB, edits, hasty), metav1.DeletePropagationBackground)
	s.awaitSettled(l.set)
	is := s.awaitBound(4)
	s.awaitHeld(slices.Collect(maps.Keys(is))...)
	s.wantOtherClaims(former, is)
}

// awaitNextSecond waits until new objects are younger than those that are there. Objects tell
// whole seconds.
func (s *scene) awaitNextSecond() {
	s.Helper()
	second := time.Now().Unix()
	s.eventually("the second is over", func() error { return lacking("over", true, time.Now().Unix() > second) })
}

// olderClaimsThanTheSet: PVCs that a previous set kept, or that a backup restored, are the set's.
func olderClaimsThanTheSet(s *guarded) {
	set, claims := s.settle(2, 2, volumes(keepClaims, keepClaims))
	s.end(set, metav1.DeletePropagationBackground)
	s.awaitFree(slices.Collect(maps.Keys(claims))...)
	s.awaitNextSecond()
	set, is := s.settle(2, 2, volumes(deleteClaims, keepClaims))
	same(s.T, "PVCs of the set", claims, is)
	s.deleteLeaders(set, claims)
}

// adoptedWithItsClaims: a set was deleted without its objects, and created again.
func adoptedWithItsClaims(s *guarded) {
	edits := volumes(deleteClaims, keepClaims)
	set, claims := s.settle(2, 2, edits)
	s.awaitOwner("LeaderWorkerSet")
	s.awaitNextSecond()
	l := s.recreate(set, s.newSet("a", 2, 2, imageA, edits, hasty), metav1.DeletePropagationOrphan)
	s.deleteLeaders(s.awaitSettled(l.set), claims)
}

func leadersDeleted(s *guarded) {
	set, claims := s.settle(2, 2, volumes(deleteClaims, keepClaims))
	s.deleteLeaders(set, claims)
}

// deleteLeaders deletes the leader StatefulSet. The set stays, and holds its PVCs without an end.
func (s *guarded) deleteLeaders(set *lwsv1.LeaderWorkerSet, claims map[string]types.UID) {
	s.Helper()
	s.awaitOwner("LeaderWorkerSet")
	leaders, _ := find[*appsv1.StatefulSet](s.recorder, "a")
	s.remove(leaders.DeepCopy(), propagation(metav1.DeletePropagationBackground))
	s.eventually("the leaders have gone", func() error {
		left := s.pick(func(r *record) bool { return r.kind == "Pod" && r.died == 0 && metav1.IsControlledBy(r.last, leaders) })
		return lacking("leaders", "", names(left))
	})
	// A hold that began to end before that of the witness is over.
	witness := s.claim("witness")
	s.annotate(witness, pvc.HoldAnnotation, "for a moment")
	s.awaitHeld(witness.Name)
	s.annotate(witness, pvc.HoldAnnotation, "")
	s.awaitFree(witness.Name)
	s.remove(witness)
	s.awaitHeld(slices.Collect(maps.Keys(claims))...)
	found, err := s.claims()
	s.check("list PVCs", err)
	for name, uid := range claims {
		if words := found[name].Annotations[pvc.HoldersAnnotation]; found[name].UID != uid || !pvc.ParseHolders(words).Until.IsZero() {
			s.Errorf("PVC %s is %s, not %s, and has holders %q", name, found[name].UID, uid, words)
		}
		s.patch(found[name], `{"metadata":{"ownerReferences":null}}`)
	}
	s.awaitSettled(set)
	s.awaitClaims("PVCs are the same", claims)
}

// TestNamespacesEnd deletes namespaces whose count of held PVCs is stale, in every mode, with PVCs
// in use.
func TestNamespacesEnd(t *testing.T) {
	guard(t)
	t.Run("whatever their mode", func(t *testing.T) {
		for _, mode := range []string{"off", "observe", "barrier", "hold", "strict"} {
			t.Run(mode, func(t *testing.T) {
				aside(t)
				s := newGuarded(t)
				s.setMode(mode)
				s.settled(s.newSet("a", 1, 2, imageA, volumes(keepClaims, keepClaims), hasty))
				s.awaitBound(2)
				s.create(s.holders()[1].Object)
				s.create(s.newClaim("deploy")) // without a barrier in some modes
				if held, _ := pvc.ParseMode(mode); held >= pvc.Hold {
					s.awaitHeld("data-a-0", "data-a-0-1", "deploy")
				}
				s.deleteUncounted()
				s.awaitNamespaceGone()
			})
		}
	})
	t.Run("the operator dies between two writes", func(t *testing.T) { // it removed the hold, and did not delete the PVC
		s := newGuarded(t)
		claim, deployment := s.wanted()
		s.check("kill the operator", bed.operator.Kill())
		s.deleteUncounted()
		s.remove(deployment, propagation(metav1.DeletePropagationBackground))
		s.annotate(claim, pvc.HoldersAnnotation, "")
		s.check("start the operator", bed.operator.Start())
		s.awaitNamespaceGone()
	})
}

// deleteUncounted deletes the namespace at a moment at which it counts no held PVCs.
func (s *guarded) deleteUncounted() {
	s.Helper()
	s.eventually("the namespace is being deleted", func() error {
		s.annotate(s.itself(), pvc.HeldClaimsAnnotation, "")
		return s.client.Delete(s.Context(), s.itself())
	})
}
