package restart

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/lws/workload"
)

const (
	// failuresKept is how many failures the status holds for a group.
	failuresKept = 3
	// messageBytes and messageLines bound the end of a termination message that is kept.
	messageBytes, messageLines = 256, 5
	// together is the time within which ends of containers belong to one failure.
	together = time.Minute
)

// evidence is the failure of a pod that still exists. A container runtime may give a reason
// of any length: one that is no label value gives way to the code.
func evidence(code string, pod *corev1.Pod, now time.Time) *Failure {
	f := &Failure{
		Code: code, Disruption: disruption(pod),
		PodFailure: lwsv1.PodFailure{Pod: pod.Name, Reason: code, Node: pod.Spec.NodeName, At: moment(now)},
	}
	if code == CodePodDeleted {
		f.Reason = word(cmp.Or(pod.Status.Reason, f.Disruption, code), code) // such as NodeLost, or EvictionByEvictionAPI
		return f
	}
	if last := lastEnd(pod); last != nil {
		f.Container, f.ExitCode, f.Message = last.container, &last.ExitCode, lastLines(last.Message)
		f.Reason = cmp.Or(last.Reason, f.Reason)
		if at := last.FinishedAt; !at.IsZero() && !at.After(now) {
			f.At = at
		}
	}
	if workload.HasEnded(pod) || f.ExitCode == nil {
		f.Reason = cmp.Or(pod.Status.Reason, f.Disruption, f.Reason)
		f.Message = cmp.Or(f.Message, lastLines(pod.Status.Message))
	}
	f.Reason = word(f.Reason, code)
	return f
}

// word returns a reason, or what stands for one that is no label value.
func word(reason, otherwise string) string {
	if len(validation.IsValidLabelValue(reason)) > 0 {
		return otherwise
	}
	return reason
}

// end is a container that ended.
type end struct {
	container string
	*corev1.ContainerStateTerminated
}

// lastEnd returns the last container that ended, or nil. Of those that ended together it
// is one with an exit code other than zero.
func lastEnd(pod *corev1.Pod) *end {
	ends := endsOf(pod)
	if len(ends) == 0 {
		return nil
	}
	slices.SortStableFunc(ends, func(a, b end) int { return b.FinishedAt.Compare(a.FinishedAt.Time) })
	failed := slices.IndexFunc(ends, func(e end) bool {
		return e.ExitCode != 0 && ends[0].FinishedAt.Sub(e.FinishedAt.Time) <= together
	})
	return &ends[max(0, failed)]
}

// endsOf returns how the containers of a pod ended last. A run that completed does not hide the failure of the run
// before it, unless the whole pod succeeded. Init containers complete before the others start: that is no end.
func endsOf(pod *corev1.Pod) (ends []end) {
	for i, c := range slices.Concat(pod.Status.ContainerStatuses, pod.Status.InitContainerStatuses) {
		last, before := c.State.Terminated, c.LastTerminationState.Terminated
		isInit, hasFailed := i >= len(pod.Status.ContainerStatuses), before != nil && before.ExitCode != 0
		if last != nil && last.ExitCode == 0 && pod.Status.Phase != corev1.PodSucceeded && (isInit || hasFailed) {
			last = nil
		}
		if last = cmp.Or(last, before); last != nil {
			ends = append(ends, end{c.Name, last})
		}
	}
	return ends
}

// lastLines returns the last lines of a message.
func lastLines(message string) string {
	lines := strings.Split(strings.TrimSpace(message), "\n")
	return lastBytes(strings.Join(lines[max(0, len(lines)-messageLines):], "\n"), messageBytes)
}

// lastBytes returns the end of a text without control characters: it is shown on terminals.
func lastBytes(text string, atMost int) string {
	text = strings.TrimSpace(text)
	text = text[max(0, len(text)-atMost):]
	return strings.Map(printable, strings.ToValidUTF8(text, ""))
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

// Text describes a failure in one line.
func (f *Failure) Text() string {
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

const (
	// containersKept is how many failed containers of a group are kept: the first to end show
	// the cause, and the others follow them.
	containersKept = 8
	// terminationBytes bounds what is kept of a container's termination message, and unreadBytes
	// why its log was not read.
	terminationBytes, unreadBytes = 1 << 10, 256
	// LogBytes bounds what is kept of a container's log.
	LogBytes = 2 << 10
)

// unreadYet stands in the place of a log until it is read: it stays if the leader is gone before.
const unreadYet = "the pods were gone first"

// Log is what was read of a container's log, or why it could not be read.
type Log struct{ Text, Unread string }

// containersOf returns the containers of a pod that failed together with the group, and the one
// that the failure names. Containers of a pod that is being deleted are stopped: they did not fail.
func containersOf(pod *corev1.Pod, failure *Failure, now time.Time) (failed []lwsv1.ContainerFailure) {
	for _, end := range endsOf(pod) {
		at := end.FinishedAt
		if at.IsZero() || at.After(now) {
			at = moment(now)
		}
		isCause := pod.Name == failure.Pod && end.container == failure.Container
		isStopped := pod.DeletionTimestamp != nil || end.ExitCode == 0
		if !isCause && (isStopped || failure.At.Sub(at.Time) > together) {
			continue
		}
		failed = append(failed, lwsv1.ContainerFailure{
			Pod: pod.Name, Name: end.container, ExitCode: end.ExitCode, At: at,
			Reason: word(end.Reason, ""), Message: lastBytes(end.Message, terminationBytes),
		})
	}
	return failed
}

// AwaitLogs marks the logs of the failed containers as still to be read.
func (d *Decision) AwaitLogs() {
	for i := range d.Containers {
		d.Containers[i].LogUnread = unreadYet
	}
}

// AwaitsLogs reports whether a log of a failed container is still to be read.
func (d *Decision) AwaitsLogs() bool {
	return slices.ContainsFunc(d.Containers, func(c lwsv1.ContainerFailure) bool { return c.LogUnread == unreadYet })
}

// WithLogs returns the decision with the ends of logs, one for each of its containers.
func (d *Decision) WithLogs(logs []Log) *Decision {
	with := *d
	with.Containers = slices.Clone(d.Containers)
	for i := range with.Containers[:min(len(logs), len(with.Containers))] {
		c := &with.Containers[i]
		c.LogUnread = ""
		if c.Log = lastBytes(logs[i].Text, LogBytes); c.Log == "" {
			c.LogUnread = cmp.Or(lastBytes(logs[i].Unread, unreadBytes), "the log is empty")
		}
	}
	return &with
}

// Ended reports whether a container failed in this pod, and whether the kubelet started it again
// since. Another pod of the same name has no such end.
func Ended(pod *corev1.Pod, failed lwsv1.ContainerFailure) (found, startedAgain bool) {
	for _, c := range slices.Concat(pod.Status.ContainerStatuses, pod.Status.InitContainerStatuses) {
		for _, end := range []*corev1.ContainerStateTerminated{c.State.Terminated, c.LastTerminationState.Terminated} {
			if c.Name == failed.Name && end != nil && end.ExitCode == failed.ExitCode &&
				(end.FinishedAt.IsZero() || end.FinishedAt.Equal(&failed.At)) {
				return true, end != c.State.Terminated
			}
		}
	}
	return false, false
}
