package pvccache

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/pvc"
)

// mostStrangers is how many pods are read one by one for the sake of a batch. Beyond
// that the memory is far behind, and all pods are read.
const mostStrangers = 20

// everything reads the pods of a namespace that may concern a batch, live.
func (l *Looker) everything(ctx context.Context, namespace string, batch pvc.Batch, see func(*corev1.Pod)) error {
	begun := l.now()
	if l.pods.Large(namespace) {
		same, strangers, err := l.compare(ctx, namespace, batch)
		if err != nil {
			return err
		}
		if len(strangers) <= mostStrangers {
			l.noteList(namespace, begun, compareShare)
			for _, pod := range same {
				see(pod.Pod())
			}
			return l.meet(ctx, namespace, strangers, see)
		}
	}
	defer func() { l.noteList(namespace, begun, listShare) }()
	return l.list(ctx, namespace, see)
}

// compare lists which pods there are, of one moment, and at which versions: that costs
// a fraction of what the pods themselves would. What the memory has at the very version
// is as good as read; it returns those of them that concern the batch, and the names of
// the others.
func (l *Looker) compare(ctx context.Context, namespace string, batch pvc.Batch) (same []*PodUses, strangers []string, err error) {
	concerns, next := concerning(batch.Names(), batch.Recorded()), ""
	for {
		page := &metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}}
		if err := l.live.List(ctx, page, client.InNamespace(namespace), client.Limit(pageOfPods), client.Continue(next)); err != nil {
			return nil, nil, fmt.Errorf("list versions of pods: %w", err)
		}
		known, others := l.pods.recognize(namespace, page.Items, concerns)
		same = append(same, known...)
		if strangers = append(strangers, others...); len(strangers) > mostStrangers {
			return nil, strangers, nil
		}
		if next = page.Continue; next == "" {
			return same, strangers, nil
		}
	}
}

// meet reads pods one by one. One that went since it was listed uses nothing.
func (l *Looker) meet(ctx context.Context, namespace string, names []string, see func(*corev1.Pod)) error {
	for _, name := range names {
		pod := &corev1.Pod{}
		err := l.live.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, pod)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("read pod %q: %w", namespace+"/"+name, err)
		}
		see(pod)
	}
	return nil
}

// recognize tells, of pods as they were listed, which the memory has at that very
// version, as far as they concern somebody, and the names of those that it has not.
func (p *Pods) recognize(namespace string, listed []metav1.PartialObjectMetadata, concerns func(*PodUses) bool) (known []*PodUses, others []string) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	space := p.namespaces[namespace]
	for i := range listed {
		var pod *PodUses
		if space != nil {
			pod = space.byName[listed[i].Name]
		}
		switch {
		case pod == nil || pod.UID != listed[i].UID || pod.ResourceVersion != listed[i].ResourceVersion:
			others = append(others, listed[i].Name)
		case concerns(pod):
			known = append(known, pod)
		}
	}
	return known, others
}

// concerning tells of pods whether they may use one of the claims, or have one of the
// UIDs.
func concerning(claims []string, uids []types.UID) func(*PodUses) bool {
	named, wanted := map[string]bool{"": true}, map[types.UID]bool{}
	for _, claim := range claims {
		named[claim] = true
	}
	for _, uid := range uids {
		wanted[uid] = true
	}
	return func(pod *PodUses) bool {
		return wanted[pod.UID] || slices.ContainsFunc(pod.volumes, func(v claimVolume) bool { return named[v.claim] })
	}
}
