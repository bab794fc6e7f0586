package lws

import (
	"cmp"
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
	// failuresKept is how many failures are told of a group, and wordsKept the
	// most bytes of each one's message.
	failuresKept, wordsKept = 3, 256
	// reasonKept is the most bytes of a reason.
	reasonKept = 64
	// linesKept is how many lines of a termination message are kept.
	linesKept = 5
)

// failed is a failure of a pod that is still there to tell of it.
func (d *groupDecision) failed(code string, pod *corev1.Pod) *Failure {
	f := &Failure{Code: code, PodFailure: lwsv1.PodFailure{Pod: pod.Name, Reason: code, Node: pod.Spec.NodeName, At: moment(d.Now)}}
	if name, last := lastEnd(pod); last != nil && code != CodePodDeleted {
		exit := last.ExitCode
		f.Container, f.ExitCode, f.Message = name, &exit, lastLines(last.Message)
		f.Reason = cmp.Or(last.Reason, f.Reason)
		if at := last.FinishedAt; !at.IsZero() && !at.After(d.Now) {
			f.At = at
		}
	}
	if Ended(pod) || f.ExitCode == nil {
		f.Reason = cmp.Or(pod.Status.Reason, f.Reason)
		f.Message = cmp.Or(f.Message, lastLines(pod.Status.Message))
	}
	f.Reason = cmp.Or(word(f.Reason), code)
	return f
}

// together is within what time ends of containers of a pod have to do with each other.
const together = time.Minute

// lastEnd is the last end of a container of the pod. Of those that ended together it
// is one that failed: what ended long before is past.
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

// later tells whether one end says more than another.
func later(end, than *corev1.ContainerStateTerminated) bool {
	if (end.ExitCode != 0) != (than.ExitCode != 0) {
		return end.ExitCode != 0
	}
	return end.FinishedAt.After(than.FinishedAt.Time)
}

// lastLines is the end of a message: a few lines of it, and not too many bytes. It
// is shown on terminals, to which a pod has nothing to say.
func lastLines(message string) string {
	message = strings.TrimSpace(strings.Map(printable, strings.ToValidUTF8(message, "\uFFFD")))
	if lines := strings.Split(message, "\n"); len(lines) > linesKept {
		message = strings.Join(lines[len(lines)-linesKept:], "\n")
	}
	if len(message) <= wordsKept {
		return message
	}
	const ellipsis = "…"
	start := len(message) - wordsKept + len(ellipsis)
	for !utf8.RuneStart(message[start]) {
		start++
	}
	return ellipsis + message[start:]
}

// word is a reason as it is told: a word, as a rule, and never more than a line. What a
// runtime or a kubelet gives has no bound, and the status has one.
func word(reason string) string {
	reason, _, _ = strings.Cut(strings.TrimSpace(strings.Map(printable, strings.ToValidUTF8(reason, "\uFFFD"))), "\n")
	if len(reason) <= reasonKept {
		return reason
	}
	const ellipsis = "…"
	end := reasonKept - len(ellipsis)
	for !utf8.RuneStart(reason[end]) {
		end--
	}
	return reason[:end] + ellipsis
}

// printable drops control characters but for those that part words and lines.
func printable(r rune) rune {
	if unicode.IsControl(r) && r != '\n' && r != '\t' {
		return -1
	}
	return r
}

// moment is a time as the API keeps it: in whole seconds.
func moment(at time.Time) metav1.Time { return metav1.NewTime(at.Truncate(time.Second)) }
