package history

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"lockstep.dev/lockstep/internal/pvc"
)

// The laws.
var (
	ErrLost     = errors.New("lost")
	ErrStray    = errors.New("stray")
	ErrUnheeded = errors.New("unheeded")
)

// mounts begins the annotation of a pod that tells that a claim is mounted: its name
// follows, and its value is the claim's UID.
const mounts = "mounts.test.lockstep.dev/"

// Mounted is the patch with which a kubelet tells that a pod has a claim mounted.
func Mounted(pod *corev1.Pod, claim *corev1.PersistentVolumeClaim) []byte {
	return fmt.Appendf(nil, `{"metadata":{"uid":%q,"annotations":{%q:%q}}}`, pod.UID, mounts+claim.Name, claim.UID)
}

// MountsOf are the claims that a pod has mounted, by name.
func MountsOf(pod *corev1.Pod) map[string]types.UID {
	mounted := map[string]types.UID{}
	for key, uid := range pod.Annotations {
		if claim, ok := strings.CutPrefix(key, mounts); ok {
			mounted[claim] = types.UID(uid)
		}
	}
	return mounted
}

// Version is one version of a claim or of a pod.
type Version struct {
	At    uint64 // its resource version
	Gone  bool
	Claim *corev1.PersistentVolumeClaim
	Pod   *corev1.Pod
}

func (v Version) String() string {
	if v.Pod != nil {
		return fmt.Sprintf("%d pod %s (%s): node %q, deleted %t, gone %t, mounts %v", v.At, v.Pod.Name, v.Pod.UID, v.Pod.Spec.NodeName, v.Pod.DeletionTimestamp != nil, v.Gone, MountsOf(v.Pod))
	}
	return fmt.Sprintf("%d claim %s (%s): deleted %t, gone %t, finalizers %v, record %q", v.At, v.Claim.Name, v.Claim.UID, v.Claim.DeletionTimestamp != nil, v.Gone, v.Claim.Finalizers, v.Claim.Annotations[pvc.UsersAnnotation])
}

// Judge tells which law was broken first in one namespace. Recorded tells that pods
// are to be on record before they are bound.
func Judge(versions []Version, recorded bool) error {
	w := world{claims: map[string]*corev1.PersistentVolumeClaim{}, pods: map[string]*corev1.Pod{}, bound: map[types.UID]map[string]types.UID{}}
	versions = slices.SortedFunc(slices.Values(versions), func(a, b Version) int { return cmp.Compare(a.At, b.At) })
	for i, v := range versions {
		err := w.take(v, recorded)
		if err == nil {
			err = w.lost()
		}
		if err != nil {
			return fmt.Errorf("%w; it happened so:\n%s", err, told(versions[:i+1]))
		}
	}
	return nil
}

func told(versions []Version) string {
	var b strings.Builder
	for _, v := range versions {
		fmt.Fprintln(&b, " ", v)
	}
	return b.String()
}

// world is one moment.
type world struct {
	claims map[string]*corev1.PersistentVolumeClaim
	pods   map[string]*corev1.Pod
	// bound are the claims that each pod was bound on, on record.
	bound map[types.UID]map[string]types.UID
}

func (w *world) take(v Version, recorded bool) error {
	if v.Claim != nil {
		return w.takeClaim(v)
	}
	before := w.pods[v.Pod.Name]
	if v.Gone {
		delete(w.pods, v.Pod.Name)
		return nil
	}
	w.pods[v.Pod.Name] = v.Pod
	if before != nil && before.UID != v.Pod.UID {
		before = nil
	}
	wasBound, wasGated := before != nil && before.Spec.NodeName != "", before != nil && isGated(before)
	if recorded && (v.Pod.Spec.NodeName != "" && !wasBound || wasGated && !isGated(v.Pod)) {
		return w.bind(v.Pod)
	}
	return nil
}

func isGated(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.SchedulingGates, func(g corev1.PodSchedulingGate) bool { return g.Name == pvc.UseGate })
}

func (w *world) takeClaim(v Version) error {
	before := w.claims[v.Claim.Name]
	if v.Gone {
		delete(w.claims, v.Claim.Name)
	} else {
		w.claims[v.Claim.Name] = v.Claim
	}
	begins := before != nil && before.UID == v.Claim.UID && before.DeletionTimestamp == nil && v.Claim.DeletionTimestamp != nil
	if begins && before.Annotations[pvc.HoldersAnnotation] != "" && !pvc.Released(before) {
		return fmt.Errorf("claim %s is deleted, held by %s: %w", v.Claim.Name, before.Annotations[pvc.HoldersAnnotation], ErrUnheeded)
	}
	return nil
}

// bind checks that a pod is on the record of all of its claims, when its gate is lifted
// and when it is bound.
func (w *world) bind(pod *corev1.Pod) error {
	on := map[string]types.UID{}
	for _, name := range pvc.ClaimsOf(pod) {
		claim := w.claims[name]
		if claim == nil || !names(claim, pod.UID) {
			return fmt.Errorf("pod %s (%s) is let go or bound, and not on the record of claim %s: %w", pod.Name, pod.UID, name, ErrStray)
		}
		on[name] = claim.UID
	}
	w.bound[pod.UID] = on
	return nil
}

func names(claim *corev1.PersistentVolumeClaim, pod types.UID) bool {
	record, err := pvc.ParseRecord(claim.Annotations[pvc.UsersAnnotation])
	return err != nil || slices.ContainsFunc(record, func(r pvc.Recorded) bool { return r.UID == pod })
}

// lost is what is gone from under a pod that is there.
func (w *world) lost() error {
	for _, name := range slices.Sorted(maps.Keys(w.pods)) {
		pod := w.pods[name]
		for claim, uid := range MountsOf(pod) {
			if now := w.claims[claim]; now == nil || now.UID != uid {
				return fmt.Errorf("claim %s (%s) is gone, and pod %s (%s) has it mounted: %w", claim, uid, name, pod.UID, ErrLost)
			}
		}
		for claim, uid := range w.bound[pod.UID] {
			if now := w.claims[claim]; now == nil || now.UID != uid {
				return fmt.Errorf("claim %s (%s) is gone, and pod %s (%s) was bound on it: %w", claim, uid, name, pod.UID, ErrStray)
			}
		}
	}
	return nil
}
