package admission

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/lws/workload"
)

// podTemplate is a template pods are made from, and where the user wrote it.
type podTemplate struct {
	path *field.Path
	*corev1.PodTemplateSpec
}

// leaderTemplate is what leaders are made from.
func leaderTemplate(set *lwsv1.LeaderWorkerSet) podTemplate {
	if own := set.Spec.LeaderWorkerTemplate.LeaderTemplate; own != nil {
		return podTemplate{templatePath.Child("leaderTemplate"), own}
	}
	return workerTemplate(set)
}

func workerTemplate(set *lwsv1.LeaderWorkerSet) podTemplate {
	return podTemplate{templatePath.Child("workerTemplate"), &set.Spec.LeaderWorkerTemplate.WorkerTemplate}
}

// templatesInUse leaves out a worker template from which nothing is made: it
// must be there, and may say anything.
func templatesInUse(set *lwsv1.LeaderWorkerSet) []podTemplate {
	leader, worker := leaderTemplate(set), workerTemplate(set)
	if workload.Size(set) > 1 && leader.PodTemplateSpec != worker.PodTemplateSpec {
		return []podTemplate{leader, worker}
	}
	return []podTemplate{leader}
}

// checkPodLifetime refuses pods that end by themselves: StatefulSets do not take
// them.
func checkPodLifetime(set *lwsv1.LeaderWorkerSet) field.ErrorList {
	var faults field.ErrorList
	for _, template := range templatesInUse(set) {
		spec := template.path.Child("spec")
		if policy := template.Spec.RestartPolicy; policy != "" && policy != corev1.RestartPolicyAlways {
			faults = append(faults, field.Invalid(spec.Child("restartPolicy"), policy,
				"must be Always: the pods of a StatefulSet are always restarted"))
		}
		if template.Spec.ActiveDeadlineSeconds != nil {
			faults = append(faults, field.Forbidden(spec.Child("activeDeadlineSeconds"),
				"the pods of a StatefulSet have no deadline; remove it"))
		}
	}
	return faults
}

// checkLeaderMark refuses leaders that look like workers: such a leader is given
// no workers, lest workers be given workers without end.
func checkLeaderMark(set *lwsv1.LeaderWorkerSet) field.ErrorList {
	template := leaderTemplate(set)
	if _, marked := template.Annotations[lwsv1.LeaderPodNameAnnotationKey]; !marked || workload.Size(set) < 2 {
		return nil
	}
	return field.ErrorList{field.Forbidden(template.path.Child("metadata", "annotations").Key(lwsv1.LeaderPodNameAnnotationKey),
		"a leader with this annotation gets no workers; remove it")}
}
