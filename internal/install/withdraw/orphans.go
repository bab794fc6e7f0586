package withdraw

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/pvc"
)

// Orphan is a claim in use that outlives what owns it, or has what owns it wait, because
// its deletion is refused, and for no other reason: the garbage collector asks for it all
// the time.
type Orphan struct {
	Claim types.NamespacedName
	// Holders are those that the claim names, and Owners what is gone.
	Holders, Owners string
	// Awaited: an owner is there still, and on its way out in the foreground.
	Awaited bool
}

// String implements fmt.Stringer.
func (o Orphan) String() string {
	fate := "is gone"
	if o.Awaited {
		fate = "is being deleted with all that it owns"
	}
	return fmt.Sprintf("%s (in use by %s; %s, which owned it, %s)", o.Claim, o.Holders, o.Owners, fate)
}

// OrphanError names claims that would be deleted as soon as nothing refuses that.
type OrphanError struct{ Claims []Orphan }

// Error implements error.
func (e *OrphanError) Error() string {
	names := make([]string, 0, mostNamed)
	for _, claim := range e.Claims[:min(len(e.Claims), mostNamed)] {
		names = append(names, claim.String())
	}
	text := strings.Join(names, ", ")
	if more := len(e.Claims) - mostNamed; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return "without Lockstep the garbage collector deletes claims in use: " + text +
		`; to keep one: kubectl patch pvc NAME -n NAMESPACE --type=merge -p '` + pvc.Disown +
		`'; to let one go: wait for what uses it to end, or kubectl lockstep release pvc/NAME -n NAMESPACE, and delete it; then run this again`
}

// Orphans are the claims whose deletion is refused and whose owners are all gone, or take
// what they own with them.
func (w Withdrawal) Orphans(ctx context.Context) ([]Orphan, error) {
	var owned []*corev1.PersistentVolumeClaim
	err := w.eachClaim(ctx, func(claim *corev1.PersistentVolumeClaim) error {
		if pvc.HeldAndOwned(claim) != "" {
			owned = append(owned, claim.DeepCopy())
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	var orphans []Orphan
	known := map[owner]standing{}
	for _, claim := range owned {
		left, err := w.leftBy(ctx, claim, known)
		if err != nil {
			return nil, err
		}
		if left != stays {
			orphans = append(orphans, Orphan{
				Claim: client.ObjectKeyFromObject(claim), Holders: pvc.HeldAndOwned(claim), Owners: pvc.OwnersOf(claim), Awaited: left == awaits,
			})
		}
	}
	slices.SortFunc(orphans, func(x, y Orphan) int { return strings.Compare(x.Claim.String(), y.Claim.String()) })
	return orphans, nil
}

// owner is what a claim says that it belongs to. Whoever may write the claim can say
// anything: of another claim's owner of that UID it tells nothing.
type owner struct {
	apiVersion, kind, namespace, name string
	uid                               types.UID
}

// standing is what an owner is to what it owns.
type standing int

const (
	gone   standing = iota
	awaits          // it goes once what it owns has gone
	stays
)

// leftBy tells what the owner is to a claim that is most to it. What was read is known.
func (w Withdrawal) leftBy(ctx context.Context, claim *corev1.PersistentVolumeClaim, known map[owner]standing) (standing, error) {
	left := gone
	for _, reference := range claim.OwnerReferences {
		o := owner{reference.APIVersion, reference.Kind, claim.Namespace, reference.Name, reference.UID}
		is, ok := known[o]
		if !ok {
			var err error
			if is, err = w.standingOf(ctx, o); err != nil {
				return gone, fmt.Errorf("read %s %q, which owns claim %q: %w", o.kind, o.name, claim.Namespace+"/"+claim.Name, err)
			}
			known[o] = is
		}
		if left = max(left, is); left == stays {
			break
		}
	}
	return left, nil
}

// standingOf reads an owner. A kind that is not served is left alone by the garbage
// collector.
func (w Withdrawal) standingOf(ctx context.Context, o owner) (standing, error) {
	found := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: o.apiVersion, Kind: o.kind}}
	err := w.Client.Get(ctx, types.NamespacedName{Namespace: o.namespace, Name: o.name}, found)
	switch {
	case meta.IsNoMatchError(err):
		return stays, nil
	case apierrors.IsNotFound(err), err == nil && found.UID != o.uid:
		return gone, nil
	case err != nil:
		return gone, err
	case found.DeletionTimestamp != nil && slices.Contains(found.Finalizers, metav1.FinalizerDeleteDependents):
		return awaits, nil
	}
	return stays, nil
}
