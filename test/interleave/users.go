package interleave

import (
	"errors"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"lockstep.dev/lockstep/internal/pvc"
)

// users create and delete PVCs.
func (w *world) users(add adder) {
	for _, name := range []string{"a", "b"} {
		claim := w.store.claims()[name]
		switch {
		case claim == nil && w.faults.claims > 0:
			add(creators, func() { w.faults.claims--; w.store.create(w.claim(name)) }, "claim %s is created anew", name)
		case claim == nil:
		case claim.DeletionTimestamp == nil:
			add(deleters, func() { w.store.deleteClaim(name) }, "claim %s is deleted", name)
		}
		if claim != nil && w.faults.writes > 0 {
			add(writers, func() { w.faults.writes--; w.touch(name) }, "a user writes onto claim %s", name)
		}
		if claim != nil && w.faults.strips > 0 {
			add(writers, func() { w.faults.strips--; w.strip(name) }, "a user removes the finalizers of claim %s", name)
		}
	}
	w.owners(add)
}

// owners create and delete pods, some of them twice.
func (w *world) owners(add adder) {
	for _, name := range sorted(wants) {
		switch p := w.store.pods()[name]; {
		case p == nil && w.faults.pods > 0:
			add(creators, func() { w.faults.pods--; w.store.create(w.pod(name)) }, "pod %s is created", name)
			if w.rules.start == anyhow {
				add(creators, func() { w.faults.pods--; w.createOnNode(name) }, "pod %s is created on a node", name)
			}
		case p == nil:
		case p.DeletionTimestamp != nil:
			add(kubelets, func() { w.store.endPod(name) }, "pod %s is gone", name)
		case w.faults.ends > 0:
			add(deleters, func() { w.faults.ends--; w.store.deletePod(name) }, "pod %s is deleted", name)
			add(deleters, func() { w.faults.ends--; w.seen[forced]++; w.store.endPod(name) }, "pod %s is deleted by force", name)
			if p.Spec.NodeName != "" && p.Status.Phase == "" {
				add(kubelets, func() { w.faults.ends--; w.finish(name) }, "pod %s has finished", name)
			}
		}
	}
}

func (w *world) createOnNode(name string) {
	pod := w.pod(name)
	pod.Spec.NodeName = node
	w.store.create(pod)
	w.seen[onNode]++
}

// finish ends the containers of a pod. Its volumes may still be mounted.
func (w *world) finish(name string) {
	pod := w.store.pods()[name].DeepCopy()
	pod.Status.Phase = corev1.PodSucceeded
	w.store.put(pod)
	w.seen[finished]++
}

// touch gives a PVC a new resourceVersion, and adds or removes a finalizer.
func (w *world) touch(name string) {
	claim := w.store.claims()[name].DeepCopy()
	metav1.SetMetaDataAnnotation(&claim.ObjectMeta, "example.com/touched", claim.ResourceVersion)
	switch {
	case slices.Contains(claim.Finalizers, foreign):
		claim.Finalizers = slices.DeleteFunc(claim.Finalizers, func(f string) bool { return f == foreign })
	case claim.DeletionTimestamp == nil:
		claim.Finalizers = append(claim.Finalizers, foreign)
	}
	w.store.put(claim)
}

// strip removes the finalizers that protect a PVC. The laws hold for the other PVCs only.
func (w *world) strip(name string) {
	claim := w.store.claims()[name].DeepCopy()
	claim.Finalizers = slices.DeleteFunc(claim.Finalizers, func(f string) bool { return f == pvc.BarrierFinalizer || isP(f) })
	w.given[claim.UID], w.givenUp[name] = true, true
	w.store.put(claim)
	w.seen[stripped]++
}

// misfortunes are crashes, second replicas and lost requests, up to the number of faults.
func (w *world) misfortunes(add adder) {
	w.lose(add)
	for i, o := range w.operators {
		if w.faults.crashes > 0 {
			add(misfortune, func() { w.faults.crashes--; w.crash(i) }, "%s crashes, and comes again", o.name)
		}
	}
	if w.faults.replicas > 0 && len(w.operators) == 1 {
		add(misfortune, func() { w.faults.replicas--; w.seen[replicas]++; w.startOurs() }, "another of ours begins, and the first knows nothing of it")
	}
	if w.faults.crashes > 0 && w.builtIn != nil {
		add(misfortune, func() { w.faults.crashes--; w.builtIn.crash(); w.startBuiltIn() }, "built-in crashes, and comes again")
	}
	for i, s := range w.schedulers {
		if w.faults.crashes > 0 && s.busy.Load() {
			add(misfortune, func() { w.faults.crashes--; w.crashScheduler(i) }, "%s crashes, and comes again", s)
		}
	}
}

func (w *world) crash(i int) {
	w.seen[crashes]++
	w.operators[i].crash()
	w.operators = slices.Delete(w.operators, i, i+1)
	w.startOurs()
}

var (
	errBusy     = apierrors.NewInternalError(errors.New("etcdserver: leader changed"))
	errConflict = apierrors.NewConflict(claimResource, "it", errors.New("the object has been modified"))
)

// lose makes requests fail: before they arrive, after it, and at the API server.
func (w *world) lose(add adder) {
	if w.faults.lost == 0 {
		return
	}
	spend := func(what string) { w.faults.lost--; w.seen[what]++ }
	for _, c := range w.wire.underWay() {
		if c.late {
			continue
		}
		add(misfortune, func() { spend(requestsLost); w.wire.refuse(c, errLost) }, "lost on its way: %s", c)
		add(misfortune, func() { spend(refusals); w.wire.refuse(c, errBusy) }, "refused with 500: %s", c)
		if c.writes {
			add(misfortune, func() { spend(answersLost); w.wire.unanswered(c) }, "its answer is lost: %s", c)
			add(misfortune, func() { spend(refusals); w.wire.refuse(c, errConflict) }, "refused with 409: %s", c)
		}
	}
}
