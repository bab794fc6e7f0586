package cluster

import (
	"context"
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
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
)

const (
	keepClaims   = appsv1.RetainPersistentVolumeClaimRetentionPolicyType
	deleteClaims = appsv1.DeletePersistentVolumeClaimRetentionPolicyType
)

type retention = appsv1.PersistentVolumeClaimRetentionPolicyType

// volumes gives every pod a claim called data.
func volumes(whenDeleted, whenScaled retention) edit {
	return func(set *lwsv1.LeaderWorkerSet) {
		template := &set.Spec.LeaderWorkerTemplate
		template.PersistentVolumeClaimRetentionPolicy = &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{
			WhenDeleted: whenDeleted, WhenScaled: whenScaled,
		}
		template.VolumeClaimTemplates = []corev1.PersistentVolumeClaim{{
			ObjectMeta: metav1.ObjectMeta{Name: "data"},
			Spec: corev1.PersistentVolumeClaimSpec{
				AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
			},
		}}
	}
}

// claims are the scene's volume claims by name, those on their way out too.
func (s *scene) claims() (map[string]*corev1.PersistentVolumeClaim, error) {
	list := &corev1.PersistentVolumeClaimList{}
	if err := s.client.List(context.WithoutCancel(s.Context()), list, client.InNamespace(s.namespace)); err != nil {
		return nil, err
	}
	found := map[string]*corev1.PersistentVolumeClaim{}
	for i := range list.Items {
		found[list.Items[i].Name] = &list.Items[i]
	}
	return found, nil
}

// awaitBound waits until a set has all its claims, bound to volumes, and returns
// their UIDs.
func (s *scene) awaitBound(want int) map[string]types.UID {
	s.Helper()
	bound := map[string]types.UID{}
	s.eventually("all claims are bound", func() error {
		found, err := s.claims()
		clear(bound)
		for name, claim := range found {
			if claim.Status.Phase == corev1.ClaimBound && claim.Spec.VolumeName != "" && claim.DeletionTimestamp == nil {
				bound[name] = claim.UID
			}
		}
		return errors.Join(err, lacking("bound claims", want, len(bound)))
	})
	return maps.Clone(bound)
}

// awaitClaims waits until exactly these claims are there.
func (s *scene) awaitClaims(what string, want map[string]types.UID) {
	s.Helper()
	s.eventually(what, func() error {
		found, err := s.claims()
		if err != nil {
			return err
		}
		for name, claim := range found {
			if want[name] != claim.UID || claim.DeletionTimestamp != nil {
				return fmt.Errorf("claim %s (%s, deleted %v, owners %v) is there", name, claim.UID, claim.DeletionTimestamp, claim.OwnerReferences)
			}
		}
		return lacking("claims", len(want), len(found))
	})
}

// awaitOwner waits until all claims of workers belong to an object of a kind, or
// to nobody.
func (s *scene) awaitOwner(kind string) {
	s.Helper()
	s.eventually("claims of workers belong to a "+kind, func() error {
		found, err := s.claims()
		for name, claim := range found {
			have := ""
			if owner := metav1.GetControllerOf(claim); owner != nil {
				have = owner.Kind
			}
			if claim.Labels[lwsv1.GroupIndexLabelKey] != "" {
				err = errors.Join(err, lacking("owner of "+name, kind, have))
			}
		}
		return err
	})
}

// restartGroup deletes a leader and waits until its group is another one.
func (s *scene) restartGroup(set *lwsv1.LeaderWorkerSet, leader string) {
	s.Helper()
	before, _ := find[*corev1.Pod](s.recorder, leader)
	s.remove(before.DeepCopy())
	s.eventually("another leader is there", func() error {
		now, ok := find[*corev1.Pod](s.recorder, leader)
		if !ok || now.UID == before.UID {
			return errors.New("it is not")
		}
		return nil
	})
	s.awaitSettled(set)
}

func TestClaimsOutliveRestartsAndRollouts(t *testing.T) {
	for _, whenDeleted := range []retention{keepClaims, deleteClaims} {
		t.Run(string(whenDeleted), func(t *testing.T) {
			aside(t)
			s := newScene(t)
			set := s.newSet("a", 3, 3, imageA, volumes(whenDeleted, deleteClaims), budget(1, 0, 0))
			s.create(set)
			set = s.awaitSettled(set)
			claims := s.awaitBound(9)
			if whenDeleted == deleteClaims {
				s.awaitOwner("LeaderWorkerSet")
			}
			s.restartGroup(set, "a-1")
			s.awaitClaims("claims are the same after a restart", claims)
			set = s.become(set, pull(imageB))
			s.awaitSettled(set)
			s.awaitClaims("claims are the same after a rollout", claims)
			same(t, "bound", 9, len(s.awaitBound(9)))
		})
	}
}

// A worker StatefulSet of another implementation takes its claims with it. It is
// kept from that before anything happens to its group.
func TestClaimsMadeByOthersOutliveRestarts(t *testing.T) {
	s := newScene(t)
	set := s.newSet("a", 2, 3, imageA, volumes(deleteClaims, keepClaims))
	s.create(set)
	set = s.awaitSettled(set)
	claims := s.awaitBound(6)
	s.awaitOwner("LeaderWorkerSet")
	s.check("kill the operator", bed.operator.kill())
	s.armWorkers()
	s.awaitOwner("StatefulSet")
	s.check("start the operator", bed.operator.start())
	s.awaitOwner("LeaderWorkerSet")
	s.eventually("worker StatefulSets have no part in the end of claims", func() error {
		var errs []error
		for _, sts := range live[*appsv1.StatefulSet](s.recorder) {
			errs = append(errs, lacking("policy of "+sts.Name, keepClaims, sts.Spec.PersistentVolumeClaimRetentionPolicy.WhenDeleted))
		}
		return errors.Join(errs[1:]...) // the first is of the leaders, whose claims end with the set
	})
	for _, sts := range live[*appsv1.StatefulSet](s.recorder) {
		if sts.Name != "a" && sts.Generation != 3 {
			t.Errorf("statefulset %s was written %d times", sts.Name, sts.Generation)
		}
	}
	s.restartGroup(set, "a-0")
	s.restartGroup(set, "a-1")
	s.awaitClaims("claims are the same after restarts", claims)
}

// armWorkers gives worker StatefulSets the policy of their set, and has the
// StatefulSet controller take their claims for them.
func (s *scene) armWorkers() {
	s.Helper()
	for _, sts := range live[*appsv1.StatefulSet](s.recorder) {
		if sts.Name != "a" {
			s.patch(sts, `{"spec":{"persistentVolumeClaimRetentionPolicy":{"whenDeleted":"Delete","whenScaled":"Retain"}}}`)
		}
	}
	found, err := s.claims()
	s.check("list claims", err)
	for _, claim := range found {
		if claim.Labels[lwsv1.GroupIndexLabelKey] != "" {
			s.patch(claim, `{"metadata":{"ownerReferences":null}}`)
		}
	}
	for _, sts := range live[*appsv1.StatefulSet](s.recorder) {
		if sts.Name != "a" {
			s.patch(sts, `{"metadata":{"annotations":{"test.lockstep.dev/look":"again"}}}`)
		}
	}
}

func TestClaimsAfterTheSet(t *testing.T) {
	for _, whenDeleted := range []retention{keepClaims, deleteClaims} {
		for _, away := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, operator away %t", whenDeleted, away), func(t *testing.T) {
				s := newScene(t)
				set := s.newSet("a", 2, 3, imageA, volumes(whenDeleted, keepClaims))
				s.create(set)
				set = s.awaitSettled(set)
				claims := s.awaitBound(6)
				if whenDeleted == deleteClaims {
					s.awaitOwner("LeaderWorkerSet")
					clear(claims)
				}
				if away {
					s.check("kill the operator", bed.operator.kill())
				}
				s.end(set, metav1.DeletePropagationBackground)
				if away {
					s.awaitDoomed(claims)
					s.check("start the operator", bed.operator.start())
				}
				s.awaitClaims("claims are what the policy says", claims)
				outlast(t)
				s.awaitClaims("claims are what the policy says", claims)
			})
		}
	}
}

// awaitDoomed waits until all claims but these are on their way out, which they stay
// while the operator is away: it takes the barrier off.
func (s *scene) awaitDoomed(but map[string]types.UID) {
	s.Helper()
	s.eventually("claims are on their way out", func() error {
		found, err := s.claims()
		for name, claim := range found {
			if but[name] != claim.UID && claim.DeletionTimestamp == nil {
				err = errors.Join(err, fmt.Errorf("claim %s lives", name))
			}
		}
		return err
	})
}

func TestClaimsAfterScalingDown(t *testing.T) {
	for _, whenScaled := range []retention{keepClaims, deleteClaims} {
		for _, whenDeleted := range []retention{keepClaims, deleteClaims} {
			t.Run(fmt.Sprintf("%s, when deleted %s", whenScaled, whenDeleted), func(t *testing.T) {
				aside(t)
				s := newScene(t)
				set := s.newSet("a", 4, 3, imageA, volumes(whenDeleted, whenScaled))
				s.create(set)
				set = s.awaitSettled(set)
				claims := s.awaitBound(12)
				set = s.awaitSettled(s.become(set, `{"spec":{"replicas":1}}`))
				if whenScaled == deleteClaims {
					maps.DeleteFunc(claims, func(name string, _ types.UID) bool { return !strings.HasPrefix(name, "data-a-0") })
				}
				s.awaitClaims("claims are what the policy says", claims)
				s.awaitSettled(s.become(set, `{"spec":{"replicas":4}}`))
				again := s.awaitBound(12)
				for name, uid := range claims {
					same(t, "claim "+name, uid, again[name])
				}
			})
		}
	}
}

// A group that is scaled away while its leader leaves, as in any restart, takes its
// claims along as others do.
func TestClaimsOfAGroupScaledDownInARestart(t *testing.T) {
	aside(t)
	s := newScene(t)
	set := s.newSet("a", 2, 3, imageA, volumes(keepClaims, deleteClaims))
	s.create(set)
	set = s.awaitSettled(set)
	claims := s.awaitBound(6)
	leader, _ := find[*corev1.Pod](s.recorder, "a-1")
	s.patch(leader, `{"metadata":{"finalizers":["`+foreign+`"]}}`) // it takes its time to leave
	s.remove(leader.DeepCopy())
	s.become(set, `{"spec":{"replicas":1}}`)
	s.eventually("the group is scaled away", func() error {
		sts, _ := find[*appsv1.StatefulSet](s.recorder, "a")
		return lacking("leaders wanted", 1, int(*sts.Spec.Replicas))
	})
	s.patch(leader, `{"metadata":{"finalizers":null}}`)
	maps.DeleteFunc(claims, func(name string, _ types.UID) bool { return !strings.HasPrefix(name, "data-a-0") })
	s.awaitClaims("claims are what the policy says", claims)
}

// Scaled down and up in one breath, no pod takes a claim that is about to go.
func TestClaimsScaledDownAndUp(t *testing.T) {
	aside(t)
	s := newScene(t)
	set := s.newSet("a", 4, 3, imageA, volumes(deleteClaims, deleteClaims))
	s.create(set)
	set = s.awaitSettled(set)
	s.awaitBound(12)
	for range 3 {
		set = s.become(set, `{"spec":{"replicas":1}}`)
		set = s.awaitSettled(s.become(set, `{"spec":{"replicas":4}}`))
	}
	s.awaitBound(12)
}

// A life that follows at once has claims of its own.
func TestClaimsOfANewLife(t *testing.T) {
	aside(t)
	s := newScene(t)
	set := s.newSet("a", 3, 3, imageA, volumes(deleteClaims, keepClaims))
	s.create(set)
	set = s.awaitSettled(set)
	former := s.awaitBound(9)
	l := s.recreate(set, s.newSet("a", 3, 3, imageB, volumes(deleteClaims, keepClaims)), metav1.DeletePropagationBackground)
	s.awaitSettled(l.set)
	for name, uid := range s.awaitBound(9) {
		if former[name] == uid {
			t.Errorf("claim %s is of the last life", name)
		}
	}
	s.judge(l, births{Pods: 9, StatefulSets: 4, Services: 1, Revisions: 1})
}

// Orphaned, a set leaves its claims, and the next one has them.
func TestClaimsOfAnOrphanedSet(t *testing.T) {
	aside(t)
	s := newScene(t)
	set := s.newSet("a", 2, 3, imageA, volumes(deleteClaims, keepClaims))
	s.create(set)
	set = s.awaitSettled(set)
	claims := s.awaitBound(6)
	s.awaitOwner("LeaderWorkerSet")
	l := s.recreate(set, s.newSet("a", 2, 3, imageA, volumes(deleteClaims, keepClaims)), metav1.DeletePropagationOrphan)
	s.awaitSettled(l.set)
	s.awaitOwner("LeaderWorkerSet")
	s.awaitClaims("claims are the same", claims)
}

func TestAChangedClaimTemplateIsRefused(t *testing.T) {
	aside(t)
	s := newScene(t)
	set := s.newSet("a", 1, 2, imageA, volumes(deleteClaims, keepClaims))
	s.create(set)
	set = s.awaitSettled(set)
	more := set.DeepCopy()
	more.Spec.LeaderWorkerTemplate.VolumeClaimTemplates[0].Spec.Resources.Requests[corev1.ResourceStorage] = resource.MustParse("2Gi")
	err := s.client.Update(t.Context(), more)
	if err == nil || !strings.Contains(err.Error(), "to enlarge a volume, resize its claim") {
		t.Errorf("got %v, want to be told what to do instead", err)
	}
	set = s.become(set, pull(imageB))
	s.awaitSettled(set)
}
