package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/test/drill"
)

// bareLabel marks namespaces that our admission policies leave out while it is measured.
const bareLabel = "bench/bare"

// admitRounds is how often the difference is measured: six answers of a round are beyond its
// p99. The median counts, so one pause of the API server does not decide.
const admitRounds = 15

// admit measures what our admission adds to the creation and to the deletion of a PVC. PVCs
// are created and deleted one at a time, in turn with and without the policies, so that a
// slow machine slows both. The API server's clock counts. The operator and the controller
// manager are stopped: their writes for the PVC before would delay a deletion. The bindings
// leave out namespaces with a label; these pay for being left out.
func admit(ctx context.Context, b *bed) (f figures, err error) {
	with, err := b.newClaimStage(ctx, nil)
	if err != nil {
		return nil, err
	}
	without, err := b.newClaimStage(ctx, map[string]string{bareLabel: ""})
	if err != nil {
		return nil, err
	}
	putBack, err := b.leaveOut(ctx)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(with.guarded(ctx, true), without.guarded(ctx, false), b.operator.Kill(), b.plane.Kill(drill.ControllerManager)); err != nil {
		return nil, err
	}
	defer func() {
		err = errors.Join(err, b.plane.Restart(drill.ControllerManager), putBack(), b.rerun(ctx, b.flags), with.strike(ctx), without.strike(ctx))
	}()
	rounds := map[string][]sample{}
	claims := b.part(600)
	for round := range admitRounds {
		names := claimNames(fmt.Sprintf("round-%d", round), claims)
		if err := comeAndGo(ctx, names, with, without); err != nil {
			return nil, err
		}
		for _, verb := range []string{"create", "delete"} {
			one := sample{with: with.answersTo(verb, names), without: without.answersTo(verb, names)}
			if len(one.with) != claims || len(one.without) != claims {
				return nil, fmt.Errorf("%w: %d and %d answers to %s for %d claims", errInvalid, len(one.with), len(one.without), verb, claims)
			}
			rounds[verb] = append(rounds[verb], one)
		}
		if err := errors.Join(with.giveUp(ctx, names), without.giveUp(ctx, names)); err != nil {
			return nil, err
		}
	}
	for _, verb := range []string{"create", "delete"} {
		tellAdmission(&f, "admit-claims."+verb, rounds[verb])
	}
	return f, nil
}

// comeAndGo creates each PVC on both stages, and deletes it there.
func comeAndGo(ctx context.Context, names []string, with, without *claimStage) error {
	if err := errors.Join(with.remark(), without.remark()); err != nil {
		return err
	}
	for i, name := range names {
		for _, s := range inTurn(i, with, without) {
			claim := s.claim(name)
			if err := s.client.Create(ctx, claim); err != nil {
				return err
			}
			if slices.Contains(claim.Finalizers, barrier) != (s == with) {
				return fmt.Errorf("%w: claim %s/%s was created with finalizers %v", errInvalid, s.namespace, name, claim.Finalizers)
			}
		}
	}
	for i, name := range names {
		for _, s := range inTurn(i, with, without) {
			if err := s.client.Delete(ctx, s.claim(name)); err != nil {
				return err
			}
		}
	}
	return with.audit.Sync()
}

// giveUp removes the finalizers of deleted PVCs, as no controller runs: each round finds the
// API server as the one before did.
func (s *claimStage) giveUp(ctx context.Context, names []string) error {
	return together(names, func(name string) error {
		return s.client.Patch(ctx, s.claim(name), client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))
	})
}

// inTurn alternates the first: a request after one of the same kind may be cheaper.
func inTurn(i int, a, b *claimStage) []*claimStage {
	if i%2 == 0 {
		return []*claimStage{a, b}
	}
	return []*claimStage{b, a}
}

// answersTo returns how long the API server took to answer a verb on PVCs, shortest first.
func (s *claimStage) answersTo(verb string, names []string) (times []time.Duration) {
	asked := map[string]bool{}
	for _, name := range names {
		asked[name] = true
	}
	for _, r := range s.since(func(r drill.Request) bool {
		return r.Agent == benchAgent && r.Resource == "persistentvolumeclaims" && r.Verb == verb && r.Code < 300
	}) {
		if asked[r.Name] {
			times = append(times, r.Done.Sub(r.Begun))
		}
	}
	slices.Sort(times)
	return times
}

// sample is the answer times of one round, shortest first.
type sample struct{ with, without []time.Duration }

// tellAdmission adds the median, over the rounds, of the difference of a percentile with and
// without admission.
func tellAdmission(f *figures, name string, rounds []sample) {
	for _, p := range []int{50, 99} {
		var added, bare []time.Duration
		for _, one := range rounds {
			added = append(added, percentile(one.with, p)-percentile(one.without, p))
			bare = append(bare, percentile(one.without, p))
		}
		slices.Sort(added)
		slices.Sort(bare)
		f.add(fmt.Sprintf("%s-adds-ms-p%d", name, p), milliseconds(percentile(added, 50)))
		f.add(fmt.Sprintf("%s-without-ms-p%d", name, p), milliseconds(percentile(bare, 50)))
	}
}

// protectionParts selects what was installed for protection.
var protectionParts = client.MatchingLabels{"app.kubernetes.io/name": "lockstep", "app.kubernetes.io/component": "protection"}

// leaveOut makes every binding of protection leave out namespaces with the label. It returns
// a function that puts the bindings back.
func (b *bed) leaveOut(ctx context.Context) (putBack func() error, err error) {
	mutating, validating := &admissionv1.MutatingAdmissionPolicyBindingList{}, &admissionv1.ValidatingAdmissionPolicyBindingList{}
	if err := errors.Join(b.client.List(ctx, mutating, protectionParts), b.client.List(ctx, validating, protectionParts)); err != nil {
		return nil, err
	}
	if len(mutating.Items) == 0 || len(validating.Items) == 0 {
		return nil, fmt.Errorf("%w: %d mutating and %d validating bindings are installed", errInvalid, len(mutating.Items), len(validating.Items))
	}
	putBack = func() error { return nil }
	leave := func(binding client.Object, match **admissionv1.MatchResources) {
		was, others := *match, putBack
		putBack = func() error {
			*match = was
			return errors.Join(others(), b.client.Update(ctx, binding))
		}
		*match = butLabelled(was)
		err = errors.Join(err, b.client.Update(ctx, binding))
	}
	for i := range mutating.Items {
		leave(&mutating.Items[i], &mutating.Items[i].Spec.MatchResources)
	}
	for i := range validating.Items {
		leave(&validating.Items[i], &validating.Items[i].Spec.MatchResources)
	}
	return putBack, err
}

// butLabelled matches what matched before, without namespaces that have the label.
func butLabelled(match *admissionv1.MatchResources) *admissionv1.MatchResources {
	result := &admissionv1.MatchResources{}
	if match != nil {
		result = match.DeepCopy()
	}
	if result.NamespaceSelector == nil {
		result.NamespaceSelector = &metav1.LabelSelector{}
	}
	result.NamespaceSelector.MatchExpressions = append(result.NamespaceSelector.MatchExpressions,
		metav1.LabelSelectorRequirement{Key: bareLabel, Operator: metav1.LabelSelectorOpDoesNotExist})
	return result
}

// guarded returns once the policies act here, or do not: a new PVC gets the barrier, and the
// deletion of a held one is refused.
func (s *claimStage) guarded(ctx context.Context, want bool) error {
	held := s.claim("held")
	held.Annotations = map[string]string{"protection.lockstep.dev/holders": "Pod/none"}
	if err := s.client.Create(ctx, held); err != nil {
		return err
	}
	return s.until(ctx, fmt.Sprintf("policies hold: %t", want), 1, func() (int, error) {
		probe := s.claim("probe")
		if err := s.client.Create(ctx, probe, client.DryRunAll); err != nil {
			return 0, err
		}
		err := s.client.Delete(ctx, held, client.DryRunAll)
		if refused := apierrors.IsForbidden(err); refused == want && slices.Contains(probe.Finalizers, barrier) == want {
			return 1, nil
		} else if refused {
			return 0, nil
		}
		return 0, err
	})
}
