package interleave

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/test/fakeapi"
)

const namespace = fakeapi.Namespace

// node is where pods are bound.
const node = "n1"

var (
	claimResource = schema.GroupResource{Resource: "persistentvolumeclaims"}
	podResource   = schema.GroupResource{Resource: "pods"}
)

// store is the API server: every call is one moment. It keeps all changes, as watches
// report them.
type store struct {
	*fakeapi.Server
	claimLog, podLog []watch.Event
}

func newStore() *store {
	s := &store{Server: fakeapi.New()}
	s.Changed = func(how watch.EventType, object client.Object) {
		event := watch.Event{Type: how, Object: object}
		if _, isPod := object.(*corev1.Pod); isPod {
			s.podLog = append(s.podLog, event)
			return
		}
		s.claimLog = append(s.claimLog, event)
	}
	return s
}

func named[T client.Object](s *store) map[string]T {
	all := map[string]T{}
	for _, object := range fakeapi.All[T](s.Objects) {
		all[object.GetName()] = object
	}
	return all
}

func (s *store) claims() map[string]*corev1.PersistentVolumeClaim {
	return named[*corev1.PersistentVolumeClaim](s)
}

func (s *store) pods() map[string]*corev1.Pod { return named[*corev1.Pod](s) }

// create stores a new object.
func (s *store) create(object client.Object) {
	object.SetNamespace(namespace)
	fakeapi.Add(s.Server, object)
}

// put stores a changed object, or removes it if it is terminating and no finalizer keeps it.
func (s *store) put(object client.Object) {
	_, isClaim := object.(*corev1.PersistentVolumeClaim)
	if isClaim && object.GetDeletionTimestamp() != nil && len(object.GetFinalizers()) == 0 {
		s.Erase(object)
		return
	}
	s.Put(object)
}

func (s *store) deleteClaim(name string) {
	s.Remove(s.claims()[name], metav1.DeletePropagationBackground)
}

// bindPod binds the pod of a name if it still has the UID, and may be bound.
func (s *store) bindPod(name string, uid types.UID) error {
	now := s.pods()[name]
	switch {
	case now == nil || now.UID != uid:
		return apierrors.NewNotFound(podResource, name)
	case now.DeletionTimestamp != nil || now.Spec.NodeName != "" || len(now.Spec.SchedulingGates) > 0:
		return apierrors.NewConflict(podResource, name, fmt.Errorf("it is bound, gated or being deleted"))
	}
	pod := now.DeepCopy()
	pod.Spec.NodeName = node
	s.Put(pod)
	return nil
}

// deletePod deletes a pod. A kubelet unmounts the volumes before a bound pod is gone.
func (s *store) deletePod(name string) {
	s.Remove(s.pods()[name], metav1.DeletePropagationBackground)
}

// endPod removes a pod.
func (s *store) endPod(name string) { s.Erase(s.pods()[name]) }

// podsNow lists all pods.
func (s *store) podsNow() *corev1.PodList {
	list := &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: s.podVersion()}}
	for _, pod := range fakeapi.All[*corev1.Pod](s.Objects) {
		list.Items = append(list.Items, *pod)
	}
	return list
}

// podVersion returns the resourceVersion of the last change of a pod.
func (s *store) podVersion() string {
	if len(s.podLog) == 0 {
		return "1"
	}
	return s.podLog[len(s.podLog)-1].Object.(*corev1.Pod).ResourceVersion
}
