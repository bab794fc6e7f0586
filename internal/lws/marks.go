package lws

import (
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
)

// A worker StatefulSet bears the labels that its pods bear. By one of them it is
// watched, by all of them it is told apart and adopted; nobody else makes use of them,
// so whoever takes one off or changes it has it put back. What its pods are made of
// says how they were, and stays as it is.

// groupMarks are the labels of a worker StatefulSet that are ours.
var groupMarks = []string{
	lwsv1.SetNameLabelKey, lwsv1.GroupIndexLabelKey, lwsv1.GroupUniqueHashLabelKey, lwsv1.RevisionKey,
}

// lostMarks are the labels that a worker StatefulSet should bear, as its template tells,
// and does not.
func lostMarks(sts *appsv1.StatefulSet) map[string]string {
	var lost map[string]string
	for _, key := range groupMarks {
		if made := sts.Spec.Template.Labels[key]; made != "" && sts.Labels[key] != made {
			lost = merged(lost, map[string]string{key: made})
		}
	}
	return lost
}

// putBack gives a worker StatefulSet its labels again.
func putBack(sts *appsv1.StatefulSet, lost map[string]string) action.Relabel {
	keys := slices.DeleteFunc(slices.Clone(groupMarks), func(key string) bool { return lost[key] == "" })
	return action.Relabel{
		Object:  identity.RefOf(identity.KindStatefulSet, sts),
		Labels:  lost,
		Because: because(CodeChanged, fmt.Sprintf("statefulset %s does not bear the labels of its pods: %s", sts.Name, strings.Join(keys, ", "))),
		Tell: action.Telling{Refused: &action.Event{
			Warning: true, Reason: "FailedUpdate", Action: "Update", Note: "Failed to put back the labels of worker statefulset " + sts.Name,
		}},
	}
}

// marksFirst is what gives the leader StatefulSet the labels back that it is known by, or
// nil. Until it has them nothing else is decided: the cache holds little of what bears
// another name, and a template that is to stay as it was found is known by the key.
func (d *setDecision) marksFirst() action.Action {
	sts := d.StatefulSet.Member()
	if sts == nil || d.Refusal.Sentence != "" && d.Now.Before(d.Refusal.Again()) {
		return nil
	}
	lost := map[string]string{}
	if !BearsName(sts, d.Set.Name) {
		lost[lwsv1.SetNameLabelKey] = d.Set.Name
	}
	if made := sts.Spec.Template.Labels[lwsv1.RevisionKey]; d.mistaken(sts.Labels[lwsv1.RevisionKey], made) {
		lost[lwsv1.RevisionKey] = made
	}
	if len(lost) == 0 {
		return nil
	}
	return action.Relabel{
		Object:  identity.RefOf(identity.KindStatefulSet, sts),
		Labels:  lost,
		Because: because(CodeChanged, fmt.Sprintf("somebody changed the labels of statefulset %s", sts.Name)),
		Tell: action.Telling{Refused: &action.Event{
			Warning: true, Reason: "FailedUpdate", Action: "Update", Note: "Failed to put back the labels of leader statefulset " + sts.Name,
		}},
	}
}

// mistaken tells whether somebody took the key of a revision or changed it, where what
// pods are made of still tells which it was. It is the label only if no revision has it.
func (d *setDecision) mistaken(key, made string) bool {
	return made != "" && key != made && (key == "" || d.revisionWithKey(key) == nil && d.revisionWithKey(made) != nil)
}

// mislabelled tells of a leader whose revision label somebody took or changed: it is of
// the very template that its StatefulSet has, and its group would wait to be rolled for
// ever. What it is called is for whoever made it to say, and that was Kubernetes.
func mislabelled(sts *appsv1.StatefulSet, g Group) []conflict {
	if sts == nil {
		return nil
	}
	key := sts.Spec.Template.Labels[lwsv1.RevisionKey]
	if key == "" || g.Leader.Labels[lwsv1.RevisionKey] == key || !ofTemplate(sts, g.Leader) {
		return nil
	}
	return []conflict{{estranged: true, text: fmt.Sprintf(
		"pod %s lost the label that tells its revision: group %d counts as outdated; put it back (kubectl label pod %s -n %s --overwrite %s=%s), or delete the pod",
		g.LeaderName, g.Index, g.LeaderName, g.Leader.Namespace, lwsv1.RevisionKey, key)}}
}

// ofTemplate tells whether a pod was made of the very template that its StatefulSet has
// now, as its controller says who has seen it.
func ofTemplate(sts *appsv1.StatefulSet, pod *corev1.Pod) bool {
	made := pod.Labels[appsv1.ControllerRevisionHashLabelKey]
	return made != "" && made == sts.Status.UpdateRevision &&
		sts.Status.ObservedGeneration == sts.Generation && metav1.IsControlledBy(pod, sts)
}
