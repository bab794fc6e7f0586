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

	"lockstep.dev/lockstep/internal/protect"
)

// Orphan is a claim in use that outlives what owns it because its deletion is refused, and
// for no other reason: the garbage collector asks for it all the time.
type Orphan struct {
	Claim types.NamespacedName
	// Holders are those that the claim names, and Owners what is gone.
	Holders, Owners string
}

// String implements fmt.Stringer.
func (o Orphan) String() string {
	return fmt.Sprintf("%s (in use by %s; %s, which owned it, is gone)", o.Claim, o.Holders, o.Owners)
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
		`; to keep one: kubectl patch pvc NAME -n NAMESPACE --type=merge -p '` + protect.Disown +
		`'; to let one go: kubectl lockstep release pvc/NAME -n NAMESPACE, and delete it; then run this again`
}

// Orphans are the claims whose deletion is refused and whose owners are all gone.
func (w Withdrawal) Orphans(ctx context.Context) ([]Orphan, error) {
	var owned []*corev1.PersistentVolumeClaim
	err := w.eachClaim(ctx, func(claim *corev1.PersistentVolumeClaim) error {
		if protect.HeldAndOwned(claim) != "" {
			owned = append(owned, claim.DeepCopy())
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	var orphans []Orphan
	known := map[types.UID]bool{}
	for _, claim := range owned {
		gone, err := w.ownersAreGone(ctx, claim, known)
		if err != nil {
			return nil, err
		}
		if gone {
			orphans = append(orphans, Orphan{Claim: client.ObjectKeyFromObject(claim), Holders: protect.HeldAndOwned(claim), Owners: protect.OwnersOf(claim)})
		}
	}
	slices.SortFunc(orphans, func(x, y Orphan) int { return strings.Compare(x.Claim.String(), y.Claim.String()) })
	return orphans, nil
}

// ownersAreGone tells whether no owner of a claim is there. A kind that is not served is
// left alone by the garbage collector. What was read is known, by UID.
func (w Withdrawal) ownersAreGone(ctx context.Context, claim *corev1.PersistentVolumeClaim, known map[types.UID]bool) (bool, error) {
	for _, owner := range claim.OwnerReferences {
		there, ok := known[owner.UID]
		if !ok {
			found := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: owner.APIVersion, Kind: owner.Kind}}
			err := w.Client.Get(ctx, types.NamespacedName{Namespace: claim.Namespace, Name: owner.Name}, found)
			if err != nil && !apierrors.IsNotFound(err) && !meta.IsNoMatchError(err) {
				return false, fmt.Errorf("read %s %q, which owns claim %q: %w", owner.Kind, owner.Name, claim.Namespace+"/"+claim.Name, err)
			}
			there = meta.IsNoMatchError(err) || err == nil && found.UID == owner.UID
			known[owner.UID] = there
		}
		if there {
			return false, nil
		}
	}
	return true, nil
}
