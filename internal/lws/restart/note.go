package restart

import (
	"cmp"
	"fmt"
	"strings"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
)

// noteLength is how many characters the note of an event has at most.
const noteLength = 120

// verbs say what became of a pod, by the reason of its disruption or of its failure. Any other pod failed.
var verbs = map[string]string{
	"EvictionByEvictionAPI":         "was drained",
	"PreemptionByScheduler":         "was preempted",
	"DeletionByTaintManager":        "lost its node",
	"DeletionByPodGC":               "lost its node",
	"NodeLost":                      "lost its node",
	"DeletionByDeviceTaintManager":  "lost its device",
	"TerminationByKubelet":          "was evicted by the kubelet",
	"Evicted":                       "was evicted by the kubelet",
	string(corev1.DisruptionTarget): "was evicted",
	string(TerminationTarget):       "was evicted by Kueue",
	CodePodDeleted:                  "was deleted",
	CodePodGone:                     "is gone",
	CodeWorkersetDeleted:            "lost its StatefulSet",
}

// Note says which pod failed, how and where, and what became of its group. Names are cut if there is no room for them.
func (d *Decision) Note(leader *corev1.Pod, group string) string {
	role, end := "Worker", fmt.Sprintf(": group %s is recreated", group)
	whole := d.note(role, noteLength) + fmt.Sprintf(", deleted %s to recreate group %s", leader.Name, group)
	switch {
	case d.Failure.Pod == leader.Name:
		role = "Leader"
	case utf8.RuneCountInString(whole) <= noteLength:
		return whole
	}
	for width := noteLength; ; width-- {
		if note := d.note(role, width) + end; utf8.RuneCountInString(note) <= noteLength || width == 1 {
			return note
		}
	}
}

func (d *Decision) note(role string, width int) string {
	f, cause := d.Failure, cmp.Or(d.Disruption, d.Failure.Reason)
	var details []string
	if f.Container != "" {
		details = append(details, "container "+cut(f.Container, width), cut(f.Reason, width))
	} else {
		details = append(details, cut(cause, width))
	}
	if f.ExitCode != nil {
		details = append(details, fmt.Sprintf("exit code %d", *f.ExitCode))
	}
	if f.Node != "" {
		details = append(details, "node "+cut(f.Node, width))
	}
	return fmt.Sprintf("%s %s %s (%s)", role, cut(f.Pod, width), cmp.Or(verbs[cause], "failed"), strings.Join(details, ", "))
}

// cut shortens a name to a width. Its begin and its end stay: pods are told apart by the end.
func cut(name string, width int) string {
	if len(name) <= width {
		return name
	}
	return name[:(width-1)/2] + "…" + name[len(name)-width/2:]
}
