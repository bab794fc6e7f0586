package lws

import (
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"lockstep.dev/lockstep/internal/lws"
)

// Previous stands for the revision before the present one.
const Previous int64 = 0

// Undo restores the template of an earlier revision. The volumeClaimTemplates stay: they are immutable.
func Undo(number int64) Decide {
	return func(s State) (Change, error) {
		if lws.Paused(s.Set) {
			return Change{}, pausedError("undo the rollout of", s.Set)
		}
		revision, err := chosen(s, number)
		if err != nil {
			return Change{}, err
		}
		if lws.Agrees(s.Set, revision.Data.Raw) {
			return Change{Verb: fmt.Sprintf("skipped rollback (current template already matches revision %d)", revision.Revision), After: s.Set}, nil
		}
		restored, err := lws.Restore(s.Set, revision.Data.Raw)
		if err != nil {
			return Change{}, fmt.Errorf("revision %d: %w", revision.Revision, err)
		}
		after := restored.DeepCopy()
		after.Spec.LeaderWorkerTemplate.VolumeClaimTemplates = s.Set.Spec.LeaderWorkerTemplate.VolumeClaimTemplates
		delete(after.Annotations, lws.ChangeCauseAnnotationKey)
		if cause := revision.Annotations[lws.ChangeCauseAnnotationKey]; cause != "" {
			metav1.SetMetaDataAnnotation(&after.ObjectMeta, lws.ChangeCauseAnnotationKey, cause)
		}
		return Change{Verb: fmt.Sprintf("rolled back to revision %d", revision.Revision), After: after}, nil
	}
}

// chosen returns the revision to restore.
func chosen(s State, number int64) (*appsv1.ControllerRevision, error) {
	revisions, err := s.Revisions()
	if err != nil {
		return nil, err
	}
	if len(revisions) == 0 {
		return nil, fmt.Errorf("no rollout history found for leaderworkerset %q", s.Set.Name)
	}
	for _, revision := range slices.Backward(revisions) {
		if revision.Revision == number || number == Previous && !lws.Agrees(s.Set, revision.Data.Raw) {
			return revision, nil
		}
	}
	if number != Previous {
		return nil, NoSuchRevision(s.Set.Name, revisions, number)
	}
	return nil, fmt.Errorf("leaderworkerset %q has nothing to go back to: its only revision is %d, and the spec is equal to it",
		s.Set.Name, revisions[0].Revision)
}
