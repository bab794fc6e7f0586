package amend

import (
	"errors"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/lws"
)

// RestartedAtKey is the annotation by which kubectl restarts pods.
const RestartedAtKey = "kubectl.kubernetes.io/restartedAt"

// Pause decides to hold the rollout of a set.
func Pause(l Looked) (Change, error) {
	if lws.Paused(l.Set) {
		return Change{}, fmt.Errorf("leaderworkerset %q is already paused", l.Set.Name)
	}
	after := l.Set.DeepCopy()
	metav1.SetMetaDataAnnotation(&after.ObjectMeta, lwsv1.PausedAnnotationKey, lwsv1.PausedValue)
	return Change{
		Verb: "paused", After: after,
		Patch: annotate("/metadata", l.Set.Annotations, lwsv1.PausedAnnotationKey, lwsv1.PausedValue),
	}, nil
}

// Resume decides to let the rollout of a set go on.
func Resume(l Looked) (Change, error) {
	if !lws.Paused(l.Set) {
		return Change{}, fmt.Errorf("leaderworkerset %q is not paused", l.Set.Name)
	}
	after := l.Set.DeepCopy()
	delete(after.Annotations, lwsv1.PausedAnnotationKey)
	return Change{
		Verb: "resumed", After: after,
		Patch: annotate("/metadata", l.Set.Annotations, lwsv1.PausedAnnotationKey, ""),
	}, nil
}

// Restart decides to replace every group by one of the same template: leaders and
// workers alike, for they live and die together.
func Restart(now time.Time) Decide {
	return func(l Looked) (Change, error) {
		if lws.Paused(l.Set) {
			return Change{}, pausedError("restart", l.Set)
		}
		moment := now.Format(time.RFC3339)
		after := l.Set.DeepCopy()
		change := Change{Verb: "restarted", After: after}
		template := &after.Spec.LeaderWorkerTemplate
		if template.WorkerTemplate.Annotations[RestartedAtKey] == moment {
			return Change{}, errors.New("a restart was triggered within the past second; wait before triggering another")
		}
		const path = "/spec/leaderWorkerTemplate/"
		change.Patch = annotateTemplate(path+"workerTemplate", template.WorkerTemplate.ObjectMeta, moment)
		metav1.SetMetaDataAnnotation(&template.WorkerTemplate.ObjectMeta, RestartedAtKey, moment)
		if leader := template.LeaderTemplate; leader != nil {
			change.Patch = append(change.Patch, annotateTemplate(path+"leaderTemplate", leader.ObjectMeta, moment)...)
			metav1.SetMetaDataAnnotation(&leader.ObjectMeta, RestartedAtKey, moment)
			change.Basis = "leaders have a template of their own"
		}
		return change, nil
	}
}

func annotateTemplate(path string, meta metav1.ObjectMeta, moment string) []Operation {
	if meta.Annotations == nil { // the template may have no metadata at all
		meta.SetCreationTimestamp(metav1.Time{})
		meta.Annotations = map[string]string{RestartedAtKey: moment}
		return []Operation{{"add", path + "/metadata", &meta}}
	}
	return annotate(path+"/metadata", meta.Annotations, RestartedAtKey, moment)
}

// annotate sets an annotation below path, or takes it away when value is empty.
func annotate(path string, have map[string]string, key, value string) []Operation {
	_, there := have[key]
	at := path + "/annotations/" + escaped(key)
	switch {
	case value == "" && there:
		return []Operation{{Op: "remove", Path: at}}
	case value == "" || have[key] == value:
		return nil
	case have == nil:
		return []Operation{{"add", path + "/annotations", map[string]string{key: value}}}
	}
	return []Operation{{"add", at, value}}
}

// escaped is a key as a JSON pointer spells it.
func escaped(key string) string { return strings.NewReplacer("~", "~0", "/", "~1").Replace(key) }

func pausedError(verb string, set *lwsv1.LeaderWorkerSet) error {
	return fmt.Errorf("cannot %s leaderworkerset %q while its rollout is paused; resume it first with: kubectl lockstep rollout resume %s -n %s",
		verb, set.Name, set.Name, set.Namespace)
}
