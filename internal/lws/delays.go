package lws

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/condition"
	"lockstep.dev/lockstep/internal/gang"
	"lockstep.dev/lockstep/internal/lws/workload"
)

// Codes of delays: what other controllers, the scheduler or a kubelet cannot do for a group yet. They are stable.
const (
	CodeFailedCreate      = "FailedCreate"
	CodeGangUnschedulable = "GangUnschedulable"
	CodeUnschedulable     = "Unschedulable"
	CodeSchedulingGated   = "SchedulingGated"
	CodeImagePullFailed   = "ImagePullFailed"
)

// delayTexts says what groups wait for. The first code that applies to a set is reported.
var delayTexts = []struct{ code, text string }{
	{CodeFailedCreate, "pods that cannot be created"},
	{CodeGangUnschedulable, "room for all pods of a gang"},
	{CodeUnschedulable, "a node that their pods fit on"},
	{CodeSchedulingGated, "the scheduling gates of their pods"},
	{CodeImagePullFailed, "an image that cannot be pulled"},
}

var pullFailures = []string{
	"ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName", "ImageInspectError", "RegistryUnavailable", "SignatureValidationFailed",
}

// DelayAfter is how long a delay lasts until it is reported. Most pods have no node for a moment.
const DelayAfter = 10 * time.Second

// delay has the reason and the message of what groups of a set wait for. isNear is set while a pod lacks a node, and not
// for long enough.
type delay struct {
	code, message string
	isNear        bool
}

// delays counts the groups that wait for what the operator cannot do, and names one object. The message has no words
// of others: they change, and each change would be a write.
func (d *setDecision) delays() (found delay) {
	groups, first := map[string]int32{}, map[string]string{}
	note := func(code, object string, n int32) {
		groups[code], first[code] = groups[code]+n, cmp.Or(first[code], object)
	}
	note(d.maker.missing())
	for i := range d.rows {
		g, mine := &d.rows[i], map[string]string{}
		if g.isReady {
			continue
		}
		if sts := g.Workers.Own(); sts != nil && len(g.conflicts(d.Set)) == 0 && g.isFirstFree(sts) && d.stalls(sts, g.Stalled) {
			mine[CodeFailedCreate] = "statefulset " + sts.Name
		}
		for _, pod := range g.pods() {
			switch code, from := PodDelay(pod); {
			case d.Now.Before(from):
				found.isNear = true
			case code != "":
				mine[code] = cmp.Or(mine[code], "pod "+pod.Name)
			}
		}
		for code, object := range mine {
			note(code, object, 1)
		}
	}
	for _, t := range delayTexts {
		if n := groups[t.code]; n > 0 {
			found.code, found.message = t.code, fmt.Sprintf("Groups that wait for %s: %d, such as the one of %s; see: kubectl lockstep status %s -n %s",
				t.text, n, first[t.code], d.Set.Name, d.Set.Namespace)
			return found
		}
	}
	return found
}

func (d *deploymentMaker) missing() (code, object string, n int32) {
	deployment := d.Deployment.Own()
	if deployment == nil || ReplicaFailure(deployment) == "" {
		return "", "", 0
	}
	return CodeFailedCreate, "deployment " + deployment.Name, max(1, workload.Replicas(d.Set)-deployment.Status.Replicas)
}

func (d *statefulSetMaker) missing() (code, object string, n int32) {
	sts := d.StatefulSet.Own()
	if sts == nil || d.conflict != "" || !d.isFirstFree(sts) || !d.stalls(sts, d.Stalled) {
		return "", "", 0
	}
	return CodeFailedCreate, "statefulset " + sts.Name, max(1, workload.Replicas(d.Set)-sts.Status.Replicas)
}

// ReplicaFailure is why a Deployment cannot create pods, or empty.
func ReplicaFailure(deployment *appsv1.Deployment) string {
	for _, c := range deployment.Status.Conditions {
		if c.Type == appsv1.DeploymentReplicaFailure && c.Status == corev1.ConditionTrue {
			return cmp.Or(c.Message, c.Reason)
		}
	}
	return ""
}

// stalls reports whether a StatefulSet lacks pods that it cannot create: a touch did not help. One that is reported
// stays so until it lacks none: another process of the operator has not seen for how long it stalls.
func (d *setDecision) stalls(sts *appsv1.StatefulSet, since time.Time) bool {
	told, _ := condition.Of(d.SetSnapshot.Set.Status.Conditions, string(lwsv1.LeaderWorkerSetProgressing))
	touched, err := time.Parse(time.RFC3339, sts.Annotations[NudgeAnnotationKey])
	return err == nil && workload.LacksPods(sts) && (told.Reason == CodeFailedCreate ||
		!since.IsZero() && touched.After(since) && !d.Now.Before(touched.Add(DelayAfter)))
}

// PodDelay returns the code of what a pod waits for, or nothing, and from when on it is reported.
func PodDelay(pod *corev1.Pod) (code string, from time.Time) {
	if pod.DeletionTimestamp != nil || workload.IsGated(pod) {
		return "", from
	}
	if pod.Spec.NodeName != "" {
		for _, c := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
			if c.State.Waiting != nil && slices.Contains(pullFailures, c.State.Waiting.Reason) {
				return CodeImagePullFailed, from
			}
		}
		return "", from
	}
	from = pod.CreationTimestamp.Time
	if gang.IsTied(pod) || gang.IsHanded(pod) { // a scheduler may say nothing of a pod that waits for others
		code = CodeGangUnschedulable
	}
	for _, c := range pod.Status.Conditions {
		switch {
		case c.Type != corev1.PodScheduled || c.Status != corev1.ConditionFalse:
		case c.Reason == corev1.PodReasonSchedulingGated:
			code, from = CodeSchedulingGated, c.LastTransitionTime.Time
		case c.Reason == corev1.PodReasonUnschedulable:
			code, from = cmp.Or(code, CodeUnschedulable), c.LastTransitionTime.Time
		}
	}
	if code == "" {
		return "", time.Time{}
	}
	return code, from.Add(DelayAfter)
}
