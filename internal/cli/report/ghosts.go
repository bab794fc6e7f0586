package report

import (
	"cmp"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"lockstep.dev/lockstep/internal/cli/survey"
	"lockstep.dev/lockstep/internal/identity"
)

// groupGhosts returns the ghosts under the names of one group.
func groupGhosts(s survey.Survey, g survey.Group) []Ghost {
	leader := func(pod *corev1.Pod) bool { return pod.Name == g.LeaderName }
	return slices.Concat(
		ghosts(identity.KindPod, only(s.Set.Leaders.Ghosts, leader)),
		ghosts(identity.KindStatefulSet, g.Workers.Ghosts),
		ghosts(identity.KindPod, g.Pods.Ghosts),
		ghosts(identity.KindService, g.Service.Ghosts),
		ghosts(identity.KindPodGroup, g.Gang.Ghosts),
	)
}

func ghosts[T metav1.Object](k identity.Kind, objects []T) []Ghost {
	var all []Ghost
	for _, object := range objects {
		ghost := Ghost{
			Kind: string(k), Name: object.GetName(), UID: object.GetUID(),
			DeletedAt: timeOf(survey.DeletedAt(object)), Finalizers: object.GetFinalizers(),
		}
		if pod, ok := any(object).(*corev1.Pod); ok {
			ghost.Node = pod.Spec.NodeName
		}
		all = append(all, ghost)
	}
	slices.SortStableFunc(all, func(a, b Ghost) int { return cmp.Or(len(a.Name)-len(b.Name), cmp.Compare(a.Name, b.Name)) }) // a-9 before a-10
	return all
}

// ofSet reports whether a revision is one of a set. Revisions of its StatefulSets have the same label.
func ofSet(revision *appsv1.ControllerRevision) bool {
	owner := metav1.GetControllerOfNoCopy(revision)
	return owner == nil || owner.Kind == string(identity.KindLeaderWorkerSet)
}

func only[T any](all []T, fits func(T) bool) []T {
	return slices.DeleteFunc(slices.Clone(all), func(one T) bool { return !fits(one) })
}
