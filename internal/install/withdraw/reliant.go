package withdraw

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/pvc"
)

// Reliant is a claim, or a volume, on its way out that only Lockstep will let go.
type Reliant struct {
	Claim types.NamespacedName
	// Volume is the name of a volume, which is in use while it is bound.
	Volume string
	// Users are the pods it waits for; none where it waits for something else.
	Users []string
	// AwaitsBuiltIn: nobody uses it, and the built-in controller has yet to take
	// its own finalizer.
	AwaitsBuiltIn bool
}

func (r Reliant) String() string {
	switch {
	case r.Volume != "":
		return fmt.Sprintf("volume %s (bound to %s)", r.Volume, r.Claim)
	case len(r.Users) > 0:
		return fmt.Sprintf("%s (used by %s)", r.Claim, strings.Join(r.Users, ", "))
	case r.AwaitsBuiltIn:
		return fmt.Sprintf("%s (awaits kubernetes.io/pvc-protection)", r.Claim)
	}
	return r.Claim.String()
}

// mostNamed bounds how many are named.
const mostNamed = 5

// Names names some claims, and counts the rest.
func Names(claims []Reliant) string {
	names := make([]string, 0, mostNamed)
	for _, claim := range claims[:min(len(claims), mostNamed)] {
		names = append(names, claim.String())
	}
	text := strings.Join(names, ", ")
	if more := len(claims) - mostNamed; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// LeftError names claims that stay: they are on their way out, and in use.
type LeftError struct{ Claims []Reliant }

// Error implements error.
func (e *LeftError) Error() string {
	return "claims are on their way out and rely on Lockstep to go: " + Names(e.Claims) +
		"; wait for the pods that use them to end, or delete these, and run this again; to see what is in the way: kubectl lockstep why pvc/NAME -n NAMESPACE"
}

// Settled is Reliant, once the built-in controller has had time to take its own
// finalizer from claims that nobody uses. A look that the end of the wait cuts off has
// seen nothing: the one before it counts, and without one nothing is known.
func (w Withdrawal) Settled(ctx context.Context) (left []Reliant, err error) {
	looked := false
	err = wait.PollUntilContextTimeout(ctx, glance, w.Patience, true, func(ctx context.Context) (bool, error) {
		seen, err := w.Reliant(ctx)
		if err != nil {
			return false, err
		}
		left, looked = seen, true
		return !slices.ContainsFunc(left, func(r Reliant) bool { return r.AwaitsBuiltIn }), nil
	})
	switch {
	case !wait.Interrupted(err) || ctx.Err() != nil:
		return left, err
	case !looked:
		return nil, fmt.Errorf("which claims are on their way out could not be read within %s: %w; allow more with --timeout", w.Patience, err)
	}
	return left, nil
}

// Reliant lets go of what may go, by the protocol, and returns the rest.
func (w Withdrawal) Reliant(ctx context.Context) ([]Reliant, error) {
	leaving := map[string][]*corev1.PersistentVolumeClaim{}
	err := w.eachClaim(ctx, func(claim *corev1.PersistentVolumeClaim) error {
		if w.Relies(claim) {
			leaving[claim.Namespace] = append(leaving[claim.Namespace], claim.DeepCopy())
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	var left []Reliant
	for namespace, claims := range leaving {
		stay, err := w.letGo(ctx, namespace, claims)
		if err != nil {
			return nil, err
		}
		left = append(left, stay...)
	}
	volumes, err := w.boundVolumes(ctx)
	if err != nil {
		return nil, err
	}
	left = append(left, volumes...)
	slices.SortFunc(left, func(x, y Reliant) int { return strings.Compare(x.Claim.String(), y.Claim.String()) })
	return left, nil
}

// letGo judges the claims of one namespace by pods that are read after they were
// seen, and takes one finalizer from each that nobody uses.
func (w Withdrawal) letGo(ctx context.Context, namespace string, claims []*corev1.PersistentVolumeClaim) ([]Reliant, error) {
	seen := pvc.NewIndex()
	read := w.pods(ctx)
	batch := pvc.Settings{Alone: w.Alone}.Take(namespace, claims)
	if batch.Empty() {
		if err := read(namespace, seen.See); err != nil {
			return nil, err
		}
	}
	releases, kept := batch.Look(func(namespace string, see func(*corev1.Pod)) error {
		return read(namespace, func(pod *corev1.Pod) { see(pod); seen.See(pod) })
	}).Judge()
	stay := map[types.UID]Reliant{}
	for _, claim := range claims {
		users := names(seen.Holding(claim), nil)
		stay[claim.UID] = Reliant{Claim: client.ObjectKeyFromObject(claim), Users: users, AwaitsBuiltIn: len(users) == 0}
	}
	for _, k := range kept {
		if k.Err != nil {
			return nil, fmt.Errorf("who uses claim %s/%s cannot be told: %w; what to do: kubectl lockstep why pvc/%[2]s -n %[1]s", k.Claim.Namespace, k.Claim.Name, k.Err)
		}
		stay[k.Claim.UID] = Reliant{Claim: types.NamespacedName{Namespace: k.Claim.Namespace, Name: k.Claim.Name}, Users: names(k.Users, k.Recorded)}
	}
	for _, release := range releases {
		last, err := w.release(ctx, release)
		if err != nil {
			return nil, err
		}
		if last {
			delete(stay, release.Target().UID)
		}
	}
	return slices.Collect(maps.Values(stay)), nil
}

// names are the pods that use a claim, or that it says may.
func names(uses []pvc.Use, recorded pvc.Record) []string {
	var names []string
	for _, use := range uses {
		names = append(names, "pod "+use.Pod.Name)
	}
	for _, pod := range recorded {
		names = append(names, "pod "+pod.Name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// release takes one finalizer, and tells whether it was our last. What a policy
// still guards stays for now: words that hold it go first, as they do when an operator
// looks. They can hold no claim that is on its way out.
func (w Withdrawal) release(ctx context.Context, r pvc.Release) (last bool, err error) {
	if w.DryRun {
		return true, nil // what nobody uses would not stand in the way
	}
	claim := &corev1.PersistentVolumeClaim{}
	target := r.Target()
	claim.Namespace, claim.Name, claim.UID, claim.ResourceVersion = target.Namespace, target.Name, target.UID, target.ResourceVersion
	done, err := write(ctx, claim, patch{"metadata": map[string]any{"finalizers": append([]string{}, r.Finalizers()...)}}, w.merge)
	if isRefused(err) {
		_, err := write(ctx, claim, patch{"metadata": map[string]any{"annotations": map[string]any{pvc.HoldersAnnotation: nil}}}, w.merge)
		return false, err
	}
	return done && !slices.Contains(r.Finalizers(), pvc.BarrierFinalizer), err
}

// pods reads all pods of a namespace from the API server itself.
func (w Withdrawal) pods(ctx context.Context) pvc.Read {
	return func(namespace string, see func(*corev1.Pod)) error {
		return eachPage(ctx, w.Client, &corev1.PodList{}, func(list *corev1.PodList) error {
			for i := range list.Items {
				see(list.Items[i].DeepCopy())
			}
			return nil
		}, client.InNamespace(namespace))
	}
}
