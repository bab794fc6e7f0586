package render

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clilws "lockstep.dev/lockstep/internal/cli/lws"
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

// groupWaits are the waits of the group's plan, then what other controllers have yet to do.
func groupWaits(s clilws.Survey, g clilws.Group, status GroupStatus) []Wait {
	planned := since(s, waits(g.Plan.Waits))
	switch {
	case !status.Wanted && !status.Exists && len(status.Previous) == 0:
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
	for _, pod := range s.Set.Leaders.Previous {
		if pod.Name == leader {
			return since(s, []Wait{previousLeader(s.Set, pod)})
		}
	}
	if s.Set.Set.DeletionTimestamp != nil {
		return []Wait{waitf(CodeLeaving, "the set is being deleted")}
	}
	return append([]Wait{waitf(CodeMissingPods, "leader %s is not created yet", leader)}, refused(s, s.Set.StatefulSet.Own(), []string{leader})...)
}

// lateAfter is how long after its grace period a pod counts as late.
const lateAfter = time.Minute

// previousLeader names the leader that is still there, and what releases it if it is late.
func previousLeader(set lws.SetSnapshot, pod *corev1.Pod) Wait {
	w := waitf(lws.CodePreviousIncarnation, "leader %s of the previous incarnation is still there", pod.Name)
	if own := set.StatefulSet.Own(); own != nil && metav1.IsControlledBy(pod, own) {
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

// podWaits says what a group with a leader lacks. A wait of the plan explains workers that the operator
// holds back.
func podWaits(s clilws.Survey, g clilws.Group) (all []Wait) {
	var missing, unscheduled, unready []string
	message, sts, pods := "", g.Workers.Own(), podsOf(g)
	for _, pod := range pods {
		switch {
		case pod.Spec.NodeName == "":
			unscheduled = append(unscheduled, pod.Name)
			message = cmp.Or(message, schedulerSays(pod))
		case !lws.PodReady(pod):
			unready = append(unready, pod.Name+complaint(pod))
		}
	}
	for worker := 1; worker < int(sizeOf(g)) && sts != nil; worker++ {
		if !slices.ContainsFunc(pods[1:], func(pod *corev1.Pod) bool { return workerIndex(pod) == worker }) {
			missing = append(missing, identity.WorkerName(g.Set.Name, g.Index, worker))
		}
	}
	switch {
	case len(missing) > 0:
		all = append(all, waitf(CodeMissingPods, "%d of %d workers not created yet: %s", len(missing), sizeOf(g)-1, few(missing)))
		all = append(all, refused(s, sts, missing)...)
	case sts == nil && sizeOf(g) > 1 && len(g.Plan.Waits) == 0:
		all = append(all, waitf(CodeMissingPods, "worker statefulset %s is not created yet", g.LeaderName))
	}
	if len(unscheduled) > 0 {
		all = append(all, waitf(CodeNotScheduled, "%s not scheduled: %s%s", counted(len(unscheduled), "pod"), few(unscheduled), message))
	}
	if len(unready) > 0 {
		all = append(all, waitf(CodeNotReady, "%s not ready: %s", counted(len(unready), "pod"), few(unready)))
	}
	if len(all) == 0 && sts != nil {
		all = append(all, waitf(CodeNotReported, "statefulset %s has not reported its workers available yet", sts.Name))
	}
	return all
}

// schedulerSays is the scheduler's message about a pod without a node.
func schedulerSays(pod *corev1.Pod) string {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Message != "" {
			return ": " + c.Message
		}
	}
	return ""
}

func counted(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// few joins the first names, and counts the others.
func few(names []string) string {
	text := strings.Join(names[:min(len(names), namedAtMost)], ", ")
	if more := len(names) - namedAtMost; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
