package main

import (
	"errors"
	"fmt"
	"slices"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/test/drill"
)

// bareLabel marks namespaces that the admission policies exclude during the measurement.
const bareLabel = "bench/bare"

// admitRounds is how often the difference is measured. Six answers of a round are beyond its p99.
// The median of the rounds counts, so that one pause of the API server has no effect.
const admitRounds = 15

// admit measures what the admission policies add to the creation and to the deletion of a PVC.
// It creates and deletes PVCs one at a time, in turn with and without the policies, so that a slow
// machine slows both. The clock of the API server counts. The operator and the controller manager
// are stopped: their writes for the former PVC would delay a deletion. The bindings exclude
// namespaces with a label; the evaluation of this selector counts as time without the policies.
func admit(b *bed) {
	with, without := b.newPlace(nil), b.newPlace(map[string]string{bareLabel: ""})
	putBack := b.leaveOut()
	must(errors.Join(b.Operator.Kill(), b.Plane.Kill(drill.ControllerManager))) // the operator removes holders that are none
	with.guarded(true)
	without.guarded(false)
	defer func() {
		b.left = errors.Join(b.Plane.Restart(drill.ControllerManager), putBack(), attempt(func() { b.rerun(b.flags) }),
			with.strike(), without.strike())
	}()
	rounds := map[string][]sample{}
	const claims = 600
	for round := range admitRounds {
		names := claimNames(fmt.Sprintf("round-%d", round), claims)
		comeAndGo(names, with, without)
		for _, verb := range []string{"create", "delete"} {
			one := sample{with: with.answersTo(verb, names), without: without.answersTo(verb, names)}
			valid(len(one.with) == claims && len(one.without) == claims, "%d and %d answers to %s for %d PVCs",
				len(one.with), len(one.without), verb, claims)
			rounds[verb] = append(rounds[verb], one)
		}
		with.giveUp(names)
		without.giveUp(names)
	}
	for _, verb := range []string{"create", "delete"} {
		tellAdmission(&b.figures, "admit-claims."+verb, rounds[verb])
	}
}

// comeAndGo creates each PVC in both namespaces, and deletes it there. It alternates which comes
// first, because a request after one of the same kind may be cheaper.
func comeAndGo(names []string, with, without *place) {
	with.remark()
	without.remark()
	inTurn := func(do func(p *place, name string)) {
		for i, name := range names {
			first, second := with, without
			if i%2 != 0 {
				first, second = without, with
			}
			do(first, name)
			do(second, name)
		}
	}
	inTurn(func(p *place, name string) {
		claim := p.claim(name)
		must(p.Client.Create(p.ctx, claim))
		valid(slices.Contains(claim.Finalizers, drill.Barrier) == (p == with), "PVC %s/%s was created with finalizers %v", p.namespace, name, claim.Finalizers)
	})
	inTurn(func(p *place, name string) { must(p.Client.Delete(p.ctx, p.claim(name))) })
	must(with.Audit.Sync())
}

// giveUp removes the finalizers of deleted PVCs, because no controller runs. Each round then begins
// with the same state of the API server.
func (p *place) giveUp(names []string) {
	must(drill.Together(names, func(name string) error { return p.Client.Patch(p.ctx, p.claim(name), drill.Merge(drill.NoFinalizers)) }))
}

// answersTo returns how long the API server took to answer a verb on PVCs, shortest first.
func (p *place) answersTo(verb string, names []string) (times []time.Duration) {
	asked := sets.New(names...)
	for _, r := range p.since(func(r drill.Request) bool {
		return r.Agent == benchAgent && r.Resource == "persistentvolumeclaims" && r.Verb == verb && r.Code < 300 && asked.Has(r.Name)
	}) {
		times = append(times, r.Done.Sub(r.Begun))
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

// protectionParts selects the installed objects of protection.
var protectionParts = client.MatchingLabels{"app.kubernetes.io/name": "lockstep", "app.kubernetes.io/component": "protection"}

// leaveOut makes every binding of protection exclude namespaces with the label. It returns a
// function that restores the bindings.
func (b *bed) leaveOut() (putBack func() error) {
	putBack = func() error { return nil }
	for _, kind := range []string{"MutatingAdmissionPolicyBinding", "ValidatingAdmissionPolicyBinding"} {
		bindings := &unstructured.UnstructuredList{}
		bindings.SetGroupVersionKind(admissionv1.SchemeGroupVersion.WithKind(kind + "List"))
		must(b.Client.List(b.ctx, bindings, protectionParts))
		valid(len(bindings.Items) > 0, "no %s is installed", kind)
		for i := range bindings.Items {
			binding, others := &bindings.Items[i], putBack
			was := binding.DeepCopy()
			putBack = func() error {
				was.SetResourceVersion(binding.GetResourceVersion())
				return errors.Join(others(), b.Client.Update(b.ctx, was))
			}
			at := []string{"spec", "matchResources", "namespaceSelector", "matchExpressions"}
			all, _, _ := unstructured.NestedSlice(binding.Object, at...)
			all = append(all, map[string]any{"key": bareLabel, "operator": "DoesNotExist"})
			must(errors.Join(unstructured.SetNestedSlice(binding.Object, all, at...), b.Client.Update(b.ctx, binding)))
		}
	}
	return putBack
}

// guarded waits until the policies apply to the namespace, or do not. If they apply, a new PVC gets
// the barrier, and the deletion of a held PVC is refused.
func (p *place) guarded(want bool) {
	held := p.claim("held")
	held.Annotations = map[string]string{"protection.lockstep.dev/holders": "Pod/none"}
	must(p.Client.Create(p.ctx, held))
	p.until(fmt.Sprintf("policies hold: %t", want), func() bool {
		probe := p.claim("probe")
		must(p.Client.Create(p.ctx, probe, client.DryRunAll))
		err := p.Client.Delete(p.ctx, held, client.DryRunAll)
		refused := apierrors.IsForbidden(err)
		if !refused {
			must(err)
		}
		return refused == want && slices.Contains(probe.Finalizers, drill.Barrier) == want
	})
}
