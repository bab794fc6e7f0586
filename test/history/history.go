// Package history records the versions of PVCs and pods from two watches, in the order of
// their resourceVersions, which is the only certain order. It judges afterwards, from the
// record alone, whether a law was broken: no clock and no cache takes part.
//
//	lost      a PVC is gone while a pod that exists has it mounted
//	stray     in modes with use records: a pod was bound, or its gate was removed,
//	          before its PVCs named it in their record; or such a PVC is gone while
//	          the pod exists
//	unheeded  a PVC had the annotation of holders, and its deletion began
//
// The test's kubelet records on the pod which PVCs it has mounted. The package knows stored
// objects. It refuses to know which client wrote them.
package history

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"

	"lockstep.dev/lockstep/internal/pvc"
)

// History is the versions of PVCs and pods since Begin.
type History struct {
	mu       sync.Mutex
	versions map[string][]Version // by namespace
	gone     map[types.UID]bool
	more     chan struct{} // closed and replaced with every version
	err      error
}

// Begin starts a history that records until ctx ends.
func Begin(ctx context.Context, client kubernetes.Interface) (*History, error) {
	h := &History{versions: map[string][]Version{}, gone: map[types.UID]bool{}, more: make(chan struct{})}
	core := client.CoreV1()
	pods, err := core.Pods("").List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return nil, err
	}
	for _, follow := range []cache.WatchFuncWithContext{
		func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return core.Pods("").Watch(ctx, o)
		},
		func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return core.PersistentVolumeClaims("").Watch(ctx, o)
		},
	} {
		w, err := watchtools.NewRetryWatcherWithContext(ctx, pods.ResourceVersion, &cache.ListWatch{WatchFuncWithContext: follow})
		if err != nil {
			return nil, err
		}
		go func() {
			for event := range w.ResultChan() {
				h.see(event)
			}
		}()
	}
	return h, nil
}

// see adds the version of an event.
func (h *History) see(event watch.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if object, ok := event.Object.(metav1.Object); ok {
		at, err := strconv.ParseUint(object.GetResourceVersion(), 10, 64)
		v := Version{At: at, Gone: event.Type == watch.Deleted}
		v.Claim, _ = object.(*corev1.PersistentVolumeClaim)
		v.Pod, _ = object.(*corev1.Pod)
		h.versions[object.GetNamespace()] = append(h.versions[object.GetNamespace()], v)
		h.gone[object.GetUID()] = v.Gone
		h.err = errors.Join(h.err, err)
	} else {
		h.err = errors.Join(h.err, fmt.Errorf("unexpected watch event %s: %v", event.Type, event.Object))
	}
	close(h.more)
	h.more = make(chan struct{})
}

// Until waits until the history shows that all of the objects are gone. It returns the versions
// of the namespace, and then forgets them.
func (h *History) Until(ctx context.Context, namespace string, gone []types.UID) ([]Version, error) {
	for {
		versions, left, more, err := h.now(namespace, gone)
		if err != nil || left == 0 {
			return versions, err
		}
		select {
		case <-more:
		case <-ctx.Done():
			return versions, fmt.Errorf("%d of %d objects still exist: %w", left, len(gone), ctx.Err())
		}
	}
}

// Told returns the versions of a namespace so far.
func (h *History) Told(namespace string) ([]Version, error) {
	versions, _, _, err := h.now(namespace, []types.UID{""}) // a UID that is never gone, so that nothing is forgotten
	return slices.Clone(versions), err
}

func (h *History) now(namespace string, gone []types.UID) (versions []Version, left int, more <-chan struct{}, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, uid := range gone {
		if !h.gone[uid] {
			left++
		}
	}
	versions = h.versions[namespace]
	if left == 0 {
		delete(h.versions, namespace)
		for _, uid := range gone {
			delete(h.gone, uid)
		}
	}
	return versions, left, h.more, h.err
}

// The laws.
var (
	ErrLost     = errors.New("lost")
	ErrStray    = errors.New("stray")
	ErrUnheeded = errors.New("unheeded")
)

// mounts is the prefix of a pod's annotation for a mounted PVC. The PVC's name follows, and the
// value is its UID.
const mounts = "mounts.test.lockstep.dev/"

// Mounted returns the patch that records on a pod that it has a PVC mounted.
func Mounted(pod *corev1.Pod, claim *corev1.PersistentVolumeClaim) []byte {
	return fmt.Appendf(nil, `{"metadata":{"uid":%q,"annotations":{%q:%q}}}`, pod.UID, mounts+claim.Name, claim.UID)
}

// MountsOf returns the UIDs of the PVCs that a pod has mounted, by name.
func MountsOf(pod *corev1.Pod) map[string]types.UID {
	mounted := map[string]types.UID{}
	for key, uid := range pod.Annotations {
		if claim, ok := strings.CutPrefix(key, mounts); ok {
			mounted[claim] = types.UID(uid)
		}
	}
	return mounted
}

// Version is one version of a PVC or of a pod.
type Version struct {
	At    uint64 // its resourceVersion
	Gone  bool
	Claim *corev1.PersistentVolumeClaim
	Pod   *corev1.Pod
}

func (v Version) String() string {
	if v.Pod != nil {
		return fmt.Sprintf("%d pod %s (%s): node %q, deleted %t, gone %t, mounts %v", v.At, v.Pod.Name, v.Pod.UID, v.Pod.Spec.NodeName, v.Pod.DeletionTimestamp != nil, v.Gone, MountsOf(v.Pod))
	}
	return fmt.Sprintf("%d PVC %s (%s): deleted %t, gone %t, finalizers %v, record %q", v.At, v.Claim.Name, v.Claim.UID, v.Claim.DeletionTimestamp != nil, v.Gone, v.Claim.Finalizers, v.Claim.Annotations[pvc.UsersAnnotation])
}

// What Judge counts: without these events, a history shows nothing.
const (
	MountedOnce = "mounted"
	MountedLate = "mounted while terminating"
	OnRecord    = "bound on record"
)

// Judge returns the law that was broken first in one namespace, and how often each event was seen. If recorded is set,
// PVCs must name a pod in their use record before it is bound.
func Judge(versions []Version, recorded bool) (seen map[string]int, err error) {
	w := world{
		claims: map[string]*corev1.PersistentVolumeClaim{}, pods: map[string]*corev1.Pod{}, bound: map[types.UID]map[string]types.UID{},
		seen: map[string]int{},
	}
	versions = slices.SortedFunc(slices.Values(versions), func(a, b Version) int { return cmp.Compare(a.At, b.At) })
	for i, v := range versions {
		err := w.take(v, recorded)
		if err == nil {
			err = w.lost()
		}
		if err != nil {
			return w.seen, fmt.Errorf("%w; the versions:\n%s", err, lines(versions[:i+1]))
		}
	}
	return w.seen, nil
}

func lines(versions []Version) string {
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
	// bound are the recorded PVCs of each pod at its bind.
	bound map[types.UID]map[string]types.UID
	seen  map[string]int
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
	if before == nil || before.UID != v.Pod.UID {
		before = &corev1.Pod{}
	}
	for name := range MountsOf(v.Pod) {
		if MountsOf(before)[name] != "" {
			continue
		}
		w.seen[MountedOnce]++
		if claim := w.claims[name]; claim != nil && claim.DeletionTimestamp != nil {
			w.seen[MountedLate]++
		}
	}
	binds := recorded && v.Pod.Spec.NodeName != "" && before.Spec.NodeName == ""
	if binds {
		w.seen[OnRecord]++
	}
	if binds || recorded && isGated(before) && !isGated(v.Pod) {
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
		return fmt.Errorf("PVC %s is deleted while held by %s: %w", v.Claim.Name, before.Annotations[pvc.HoldersAnnotation], ErrUnheeded)
	}
	return nil
}

// bind checks that the use records of all PVCs of a pod name it, when its gate is removed and
// when it is bound.
func (w *world) bind(pod *corev1.Pod) error {
	on := map[string]types.UID{}
	for _, name := range pvc.ClaimsOf(pod) {
		claim := w.claims[name]
		if claim == nil || !names(claim, pod.UID) {
			return fmt.Errorf("pod %s (%s) has no gate or is bound, and the record of PVC %s does not name it: %w", pod.Name, pod.UID, name, ErrStray)
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

// lost returns an error if a PVC is gone that an existing pod has mounted or was bound on.
func (w *world) lost() error {
	for _, name := range slices.Sorted(maps.Keys(w.pods)) {
		pod := w.pods[name]
		for claim, uid := range MountsOf(pod) {
			if now := w.claims[claim]; now == nil || now.UID != uid {
				return fmt.Errorf("PVC %s (%s) is gone, and pod %s (%s) has it mounted: %w", claim, uid, name, pod.UID, ErrLost)
			}
		}
		for claim, uid := range w.bound[pod.UID] {
			if now := w.claims[claim]; now == nil || now.UID != uid {
				return fmt.Errorf("PVC %s (%s) is gone, and pod %s (%s) was bound on it: %w", claim, uid, name, pod.UID, ErrStray)
			}
		}
	}
	return nil
}
