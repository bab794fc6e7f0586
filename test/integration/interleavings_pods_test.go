package integration

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kube-scheduler/framework"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/pvc"
	"lockstep.dev/lockstep/test/history"
	"lockstep.dev/lockstep/test/kubelet"
)

// How pods are bound.
const (
	anyhow  = "bound anyhow"
	gated   = "gated"
	plugged = "by the plugin"
)

var usedBy = map[string][]string{"p": {"a", "b"}, "q": {"b"}}

// live creates a pod, binds it after a while, and mounts its PVCs as a kubelet does.
func (r *round) live(ctx context.Context, name string, kind kubelet.Kind, after time.Duration) {
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
	r.bears(pod)
	r.working.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, 2*r.window+r.more())
		defer cancel()
		if preset || pause(ctx, after) == nil && r.isBound(ctx, pod) {
			r.runs(ctx, pod, kind)
		}
	})
}

// more is how much longer than its window a pod of the round may take.
func (r *round) more() time.Duration {
	if r.start == anyhow {
		return 0
	}
	return r.slack
}

// isBound binds a pod as soon as that is allowed, and reports whether it did.
func (r *round) isBound(ctx context.Context, pod *corev1.Pod) bool {
	for ctx.Err() == nil {
		switch err := r.bind(ctx, pod); {
		case err == nil:
			return true
		case apierrors.IsNotFound(err):
			return false
		}
		if pause(ctx, kubeletAsks) != nil {
			return false
		}
	}
	return false
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
	// A binding bears the UID of the pod that a node was chosen for.
	return r.SubResource("binding").Create(ctx, pod, &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{UID: pod.UID}, Target: corev1.ObjectReference{Kind: "Node", Name: node},
	})
}

// runs is the kubelet: it reads each PVC until it may mount it.
func (r *round) runs(ctx context.Context, pod *corev1.Pod, kind kubelet.Kind) {
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
			return // the pod has gone, and nothing of it is mounted
		}
	}
}

// cycle is what a scheduler remembers of one pod.
type cycle struct {
	framework.CycleState // what is not asked for
	data                 framework.StateData
}

func (c *cycle) Write(_ framework.StateKey, data framework.StateData) { c.data = data }

func (c *cycle) Read(framework.StateKey) (framework.StateData, error) {
	if c.data == nil {
		return nil, framework.ErrNotFound
	}
	return c.data, nil
}
