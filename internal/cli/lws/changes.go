package lws

import (
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/lws"
)

// RestartedAtKey is the annotation by which kubectl restarts pods.
const RestartedAtKey = "kubectl.kubernetes.io/restartedAt"

// Pause holds the rollout of a set.
func Pause(s State) (Change, error) {
	if lws.Paused(s.Set) {
		return Change{}, fmt.Errorf("leaderworkerset %q is already paused", s.Set.Name)
	}
	after := s.Set.DeepCopy()
	metav1.SetMetaDataAnnotation(&after.ObjectMeta, lwsv1.PausedAnnotationKey, lwsv1.PausedValue)
	return Change{Verb: "paused", After: after}, nil
}

// Resume lets a paused rollout continue.
func Resume(s State) (Change, error) {
	if !lws.Paused(s.Set) {
		return Change{}, fmt.Errorf("leaderworkerset %q is not paused", s.Set.Name)
	}
	after := s.Set.DeepCopy()
	delete(after.Annotations, lwsv1.PausedAnnotationKey)
	return Change{Verb: "resumed", After: after}, nil
}

// Restart replaces every group by one of the same template, leaders and workers alike.
func Restart(now time.Time) Decide {
	moment := now.Format(time.RFC3339)
	return func(s State) (Change, error) {
		if lws.Paused(s.Set) {
			return Change{}, pausedError("restart", s.Set)
		}
		after := s.Set.DeepCopy()
		template := &after.Spec.LeaderWorkerTemplate
		if template.WorkerTemplate.Annotations[RestartedAtKey] == moment {
			return Change{}, errors.New("a restart was triggered within the past second; wait before triggering another")
		}
		metav1.SetMetaDataAnnotation(&template.WorkerTemplate.ObjectMeta, RestartedAtKey, moment)
		if template.LeaderTemplate != nil {
			metav1.SetMetaDataAnnotation(&template.LeaderTemplate.ObjectMeta, RestartedAtKey, moment)
		}
		return Change{Verb: "restarted", After: after}, nil
	}
}

func pausedError(verb string, set *lwsv1.LeaderWorkerSet) error {
	return fmt.Errorf("cannot %s leaderworkerset %q while its rollout is paused; resume it first with: kubectl lockstep rollout resume %s -n %s",
		verb, set.Name, set.Name, set.Namespace)
}
