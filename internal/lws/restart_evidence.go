package lws

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
)

const (
	// failuresKept is how many failures the status holds for a group.
	failuresKept = 3
	// messageBytes and messageLines bound the end of a termination message that is kept.
	messageBytes, messageLines = 256, 5
	// reasonBytes bounds a reason.
	reasonBytes = 64
)

// evidence is the failure of a pod that still exists.
func (d *groupDecision) evidence(code string, pod *corev1.Pod) *Failure {
	f := &Failure{
		Code: code, Disrupted: isDisrupted(pod),
		PodFailure: lwsv1.PodFailure{Pod: pod.Name, Reason: code, Node: pod.Spec.NodeName, At: moment(d.Now)},
	}
	if name, last := lastEnd(pod); last != nil && code != CodePodDeleted {
		exit := last.ExitCode
		f.Container, f.ExitCode, f.Message = name, &exit, lastLines(last.Message)
		f.Reason = cmp.Or(last.Reason, f.Reason)
		if at := last.FinishedAt; !at.IsZero() && !at.After(d.Now) {
			f.At = at
		}
	}
	if code != CodePodDeleted && (ended(pod) || f.ExitCode == nil) {
		f.Reason = cmp.Or(pod.Status.Reason, f.Reason)
		f.Message = cmp.Or(f.Message, lastLines(pod.Status.Message))
	}
	f.Reason = cmp.Or(word(f.Reason), code)
	return f
}

// together is the time within which ends of containers belong to one failure.
const together = time.Minute

// lastEnd returns the last container that ended. Of those that ended together it is one
// with an exit code other than zero.
func lastEnd(pod *corev1.Pod) (container string, last *corev1.ContainerStateTerminated) {
	ends := map[string]*corev1.ContainerStateTerminated{}
	var at time.Time
	for _, c := range slices.Concat(pod.Status.ContainerStatuses, pod.Status.InitContainerStatuses) {
		end := cmp.Or(c.State.Terminated, c.LastTerminationState.Terminated)
		if end == nil {
			continue
		}
		ends[c.Name] = end
		if end.FinishedAt.After(at) {
			at = end.FinishedAt.Time
		}
	}
	for _, name := range slices.Sorted(maps.Keys(ends)) {
		end := ends[name]
		if at.Sub(end.FinishedAt.Time) <= together && (last == nil || later(end, last)) {
			container, last = name, end
		}
	}
	return container, last
}

// later reports whether an end is better evidence than another.
func later(end, than *corev1.ContainerStateTerminated) bool {
	if (end.ExitCode != 0) != (than.ExitCode != 0) {
		return end.ExitCode != 0
	}
	return end.FinishedAt.After(than.FinishedAt.Time)
}

// lastLines returns the end of a message without control characters: it is shown on
// terminals.
func lastLines(message string) string {
	message = strings.TrimSpace(strings.Map(printable, strings.ToValidUTF8(message, "\uFFFD")))
	if lines := strings.Split(message, "\n"); len(lines) > messageLines {
		message = strings.Join(lines[len(lines)-messageLines:], "\n")
	}
	if len(message) <= messageBytes {
		return message
	}
	const ellipsis = "…"
	start := len(message) - messageBytes + len(ellipsis)
	for !utf8.RuneStart(message[start]) {
		start++
	}
	return ellipsis + message[start:]
}

// word returns a reason as one bounded line. A container runtime gives any length, and the
// status is bounded.
func word(reason string) string {
	reason, _, _ = strings.Cut(strings.TrimSpace(strings.Map(printable, strings.ToValidUTF8(reason, "\uFFFD"))), "\n")
	if len(reason) <= reasonBytes {
		return reason
	}
	const ellipsis = "…"
	end := reasonBytes - len(ellipsis)
	for !utf8.RuneStart(reason[end]) {
		end--
	}
	return reason[:end] + ellipsis
}

// printable drops control characters other than newline and tab.
func printable(r rune) rune {
	if unicode.IsControl(r) && r != '\n' && r != '\t' {
		return -1
	}
	return r
}

// moment returns a time as the API stores it, in whole seconds.
func moment(at time.Time) metav1.Time { return metav1.NewTime(at.Truncate(time.Second)) }

// explained describes a failure in a few words.
func explained(f lwsv1.PodFailure) string {
	text := "pod " + f.Pod
	if f.Container != "" {
		text += ", container " + f.Container
	}
	text += ": " + f.Reason
	if f.ExitCode != nil {
		text += fmt.Sprintf(", exit code %d", *f.ExitCode)
	}
	return text
}
