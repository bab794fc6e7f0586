package pvccache

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// podStore is Pods as the watch writes to it. A call has been heard by everybody
// who follows when it returns, and only then is its resource version reached.
type podStore Pods

// podChange is one change of one pod.
type podChange struct{ before, after *PodUses }

// Add takes in a pod that came.
func (s *podStore) Add(object any) error { return s.put(object) }

// Update takes in a pod that changed, or another one of its name.
func (s *podStore) Update(object any) error { return s.put(object) }

// Delete takes out a pod that went.
func (s *podStore) Delete(object any) error {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return fmt.Errorf("not a pod: %T", object)
	}
	s.mu.Lock()
	changes := s.remove(pod.Namespace, pod.Name)
	s.reached = pod.ResourceVersion
	s.mu.Unlock()
	s.tell(changes)
	return nil
}

// Replace takes in a whole list. What is not on it has gone unseen.
func (s *podStore) Replace(list []any, version string) error {
	fresh := make(map[types.NamespacedName]*PodUses, len(list))
	for _, object := range list {
		pod, ok := object.(*corev1.Pod)
		if !ok {
			return fmt.Errorf("not a pod: %T", object)
		}
		fresh[types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}] = usesOf(pod)
	}
	s.mu.Lock()
	changes := s.removeAllBut(fresh)
	for _, pod := range fresh {
		changes = append(changes, s.set(pod)...)
	}
	s.reached = version
	s.mu.Unlock()
	s.tell(changes)
	if !(*Pods)(s).Synced() {
		close(s.synced) // by the one goroutine of the watch
	}
	return nil
}

// Bookmark notes how far the watch has come without an event.
func (s *podStore) Bookmark(version string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reached = version
	return nil
}

// Resync does nothing: nobody asks for it.
func (s *podStore) Resync() error { return nil }

// Transformer keeps whole pods out of memory while a list comes in.
func (s *podStore) Transformer() cache.TransformFunc { return trimToUses }

func (s *podStore) put(object any) error {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return fmt.Errorf("not a pod: %T", object)
	}
	s.mu.Lock()
	changes := s.set(usesOf(pod))
	s.reached = pod.ResourceVersion
	s.mu.Unlock()
	s.tell(changes)
	return nil
}

func (s *podStore) tell(changes []podChange) {
	s.mu.RLock()
	followers := slices.Clone(s.followers)
	s.mu.RUnlock()
	for _, change := range changes {
		for _, heard := range followers {
			heard(change.before, change.after)
		}
	}
}

// set puts a pod in. One of its name with another UID has gone.
func (s *podStore) set(pod *PodUses) []podChange {
	var before *PodUses
	if space := s.namespaces[pod.Namespace]; space != nil {
		before = space.byName[pod.Name]
	}
	if before != nil && before.ResourceVersion == pod.ResourceVersion && before.UID == pod.UID {
		return nil
	}
	gone := s.remove(pod.Namespace, pod.Name)
	s.insert(pod)
	if before != nil && before.UID == pod.UID {
		return []podChange{{before, pod}}
	}
	return append(gone, podChange{nil, pod})
}

func (s *podStore) insert(pod *PodUses) {
	space := s.namespaces[pod.Namespace]
	if space == nil {
		space = &podSpace{byName: map[string]*PodUses{}, byClaim: map[string][]*PodUses{}, byUID: map[types.UID]*PodUses{}}
		s.namespaces[pod.Namespace] = space
	}
	space.byName[pod.Name], space.byUID[pod.UID] = pod, pod
	for _, claim := range pod.Claims() {
		if !slices.Contains(space.byClaim[claim], pod) { // it may name one twice
			space.byClaim[claim] = append(space.byClaim[claim], pod)
		}
	}
}

func (s *podStore) remove(namespace, name string) []podChange {
	space := s.namespaces[namespace]
	if space == nil || space.byName[name] == nil {
		return nil
	}
	pod := space.byName[name]
	delete(space.byName, name)
	delete(space.byUID, pod.UID)
	for _, claim := range pod.Claims() {
		space.forget(claim, pod)
	}
	if len(space.byName) == 0 {
		delete(s.namespaces, namespace)
	}
	return []podChange{{pod, nil}}
}

func (s *podSpace) forget(claim string, pod *PodUses) {
	users := s.byClaim[claim]
	at := slices.Index(users, pod)
	if at < 0 {
		return
	}
	last := len(users) - 1
	users[at], users[last] = users[last], nil
	if s.byClaim[claim] = users[:last]; last == 0 {
		delete(s.byClaim, claim)
	}
}

func (s *podStore) removeAllBut(fresh map[types.NamespacedName]*PodUses) (changes []podChange) {
	for namespace, space := range s.namespaces {
		for name := range space.byName {
			if fresh[types.NamespacedName{Namespace: namespace, Name: name}] == nil {
				changes = append(changes, s.remove(namespace, name)...)
			}
		}
	}
	return changes
}
