package interleave

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

const namespace = "ns"

var (
	claimResource = schema.GroupResource{Resource: "persistentvolumeclaims"}
	podResource   = schema.GroupResource{Resource: "pods"}
)

// store stands in for the API server: every call is one moment. Objects in it are
// never changed, only replaced.
type store struct {
	version int
	lives   int
	claims  map[string]*corev1.PersistentVolumeClaim
	pods    map[string]*corev1.Pod
	// logs are all changes, as watches tell them.
	claimLog, podLog []watch.Event
}

func newStore() *store {
	return &store{claims: map[string]*corev1.PersistentVolumeClaim{}, pods: map[string]*corev1.Pod{}}
}

func (s *store) next() string {
	s.version++
	return strconv.Itoa(s.version)
}

// uid is never given twice.
func (s *store) uid(name string) types.UID {
	s.lives++
	return types.UID(fmt.Sprintf("%s-%d", name, s.lives))
}

func (s *store) createClaim(claim *corev1.PersistentVolumeClaim) {
	claim.Namespace, claim.UID = namespace, s.uid(claim.Name)
	s.putClaim(watch.Added, claim)
}

// putClaim stores a claim that was changed, or takes it out when nothing keeps it
// any more.
func (s *store) putClaim(how watch.EventType, claim *corev1.PersistentVolumeClaim) {
	claim.ResourceVersion = s.next()
	s.claims[claim.Name] = claim
	if claim.DeletionTimestamp != nil && len(claim.Finalizers) == 0 {
		how = watch.Deleted
		delete(s.claims, claim.Name)
	}
	s.claimLog = append(s.claimLog, watch.Event{Type: how, Object: claim})
}

func (s *store) deleteClaim(name string) {
	claim := s.claims[name].DeepCopy()
	claim.DeletionTimestamp = &metav1.Time{}
	s.putClaim(watch.Modified, claim)
}

// judged is what a write was decided on. Empty fields are no precondition.
type judged struct {
	uid     types.UID
	version string
}

// writeClaim changes the claim of a name if it is what was judged.
func (s *store) writeClaim(name string, onto judged, change func(*corev1.PersistentVolumeClaim)) error {
	now := s.claims[name]
	switch {
	case now == nil:
		return apierrors.NewNotFound(claimResource, name)
	case onto.uid != "" && onto.uid != now.UID, onto.version != "" && onto.version != now.ResourceVersion:
		return apierrors.NewConflict(claimResource, name, fmt.Errorf("the object has been modified"))
	}
	then := now.DeepCopy()
	change(then)
	if now.DeletionTimestamp != nil && slices.ContainsFunc(then.Finalizers, func(f string) bool { return !slices.Contains(now.Finalizers, f) }) {
		return apierrors.NewForbidden(claimResource, name, fmt.Errorf("no new finalizers can be added if the object is being deleted"))
	}
	if slices.Equal(now.Finalizers, then.Finalizers) && maps.Equal(now.Annotations, then.Annotations) {
		return nil // nothing changes, nor does the version
	}
	s.putClaim(watch.Modified, then)
	return nil
}

func (s *store) createPod(pod *corev1.Pod) {
	pod.Namespace, pod.UID = namespace, s.uid(pod.Name)
	s.putPod(watch.Added, pod)
}

func (s *store) putPod(how watch.EventType, pod *corev1.Pod) {
	pod.ResourceVersion = s.next()
	s.pods[pod.Name] = pod
	s.podLog = append(s.podLog, watch.Event{Type: how, Object: pod})
}

// bindPod binds the pod of a name if it is still the one that a node was chosen for,
// and may be bound at all.
func (s *store) bindPod(name string, uid types.UID) error {
	now := s.pods[name]
	switch {
	case now == nil || now.UID != uid:
		return apierrors.NewNotFound(podResource, name)
	case now.DeletionTimestamp != nil || now.Spec.NodeName != "" || len(now.Spec.SchedulingGates) > 0:
		return apierrors.NewConflict(podResource, name, fmt.Errorf("it is bound, gated or being deleted"))
	}
	pod := now.DeepCopy()
	pod.Spec.NodeName = "n1"
	s.putPod(watch.Modified, pod)
	return nil
}

// writePod changes the pod of a name if it is what was judged.
func (s *store) writePod(name string, onto judged, change func(*corev1.Pod)) error {
	now := s.pods[name]
	switch {
	case now == nil:
		return apierrors.NewNotFound(podResource, name)
	case onto.uid != "" && onto.uid != now.UID, onto.version != "" && onto.version != now.ResourceVersion:
		return apierrors.NewConflict(podResource, name, fmt.Errorf("the object has been modified"))
	}
	then := now.DeepCopy()
	change(then)
	s.putPod(watch.Modified, then)
	return nil
}

// endPod takes a pod out.
func (s *store) endPod(name string) {
	pod := s.pods[name].DeepCopy()
	pod.ResourceVersion = s.next()
	delete(s.pods, name)
	s.podLog = append(s.podLog, watch.Event{Type: watch.Deleted, Object: pod})
}

// podsNow is a list of one moment.
func (s *store) podsNow() *corev1.PodList {
	list := &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: s.podVersion()}}
	for _, name := range sorted(s.pods) {
		list.Items = append(list.Items, *s.pods[name])
	}
	return list
}

// podVersion is that of the last change of a pod.
func (s *store) podVersion() string {
	if len(s.podLog) == 0 {
		return "1"
	}
	return s.podLog[len(s.podLog)-1].Object.(*corev1.Pod).ResourceVersion
}
