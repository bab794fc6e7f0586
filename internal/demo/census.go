package demo

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// census remembers every pod of a namespace that ever was, gone ones too.
type census struct {
	mu   sync.Mutex
	pods map[types.UID]*corev1.Pod
}

// countPods counts from now on, for as long as ctx lasts.
func countPods(ctx context.Context, config *rest.Config, namespace string) (*census, error) {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	c := &census{pods: map[types.UID]*corev1.Pod{}}
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(namespace))
	informer := factory.Core().V1().Pods().Informer()
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    c.see,
		UpdateFunc: func(_, is any) { c.see(is) },
	}); err != nil {
		return nil, err
	}
	factory.Start(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		return nil, errors.New("pods cannot be watched")
	}
	return c, nil
}

func (c *census) see(object any) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pods[pod.UID] = pod
}

// all returns the UIDs of the pods seen so far.
func (c *census) all() []types.UID {
	c.mu.Lock()
	defer c.mu.Unlock()
	var uids []types.UID
	for uid := range c.pods {
		uids = append(uids, uid)
	}
	return uids
}

// since returns the pods that were created after others were seen.
func (c *census) since(before []types.UID) []*corev1.Pod {
	c.mu.Lock()
	defer c.mu.Unlock()
	var pods []*corev1.Pod
	for uid, pod := range c.pods {
		if !slices.Contains(before, uid) {
			pods = append(pods, pod)
		}
	}
	return pods
}

// check returns an error unless exactly so many pods were created since, all of
// them with the image.
func (c *census) check(before []types.UID, want int, image string) error {
	created := c.since(before)
	if len(created) != want {
		return fmt.Errorf("%d pods were created where %d are wanted", len(created), want)
	}
	for _, pod := range created {
		for i := range pod.Spec.Containers {
			if got := pod.Spec.Containers[i].Image; got != image {
				return fmt.Errorf("pod %s of the new life runs the old image %s", pod.Name, got)
			}
		}
	}
	return nil
}
