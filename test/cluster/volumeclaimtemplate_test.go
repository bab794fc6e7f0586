package cluster

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/test/drill"
	"lockstep.dev/lockstep/test/expect"
)

const (
	keepClaims   = appsv1.RetainPersistentVolumeClaimRetentionPolicyType
	deleteClaims = appsv1.DeletePersistentVolumeClaimRetentionPolicyType
)

type retention = appsv1.PersistentVolumeClaimRetentionPolicyType

// volumes gives every pod a PVC of the template "data".
func volumes(whenDeleted, whenScaled retention) edit {
	return func(set *lwsv1.LeaderWorkerSet) {
		template := &set.Spec.LeaderWorkerTemplate
		template.PersistentVolumeClaimRetentionPolicy = &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{
			WhenDeleted: whenDeleted, WhenScaled: whenScaled,
		}
		template.VolumeClaimTemplates = []corev1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: "data"}, Spec: drill.ClaimSpec()}}
	}
}

// awaitBound waits until a set has so many bound PVCs, and returns their UIDs.
func (s *scene) awaitBound(want int) map[string]types.UID {
	bound := map[string]types.UID{}
	s.Eventually("all PVCs are bound", func() error {
		found, err := s.PVCs()
		clear(bound)
		for name, claim := range found {
			if claim.Status.Phase == corev1.ClaimBound && claim.Spec.VolumeName != "" && claim.DeletionTimestamp == nil {
				bound[name] = claim.UID
			}
		}
		return errors.Join(err, drill.Lacking("bound PVCs", want, len(bound)))
	})
	return maps.Clone(bound)
}

// awaitClaims waits until exactly these PVCs are there.
func (s *scene) awaitClaims(what string, want map[string]types.UID) {
	s.Eventually(what, func() error {
		found, err := s.PVCs()
		if err != nil {
			return err
		}
		for name, claim := range found {
			if want[name] != claim.UID || claim.DeletionTimestamp != nil {
				return fmt.Errorf("PVC %s (%s, deleted %v, owners %v) is there", name, claim.UID, claim.DeletionTimestamp, claim.OwnerReferences)
			}
		}
		return drill.Lacking("PVCs", len(want), len(found))
	})
}

// claimsOfGroup0 returns the PVCs of the first group of set "a".
func claimsOfGroup0(claims map[string]types.UID) map[string]types.UID {
	left := maps.Clone(claims)
	maps.DeleteFunc(left, func(name string, _ types.UID) bool { return !strings.HasPrefix(name, "data-a-0") })
	return left
}

// awaitOwner waits until an object of a kind controls the PVCs of workers.
func (s *scene) awaitOwner(kind string) {
	s.Eventually("a "+kind+" controls the PVCs of workers", func() error {
		found, err := s.PVCs()
		for name, claim := range found {
			have := ""
			if owner := metav1.GetControllerOf(claim); owner != nil {
				have = owner.Kind
			}
			if claim.Labels[lwsv1.GroupIndexLabelKey] != "" {
				err = errors.Join(err, drill.Lacking("owner of "+name, kind, have))
			}
		}
		return err
	})
}

// restartGroup deletes a leader and waits until the set is settled without it.
func (s *scene) restartGroup(set *lwsv1.LeaderWorkerSet, leader string) {
	before := s.Pod(leader)
	expect.Must(s, before != nil, "there is no leader %s", leader)
	s.Remove(before)
	s.Until("leader "+leader+" is gone", func() bool { return s.Now(before) == nil })
	s.awaitSettled(set)
}

// settle creates a set with PVCs. In mode hold they are held.
func (s *scene) settle(groups, size int32, edits ...edit) (*lwsv1.LeaderWorkerSet, map[string]types.UID) {
	set := s.settled(s.newSet("a", groups, size, imageA, append(edits, hasty)...))
	claims := s.awaitBound(int(groups * size))
	s.stayHeld(claims)
	return set, claims
}

// stayHeld waits in mode hold until all PVCs have a holder.
func (s *scene) stayHeld(claims map[string]types.UID) {
	if s.holds {
		s.awaitHeld(slices.Collect(maps.Keys(claims))...)
	}
}

// lives are what becomes of the PVCs of a set, held or not.
var lives = map[string]func(*scene){
	"restarts and rollouts, kept with the set":    func(s *scene) { outlive(s, keepClaims) },
	"restarts and rollouts, deleted with the set": func(s *scene) { outlive(s, deleteClaims) },
	"the set deleted, its PVCs kept":              func(s *scene) { setDeleted(s, keepClaims, metav1.DeletePropagationBackground, false) },
	"the set deleted, its PVCs deleted":           func(s *scene) { setDeleted(s, deleteClaims, metav1.DeletePropagationBackground, false) },
	"the set deleted in the foreground":           func(s *scene) { setDeleted(s, deleteClaims, metav1.DeletePropagationForeground, false) },
	"scaled down, all kept":                       func(s *scene) { scaledDown(s, keepClaims, keepClaims) },
	"scaled down, kept, deleted with the set":     func(s *scene) { scaledDown(s, deleteClaims, keepClaims) },
	"scaled down, deleted, kept with the set":     func(s *scene) { scaledDown(s, keepClaims, deleteClaims) },
	"scaled down, all deleted":                    func(s *scene) { scaledDown(s, deleteClaims, deleteClaims) },
	"scaled down in a restart":                    scaledDownInARestart,
	"scaled down and up":                          scaledDownAndUp,
	"the set recreated at once":                   func(s *scene) { nextSet(s, metav1.DeletePropagationBackground, imageB) },
	"the set orphaned and recreated":              func(s *scene) { nextSet(s, metav1.DeletePropagationOrphan, imageA) },
}

// TestClaimsOfSets shows what becomes of PVCs in mode barrier. TestHolds shows it in mode hold.
func TestClaimsOfSets(t *testing.T) {
	each(t, lives, func(s *scene, drill func(*scene)) { drill(s) })
}

// TestClaimsOfSetsWithoutOperator deletes sets while no operator runs.
func TestClaimsOfSetsWithoutOperator(t *testing.T) {
	for _, policy := range []retention{keepClaims, deleteClaims} {
		t.Run(string(policy), func(t *testing.T) { setDeleted(newScene(t), policy, metav1.DeletePropagationBackground, true) })
	}
}

func outlive(s *scene, whenDeleted retention) {
	set, claims := s.settle(3, 3, volumes(whenDeleted, deleteClaims), budget(1, 0, 0))
	if whenDeleted == deleteClaims {
		s.awaitOwner("LeaderWorkerSet")
	}
	s.restartGroup(set, "a-1")
	s.awaitClaims("PVCs are the same after a restart", claims)
	more := s.Set("a").DeepCopy()
	more.Spec.LeaderWorkerTemplate.VolumeClaimTemplates[0].Spec.Resources.Requests[corev1.ResourceStorage] = resource.MustParse("2Gi")
	if err := s.Client.Update(s.Context(), more, client.DryRunAll); err == nil || !strings.Contains(err.Error(), "volumeClaimTemplates") || !strings.Contains(err.Error(), "resize") {
		s.Errorf("a change of the PVC template: got %v, want the field, and what to do instead", err)
	}
	s.awaitSettled(s.become(set, pull(imageB)))
	s.awaitClaims("PVCs are the same after a rollout", claims)
	same(s.T, "bound PVCs", claims, s.awaitBound(9))
	s.stayHeld(claims)
}

// setDeleted deletes a set. Its PVCs follow the policy. In the foreground, the garbage collector is
// refused while pods are there, and retries in its own time.
func setDeleted(s *scene, whenDeleted retention, policy metav1.DeletionPropagation, away bool) {
	set, claims := s.settle(2, 3, volumes(whenDeleted, keepClaims))
	if whenDeleted == deleteClaims {
		s.awaitOwner("LeaderWorkerSet")
		clear(claims)
	}
	if away {
		s.Check("kill the operator", bed.Operator.Kill())
	}
	s.end(set, policy)
	if away {
		s.Eventually("PVCs terminate, and stay while no operator removes the barrier", func() error {
			found, err := s.PVCs()
			for name, claim := range found {
				if claims[name] != claim.UID && claim.DeletionTimestamp == nil {
					err = errors.Join(err, fmt.Errorf("PVC %s does not", name))
				}
			}
			return err
		})
		s.Check("start the operator", bed.Operator.Start())
	}
	s.awaitFree(slices.Collect(maps.Keys(claims))...)
	s.awaitClaims("PVCs follow the policy", claims)
	outlast(s.T)
	s.awaitClaims("PVCs follow the policy", claims)
}

func scaledDown(s *scene, whenDeleted, whenScaled retention) {
	set, claims := s.settle(3, 2, volumes(whenDeleted, whenScaled))
	set = s.awaitSettled(s.become(set, `{"spec":{"replicas":1}}`))
	left := claimsOfGroup0(claims)
	if whenScaled == deleteClaims {
		claims = left
	} else {
		s.awaitFree("data-a-1", "data-a-1-1", "data-a-2", "data-a-2-1")
	}
	s.awaitClaims("PVCs follow the policy", claims)
	s.stayHeld(left)
	s.awaitSettled(s.become(set, `{"spec":{"replicas":3}}`))
	again := s.awaitBound(6)
	for name, uid := range claims {
		same(s.T, "PVC "+name, uid, again[name])
	}
	s.stayHeld(again)
}

// A group that is scaled away while its leader terminates loses its PVCs as others do.
func scaledDownInARestart(s *scene) {
	set, claims := s.settle(2, 3, volumes(keepClaims, deleteClaims))
	leader := s.keep("a-1")
	s.Remove(leader)
	s.become(set, `{"spec":{"replicas":1}}`)
	s.Until("the group is scaled away", func() bool { return *s.StatefulSet("a").Spec.Replicas == 1 })
	s.Patch(leader, drill.NoFinalizers)
	s.awaitClaims("PVCs follow the policy", claimsOfGroup0(claims))
}

// Scaled down and up at once, no pod gets a PVC that is about to go, and no such PVC is held for it.
func scaledDownAndUp(s *scene) {
	set, claims := s.settle(4, 3, volumes(deleteClaims, deleteClaims))
	for _, leadersGo := range []bool{false, false, true} {
		set = s.become(set, `{"spec":{"replicas":1}}`)
		if leadersGo {
			s.Until("a leader has gone", func() bool { return s.Pod("a-3") == nil })
		}
		set = s.awaitSettled(s.become(set, `{"spec":{"replicas":4}}`))
	}
	now := s.awaitBound(12)
	s.stayHeld(now)
	same(s.T, "PVCs of the group that stayed", claimsOfGroup0(claims), claimsOfGroup0(now))
}

// A set that is recreated at once has PVCs of its own. One that was orphaned keeps its PVCs.
func nextSet(s *scene, policy metav1.DeletionPropagation, image string) {
	edits := volumes(deleteClaims, keepClaims)
	set, former := s.settle(3, 3, edits)
	s.awaitOwner("LeaderWorkerSet")
	if s.holds {
		s.awaitNextSecond()
	}
	l := s.recreate(set, s.newSet("a", 3, 3, image, edits, hasty), policy)
	set = s.awaitSettled(l.set)
	if policy == metav1.DeletePropagationOrphan {
		s.awaitOwner("LeaderWorkerSet")
		s.awaitClaims("PVCs are the same", former)
		if s.holds {
			s.deleteLeaders(set, former)
		}
		return
	}
	now := s.awaitBound(9)
	s.stayHeld(now)
	for name, uid := range now {
		expect.That(s, former[name] != uid, "PVC %s is of the former set", name)
	}
	s.judge(l, births{Pods: 9, StatefulSets: 4, Services: 1, Revisions: 1})
}
