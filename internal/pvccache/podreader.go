package pvccache

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/pvc"
)

const (
	// reachWithin bounds how long a read waits for the informer to reach the API server.
	reachWithin     = 250 * time.Millisecond
	reachedAskEvery = 10 * time.Millisecond
	// cheapList is the number of pods up to which a list costs less than waiting.
	cheapList = 500
)

// How a read was answered: by the informer, which has reached the API server, or by a list of
// all pods of the namespace.
const (
	ByWatch = "watch"
	ByList  = "list"
)

// PodReader reads the pods of a namespace as they are now.
type PodReader struct {
	// Pods may answer where a list with limit 1 proves them fresh.
	Pods *Pods
	// Live must not read from a cache.
	Live client.Reader
	// Report gets what answered each read, how long it took, and its error.
	Report func(by string, took time.Duration, err error)
}

// For returns a function that reads the pods that concern a batch.
func (r *PodReader) For(ctx context.Context, batch pvc.Batch) pvc.Read {
	return func(namespace string, see func(*corev1.Pod)) error {
		begun, by := time.Now(), ByList
		fresh, err := r.fresh(ctx, namespace)
		switch {
		case err != nil:
		case fresh:
			by = ByWatch
			r.Pods.using(namespace, batch.Names(), batch.Recorded(), see)
		default:
			err = r.list(ctx, namespace, see)
		}
		r.Report(by, time.Since(begun), err)
		return err
	}
}

// fresh reports whether the informer has seen everything that was in the API server
// when it was called. A list without a resourceVersion is not from a stale cache.
func (r *PodReader) fresh(ctx context.Context, namespace string) (bool, error) {
	first := &metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}}
	if err := r.Live.List(ctx, first, client.InNamespace(namespace), client.Limit(1)); err != nil {
		return false, fmt.Errorf("read the resourceVersion of pods: %w", err)
	}
	if reached := r.Pods.reached(first.ResourceVersion); reached || !isLarge(first) {
		return reached, nil
	}
	err := wait.PollUntilContextTimeout(ctx, reachedAskEvery, reachWithin, true, func(context.Context) (bool, error) {
		return r.Pods.reached(first.ResourceVersion), nil
	})
	return err == nil, nil
}

// isLarge reports whether the list that a list with limit 1 begins costs more than waiting for the informer.
func isLarge(first metav1.ListInterface) bool {
	remaining := first.GetRemainingItemCount()
	return remaining != nil && *remaining >= cheapList
}

// reached reports whether the informer has seen everything up to a resourceVersion.
func (p *Pods) reached(version string) bool {
	order, err := resourceversion.CompareResourceVersion(p.informer.GetStore().LastStoreSyncResourceVersion(), version)
	return err == nil && order >= 0
}

func (r *PodReader) list(ctx context.Context, namespace string, see func(*corev1.Pod)) error {
	err := eachItem(ctx, r.Live, &corev1.PodList{}, namespace, func(object runtime.Object) error {
		see(UsesOf(object.(*corev1.Pod)).Pod()) // all that the informer would keep
		return nil
	})
	if err != nil {
		return fmt.Errorf("list pods: %w", err)
	}
	return nil
}
