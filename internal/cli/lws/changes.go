package lws

import (
	"errors"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/internal/lws/revision"
)

// RestartedAtKey is the annotation by which kubectl restarts pods.
const RestartedAtKey = "kubectl.kubernetes.io/restartedAt"

// Previous stands for the revision before the present one.
const Previous int64 = 0

type revisions = func() ([]*appsv1.ControllerRevision, error)

// Pause holds the rollout of a set.
func Pause(set *lwsv1.LeaderWorkerSet, _ revisions) (Change, error) {
	if lws.Paused(set) {
		return Change{}, fmt.Errorf("leaderworkerset %q is already paused", set.Name)
	}
	after := set.DeepCopy()
	metav1.SetMetaDataAnnotation(&after.ObjectMeta, lwsv1.PausedAnnotationKey, lwsv1.PausedValue)
	return Change{Verb: "paused", After: after}, nil
}

// Resume lets a paused rollout continue.
func Resume(set *lwsv1.LeaderWorkerSet, _ revisions) (Change, error) {
	if !lws.Paused(set) {
		return Change{}, fmt.Errorf("leaderworkerset %q is not paused", set.Name)
	}
	after := set.DeepCopy()
	delete(after.Annotations, lwsv1.PausedAnnotationKey)
	return Change{Verb: "resumed", After: after}, nil
}

// Restart replaces every group by one of the same template, leaders and workers alike.
func Restart(now time.Time) Decide {
	moment := now.Format(time.RFC3339)
	return func(set *lwsv1.LeaderWorkerSet, _ revisions) (Change, error) {
		after := set.DeepCopy()
		template := &after.Spec.LeaderWorkerTemplate
		if template.WorkerTemplate.Annotations[RestartedAtKey] == moment {
			return Change{}, errors.New("a restart was triggered within the past second; wait before triggering another")
		}
		metav1.SetMetaDataAnnotation(&template.WorkerTemplate.ObjectMeta, RestartedAtKey, moment)
		if template.LeaderTemplate != nil {
			metav1.SetMetaDataAnnotation(&template.LeaderTemplate.ObjectMeta, RestartedAtKey, moment)
		}
		return Change{Verb: "restarted", After: after}, notPaused("restart", set)
	}
}

// Undo restores the template of an earlier revision. The volumeClaimTemplates stay: they are immutable.
func Undo(number int64) Decide {
	return func(set *lwsv1.LeaderWorkerSet, read revisions) (Change, error) {
		if err := notPaused("undo the rollout of", set); err != nil {
			return Change{}, err
		}
		to, err := chosen(set, read, number)
		if err != nil {
			return Change{}, err
		}
		if revision.Agrees(set, to.Data.Raw) {
			return Change{Verb: fmt.Sprintf("skipped rollback (current template already matches revision %d)", to.Revision), After: set}, nil
		}
		restored, err := revision.Restore(set, to.Data.Raw)
		if err != nil {
			return Change{}, fmt.Errorf("revision %d: %w", to.Revision, err)
		}
		after := restored.DeepCopy()
		after.Spec.LeaderWorkerTemplate.VolumeClaimTemplates = set.Spec.LeaderWorkerTemplate.VolumeClaimTemplates
		delete(after.Annotations, revision.ChangeCauseAnnotationKey)
		if cause := to.Annotations[revision.ChangeCauseAnnotationKey]; cause != "" {
			metav1.SetMetaDataAnnotation(&after.ObjectMeta, revision.ChangeCauseAnnotationKey, cause)
		}
		return Change{Verb: fmt.Sprintf("rolled back to revision %d", to.Revision), After: after}, nil
	}
}

// chosen returns the revision to restore.
func chosen(set *lwsv1.LeaderWorkerSet, read revisions, number int64) (*appsv1.ControllerRevision, error) {
	all, err := read()
	if err != nil {
		return nil, err
	}
	for _, r := range slices.Backward(all) {
		if r.Revision == number || number == Previous && !revision.Agrees(set, r.Data.Raw) {
			return r, nil
		}
	}
	switch {
	case len(all) == 0:
		return nil, fmt.Errorf("no rollout history found for leaderworkerset %q", set.Name)
	case number != Previous:
		return nil, NoSuchRevision(set.Name, all, number)
	}
	return nil, fmt.Errorf("leaderworkerset %q has nothing to go back to: its only revision is %d, and the spec is equal to it",
		set.Name, all[0].Revision)
}

func notPaused(verb string, set *lwsv1.LeaderWorkerSet) error {
	if !lws.Paused(set) {
		return nil
	}
	return fmt.Errorf("cannot %s leaderworkerset %q while its rollout is paused; resume it first with: kubectl lockstep rollout resume %s -n %s",
		verb, set.Name, set.Name, set.Namespace)
}
