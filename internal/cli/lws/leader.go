package lws

import (
	"cmp"
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/internal/lws/restart"
	"lockstep.dev/lockstep/internal/lws/workload"
)

// Request is what a user asks of a group: the annotation that its leader gets, or why it gets none.
type Request func(leader *corev1.Pod, now time.Time) (key, value string, err error)

// Ask writes a request onto the leader of a group, and returns that leader as it became. After a conflict it decides again
// about the same pod: the kubelet writes its status at any time.
func (e *Editor) Ask(ctx context.Context, key types.NamespacedName, group string, request Request) (after *corev1.Pod, err error) {
	first := types.UID("")
	return after, retry.RetryOnConflict(retry.DefaultRetry, func() error {
		leader, err := e.leader(ctx, key, group)
		if err != nil {
			return err
		}
		if first = cmp.Or(first, leader.UID); first != leader.UID {
			return fmt.Errorf("group %s was recreated meanwhile", group)
		}
		annotation, value, err := request(leader, time.Now())
		if err != nil {
			return err
		}
		after = leader.DeepCopy()
		metav1.SetMetaDataAnnotation(&after.ObjectMeta, annotation, value)
		if e.DryRun != DryRunClient {
			after, err = write(ctx, e, leader, after)
		}
		return err
	})
}

// leader reads the leader of a group: the one that lives, where an earlier one still terminates.
func (e *Editor) leader(ctx context.Context, key types.NamespacedName, group string) (*corev1.Pod, error) {
	set, pods := &lwsv1.LeaderWorkerSet{}, &corev1.PodList{}
	if err := e.Get(ctx, key, set); err != nil {
		return nil, err
	}
	if set.DeletionTimestamp != nil {
		return nil, fmt.Errorf("leaderworkerset %q is being deleted", key.Name)
	}
	if err := e.List(ctx, pods, client.InNamespace(key.Namespace), client.MatchingLabels(workload.LeaderSelector(key.Name))); err != nil {
		return nil, err
	}
	var found *corev1.Pod
	for i := range pods.Items {
		if pod := &pods.Items[i]; workload.Of(pod).Name() == group && (found == nil || found.DeletionTimestamp != nil) {
			found = pod
		}
	}
	if found == nil {
		return nil, fmt.Errorf("group %q of leaderworkerset %q has no leader; see: kubectl lockstep status %[2]s -n %s", group, key.Name, key.Namespace)
	}
	return found, nil
}

// RestartGroup asks to recreate the group of a leader once.
func RestartGroup(leader *corev1.Pod, now time.Time) (key, value string, err error) {
	group := workload.Of(leader).Name()
	switch asked, isAsked := leader.Annotations[lwsv1.RecreateAnnotationKey]; {
	case lws.IsExhausted(leader):
		err = fmt.Errorf("group %s was stopped; recreate it with: kubectl lockstep recover %s", group, groupOf(leader))
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
		err = fmt.Errorf("group %s is not stopped; recreate it with: kubectl lockstep restart %s", group, groupOf(leader))
	case restart.IsRecovered(leader):
		err = fmt.Errorf("group %s is being recovered", group)
	}
	return lwsv1.RecoverAnnotationKey, "true", err
}

// groupOf names the group of a leader as commands take it.
func groupOf(leader *corev1.Pod) string {
	return fmt.Sprintf("%s %s -n %s", leader.Labels[lwsv1.SetNameLabelKey], workload.Of(leader).Name(), leader.Namespace)
}
