package inquiry

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/api/config/v1alpha1"
	"lockstep.dev/lockstep/internal/pvc"
)

// Found is one PVC, and all that explains it.
type Found struct {
	pvc.Case
	// ModeFrom says where the mode was read.
	ModeFrom  string
	Namespace *Namespace
}

// Claim reads one PVC.
func (i *Inquirer) Claim(ctx context.Context, key types.NamespacedName) (*corev1.PersistentVolumeClaim, error) {
	claim := &corev1.PersistentVolumeClaim{}
	return claim, i.reader.Get(ctx, key, claim)
}

// Claims reads all PVCs of a namespace, or of all namespaces if it is empty.
func (i *Inquirer) Claims(ctx context.Context, namespace string) ([]corev1.PersistentVolumeClaim, error) {
	var claims []corev1.PersistentVolumeClaim
	page := &corev1.PersistentVolumeClaimList{}
	for {
		err := i.reader.List(ctx, page, client.InNamespace(namespace), client.Limit(1000), client.Continue(page.Continue))
		if err != nil {
			return nil, err
		}
		claims = append(claims, page.Items...)
		if page.Continue == "" {
			return claims, nil
		}
	}
}

// Explain reads all that explains PVCs of one namespace.
func (i *Inquirer) Explain(ctx context.Context, namespace string, claims []corev1.PersistentVolumeClaim) ([]*Found, error) {
	if len(claims) == 0 {
		return nil, nil
	}
	n, err := i.namespace(ctx, namespace, claims)
	if err != nil {
		return nil, err
	}
	var all []*Found
	for at := range claims {
		found, err := i.about(ctx, n, &claims[at])
		if err != nil {
			return nil, err
		}
		all = append(all, found)
	}
	return all, nil
}

// about adds to the namespace what one PVC needs: its volume and the nodes of its pods.
func (i *Inquirer) about(ctx context.Context, n *Namespace, claim *corev1.PersistentVolumeClaim) (*Found, error) {
	config := i.configuration(ctx)
	f := &Found{Namespace: n, Case: pvc.Case{
		Claim: claim, World: n.Of(claim), Pods: n.Pods, Nodes: map[string]*corev1.Node{},
		NamespaceEnding: n.Meta.DeletionTimestamp != nil, Unread: slices.Clone(n.Unread), Now: i.Now(),
	}}
	f.Mode, f.ModeFrom = modeOf(claim, n.Meta.Labels, config.settings)
	if config.unread != "" && bearsOurs(claim) { // the operator may know kinds that this read lacks
		f.Unread = append(f.Unread, pvc.Unread{
			What: fmt.Sprintf("kinds of workloads in configmap %s/%s", v1alpha1.InstalledNamespace, v1alpha1.InstalledName), Why: config.unread,
		})
	}
	if i.Brief && claim.DeletionTimestamp == nil {
		return f, nil
	}
	if err := i.volume(ctx, f); err != nil {
		return nil, err
	}
	return f, i.nodes(ctx, f)
}

func bearsOurs(claim *corev1.PersistentVolumeClaim) bool {
	keys := slices.AppendSeq(slices.Clone(claim.Finalizers), maps.Keys(claim.Annotations))
	return slices.ContainsFunc(keys, func(key string) bool { return strings.HasPrefix(key, pvc.Prefix) })
}

func (i *Inquirer) volume(ctx context.Context, f *Found) error {
	name := f.Claim.Spec.VolumeName
	if name == "" {
		return nil
	}
	volume := &corev1.PersistentVolume{}
	err := i.reader.Get(ctx, client.ObjectKey{Name: name}, volume)
	switch {
	case apierrors.IsNotFound(err):
		f.VolumeGone = true
		return nil
	case err != nil:
		return missed(&f.Unread, "persistentvolume "+name, err, false)
	}
	f.Volume = volume
	return nil
}

// nodes reads the nodes of the pods that hold the PVC, each once.
func (i *Inquirer) nodes(ctx context.Context, f *Found) error {
	for _, use := range f.World.Pods.Holding(f.Claim) {
		node, known := f.Namespace.nodes[use.Node]
		if !known {
			node = &corev1.Node{}
			err := i.reader.Get(ctx, client.ObjectKey{Name: use.Node}, node)
			switch {
			case apierrors.IsNotFound(err):
				node = nil
			case apierrors.IsForbidden(err): // the other nodes are as unreadable
				return missed(&f.Unread, "nodes", err, false)
			case err != nil:
				return missed(&f.Unread, "node "+use.Node, err, false)
			}
			f.Namespace.nodes[use.Node] = node
		}
		f.Nodes[use.Node] = node
	}
	return nil
}

// Learn takes the result of a dry-run DELETE: it shows whether a policy enforces the hold.
func (f *Found) Learn(a Attempt) {
	if f.Claim.Annotations[pvc.HoldersAnnotation] != "" && f.Claim.DeletionTimestamp == nil && !pvc.Released(f.Claim) {
		f.Unguarded = a.Outcome == Accepted
	}
}
