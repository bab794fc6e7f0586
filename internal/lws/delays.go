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
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws/workload"
)

// Codes of delays: what other controllers, the scheduler or a kubelet cannot do for a group yet. They are stable.
const (
	CodeFailedCreate      = "FailedCreate"
	CodeUnschedulable     = "Unschedulable"
	CodeGangUnschedulable = "GangUnschedulable"
	CodeSchedulingGated   = "SchedulingGated"
	CodeImagePullFailed   = "ImagePullFailed"
	CodeContainerFailed   = "ContainerCreateFailed"
	// CodeDelayed is what is too new to be one of these.
	CodeDelayed = "WaitingForPods"
)

// delayTexts says what groups wait for, by code. The first code that applies to a set is reported.
var delayTexts = []delayText{
	{CodeFailedCreate, "pods that cannot be created"},
	{CodeGangUnschedulable, "room for all pods of a gang"},
	{CodeUnschedulable, "a node that their pods fit on"},
	{CodeSchedulingGated, "the scheduling gates of their pods"},
	{CodeImagePullFailed, "an image that cannot be pulled"},
	{CodeContainerFailed, "a container that cannot be created"},
}

type delayText struct{ code, text string }

// containerDelays are the codes of what a kubelet says of a container. A crash is none: it comes and goes.
var containerDelays = map[string]string{
	"ErrImagePull": CodeImagePullFailed, "ImagePullBackOff": CodeImagePullFailed, "ErrImageNeverPull": CodeImagePullFailed,
	"InvalidImageName": CodeImagePullFailed, "ImageInspectError": CodeImagePullFailed, "RegistryUnavailable": CodeImagePullFailed,
	"SignatureValidationFailed":  CodeImagePullFailed,
	"CreateContainerConfigError": CodeContainerFailed, "CreateContainerError": CodeContainerFailed,
}

const (
	// DelayAfter is how long a scheduler may lack a node for a pod before that is a delay. Most pods wait for a moment.
	DelayAfter = 10 * time.Second
	// gangDelayAfter is the same where the scheduler says nothing of a pod of a gang.
	gangDelayAfter = 30 * time.Second
)

// delay is what groups of a set wait for, or the zero value.
type delay struct {
	code, message string
	// until is when something that is too new becomes a delay, or zero.
	until time.Time
}

// delays counts the groups that wait for what the operator cannot do, and names one object. The message has no words
// of others: they change, and each change would be a write.
func (d *setDecision) delays() (found delay) {
	groups, first := map[string]int32{}, map[string]string{}
	note := func(code, object string, n int32) {
		if code != "" && n > 0 {
			groups[code], first[code] = groups[code]+n, cmp.Or(first[code], object)
		}
	}
	note(d.missingLeaders())
	for i := range d.Groups {
		g := &d.Groups[i]
		if g.Ready(d.Set) {
			continue
		}
		code, object, until := d.delayOf(g)
		note(code, object, 1)
		found.until = earlier(found.until, until)
	}
	for _, t := range delayTexts {
		if n := groups[t.code]; n > 0 && found.code == "" {
			found.code = t.code
			found.message = fmt.Sprintf("Groups that wait for %s: %d, such as the one of %s; see: kubectl lockstep status %s -n %s",
				t.text, n, first[t.code], d.Set.Name, d.Set.Namespace)
		}
	}
	return found
}

// missingLeaders returns how many leaders cannot be created, and what should create them.
func (d *setDecision) missingLeaders() (code, object string, n int32) {
	if deployment := d.Deployment.Own(); deployment != nil && fails(deployment) {
		return CodeFailedCreate, "deployment " + deployment.Name, max(1, workload.Replicas(d.Set)-deployment.Status.Replicas)
	}
	sts := d.StatefulSet.Own()
	if sts == nil || d.conflict != "" || !d.isFirstFree(sts) || !d.stalls(sts, d.Stalled) {
		return "", "", 0
	}
	return CodeFailedCreate, "statefulset " + sts.Name, workload.PodsOf(sts) - sts.Status.Replicas
}

// fails reports whether a Deployment says that pods cannot be created.
func fails(deployment *appsv1.Deployment) bool {
	return slices.ContainsFunc(deployment.Status.Conditions, func(c appsv1.DeploymentCondition) bool {
		return c.Type == appsv1.DeploymentReplicaFailure && c.Status == corev1.ConditionTrue
	})
}

// stalls reports whether a StatefulSet lacks pods that it cannot create: a touch did not help. One that is reported
// stays so until it lacks none: another process of the operator has not seen for how long it stalls.
func (d *setDecision) stalls(sts *appsv1.StatefulSet, since time.Time) bool {
	told, _ := condition.Of(d.SetSnapshot.Set.Status.Conditions, string(lwsv1.LeaderWorkerSetProgressing))
	touched, err := time.Parse(time.RFC3339, sts.Annotations[NudgeAnnotationKey])
	return err == nil && workload.LacksPods(sts) && (told.Reason == CodeFailedCreate ||
		!since.IsZero() && touched.After(since) && !d.Now.Before(touched.Add(DelayAfter)))
}

// delayOf returns what a group waits for and an object of it, and when another delay begins.
func (d *setDecision) delayOf(g *Group) (code, object string, until time.Time) {
	if sts := g.Workers.Own(); sts != nil && len(g.conflicts(d.Set)) == 0 && g.isFirstFree(sts) && d.stalls(sts, g.Stalled) {
		return CodeFailedCreate, "statefulset " + sts.Name, until
	}
	rank := len(delayTexts)
	for _, pod := range append([]*corev1.Pod{g.Leader}, g.Pods.Owned...) {
		is, from := PodDelay(pod)
		at := slices.IndexFunc(delayTexts, func(t delayText) bool { return t.code == is })
		switch {
		case at < 0:
		case d.Now.Before(from):
			until = earlier(until, from)
		case at < rank:
			code, object, rank = is, identity.RefOf(identity.KindPod, pod).String(), at
		}
	}
	return code, object, until
}

// earlier returns the earlier of two times, where zero is none.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// PodDelay returns the code of what a pod waits for, or nothing, and from when on that is a delay.
func PodDelay(pod *corev1.Pod) (code string, from time.Time) {
	if pod.DeletionTimestamp != nil || workload.IsGated(pod) {
		return "", from
	}
	if pod.Spec.NodeName != "" {
		for _, c := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
			if waiting := c.State.Waiting; waiting != nil && containerDelays[waiting.Reason] != "" {
				return containerDelays[waiting.Reason], from
			}
		}
		return "", from
	}
	isGang := gang.IsTied(pod) || gang.IsHanded(pod)
	for _, c := range pod.Status.Conditions {
		switch {
		case c.Type != corev1.PodScheduled || c.Status != corev1.ConditionFalse:
		case c.Reason == corev1.PodReasonSchedulingGated:
			return CodeSchedulingGated, c.LastTransitionTime.Add(DelayAfter)
		case isGang:
			return CodeGangUnschedulable, c.LastTransitionTime.Add(DelayAfter)
		case c.Reason == corev1.PodReasonUnschedulable:
			return CodeUnschedulable, c.LastTransitionTime.Add(DelayAfter)
		}
	}
	if isGang {
		return CodeGangUnschedulable, pod.CreationTimestamp.Add(gangDelayAfter)
	}
	return "", from
}
