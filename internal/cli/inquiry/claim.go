package inquiry

import (
	"context"
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/api/config/v1alpha1"
	"lockstep.dev/lockstep/internal/pvc"
)

const (
	// refusal is the name of the policy that refuses, and of its binding.
	refusal = "refuse-delete." + protected
	// protected is in the name of each policy of protection, whatever it was loaded from.
	protected = "protection.lockstep.dev"
	// pods is the name of the policy that gives what is built in elsewhere: it is there
	// where Lockstep protects alone.
	pods = "pod-protection." + protected
)

// Found is one claim, and all that explains it.
type Found struct {
	pvc.Case
	// ModeFrom says where the mode was read.
	ModeFrom string
	World    *World
}

// Claim reads one claim. That there is none is said by a live reading alone.
func (i *Inquirer) Claim(ctx context.Context, key types.NamespacedName) (*corev1.PersistentVolumeClaim, error) {
	claim := &corev1.PersistentVolumeClaim{}
	err := i.get(ctx, key, claim)
	if apierrors.IsNotFound(err) && !i.Live {
		return i.live().Claim(ctx, key)
	}
	return claim, err
}

// Claims reads all claims of a namespace, or of all if it is empty.
func (i *Inquirer) Claims(ctx context.Context, namespace string) ([]corev1.PersistentVolumeClaim, error) {
	var claims []corev1.PersistentVolumeClaim
	err := i.each(ctx, &corev1.PersistentVolumeClaimList{}, namespace, func(object client.Object) {
		claims = append(claims, *object.(*corev1.PersistentVolumeClaim))
	})
	return claims, err
}

// About adds to what the namespace says what one claim alone needs: its volume,
// where that is attached, and the nodes of its pods. In brief, nothing is read for
// a claim that is not on its way out: an overview has many of them.
func (i *Inquirer) About(ctx context.Context, w *World, claim *corev1.PersistentVolumeClaim) (*Found, error) {
	f := &Found{World: w, Case: pvc.Case{
		Claim: claim, World: w.read.Of(claim), Pods: w.Pods, Nodes: map[string]*corev1.Node{},
		NamespaceEnding: w.Ending, NamespaceLabels: w.Labels, Unread: slices.Clone(w.Unread), Now: i.Now(),
	}}
	f.Mode, f.ModeFrom = modeOf(claim, w)
	f.unconfigured()
	reads := []func(context.Context, *Found) error{i.policies, i.alone, i.volume, i.attached, i.nodes}
	if i.Brief && claim.DeletionTimestamp == nil {
		reads = reads[:1]
	}
	for _, read := range reads {
		if err := read(ctx, f); err != nil {
			return nil, err
		}
	}
	return f, nil
}

func (f *Found) missed(what string, err error) error {
	w := World{Unread: f.Unread}
	err = w.missed(what, err, false)
	f.Unread = w.Unread
	return err
}

func (i *Inquirer) volume(ctx context.Context, f *Found) error {
	name := f.Claim.Spec.VolumeName
	if name == "" {
		return nil
	}
	volume := &corev1.PersistentVolume{}
	err := i.get(ctx, client.ObjectKey{Name: name}, volume)
	switch {
	case apierrors.IsNotFound(err):
		f.VolumeGone = true
		return nil
	case err != nil:
		return f.missed("persistentvolume "+name, err)
	}
	f.Volume = volume
	return nil
}

// attached is asked of claims on their way out alone: before that it delays
// nothing.
func (i *Inquirer) attached(ctx context.Context, f *Found) error {
	name := f.Claim.Spec.VolumeName
	if name == "" || f.Claim.DeletionTimestamp == nil {
		return nil
	}
	err := i.each(ctx, &storagev1.VolumeAttachmentList{}, "", func(object client.Object) {
		a := object.(*storagev1.VolumeAttachment)
		if of := a.Spec.Source.PersistentVolumeName; of != nil && *of == name {
			f.Attached = append(f.Attached, a.Spec.NodeName)
		}
	})
	if err != nil {
		return f.missed("volumeattachments", err)
	}
	return nil
}

// nodesAtMost bounds how many nodes are read for one claim.
const nodesAtMost = 32

func (i *Inquirer) nodes(ctx context.Context, f *Found) error {
	for _, use := range f.World.Holds.Pods.Holding(f.Claim) {
		if _, known := f.Nodes[use.Node]; known {
			continue
		}
		if len(f.Nodes) >= nodesAtMost {
			f.Unread = append(f.Unread, pvc.Unread{What: "other nodes", Why: fmt.Sprintf("only %d are looked at", nodesAtMost)})
			return nil
		}
		node, err := i.node(ctx, f.World, use.Node)
		switch {
		case err == nil:
			f.Nodes[use.Node] = node
		case apierrors.IsForbidden(err):
			return f.missed("nodes", err) // the others are no more readable
		default:
			if err := f.missed("node "+use.Node, err); err != nil {
				return err
			}
		}
	}
	return nil
}

// node is nil if there is none.
func (i *Inquirer) node(ctx context.Context, w *World, name string) (*corev1.Node, error) {
	if node, known := w.nodes[name]; known {
		return node, nil
	}
	node := &corev1.Node{}
	err := i.get(ctx, client.ObjectKey{Name: name}, node)
	if apierrors.IsNotFound(err) {
		node, err = nil, nil
	}
	if err == nil {
		w.nodes[name] = node
	}
	return node, err
}

// policies are what refuses a DELETE.
type policies struct {
	absent bool
	err    error
}

// policies are asked for where words stand that they would act on.
func (i *Inquirer) policies(ctx context.Context, f *Found) error {
	if f.Claim.Annotations[pvc.HoldersAnnotation] == "" {
		return nil
	}
	if f.World.policies == nil {
		f.World.policies = i.readPolicies(ctx)
	}
	f.Unguarded = f.World.policies.absent
	if err := f.World.policies.err; err != nil {
		return f.missed("the policy that refuses", err)
	}
	return nil
}

// alone asks whose the built-in finalizer is. Who may not ask is told what holds of
// most clusters: it changes nothing in what holds the claim.
func (i *Inquirer) alone(ctx context.Context, f *Found) error {
	if !slices.Contains(f.Claim.Finalizers, pvc.PodsFinalizer) {
		return nil
	}
	if f.World.alone == nil {
		f.World.alone = new(i.protectsAlone(ctx))
	}
	f.Settings.Alone = *f.World.alone
	return nil
}

func (i *Inquirer) protectsAlone(ctx context.Context) bool {
	return i.get(ctx, client.ObjectKey{Name: pods}, &admissionv1.MutatingAdmissionPolicy{}) == nil
}

// Learn takes in what came of a DELETE that was tried: it knows of policies that may
// not be read, and of those that an API server loaded from files, which cannot be.
func (f *Found) Learn(a Attempt) {
	switch {
	case f.Claim.Annotations[pvc.HoldersAnnotation] == "" || f.Claim.DeletionTimestamp != nil || pvc.Released(f.Claim):
	case a.Outcome == Refused && strings.Contains(a.By, protected):
		f.Unguarded = false
	case a.Outcome == Accepted:
		f.Unguarded = true
	}
}

// readPolicies reads the policy and its binding: each does nothing without the
// other.
func (i *Inquirer) readPolicies(ctx context.Context) *policies {
	p := &policies{}
	for _, part := range []client.Object{&admissionv1.ValidatingAdmissionPolicy{}, &admissionv1.ValidatingAdmissionPolicyBinding{}} {
		err := i.get(ctx, client.ObjectKey{Name: refusal}, part)
		if apierrors.IsNotFound(err) {
			return &policies{absent: true}
		}
		if err != nil {
			p.err = err
		}
	}
	return p
}

// modeOf is the mode of a claim, and why it is that: the configuration is not for
// everybody to read, and then what can be seen on the claim tells.
func modeOf(claim *corev1.PersistentVolumeClaim, w *World) (pvc.Mode, string) {
	settings, from := seenOn(claim)
	exempt := "kube-system is exempt unless the configuration says otherwise"
	if w.modes != nil {
		exempt = "its namespace is exempt"
		settings.Exempt = w.modes.Exempt
		if settings.Mode <= w.modes.Mode {
			settings.Mode, from = w.modes.Mode, "the cluster's"
		}
	}
	mode := settings.ModeOf(claim, w.Labels)
	ofClaim, byClaim := pvc.ParseMode(claim.Annotations[pvc.ModeKey])
	ofNamespace, byNamespace := pvc.ParseMode(w.Labels[pvc.ModeKey])
	switch {
	case slices.Contains(settings.Exempt, claim.Namespace):
		return mode, exempt
	case byClaim && mode == ofClaim:
		return mode, "the claim chose it"
	case byNamespace && !byClaim && mode == ofNamespace:
		return mode, "its namespace chose it"
	case byClaim, byNamespace, mode != settings.Mode:
		return mode, "it goes with its pod"
	}
	return mode, from
}

// seenOn is the mode that stands to reason by what a claim bears.
func seenOn(claim *corev1.PersistentVolumeClaim) (seen pvc.Settings, from string) {
	seen = pvc.Settings{Mode: pvc.Off}
	from = "seen: it bears nothing of Lockstep"
	switch {
	case claim.Annotations[pvc.HoldersAnnotation] != "":
		seen.Mode, from = pvc.Hold, "seen: the operator's words stand on it"
	case slices.Contains(claim.Finalizers, pvc.BarrierFinalizer):
		seen.Mode, from = pvc.Barrier, "seen: it bears the barrier"
	case claim.Annotations[pvc.ObservedAnnotation] != "":
		seen.Mode, from = pvc.Observe, "seen: the operator's words stand on it"
	}
	if seen.Mode < pvc.Barrier {
		seen.Exempt = []string{v1alpha1.DefaultExemptNamespace}
	}
	return seen, from
}
