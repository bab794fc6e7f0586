package render

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clilws "lockstep.dev/lockstep/internal/cli/lws"
	"lockstep.dev/lockstep/internal/cli/page"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/internal/lws/workload"
	"lockstep.dev/lockstep/internal/terminal"
)

// Codes of waits for other controllers, which no plan has. They are stable.
const (
	CodeMissingPods  = "WaitingForPods"
	CodeNotScheduled = "WaitingForScheduling"
	CodeNotReady     = "WaitingForReadyPods"
	CodeNotReported  = "WaitingForStatefulSetStatus"
	CodeLeaving      = "WaitingForDeletion"
)

// Wait is a state that the set, or a group, waits for.
type Wait struct {
	// Reason is a stable code.
	Reason string `json:"reason"`
	// Message is a sentence for people.
	Message string `json:"message"`
	// Since is when the condition with this reason became true.
	Since *metav1.Time `json:"since,omitempty"`
	// Until is when the operator reconciles again without an event; absent when it waits for an event.
	Until *metav1.Time `json:"until,omitempty"`
}

func waitf(code, format string, args ...any) Wait {
	return Wait{Reason: code, Message: fmt.Sprintf(format, args...)}
}

// unattended is why no operator acts on the set, or nil.
func unattended(s clilws.Survey) *Wait {
	if s.Unattended == nil {
		return nil
	}
	return &Wait{Reason: s.Unattended.Code, Message: s.Unattended.Sentence}
}

// waits are those of a plan, each once.
func waits(s clilws.Survey, plan lws.Plan) (all []Wait) {
	for _, w := range plan.Waits {
		if w.Code == lws.CodeProgressDeadline { // nothing is waited for
			continue
		}
		code := w.Code
		if w.Ordinary {
			code = CodeLeaving
		}
		same := func(other Wait) bool { return other.Reason == code && other.Message == w.Sentence }
		if !slices.ContainsFunc(all, same) {
			all = append(all, Wait{Reason: code, Message: w.Sentence, Since: since(s, code), Until: timeOf(w.Until)})
		}
	}
	return all
}

// since is when the first condition with a reason became true.
func since(s clilws.Survey, reason string) (at *metav1.Time) {
	for _, c := range s.Set.Set.Status.Conditions {
		if c.Status == metav1.ConditionTrue && c.Reason == reason && (at == nil || c.LastTransitionTime.Before(at)) {
			at = c.LastTransitionTime.DeepCopy()
		}
	}
	return at
}

// groupWaits are the waits of the group's plan, then what other controllers have yet to do.
func groupWaits(s clilws.Survey, g clilws.Group, status GroupStatus) []Wait {
	planned := waits(s, g.Plan)
	switch {
	case !status.Wanted && !status.Exists && len(status.Previous) == 0:
		return nil
	case !status.Wanted && !status.Exists:
		return []Wait{waitf(CodeLeaving, "the group is no longer wanted and is being deleted")}
	case !status.Exists && status.Key != "":
		return append(planned, waitf(CodeLeaving, "the group is being deleted"))
	case !status.Exists:
		return append(planned, leaderWaits(s, g.LeaderName)...)
	case status.Ready:
		return planned
	}
	return append(planned, podWaits(s, g)...)
}

// leaderWaits says why a wanted group has no leader. The set's waits explain name conflicts.
func leaderWaits(s clilws.Survey, leader string) []Wait {
	for _, pod := range s.Set.Leaders.Previous {
		if pod.Name == leader {
			return []Wait{previousLeader(s, pod)}
		}
	}
	if s.Set.Set.DeletionTimestamp != nil {
		return []Wait{waitf(CodeLeaving, "the set is being deleted")}
	}
	return append([]Wait{waitf(CodeMissingPods, "leader %s is not created yet", leader)}, refused(s, s.Set.StatefulSet.Own(), leader)...)
}

// lateAfter is how long after its grace period a pod counts as late.
const lateAfter = time.Minute

// previousLeader names the leader that is still there, and what releases it if it is late.
func previousLeader(s clilws.Survey, pod *corev1.Pod) Wait {
	w := waitf(lws.CodePreviousIncarnation, "leader %s of the previous incarnation is still there", pod.Name)
	if own := s.Set.StatefulSet.Own(); own != nil && metav1.IsControlledBy(pod, own) {
		w = waitf(CodeLeaving, "leader %s is being deleted and recreated", pod.Name)
		if lws.IsExhausted(pod) {
			w = waitf(CodeLeaving, "leader %s stays as evidence", pod.Name)
		}
	}
	w.Since = since(s, w.Reason)
	if ends := pod.DeletionTimestamp; ends != nil && s.Set.Now.After(ends.Add(lateAfter)) && !lws.IsExhausted(pod) {
		w.Message += "; " + lws.Remedy(lws.Object{Ref: identity.RefOf(identity.KindPod, pod), Object: pod})
	}
	return w
}

// refused returns the first event that says why pods of a StatefulSet could not be created.
func refused(s clilws.Survey, sts *appsv1.StatefulSet, pods ...string) []Wait {
	for _, pod := range pods {
		if message := s.Refusals.OfPod(sts, pod); message != "" {
			return []Wait{{Reason: lws.CodeRefused, Message: message}}
		}
	}
	return nil
}

// leadersRefused says why the Deployment of a set has no leaders.
func leadersRefused(s clilws.Survey) []Wait {
	if deployment := s.Set.Deployment.Own(); deployment != nil && lws.ReplicaFailure(deployment) != "" {
		return []Wait{{Reason: lws.CodeRefused, Message: lws.ReplicaFailure(deployment)}}
	}
	return nil
}

// podWaits says what a group with a leader lacks. A wait of the plan explains workers that the operator holds back.
func podWaits(s clilws.Survey, g clilws.Group) (all []Wait) {
	var unscheduled, unready []string
	pods := g.Members()
	message, sts, size := "", g.Workers.Own(), g.Size()
	for _, pod := range pods {
		switch {
		case pod.Spec.NodeName == "":
			unscheduled = append(unscheduled, pod.Name)
			message = cmp.Or(message, schedulerSays(pod))
		case !lws.PodReady(pod):
			unready = append(unready, pod.Name+clilws.Complaint(pod))
		}
	}
	switch {
	case sts == nil && size > 1 && len(g.Plan.Waits) == 0:
		all = append(all, waitf(CodeMissingPods, "worker statefulset %s is not created yet", g.WorkersName()))
	case sts != nil && len(pods) < int(size):
		missing := firstMissing(g, pods)
		all = append(all, waitf(CodeMissingPods, "%d of %d workers not created yet: %s", int(size)-len(pods), size-1, terminal.AndMore(missing, int(size)-len(pods))))
		all = append(all, refused(s, sts, missing...)...)
	}
	if len(unscheduled) > 0 {
		all = append(all, waitf(CodeNotScheduled, "%s not scheduled: %s%s", page.Counted(len(unscheduled), "pod"), page.Few(unscheduled), message))
	}
	if len(unready) > 0 {
		all = append(all, waitf(CodeNotReady, "%s not ready: %s", page.Counted(len(unready), "pod"), page.Few(unready)))
	}
	if len(all) == 0 && sts != nil {
		all = append(all, waitf(CodeNotReported, "statefulset %s has not reported its workers available yet", sts.Name))
	}
	return all
}

// quotaGate is the gate of pods that wait for quota in Kueue.
const quotaGate = "kueue.x-k8s.io/admission"

// schedulerSays is why a pod has no node: the gates that keep it from the scheduler, or the scheduler's message.
func schedulerSays(pod *corev1.Pod) string {
	var gates []string
	why := "held by"
	for _, gate := range pod.Spec.SchedulingGates {
		gates = append(gates, gate.Name)
		if gate.Name == quotaGate {
			why = "waits for quota, by"
		}
	}
	if len(gates) > 0 {
		return fmt.Sprintf(": %s the scheduling gate%s %s", why, "s"[:min(len(gates)-1, 1)], page.Few(gates))
	}
	if c := workload.Condition(pod, corev1.PodScheduled); c.Status == corev1.ConditionFalse && c.Message != "" {
		return ": " + c.Message
	}
	return ""
}

// firstMissing returns the names of the first workers that the pods of a group lack.
func firstMissing(g clilws.Group, pods []*corev1.Pod) (names []string) {
	next := 1
	for index := 1; len(names) < min(page.NamedAtMost, int(g.Size())-len(pods)); index++ {
		if next < len(pods) && identity.Ordinal(pods[next].Name) == index {
			next++
			continue
		}
		names = append(names, identity.LeaderName(g.WorkersName(), index))
	}
	return names
}
