package withdraw

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/pvc"
)

// claims are undressed while they live. One on its way out is let go or waited
// for.
func (w Withdrawal) claims() subject {
	return subject{
		each: func(ctx context.Context, see func(client.Object) error) error {
			return w.eachClaim(ctx, func(claim *corev1.PersistentVolumeClaim) error { return see(claim) })
		},
		off: func(o client.Object) patch { return patchOf(w.Of(o)) },
		await: func(ctx context.Context) error {
			left, err := w.Reliant(ctx)
			if err == nil && len(left) > 0 {
				err = &LeftError{left}
			}
			return err
		},
	}
}

func (w Withdrawal) eachClaim(ctx context.Context, see func(*corev1.PersistentVolumeClaim) error) error {
	return eachPage(ctx, w.Client, &corev1.PersistentVolumeClaimList{}, func(list *corev1.PersistentVolumeClaimList) error {
		for i := range list.Items {
			if err := see(&list.Items[i]); err != nil {
				return err
			}
		}
		return nil
	})
}

// volumes are ours to keep where nothing built in does. One on its way out is let go
// once it is not bound: it says so itself.
func (w Withdrawal) volumes() subject {
	return subject{
		each: func(ctx context.Context, see func(client.Object) error) error {
			if !w.Alone {
				return nil
			}
			return w.eachVolume(ctx, func(volume *corev1.PersistentVolume) error { return see(volume) })
		},
		off: func(o client.Object) patch {
			volume, ok := o.(*corev1.PersistentVolume)
			if !ok || !slices.Contains(volume.Finalizers, pvc.VolumeFinalizer) || isKept(volume) {
				return nil
			}
			stay := slices.DeleteFunc(slices.Clone(volume.Finalizers), func(f string) bool { return f == pvc.VolumeFinalizer })
			return patch{"metadata": map[string]any{"finalizers": stay}}
		},
	}
}

// isKept tells whether a volume on its way out waits to be set free.
func isKept(volume *corev1.PersistentVolume) bool {
	return volume.DeletionTimestamp != nil && volume.Status.Phase == corev1.VolumeBound && slices.Contains(volume.Finalizers, pvc.VolumeFinalizer)
}

// boundVolumes are those that are kept.
func (w Withdrawal) boundVolumes(ctx context.Context) (kept []Reliant, err error) {
	if !w.Alone {
		return nil, nil
	}
	err = w.eachVolume(ctx, func(volume *corev1.PersistentVolume) error {
		if !isKept(volume) {
			return nil
		}
		r := Reliant{Volume: volume.Name}
		if to := volume.Spec.ClaimRef; to != nil {
			r.Claim = types.NamespacedName{Namespace: to.Namespace, Name: to.Name}
		}
		kept = append(kept, r)
		return nil
	})
	return kept, err
}

func (w Withdrawal) eachVolume(ctx context.Context, see func(*corev1.PersistentVolume) error) error {
	return eachPage(ctx, w.Client, &corev1.PersistentVolumeList{}, func(list *corev1.PersistentVolumeList) error {
		for i := range list.Items {
			if err := see(&list.Items[i]); err != nil {
				return err
			}
		}
		return nil
	})
}

// namespaces lose counts, releases and modes. Their finalizers are not ours.
func (w Withdrawal) namespaces() subject {
	return subject{
		each: func(ctx context.Context, see func(client.Object) error) error {
			return eachPage(ctx, w.Client, &corev1.NamespaceList{}, func(list *corev1.NamespaceList) error {
				for i := range list.Items {
					if err := see(&list.Items[i]); err != nil {
						return err
					}
				}
				return nil
			})
		},
		off: func(o client.Object) patch {
			off := w.Of(o)
			off.Takes = false
			return patchOf(off)
		},
	}
}

func patchOf(off pvc.Undressing) patch {
	if off.Empty() {
		return nil
	}
	metadata := map[string]any{}
	if off.Takes {
		metadata["finalizers"] = append([]string{}, off.Finalizers...)
	}
	if len(off.Annotations) > 0 {
		metadata["annotations"] = nulls(off.Annotations)
	}
	if len(off.Labels) > 0 {
		metadata["labels"] = nulls(off.Labels)
	}
	return patch{"metadata": metadata}
}

func nulls(keys []string) map[string]any {
	gone := map[string]any{}
	for _, key := range keys {
		gone[key] = nil
	}
	return gone
}

// gates are lifted off pods that wait for us to be scheduled. No bound pod has any.
func (w Withdrawal) gates() subject {
	return subject{
		each: func(ctx context.Context, see func(client.Object) error) error {
			return eachPage(ctx, w.Client, &corev1.PodList{}, func(list *corev1.PodList) error {
				for i := range list.Items {
					if err := see(&list.Items[i]); err != nil {
						return err
					}
				}
				return nil
			}, client.MatchingFields{"spec.nodeName": ""})
		},
		off: liftOf,
	}
}

func liftOf(o client.Object) patch {
	pod, ok := o.(*corev1.Pod)
	if !ok || !slices.ContainsFunc(pod.Spec.SchedulingGates, isOurs) {
		return nil
	}
	stay := slices.DeleteFunc(slices.Clone(pod.Spec.SchedulingGates), isOurs)
	return patch{"spec": map[string]any{"schedulingGates": stay}}
}

func isOurs(gate corev1.PodSchedulingGate) bool { return pvc.IsOurGate(gate.Name) }
