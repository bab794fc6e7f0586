package gang

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
)

// Scheduler is one scheduler that places groups whole. It knows each group by an
// object of its own kind, and pods by what ties them to that object.
type Scheduler interface {
	// Name is what configuration and annotations call it.
	Name() string
	// Kind is the kind of the object that it knows a group by.
	Kind() schema.GroupVersionKind
	// Resource is where such objects are served.
	Resource() schema.GroupVersionResource
	// Tie ties a pod, or a template of pods, to the object with the given name.
	Tie(pod metav1.Object, object string)
	// Tied is the name of the object that a pod is tied to, or empty.
	Tied(pod metav1.Object) string
	// Meant are those of a set's annotations that it is told of in a group's object.
	Meant(annotations map[string]string) map[string]string
	// Object is what a group's object should say.
	Object(Group) *unstructured.Unstructured
	// InStep tells whether an object says all that it should.
	InStep(have, want *unstructured.Unstructured) bool
}

// Group is what a scheduler is told of one group.
type Group struct {
	Namespace string
	Name      string
	// Labels are those of the group.
	Labels map[string]string
	// Annotations are those of the set: some are meant for the scheduler.
	Annotations map[string]string
	// Owners is the leader: the object lives as long as that very pod.
	Owners []metav1.OwnerReference
	// MinMember is how many pods are to be placed together, or none of them.
	MinMember int32
	// MinResources is what the whole group asks for.
	MinResources corev1.ResourceList
}

// Schedulers returns all that groups can be handed to.
func Schedulers() []Scheduler { return []Scheduler{Volcano{}} }

// Names returns what they are called.
func Names() []string {
	var names []string
	for _, s := range Schedulers() {
		names = append(names, s.Name())
	}
	return names
}

// Named returns the scheduler of that name, or nil.
func Named(name string) Scheduler {
	for _, s := range Schedulers() {
		if s.Name() == name {
			return s
		}
	}
	return nil
}

// Wanted returns the scheduler that new groups of a set are handed to, or nil.
// otherwise is for sets that do not say.
func Wanted(set metav1.Object, otherwise Scheduler) Scheduler {
	switch name := set.GetAnnotations()[lwsv1.GangSchedulerAnnotationKey]; name {
	case "":
		return otherwise
	default:
		return Named(name)
	}
}

// Meant are the annotations of a set that any scheduler is told of, by scheduler.
func Meant(set metav1.Object) map[string]map[string]string {
	all := map[string]map[string]string{}
	for _, s := range Schedulers() {
		all[s.Name()] = s.Meant(set.GetAnnotations())
	}
	return all
}

// NameOf is the name that the object of a pod's group has. It tells revisions
// apart, so that groups of two templates are never placed as one.
func NameOf(pod metav1.Object) string {
	labels := pod.GetLabels()
	return labels[lwsv1.SetNameLabelKey] + "-" + labels[lwsv1.GroupIndexLabelKey] + "-" + labels[lwsv1.RevisionKey]
}

// Of returns the scheduler that a pod was handed to with its group, or nil. A pod
// that somebody tied to an object of their own is theirs to care for.
func Of(pod metav1.Object) Scheduler {
	for _, s := range Schedulers() {
		if to := s.Tied(pod); to != "" && to == NameOf(pod) {
			return s
		}
	}
	return nil
}
