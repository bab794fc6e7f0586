package report

import (
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"lockstep.dev/lockstep/internal/cli/survey"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
)

// Codes of waits that no plan has, because what is waited for is another
// controller's work. They are stable.
const (
	CodeMissingPods  = "WaitingForPods"
	CodeNotScheduled = "WaitingForScheduling"
	CodeNotReady     = "WaitingForReadyPods"
	CodeNotReported  = "WaitingForStatefulSetStatus"
	CodeLeaving      = "WaitingForDeletion"
)

// namedAtMost bounds how many objects a message names one by one.
const namedAtMost = 4

// groupWaits says what stands between a group and being ready: first what the
// operator waits for, then what it has left to others.
func groupWaits(s survey.Survey, g survey.Group, status GroupStatus) []Wait {
	switch {
	case !status.Wanted && !status.Exists:
		return leaving(status)
	case !status.Exists:
		return append(since(s, waits(g.Plan.Waits)), leaderless(s, g)...)
	}
	all := since(s, waits(g.Plan.Waits))
	if status.Ready {
		return all
	}
	return append(all, unready(s.Refusals, g)...)
}

// leaving is what a group above the wanted number waits for.
func leaving(status GroupStatus) []Wait {
	if len(status.Ghosts) == 0 {
		return nil
	}
	return []Wait{reasonOf(CodeLeaving, "the group is no longer wanted and on its way out")}
}

// leaderless says why a wanted group has no leader.
func leaderless(s survey.Survey, g survey.Group) []Wait {
	set := s.Set
	named := func(pod *corev1.Pod) bool { return pod.Name == g.LeaderName }
	if squatters := only(set.Leaders.Squatters, named); len(squatters) > 0 {
		return []Wait{reasonOf(lws.CodeNameConflict, fmt.Sprintf("pod %s %s", g.LeaderName, holder(squatters[0])))}
	}
	if ghosts := only(set.Leaders.Ghosts, named); len(ghosts) > 0 {
		return since(s, []Wait{late(leaderGhost(set, ghosts[0]), ghosts[0], set.Now)})
	}
	if len(only(set.Leaders.Orphans, named)) > 0 {
		return []Wait{reasonOf(lws.CodeOrphan, fmt.Sprintf("leader %s has no controller yet: the leader statefulset adopts it", g.LeaderName))}
	}
	if set.Set.DeletionTimestamp != nil {
		return []Wait{reasonOf(CodeLeaving, "the set is being deleted")}
	}
	return append(since(s, []Wait{withoutLeader(s, g)}), leaderRefused(s, g.LeaderName)...)
}

// leaderRefused says why a leader could not be made, as far as anybody told.
func leaderRefused(s survey.Survey, name string) []Wait {
	sts := s.Set.StatefulSet.Member()
	if sts == nil {
		return nil
	}
	return refused(s.Refusals.OfPod(sts, name))
}

// refused is what the API server said of something that could not be made, if it did.
func refused(said string) []Wait {
	if said == "" {
		return nil
	}
	return []Wait{reasonOf(lws.CodeRefused, said)}
}

func leaderGhost(set lws.SetSnapshot, ghost *corev1.Pod) Wait {
	owner, own := metav1.GetControllerOfNoCopy(ghost), set.StatefulSet.Member()
	if owner != nil && own != nil && owner.UID == own.UID {
		return reasonOf(CodeLeaving, fmt.Sprintf("leader %s is on its way out and is made again", ghost.Name))
	}
	return reasonOf(lws.CodePreviousIncarnation, fmt.Sprintf("leader %s of the previous incarnation is still there", ghost.Name))
}

// lateBy is how long after the end of its grace period a pod is called late.
const lateBy = time.Minute

// late adds what would release a leader that should have ended: nobody else tells of a
// leader that its own StatefulSet replaces.
func late(w Wait, ghost *corev1.Pod, now time.Time) Wait {
	if ends := ghost.DeletionTimestamp; ends != nil && now.After(ends.Add(lateBy)) {
		w.Message += "; " + lws.Remedy(ghost)
	}
	return w
}

// withoutLeader says why there is nothing at all under a leader's name.
func withoutLeader(s survey.Survey, g survey.Group) Wait {
	claim := s.Set.StatefulSet
	if claim.Member() != nil || claim.Orphan() != nil {
		return reasonOf(CodeMissingPods, fmt.Sprintf("leader %s is not created yet", g.LeaderName))
	}
	for _, sts := range claim.Squatters {
		return reasonOf(lws.CodeNameConflict, fmt.Sprintf("statefulset %s %s: the set cannot start", sts.Name, holder(sts)))
	}
	for _, w := range s.Plan.Waits {
		if w.Code == lws.CodePreviousIncarnation {
			return reasonOf(w.Code, "the set waits for its previous incarnation")
		}
	}
	return reasonOf(CodeMissingPods, fmt.Sprintf("leader statefulset %s is not made yet", s.Set.Set.Name))
}

func holder(object metav1.Object) string {
	if owner := metav1.GetControllerOfNoCopy(object); owner != nil {
		return fmt.Sprintf("belongs to %s %s", strings.ToLower(owner.Kind), owner.Name)
	}
	return "has no controller"
}

// unready says what a group with a leader lacks.
func unready(refusals survey.Refusals, g survey.Group) []Wait {
	pods := members(g)
	all := missing(refusals, g, pods)
	all = append(all, unscheduled(pods)...)
	if w, ok := notReady(pods); ok {
		all = append(all, w)
	}
	if workers := g.Workers.Member(); len(all) == 0 && workers != nil {
		all = append(all, reasonOf(CodeNotReported, fmt.Sprintf("statefulset %s has not reported its workers available yet", workers.Name)))
	}
	return all
}

// missing names workers that do not exist, and says why as far as anybody told. A group
// whose workers the operator holds back waits for what it holds them back for.
func missing(refusals survey.Refusals, g survey.Group, pods []*corev1.Pod) []Wait {
	size := sizeOf(g)
	if int(size) == len(pods) {
		return nil
	}
	workers := g.Workers.Member()
	if workers == nil {
		if len(g.Plan.Waits) > 0 {
			return nil
		}
		w := reasonOf(CodeMissingPods, fmt.Sprintf("worker statefulset %s is not made yet", g.LeaderName))
		return append([]Wait{w}, refused(refusals.OfWorkers(g.Leader))...)
	}
	var names []string
	for worker := 1; int32(worker) < size && len(names) <= namedAtMost; worker++ {
		there := slices.ContainsFunc(pods[1:], func(pod *corev1.Pod) bool { return workerIndex(pod) == worker })
		if !there {
			names = append(names, fmt.Sprintf("%s-%d", g.LeaderName, worker))
		}
	}
	lacking := int(size) - len(pods)
	w := reasonOf(CodeMissingPods, fmt.Sprintf("%d of %d workers not created yet: %s", lacking, size-1, few(names, lacking)))
	return append([]Wait{w}, firstRefused(refusals, workers, names)...)
}

// firstRefused says why the first of some pods could not be made of which anybody told.
func firstRefused(refusals survey.Refusals, sts *appsv1.StatefulSet, names []string) []Wait {
	for _, name := range names {
		if said := refusals.OfPod(sts, name); said != "" {
			return refused(said)
		}
	}
	return nil
}

// unscheduled groups pods without a node by what the scheduler says.
func unscheduled(pods []*corev1.Pod) []Wait {
	var order []string
	names := map[string][]string{}
	for _, pod := range pods {
		says, waits := unschedulable(pod)
		if !waits {
			continue
		}
		if names[says] == nil {
			order = append(order, says)
		}
		names[says] = append(names[says], pod.Name)
	}
	var all []Wait
	for _, says := range order {
		message := fmt.Sprintf("%s not scheduled: %s", counted(len(names[says]), "pod"), few(names[says], len(names[says])))
		if says != "" {
			message += ": " + says
		}
		all = append(all, reasonOf(CodeNotScheduled, message))
	}
	return all
}

func notReady(pods []*corev1.Pod) (Wait, bool) {
	var names []string
	for _, pod := range pods {
		if lws.PodReady(pod) || pod.Spec.NodeName == "" {
			continue
		}
		name := pod.Name
		if why := complaint(pod); why != "" {
			name += " (" + why + ")"
		}
		names = append(names, name)
	}
	if len(names) == 0 {
		return Wait{}, false
	}
	return reasonOf(CodeNotReady, fmt.Sprintf("%s not ready: %s", counted(len(names), "pod"), few(names, len(names)))), true
}

func counted(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// few joins the first of so many names.
func few(names []string, of int) string {
	shown := names[:min(len(names), namedAtMost)]
	text := strings.Join(shown, ", ")
	if of > len(shown) {
		text += fmt.Sprintf(" and %d more", of-len(shown))
	}
	return text
}

// refOf names an object of a plan.
func refOf(ref identity.Ref) Object {
	return Object{Kind: string(ref.Kind), Namespace: ref.Namespace, Name: ref.Name, UID: ref.UID}
}
