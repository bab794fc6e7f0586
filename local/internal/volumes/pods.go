package volumes

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kubernetes/pkg/volume"
)

// nodePods are the pods of the node. It stands for the kubelet's pod manager and
// its pod workers: a pod runs as long as its object is there.
type nodePods struct{ store cache.Store }

func (p nodePods) GetPods() []*corev1.Pod {
	var pods []*corev1.Pod
	for _, object := range p.store.List() {
		pods = append(pods, object.(*corev1.Pod))
	}
	return pods
}

func (p nodePods) GetPodByUID(uid types.UID) (*corev1.Pod, bool) {
	for _, pod := range p.GetPods() {
		if pod.UID == uid {
			return pod, true
		}
	}
	return nil, false
}

// ShouldPodContainersBeTerminating keeps new volumes from a terminating pod.
func (p nodePods) ShouldPodContainersBeTerminating(uid types.UID) bool {
	pod, there := p.GetPodByUID(uid)
	return !there || pod.DeletionTimestamp != nil
}

// ShouldPodRuntimeBeRemoved takes the volumes of a pod away.
func (p nodePods) ShouldPodRuntimeBeRemoved(uid types.UID) bool {
	_, there := p.GetPodByUID(uid)
	return !there
}

// host is what the volume plugins stand on, of which none is used: nothing is
// mounted.
type host struct {
	volume.VolumeHost
	client kubernetes.Interface
}

func (h host) GetKubeClient() kubernetes.Interface { return h.client }
