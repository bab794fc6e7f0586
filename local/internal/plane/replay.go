package plane

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// Annotations that make kwok take its time over a pod's end.
const (
	hangOnDelete = "local.lockstep.dev/hang-on-delete"
	vanishAfter  = "local.lockstep.dev/vanish-after"
	replayed     = "local.lockstep.dev/replayed"
)

const (
	replayRounds = 5
	replayPause  = time.Second
)

// replay has a new kwok take up what its predecessor left halfway. A pod that it
// hears of before it holds the node's lease is passed over, and not heard of
// again until it changes: so pods that are owed a step are changed.
func replay(ctx context.Context, client kubernetes.Interface) error {
	for round := range replayRounds {
		if round > 0 {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(replayPause):
			}
		}
		pods, err := client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
		if err != nil {
			return fmt.Errorf("list pods for kwok to take up: %w", err)
		}
		touched := 0
		for i := range pods.Items {
			if !owedStep(&pods.Items[i]) {
				continue
			}
			touched++
			if err := touch(ctx, client, &pods.Items[i], round); err != nil {
				return err
			}
		}
		if touched == 0 {
			return nil
		}
	}
	return nil // what is still there waits for something else
}

// owedStep reports whether kwok owes a pod its next step now.
func owedStep(pod *corev1.Pod) bool {
	if pod.Spec.NodeName == "" {
		return false
	}
	if pod.DeletionTimestamp == nil {
		return pod.Status.Phase == corev1.PodPending
	}
	_, slow := pod.Annotations[vanishAfter]
	return len(pod.Finalizers) == 0 && !slow && pod.Annotations[hangOnDelete] != "true"
}

func touch(ctx context.Context, client kubernetes.Interface, pod *corev1.Pod, round int) error {
	patch := fmt.Sprintf(`{"metadata":{"uid":%q,"annotations":{%q:"%d"}}}`, pod.UID, replayed, round+1)
	_, err := client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) || apierrors.IsInvalid(err) {
		return nil // it took its step meanwhile
	}
	return err
}
