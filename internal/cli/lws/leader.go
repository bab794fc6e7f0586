package lws

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/internal/lws/restart"
	"lockstep.dev/lockstep/internal/lws/workload"
)

// Request is what a user asks of a group: the annotation that its leader gets, or why it gets none.
type Request func(leader *corev1.Pod, now time.Time) (key, value string, err error)

// Ask writes a request onto the leader of a group: the one that lives, where an earlier one still terminates.
func Ask(group, verb string, request Request) Decide {
	return func(ctx context.Context, live client.Reader, set *lwsv1.LeaderWorkerSet) (Change, error) {
		pods := &corev1.PodList{}
		if err := live.List(ctx, pods, client.InNamespace(set.Namespace), client.MatchingLabels(workload.LeaderSelector(set.Name))); err != nil {
			return Change{}, err
		}
		var leader *corev1.Pod
		for i := range pods.Items {
			if pod := &pods.Items[i]; (workload.Of(pod).Name() == group || pod.Name == group) && (leader == nil || leader.DeletionTimestamp != nil) {
				leader = pod
			}
		}
		if leader == nil {
			return Change{}, fmt.Errorf("group %q of leaderworkerset %q has no leader; see: kubectl lockstep status %[2]s -n %s", group, set.Name, set.Namespace)
		}
		key, value, err := request(leader, time.Now())
		after := leader.DeepCopy()
		metav1.SetMetaDataAnnotation(&after.ObjectMeta, key, value)
		return Change{fmt.Sprintf("asks to %s group %s", verb, group), leader, after}, err
	}
}

// RestartGroup asks to recreate the group of a leader once.
func RestartGroup(leader *corev1.Pod, now time.Time) (key, value string, err error) {
	group := workload.Of(leader).Name()
	switch asked, isAsked := leader.Annotations[lwsv1.RecreateAnnotationKey]; {
	case lws.IsExhausted(leader):
		err = fmt.Errorf("group %s was stopped; recreate it with: kubectl lockstep recover %s", group, argumentsOf(leader))
	case leader.DeletionTimestamp != nil:
		err = fmt.Errorf("group %s is being recreated: its leader %s is terminating", group, leader.Name)
	case isAsked:
		err = fmt.Errorf("a restart of group %s was requested before (%s), and no operator has carried it out; run: kubectl lockstep check", group, asked)
	}
	return lwsv1.RecreateAnnotationKey, now.UTC().Format(time.RFC3339), err
}

// Recover asks to recreate a group that exhausted maxGroupRestarts, and to count anew.
func Recover(leader *corev1.Pod, _ time.Time) (key, value string, err error) {
	group := workload.Of(leader).Name()
	switch {
	case !lws.IsExhausted(leader):
		err = fmt.Errorf("group %s is not stopped; recreate it with: kubectl lockstep restart %s", group, argumentsOf(leader))
	case restart.IsRecovered(leader):
		err = fmt.Errorf("group %s is being recovered", group)
	}
	return lwsv1.RecoverAnnotationKey, "true", err
}

// argumentsOf names the group of a leader as commands take it.
func argumentsOf(leader *corev1.Pod) string {
	return fmt.Sprintf("%s %s -n %s", leader.Labels[lwsv1.SetNameLabelKey], workload.Of(leader).Name(), leader.Namespace)
}
