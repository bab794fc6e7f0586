package cluster

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/test/drill"
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

// wantOtherClaims checks that no PVC is one of the former set.
func (s *scene) wantOtherClaims(former, now map[string]types.UID) {
	for name, uid := range now {
		if former[name] == uid {
			s.Errorf("PVC %s is of the former set", name)
		}
	}
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

// restartGroup deletes a leader and waits until the set is settled with another one.
func (s *scene) restartGroup(set *lwsv1.LeaderWorkerSet, leader string) {
	before := s.Pod(leader)
	if before == nil {
		s.Fatalf("there is no leader %s", leader)
	}
	s.Remove(before)
	drill.Another(s.Scene, before)
	s.awaitSettled(set)
}

func TestClaimsOutliveRestartsAndRollouts(t *testing.T) {
	for _, whenDeleted := range []retention{keepClaims, deleteClaims} {
		t.Run(string(whenDeleted), func(t *testing.T) {
			s := asideScene(t)
			set := s.settled(s.newSet("a", 3, 3, imageA, volumes(whenDeleted, deleteClaims), budget(1, 0, 0)))
			claims := s.awaitBound(9)
			if whenDeleted == deleteClaims {
				s.awaitOwner("LeaderWorkerSet")
			}
			s.restartGroup(set, "a-1")
			s.awaitClaims("PVCs are the same after a restart", claims)
			set = s.become(set, pull(imageB))
			s.awaitSettled(set)
			s.awaitClaims("PVCs are the same after a rollout", claims)
			same(t, "bound", 9, len(s.awaitBound(9)))
		})
	}
}

// A worker StatefulSet of another implementation deletes its PVCs with it. The operator prevents
// that before the group restarts.
func TestClaimsMadeByOthersOutliveRestarts(t *testing.T) {
	s := newScene(t)
	set := s.settled(s.newSet("a", 2, 3, imageA, volumes(deleteClaims, keepClaims)))
	claims := s.awaitBound(6)
	s.awaitOwner("LeaderWorkerSet")
	s.Check("kill the operator", bed.Operator.Kill())
	s.armWorkers()
	s.awaitOwner("StatefulSet")
	s.Check("start the operator", bed.Operator.Start())
	s.awaitOwner("LeaderWorkerSet")
	s.Eventually("worker StatefulSets have no part in the end of claims", func() error {
		var errs []error
		for _, sts := range s.StatefulSets() {
			errs = append(errs, drill.Lacking("policy of "+sts.Name, keepClaims, sts.Spec.PersistentVolumeClaimRetentionPolicy.WhenDeleted))
		}
		return errors.Join(errs[1:]...) // the first is that of the leaders
	})
	for _, sts := range s.StatefulSets() {
		if sts.Name != "a" && sts.Generation != 3 {
			t.Errorf("statefulset %s was written %d times", sts.Name, sts.Generation)
		}
	}
	s.restartGroup(set, "a-0")
	s.restartGroup(set, "a-1")
	s.awaitClaims("PVCs are the same after restarts", claims)
}

// armWorkers gives worker StatefulSets the policy of their set, so that the StatefulSet
// controller makes them the owners of their PVCs.
func (s *scene) armWorkers() {
	for _, sts := range s.StatefulSets() {
		if sts.Name != "a" {
			s.Patch(sts, `{"spec":{"persistentVolumeClaimRetentionPolicy":{"whenDeleted":"Delete","whenScaled":"Retain"}}}`)
		}
	}
	found := s.Claims()
	for _, claim := range found {
		if claim.Labels[lwsv1.GroupIndexLabelKey] != "" {
			s.Patch(claim, `{"metadata":{"ownerReferences":null}}`)
		}
	}
	for _, sts := range s.StatefulSets() {
		if sts.Name != "a" {
			s.Patch(sts, `{"metadata":{"annotations":{"test.lockstep.dev/look":"again"}}}`)
		}
	}
}

func TestClaimsAfterTheSet(t *testing.T) {
	for _, whenDeleted := range []retention{keepClaims, deleteClaims} {
		for _, away := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, operator away %t", whenDeleted, away), func(t *testing.T) {
				s := newScene(t)
				set := s.settled(s.newSet("a", 2, 3, imageA, volumes(whenDeleted, keepClaims)))
				claims := s.awaitBound(6)
				if whenDeleted == deleteClaims {
					s.awaitOwner("LeaderWorkerSet")
					clear(claims)
				}
				if away {
					s.Check("kill the operator", bed.Operator.Kill())
				}
				s.end(set, metav1.DeletePropagationBackground)
				if away {
					s.awaitTerminating(claims)
					s.Check("start the operator", bed.Operator.Start())
				}
				s.awaitClaims("PVCs follow the policy", claims)
				outlast(t)
				s.awaitClaims("PVCs follow the policy", claims)
			})
		}
	}
}

// awaitTerminating waits until all PVCs but these terminate. They stay while no operator removes
// the barrier.
func (s *scene) awaitTerminating(but map[string]types.UID) {
	s.Eventually("PVCs terminate", func() error {
		found, err := s.PVCs()
		for name, claim := range found {
			if but[name] != claim.UID && claim.DeletionTimestamp == nil {
				err = errors.Join(err, fmt.Errorf("PVC %s does not", name))
			}
		}
		return err
	})
}

func TestClaimsAfterScalingDown(t *testing.T) {
	for _, whenScaled := range []retention{keepClaims, deleteClaims} {
		for _, whenDeleted := range []retention{keepClaims, deleteClaims} {
			t.Run(fmt.Sprintf("%s, when deleted %s", whenScaled, whenDeleted), func(t *testing.T) {
				s := asideScene(t)
				set := s.settled(s.newSet("a", 4, 3, imageA, volumes(whenDeleted, whenScaled)))
				claims := s.awaitBound(12)
				set = s.awaitSettled(s.become(set, `{"spec":{"replicas":1}}`))
				if whenScaled == deleteClaims {
					claims = claimsOfGroup0(claims)
				}
				s.awaitClaims("PVCs follow the policy", claims)
				s.awaitSettled(s.become(set, `{"spec":{"replicas":4}}`))
				again := s.awaitBound(12)
				for name, uid := range claims {
					same(t, "PVC "+name, uid, again[name])
				}
			})
		}
	}
}

// A group that is scaled away while its leader terminates loses its PVCs as others do.
func TestClaimsOfAGroupScaledDownInARestart(t *testing.T) {
	s := asideScene(t)
	set := s.settled(s.newSet("a", 2, 3, imageA, volumes(keepClaims, deleteClaims)))
	claims := s.awaitBound(6)
	leader := s.keep("a-1")
	s.Remove(leader)
	s.become(set, `{"spec":{"replicas":1}}`)
	s.Eventually("the group is scaled away", func() error {
		sts := s.StatefulSet("a")
		return drill.Lacking("leaders wanted", 1, int(*sts.Spec.Replicas))
	})
	s.Patch(leader, drill.NoFinalizers)
	s.awaitClaims("PVCs follow the policy", claimsOfGroup0(claims))
}

// Scaled down and up at once, no pod gets a PVC that is about to go.
func TestClaimsScaledDownAndUp(t *testing.T) {
	s := asideScene(t)
	set := s.settled(s.newSet("a", 4, 3, imageA, volumes(deleteClaims, deleteClaims)))
	s.awaitBound(12)
	for range 3 {
		set = s.become(set, `{"spec":{"replicas":1}}`)
		set = s.awaitSettled(s.become(set, `{"spec":{"replicas":4}}`))
	}
	s.awaitBound(12)
}

// A set that is recreated at once has PVCs of its own. One that was orphaned keeps its PVCs.
func TestClaimsOfTheNextSet(t *testing.T) {
	for policy, image := range map[metav1.DeletionPropagation]string{
		metav1.DeletePropagationBackground: imageB, metav1.DeletePropagationOrphan: imageA,
	} {
		t.Run(string(policy), func(t *testing.T) {
			s := asideScene(t)
			set := s.settled(s.newSet("a", 3, 3, imageA, volumes(deleteClaims, keepClaims)))
			former := s.awaitBound(9)
			s.awaitOwner("LeaderWorkerSet")
			l := s.recreate(set, s.newSet("a", 3, 3, image, volumes(deleteClaims, keepClaims)), policy)
			s.awaitSettled(l.set)
			if policy == metav1.DeletePropagationOrphan {
				s.awaitOwner("LeaderWorkerSet")
				s.awaitClaims("PVCs are the same", former)
				return
			}
			s.wantOtherClaims(former, s.awaitBound(9))
			s.judge(l, births{Pods: 9, StatefulSets: 4, Services: 1, Revisions: 1})
		})
	}
}

func TestAChangedClaimTemplateIsRefused(t *testing.T) {
	s := asideScene(t)
	set := s.settled(s.newSet("a", 1, 2, imageA, volumes(deleteClaims, keepClaims)))
	more := set.DeepCopy()
	more.Spec.LeaderWorkerTemplate.VolumeClaimTemplates[0].Spec.Resources.Requests[corev1.ResourceStorage] = resource.MustParse("2Gi")
	if err := s.Client.Update(t.Context(), more); err == nil || !strings.Contains(err.Error(), "volumeClaimTemplates") || !strings.Contains(err.Error(), "resize") {
		t.Errorf("got %v, want the field, and what to do instead", err)
	}
	s.awaitSettled(s.become(set, pull(imageB)))
}
