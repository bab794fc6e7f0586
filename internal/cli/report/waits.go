package report

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"lockstep.dev/lockstep/internal/cli/survey"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
)

// Codes of waits for other controllers, which no plan has. They are stable.
const (
	CodeMissingPods  = "WaitingForPods"
	CodeNotScheduled = "WaitingForScheduling"
	CodeNotReady     = "WaitingForReadyPods"
	CodeNotReported  = "WaitingForStatefulSetStatus"
	CodeLeaving      = "WaitingForDeletion"
)

// namedAtMost bounds how many objects a message names one by one.
const namedAtMost = 4

func waitf(code, format string, args ...any) Wait {
	return Wait{Reason: code, Message: fmt.Sprintf(format, args...)}
}

// setWaits are the waits of the plan of the set.
func setWaits(s survey.Survey) []Wait { return since(s, waits(s.Plan.Waits)) }

// groupWaits are the waits of the group's plan, then what other controllers have yet to do.
func groupWaits(s survey.Survey, g survey.Group, status GroupStatus) []Wait {
	planned := since(s, waits(g.Plan.Waits))
	switch {
	case !status.Wanted && !status.Exists && len(status.Ghosts) == 0:
		return nil
	case !status.Wanted && !status.Exists:
		return []Wait{waitf(CodeLeaving, "the group is no longer wanted and on its way out")}
	case !status.Exists:
		return append(planned, leaderWaits(s, g.LeaderName)...)
	case status.Ready:
		return planned
	}
	return append(planned, podWaits(s.Refusals, g)...)
}

// waits converts the waits of a plan, without duplicates.
func waits(all []lws.Wait) []Wait {
	var shown []Wait
	for _, w := range all {
		wait := Wait{Reason: w.Code, Message: w.Sentence, Until: timeOf(w.Until)}
		same := func(other Wait) bool { return other.Reason == wait.Reason && other.Message == wait.Message }
		if !slices.ContainsFunc(shown, same) {
			shown = append(shown, wait)
		}
	}
	return shown
}

// since adds to each wait when the condition of its reason became true.
func since(s survey.Survey, all []Wait) []Wait {
	for i := range all {
		for _, c := range s.Set.Set.Status.Conditions {
			if c.Status == metav1.ConditionTrue && c.Reason == all[i].Reason {
				at := c.LastTransitionTime
				all[i].Since = &at
			}
		}
	}
	return all
}

// leaderWaits says why a wanted group has no leader.
func leaderWaits(s survey.Survey, leader string) []Wait {
	named := func(pod *corev1.Pod) bool { return pod.Name == leader }
	foreign, previous := only(s.Set.Leaders.Squatters, named), only(s.Set.Leaders.Ghosts, named)
	sts := s.Set.StatefulSet
	switch {
	case len(foreign) > 0:
		return []Wait{waitf(lws.CodeNameConflict, "pod %s %s", leader, controllerOf(foreign[0]))}
	case len(previous) > 0:
		return since(s, []Wait{previousLeader(s.Set, previous[0])})
	case len(only(s.Set.Leaders.Orphans, named)) > 0:
		return []Wait{waitf(lws.CodeOrphan, "leader %s has no controller yet: the leader statefulset adopts it", leader)}
	case s.Set.Set.DeletionTimestamp != nil:
		return []Wait{waitf(CodeLeaving, "the set is being deleted")}
	case sts.Member() != nil:
		return append([]Wait{waitf(CodeMissingPods, "leader %s is not created yet", leader)}, refused(s.Refusals.OfPod(sts.Member(), leader))...)
	case sts.Orphan() != nil:
		return []Wait{waitf(CodeMissingPods, "leader %s is not created yet", leader)}
	case len(sts.Squatters) > 0:
		return []Wait{waitf(lws.CodeNameConflict, "statefulset %s %s: the set cannot start", sts.Squatters[0].Name, controllerOf(sts.Squatters[0]))}
	case waitOf(s, lws.CodePreviousIncarnation) != "":
		return since(s, []Wait{waitf(lws.CodePreviousIncarnation, "the set waits for its previous incarnation")})
	}
	return []Wait{waitf(CodeMissingPods, "leader statefulset %s is not made yet", s.Set.Set.Name)}
}

// lateAfter is how long after its grace period a pod counts as late.
const lateAfter = time.Minute

// previousLeader says which leader is still there, and what releases it if it is late.
func previousLeader(set lws.SetSnapshot, pod *corev1.Pod) Wait {
	w := waitf(lws.CodePreviousIncarnation, "leader %s of the previous incarnation is still there", pod.Name)
	if own := set.StatefulSet.Member(); own != nil && metav1.IsControlledBy(pod, own) {
		w = waitf(CodeLeaving, "leader %s is on its way out and is made again", pod.Name)
	}
	if ends := pod.DeletionTimestamp; ends != nil && set.Now.After(ends.Add(lateAfter)) {
		w.Message += "; " + lws.Remedy(pod)
	}
	return w
}

func controllerOf(object metav1.Object) string {
	if owner := metav1.GetControllerOfNoCopy(object); owner != nil {
		return fmt.Sprintf("belongs to %s %s", strings.ToLower(owner.Kind), owner.Name)
	}
	return "has no controller"
}

// refused is the API server's refusal to create an object, if there is one.
func refused(message string) []Wait {
	if message == "" {
		return nil
	}
	return []Wait{{Reason: lws.CodeRefused, Message: message}}
}

// podWaits says what a group with a leader lacks.
func podWaits(refusals survey.Refusals, g survey.Group) []Wait {
	pods := members(g)
	all := append(missingWorkers(refusals, g, pods), unscheduled(pods)...)
	all = append(all, notReady(pods)...)
	if workers := g.Workers.Member(); len(all) == 0 && workers != nil {
		all = append(all, waitf(CodeNotReported, "statefulset %s has not reported its workers available yet", workers.Name))
	}
	return all
}

// missingWorkers names workers that do not exist. A wait of the plan explains workers that the
// operator holds back.
func missingWorkers(refusals survey.Refusals, g survey.Group, pods []*corev1.Pod) []Wait {
	size := int(sizeOf(g))
	if size == len(pods) {
		return nil
	}
	sts := g.Workers.Member()
	switch {
	case sts == nil && len(g.Plan.Waits) > 0:
		return nil
	case sts == nil:
		w := waitf(CodeMissingPods, "worker statefulset %s is not made yet", g.LeaderName)
		return append([]Wait{w}, refused(refusals.OfWorkers(g.Leader))...)
	}
	var names []string
	var refusal string
	for worker := 1; worker < size && len(names) <= namedAtMost; worker++ {
		if slices.ContainsFunc(pods[1:], func(pod *corev1.Pod) bool { return workerIndex(pod) == worker }) {
			continue
		}
		name := fmt.Sprintf("%s-%d", g.LeaderName, worker)
		names = append(names, name)
		if refusal == "" {
			refusal = refusals.OfPod(sts, name)
		}
	}
	lacking := size - len(pods)
	w := waitf(CodeMissingPods, "%d of %d workers not created yet: %s", lacking, size-1, few(names, lacking))
	return append([]Wait{w}, refused(refusal)...)
}

// unscheduled groups pods without a node by the scheduler's message.
func unscheduled(pods []*corev1.Pod) []Wait {
	var order []string
	names := map[string][]string{}
	for _, pod := range pods {
		if pod.Spec.NodeName != "" {
			continue
		}
		message := ""
		for _, c := range pod.Status.Conditions {
			if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Message != "" {
				message = ": " + c.Message
			}
		}
		if names[message] == nil {
			order = append(order, message)
		}
		names[message] = append(names[message], pod.Name)
	}
	var all []Wait
	for _, message := range order {
		pods := names[message]
		all = append(all, waitf(CodeNotScheduled, "%s not scheduled: %s%s", counted(len(pods), "pod"), few(pods, len(pods)), message))
	}
	return all
}

func notReady(pods []*corev1.Pod) []Wait {
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
		return nil
	}
	return []Wait{waitf(CodeNotReady, "%s not ready: %s", counted(len(names), "pod"), few(names, len(names)))}
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
