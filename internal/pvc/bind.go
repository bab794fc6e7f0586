package pvc

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"lockstep.dev/lockstep/internal/identity"
)

// Claims are PVCs of one namespace by name. A PVC that does not exist is nil or absent.
type Claims map[string]*corev1.PersistentVolumeClaim

// ClaimsOf are the names of the PVCs that a pod uses.
func ClaimsOf(pod *corev1.Pod) []string {
	var names []string
	for i := range pod.Spec.Volumes {
		volume := &pod.Spec.Volumes[i]
		switch {
		case volume.PersistentVolumeClaim != nil:
			names = append(names, volume.PersistentVolumeClaim.ClaimName)
		case volume.Ephemeral != nil:
			names = append(names, pod.Name+"-"+volume.Name)
		}
	}
	return names
}

// Unusable returns why a pod must not be scheduled on its PVCs, or "". The texts are those
// of the built-in plugin.
func Unusable(pod *corev1.Pod, claims Claims) string {
	for i := range pod.Spec.Volumes {
		volume := &pod.Spec.Volumes[i]
		var why string
		switch {
		case volume.PersistentVolumeClaim != nil:
			why = unusable(volume.PersistentVolumeClaim.ClaimName, claims)
		case volume.Ephemeral != nil:
			why = unusableEphemeral(pod, pod.Name+"-"+volume.Name, claims)
		}
		if why != "" {
			return why
		}
	}
	return ""
}

func unusable(name string, claims Claims) string {
	claim := claims[name]
	switch {
	case claim == nil:
		return fmt.Sprintf("persistentvolumeclaim %q not found", name)
	case claim.Status.Phase == corev1.ClaimLost:
		return fmt.Sprintf("persistentvolumeclaim %q bound to non-existent persistentvolume %q", name, claim.Spec.VolumeName)
	case claim.DeletionTimestamp != nil:
		return fmt.Sprintf("persistentvolumeclaim %q is being deleted", name)
	}
	return ""
}

func unusableEphemeral(pod *corev1.Pod, name string, claims Claims) string {
	if claims[name] == nil {
		return fmt.Sprintf("waiting for ephemeral volume controller to create the persistentvolumeclaim %q", name)
	}
	if why := unusable(name, claims); why != "" {
		return why
	}
	if owner := metav1.GetControllerOfNoCopy(claims[name]); owner == nil || owner.UID != pod.UID {
		return fmt.Sprintf("PVC %s/%s was not created for pod %s/%s (pod is not owner)", claims[name].Namespace, name, pod.Namespace, pod.Name)
	}
	return ""
}

// Recording writes a use record onto the version of a PVC that was read.
type Recording struct {
	claim identity.Ref
	value string
	// anew: the record named the pod before.
	anew bool
}

// Target is the incarnation and the version that was read.
func (r Recording) Target() identity.Ref { return r.claim }

// Value is the new UsersAnnotation; empty removes it.
func (r Recording) Value() string { return r.value }

// Anew reports whether the record named the pod before. RewrittenAnnotation is then written
// to change the resourceVersion: a write that removes the pod may be under way.
func (r Recording) Anew() bool { return r.anew }

// Bind returns the writes that come before a pod is bound: its use, onto each of its PVCs as
// read live. A PVC that is deleted in between fails the write, and the pod is not bound.
func Bind(pod *corev1.Pod, live Claims) ([]Recording, error) {
	return bind(pod, live, func(*corev1.PersistentVolumeClaim) bool { return true }, false)
}

// Bind is Bind where PVCs that are not protected have no record. All must be usable.
func (s Settings) Bind(pod *corev1.Pod, live Claims, namespaceLabels map[string]string) ([]Recording, error) {
	return bind(pod, live, func(claim *corev1.PersistentVolumeClaim) bool { return s.Records(claim, namespaceLabels) }, true)
}

// Records reports whether a PVC has a use record.
func (s Settings) Records(claim *corev1.PersistentVolumeClaim, namespaceLabels map[string]string) bool {
	return s.ModeOf(claim, namespaceLabels) >= Barrier
}

func bind(pod *corev1.Pod, live Claims, records func(*corev1.PersistentVolumeClaim) bool, anew bool) ([]Recording, error) {
	if why := Unusable(pod, live); why != "" {
		return nil, errors.New(why)
	}
	var writes []Recording
	seen := map[types.UID]bool{}
	for _, name := range ClaimsOf(pod) {
		claim := live[name]
		if seen[claim.UID] || !records(claim) {
			continue
		}
		seen[claim.UID] = true
		write, needed, err := recording(pod, claim)
		if err != nil {
			return nil, fmt.Errorf("persistentvolumeclaim %q: %w", name, err)
		}
		if needed || anew {
			write.anew = !needed
			writes = append(writes, write)
		}
	}
	return writes, nil
}

// Unbind returns the writes that remove a pod from records. Only the scheduler that recorded
// the pod knows that no bind was sent. The PVCs are those that its write returned.
func Unbind(pod *corev1.Pod, written Claims) []Recording {
	var writes []Recording
	for _, name := range slices.Sorted(maps.Keys(written)) {
		claim := written[name]
		record, err := ParseRecord(claim.Annotations[UsersAnnotation])
		if err != nil {
			continue
		}
		left := record.Without(func(r Recorded) bool { return r.UID == pod.UID })
		if len(left) < len(record) {
			writes = append(writes, Recording{claim: identity.RefOf(identity.KindPersistentVolumeClaim, claim), value: left.String()})
		}
	}
	return writes
}

func recording(pod *corev1.Pod, claim *corev1.PersistentVolumeClaim) (Recording, bool, error) {
	have := claim.Annotations[UsersAnnotation]
	record, err := ParseRecord(have)
	if err != nil {
		return Recording{}, false, err
	}
	record, err = record.With(Recorded{Name: pod.Name, UID: pod.UID})
	if err != nil {
		return Recording{}, false, err
	}
	value := record.String()
	return Recording{claim: identity.RefOf(identity.KindPersistentVolumeClaim, claim), value: value}, value != have, nil
}

// Forget returns the writes that remove pods from the records of living PVCs. A recorded pod
// that a later read does not show is gone for ever.
func (v LiveView) Forget() []Recording {
	if v.Err() != nil {
		return nil
	}
	var writes []Recording
	for _, claim := range v.batch.recorded {
		have := claim.Annotations[UsersAnnotation]
		record, err := ParseRecord(have)
		if err != nil {
			continue // an unreadable record keeps its PVC until a user repairs it
		}
		left := record.Without(func(pod Recorded) bool { return !v.index.exists(pod.UID) })
		if len(left) < len(record) {
			writes = append(writes, Recording{claim: identity.RefOf(identity.KindPersistentVolumeClaim, claim), value: left.String()})
		}
	}
	return writes
}
