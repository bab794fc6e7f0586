package render

import (
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clilws "lockstep.dev/lockstep/internal/cli/lws"
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

// groupWaits are the waits of the group's plan, then what other controllers have yet to do.
func groupWaits(s clilws.Survey, g clilws.Group, status GroupStatus) []Wait {
	planned := since(s, waits(g.Plan.Waits))
	switch {
	case !status.Wanted && !status.Exists && len(status.Ghosts) == 0:
		return nil
	case !status.Wanted && !status.Exists:
		return []Wait{waitf(CodeLeaving, "the group is no longer wanted and is being deleted")}
	case !status.Exists:
		return append(planned, leaderWaits(s, g.LeaderName)...)
	case status.Ready:
		return planned
	}
	return append(planned, podWaits(s, g)...)
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
func since(s clilws.Survey, all []Wait) []Wait {
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

// leaderWaits says why a wanted group has no leader. The set's waits explain name conflicts.
func leaderWaits(s clilws.Survey, leader string) []Wait {
	for _, pod := range s.Set.Leaders.Ghosts {
		if pod.Name == leader {
			return since(s, []Wait{previousLeader(s.Set, pod)})
		}
	}
	if s.Set.Set.DeletionTimestamp != nil {
		return []Wait{waitf(CodeLeaving, "the set is being deleted")}
	}
	return append([]Wait{waitf(CodeMissingPods, "leader %s is not created yet", leader)}, refused(s, s.Set.StatefulSet.Member(), []string{leader})...)
}

// lateAfter is how long after its grace period a pod counts as late.
const lateAfter = time.Minute

// previousLeader names the leader that is still there, and what releases it if it is late.
func previousLeader(set lws.SetSnapshot, pod *corev1.Pod) Wait {
	w := waitf(lws.CodePreviousIncarnation, "leader %s of the previous incarnation is still there", pod.Name)
	if own := set.StatefulSet.Member(); own != nil && metav1.IsControlledBy(pod, own) {
		w = waitf(CodeLeaving, "leader %s is being deleted and recreated", pod.Name)
	}
	if ends := pod.DeletionTimestamp; ends != nil && set.Now.After(ends.Add(lateAfter)) {
		w.Message += "; " + lws.Remedy(pod)
	}
	return w
}

// refused returns the first event that says why pods of a StatefulSet could not be created.
func refused(s clilws.Survey, sts *appsv1.StatefulSet, pods []string) []Wait {
	for _, pod := range pods {
		if message := s.Refusals.OfPod(sts, pod); message != "" {
			return []Wait{{Reason: lws.CodeRefused, Message: message}}
		}
	}
	return nil
}

// podWaits says what a group with a leader lacks.
func podWaits(s clilws.Survey, g clilws.Group) []Wait {
	pods := podsOf(g)
	all := slices.Concat(missingWorkers(s, g, pods), unscheduled(pods), notReady(pods))
	if workers := g.Workers.Member(); len(all) == 0 && workers != nil {
		all = append(all, waitf(CodeNotReported, "statefulset %s has not reported its workers available yet", workers.Name))
	}
	return all
}

// missingWorkers names workers that do not exist. A wait of the plan explains workers that the
// operator holds back.
func missingWorkers(s clilws.Survey, g clilws.Group, pods []*corev1.Pod) []Wait {
	sts, size := g.Workers.Member(), int(sizeOf(g))
	switch {
	case size == len(pods), sts == nil && len(g.Plan.Waits) > 0:
		return nil
	case sts == nil:
		return []Wait{waitf(CodeMissingPods, "worker statefulset %s is not created yet", g.LeaderName)}
	}
	var names []string
	for worker := 1; worker < size && len(names) <= namedAtMost; worker++ {
		if !slices.ContainsFunc(pods[1:], func(pod *corev1.Pod) bool { return workerIndex(pod) == worker }) {
			names = append(names, fmt.Sprintf("%s-%d", g.LeaderName, worker))
		}
	}
	lacking := size - len(pods)
	w := waitf(CodeMissingPods, "%d of %d workers not created yet: %s", lacking, size-1, few(names, lacking))
	return append([]Wait{w}, refused(s, sts, names)...)
}

// unscheduled names the pods without a node, with the scheduler's message for the first.
func unscheduled(pods []*corev1.Pod) []Wait {
	var names []string
	message := ""
	for _, pod := range pods {
		if pod.Spec.NodeName != "" {
			continue
		}
		names = append(names, pod.Name)
		for _, c := range pod.Status.Conditions {
			if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Message != "" && message == "" {
				message = ": " + c.Message
			}
		}
	}
	if len(names) == 0 {
		return nil
	}
	return []Wait{waitf(CodeNotScheduled, "%s not scheduled: %s%s", counted(len(names), "pod"), few(names, len(names)), message)}
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
