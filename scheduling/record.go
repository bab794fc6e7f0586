package scheduling

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"lockstep.dev/lockstep/internal/pvc"
)

const (
	// writer is who the use record belongs to in managedFields.
	writer = "lockstep-scheduling"
	// takeBackPatience bounds what is done for a pod that nobody waits for any more.
	takeBackPatience = 5 * time.Second
	// page is how many pods are read at once.
	page = 500
)

// write writes a use record onto the incarnation and the version that was read.
func (p *Plugin) write(ctx context.Context, w pvc.Recording) (*corev1.PersistentVolumeClaim, error) {
	on := w.Target()
	var value any // null takes it away
	if w.Value() != "" {
		value = w.Value()
	}
	annotations := map[string]any{pvc.UsersAnnotation: value}
	if w.Anew() {
		annotations[pvc.RewrittenAnnotation] = on.ResourceVersion
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": on.UID, "resourceVersion": on.ResourceVersion, "annotations": annotations,
	}})
	if err != nil {
		return nil, err
	}
	claim, err := p.client.CoreV1().PersistentVolumeClaims(on.Namespace).Patch(ctx, on.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: writer})
	if err != nil {
		return nil, fmt.Errorf("write the use record of persistentvolumeclaim %q: %w", on.Name, err)
	}
	return claim, nil
}

// takeBack takes the pod off the claims that it was written on in this very
// attempt. As PreBind has failed it will not be bound by it, so that is safe; it
// cannot be known of any other record. What is not taken back here goes with the
// pod, or serves its next attempt: which writes it anew, so that a taking back that
// is still under way, of a scheduler that may have crashed since, is refused.
func (b *binding) takeBack(ctx context.Context) {
	if len(b.written) == 0 {
		return
	}
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), takeBackPatience)
	defer cancel()
	for _, w := range pvc.Unbind(b.pod, b.written) {
		if _, err := b.plugin.write(bounded, w); err != nil {
			klog.FromContext(ctx).V(2).Info("a use record stays until its pod is gone", "pod", klog.KObj(b.pod), "claim", w.Target().Name, "err", err)
		}
	}
}

// forget makes room in full records: pods that are gone are taken off. The operator
// does so all the time; without it, a record must not be full for ever. It tells
// whether it found any.
func (b *binding) forget(ctx context.Context, live pvc.Claims) (bool, error) {
	batch := b.plugin.settings.Take(b.pod.Namespace, slices.Collect(maps.Values(live)))
	view := batch.Look(func(namespace string, see func(*corev1.Pod)) error { return b.plugin.pods(ctx, namespace, see) })
	if err := view.Err(); err != nil {
		return false, fmt.Errorf("read the pods of namespace %q: %w", b.pod.Namespace, err)
	}
	gone := view.Forget()
	for _, w := range gone {
		b.asked = w.Target()
		if _, err := b.plugin.write(ctx, w); err != nil {
			return false, err
		}
	}
	return len(gone) > 0, nil
}

// pods hands on every pod of a namespace, from a reading that begins now.
func (p *Plugin) pods(ctx context.Context, namespace string, see func(*corev1.Pod)) error {
	options := metav1.ListOptions{Limit: page}
	for {
		list, err := p.client.CoreV1().Pods(namespace).List(ctx, options)
		if err != nil {
			return err
		}
		for i := range list.Items {
			see(&list.Items[i])
		}
		if options.Continue = list.Continue; options.Continue == "" {
			return nil
		}
	}
}
