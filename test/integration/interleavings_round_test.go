package integration

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/kube-scheduler/framework"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/pvc"
	"lockstep.dev/lockstep/test/history"
	"lockstep.dev/lockstep/test/kubelet"
)

const (
	foreignFinalizer = "example.com/other"
	// kubeletAsks is how often a kubelet reads a PVC that it has to wait for.
	kubeletAsks = 4 * time.Millisecond
	// longest bounds the wait until all objects are gone. Without a watch, the operator reads a
	// PVC that names pods only once a minute.
	longest = 3 * time.Minute
)

// round is one interleaving: PVCs a and b, pod p that uses both and pod q that uses b. The number of the
// round chooses actions and moments; the API server decides their order.
type round struct {
	*ground
	number    int
	namespace string
	start     string
	kubelets  []kubelet.Kind
	random    *rand.Rand
	window    time.Duration

	mu      sync.Mutex
	created []types.UID // objects that must be gone in the end
	err     error
	working sync.WaitGroup
}

// fail remembers the first unexpected error.
func (r *round) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err == nil && err != nil && !errors.Is(err, context.Canceled) {
		r.err = err
	}
}

// expects is fail, but it ignores errors that concurrent actions of others cause.
func (r *round) expects(err error) bool {
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsForbidden(err) || apierrors.IsInvalid(err) {
		return false
	}
	r.fail(err)
	return err == nil
}

// track adds an object to those that must be gone in the end.
func (r *round) track(o client.Object) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.created = append(r.created, o.GetUID())
}

// at runs a function at a random moment of the round.
func (r *round) at(ctx context.Context, do func(context.Context)) {
	moment := time.Duration(r.random.Int64N(int64(r.window)))
	r.working.Go(func() {
		if pause(ctx, moment) == nil {
			do(ctx)
		}
	})
}

// sometimes is at for one of n rounds.
func (r *round) sometimes(ctx context.Context, n int, do func(context.Context)) {
	if r.random.IntN(n) == 0 {
		r.at(ctx, do)
	}
}

// pause waits, or returns an error when ctx ends.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// play plays the round, and then deletes all objects.
func (r *round) play(ctx context.Context) error {
	for _, name := range []string{"a", "b"} {
		r.createClaim(ctx, name)
	}
	r.window = time.Duration(20+r.random.IntN(150)) * time.Millisecond
	switch kind := r.random.IntN(4); {
	case r.start != anyhow:
		r.window *= 4 // recording a pod on its PVCs takes that long
		r.anything(ctx)
	case kind == 0:
		r.restart(ctx)
	case kind == 1:
		r.anything(ctx)
	default:
		r.lateBind(ctx)
	}
	for _, name := range []string{"a", "b"} {
		r.sometimes(ctx, 4, func(ctx context.Context) { r.touch(ctx, name) })
		r.sometimes(ctx, 3, func(ctx context.Context) { r.createClaim(ctx, name) })
	}
	for _, name := range []string{"p", "q"} {
		r.sometimes(ctx, 4, func(ctx context.Context) { r.finish(ctx, name) })
		r.sometimes(ctx, 4, func(ctx context.Context) { r.runPod(ctx, name, r.kubelets[0], r.window/4) })
	}
	r.working.Wait()
	r.fail(pause(ctx, r.window/2))
	r.clear(ctx)
	return r.judge(ctx)
}

// lateBind deletes PVCs and binds pods late: one is bound between the list of pods and the write.
func (r *round) lateBind(ctx context.Context) {
	for _, name := range []string{"a", "b"} {
		r.sometimes(ctx, 1, func(ctx context.Context) { r.deleteClaim(ctx, name) })
	}
	scale := []time.Duration{1, 3, 8}[r.random.IntN(3)] // P may go soon, and B much later
	late := time.Duration(r.random.Int64N(int64(scale * r.window)))
	r.runPod(ctx, "q", r.kubelets[1], late)
	if r.random.IntN(2) == 0 {
		r.runPod(ctx, "p", r.kubelets[0], late+r.window/4)
	}
}

// restart deletes a pod with both PVCs and starts another one: a PVC is judged by the list for the other.
func (r *round) restart(ctx context.Context) {
	r.runPod(ctx, "p", r.kubelets[0], 0)
	r.deleteClaim(ctx, "a")
	r.sometimes(ctx, 1, func(ctx context.Context) { r.endPod(ctx, "p") })
	r.sometimes(ctx, 1, func(ctx context.Context) { r.runPod(ctx, "q", r.kubelets[1], r.window/8) })
	r.sometimes(ctx, 1, func(ctx context.Context) { r.deleteClaim(ctx, "b") })
}

// anything runs every action at a random moment.
func (r *round) anything(ctx context.Context) {
	for i, name := range []string{"p", "q"} {
		r.sometimes(ctx, 1, func(ctx context.Context) { r.runPod(ctx, name, r.kubelets[i], r.window/2) })
		r.sometimes(ctx, 2, func(ctx context.Context) { r.endPod(ctx, name) })
	}
	for _, name := range []string{"a", "b"} {
		r.sometimes(ctx, 1, func(ctx context.Context) { r.deleteClaim(ctx, name) })
	}
}

// createClaim creates a PVC that is bound to a volume, if the name is free.
func (r *round) createClaim(ctx context.Context, name string) {
	claim := newClaim(r.namespace, name)
	claim.Spec.VolumeName, claim.Spec.StorageClassName = "volume", new(string)
	if !r.expects(r.Create(ctx, claim)) {
		return
	}
	r.track(claim)
	status := merge(fmt.Sprintf(`{"metadata":{"uid":%q},"status":{"phase":"Bound"}}`, claim.UID))
	r.expects(r.Status().Patch(ctx, claim, status))
}

func (r *round) deleteClaim(ctx context.Context, name string) {
	r.expects(r.Delete(ctx, newClaim(r.namespace, name)))
}

// touch changes a PVC and adds a foreign finalizer.
func (r *round) touch(ctx context.Context, name string) {
	r.expects(r.Patch(ctx, newClaim(r.namespace, name), client.RawPatch(types.JSONPatchType, fmt.Appendf(nil,
		`[{"op":"add","path":"/metadata/finalizers/-","value":%q},{"op":"add","path":"/metadata/labels","value":{"touched":"yes"}}]`, foreignFinalizer))))
}

// endPod deletes a pod by force.
func (r *round) endPod(ctx context.Context, name string) {
	r.expects(r.Delete(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: name}}, client.GracePeriodSeconds(0)))
}

// finish ends the containers of a pod. The pod and its volumes stay.
func (r *round) finish(ctx context.Context, name string) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: name}}
	r.expects(r.Status().Patch(ctx, pod, merge(`{"status":{"phase":"Succeeded"}}`)))
}

// clear deletes all pods and all PVCs.
func (r *round) clear(ctx context.Context) {
	for _, name := range []string{"p", "q"} {
		r.endPod(ctx, name)
	}
	for _, name := range []string{"a", "b"} {
		r.fail(r.remove(ctx, name))
	}
}

// remove deletes a PVC, held or not, and removes the foreign finalizer.
func (r *round) remove(ctx context.Context, name string) error {
	for {
		claim := newClaim(r.namespace, name)
		if err := r.Get(ctx, client.ObjectKeyFromObject(claim), claim); err != nil {
			return client.IgnoreNotFound(err)
		}
		if claim.DeletionTimestamp != nil && !slices.Contains(claim.Finalizers, foreignFinalizer) {
			return nil
		}
		metav1.SetMetaDataAnnotation(&claim.ObjectMeta, pvc.ReleaseAnnotation, string(claim.UID))
		claim.Finalizers = slices.DeleteFunc(claim.Finalizers, func(f string) bool { return f == foreignFinalizer })
		if !r.expects(r.Update(ctx, claim)) || claim.DeletionTimestamp != nil {
			continue
		}
		r.expects(r.Delete(ctx, claim, client.Preconditions{UID: &claim.UID}))
	}
}

// judge waits until all objects are gone, and judges the history.
func (r *round) judge(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	versions, err := r.history.Until(ctx, r.namespace, r.created)
	seen, broken := history.Judge(versions, r.start != anyhow)
	if broken != nil {
		return fmt.Errorf("round %d, pods %s, kubelets %v: %w", r.number, r.start, r.kubelets, broken)
	}
	if err = errors.Join(r.err, err); err != nil {
		return fmt.Errorf("round %d, pods %s: %w", r.number, r.start, err)
	}
	r.tally.Lock()
	defer r.tally.Unlock()
	for what, n := range seen {
		r.tally.seen[what] += n
	}
	return nil
}

// How pods are bound.
const (
	anyhow  = "bound anyhow"
	gated   = "gated"
	plugged = "by the plugin"
)

var usedBy = map[string][]string{"p": {"a", "b"}, "q": {"b"}}

// runPod creates a pod, binds it after a while, and mounts its PVCs as a kubelet does.
func (r *round) runPod(ctx context.Context, name string, kind kubelet.Kind, after time.Duration) {
	pod := podWith(r.namespace, name, usedBy[name]...)
	preset := r.start == anyhow && (r.number+len(usedBy[name]))%5 == 0
	if preset {
		if pause(ctx, after) != nil {
			return
		}
		pod.Spec.NodeName = node
	}
	if !r.expects(r.Create(ctx, pod)) {
		return
	}
	r.track(pod)
	r.working.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, 2*r.window+r.more())
		defer cancel()
		if preset || pause(ctx, after) == nil && r.isBound(ctx, pod) {
			r.mount(ctx, pod, kind)
		}
	})
}

// more returns how much longer than its window a pod of the round may take.
func (r *round) more() time.Duration {
	if r.start == anyhow {
		return 0
	}
	return r.slack
}

// isBound binds a pod as soon as the API server allows it, and reports whether it did.
func (r *round) isBound(ctx context.Context, pod *corev1.Pod) bool {
	return wait.PollUntilContextCancel(ctx, kubeletAsks, true, func(ctx context.Context) (bool, error) {
		err := r.bind(ctx, pod)
		if apierrors.IsNotFound(err) {
			return false, err
		}
		return err == nil, nil
	}) == nil
}

var errNotYet = errors.New("not yet")

// bind is one attempt to bind a pod.
func (r *round) bind(ctx context.Context, pod *corev1.Pod) error {
	if r.start == plugged {
		state := &cycle{}
		if _, status := r.plugin.PreFilter(ctx, state, pod, nil); !status.IsSuccess() {
			return errNotYet
		}
		if status := r.plugin.PreBind(ctx, state, pod, node); !status.IsSuccess() {
			return errNotYet
		}
	}
	// A binding has the UID of the pod that the scheduler chose a node for.
	return r.SubResource("binding").Create(ctx, pod, &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{UID: pod.UID}, Target: corev1.ObjectReference{Kind: "Node", Name: node},
	})
}

// mount acts as the kubelet: it reads each PVC until it may mount it.
func (r *round) mount(ctx context.Context, pod *corev1.Pod, kind kubelet.Kind) {
	waiting := pvc.ClaimsOf(pod)
	for len(waiting) > 0 && ctx.Err() == nil {
		claim := newClaim(r.namespace, waiting[0])
		if err := r.Get(ctx, client.ObjectKeyFromObject(claim), claim); err != nil || kind.Admits(claim) != nil {
			waiting = append(waiting[1:], waiting[0])
			_ = pause(ctx, kubeletAsks)
			continue
		}
		waiting = waiting[1:]
		err := r.Patch(context.WithoutCancel(ctx), pod.DeepCopy(), client.RawPatch(types.MergePatchType, history.Mounted(pod, claim)))
		if !r.expects(err) {
			return // the pod is gone, and mounts no PVC
		}
	}
}

// cycle is the state that a scheduler keeps for one pod.
type cycle struct {
	framework.CycleState // methods that the plugin does not call
	data                 framework.StateData
}

func (c *cycle) Write(_ framework.StateKey, data framework.StateData) { c.data = data }

func (c *cycle) Read(framework.StateKey) (framework.StateData, error) {
	if c.data == nil {
		return nil, framework.ErrNotFound
	}
	return c.data, nil
}
