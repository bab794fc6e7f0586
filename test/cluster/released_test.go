package cluster

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/pvc"
)

func asUnstructured(t *testing.T, object runtime.Object) *unstructured.Unstructured {
	t.Helper()
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		t.Fatal(err)
	}
	delete(fields, "status")
	return &unstructured.Unstructured{Object: fields}
}

// annotate says something on a claim or a namespace; an empty value takes it away.
func (s *guarded) annotate(o client.Object, key, value string) {
	s.Helper()
	quoted := fmt.Sprintf("%q", value)
	if value == "" {
		quoted = "null"
	}
	s.patch(o, fmt.Sprintf(`{"metadata":{"annotations":{%q:%s}}}`, key, quoted))
}

// awaitTold waits for an event about an object.
func (s *guarded) awaitTold(reason, name string) {
	s.Helper()
	s.eventually(fmt.Sprintf("%s is told of %s", reason, name), func() error {
		list := &eventsv1.EventList{}
		if err := s.client.List(s.Context(), list, client.InNamespace(s.namespace)); err != nil {
			return err
		}
		for i := range list.Items {
			if list.Items[i].Reason == reason && list.Items[i].Regarding.Name == name {
				return nil
			}
		}
		return errors.New("it is not")
	})
}

// wanted makes a Deployment, and a claim that it holds.
func (s *guarded) wanted(annotations map[string]string) (*corev1.PersistentVolumeClaim, client.Object) {
	s.Helper()
	deployment := s.holders()[1].Object
	s.create(deployment)
	s.claim("deploy", annotations)
	return s.says("deploy", "Deployment/deploy"), deployment
}

func (s *guarded) awaitGone(name string) {
	s.Helper()
	s.eventually("claim "+name+" is gone", func() error {
		found, err := s.claims()
		if claim := found[name]; claim != nil {
			return fmt.Errorf("it is there: deleted %v, finalizers %v, %v", claim.DeletionTimestamp, claim.Finalizers, claim.Annotations)
		}
		return err
	})
}

func deletedWhenFree(t *testing.T) {
	s := newGuarded(t)
	claim, deployment := s.wanted(nil)
	s.annotate(claim, pvc.IntentAnnotation, string(claim.UID))
	copied := s.claim("copied", map[string]string{pvc.IntentAnnotation: string(claim.UID)})
	s.remove(deployment, propagation(metav1.DeletePropagationBackground))
	s.awaitGone(claim.Name)
	s.awaitTold("DeleteWhenFree", claim.Name)
	found, err := s.claims()
	s.check("list claims", err)
	if found[copied.Name] == nil {
		t.Error("a claim went that bears the word of another one")
	}
}

func releaseTokens(t *testing.T) {
	s := newGuarded(t)
	claim, _ := s.wanted(nil)
	s.annotate(claim, pvc.ReleaseAnnotation, "another-life")
	if err := s.client.Delete(t.Context(), claim.DeepCopy(), client.DryRunAll); !refused(err) {
		t.Errorf("a token of another life lets the deletion end with %v", err)
	}
	s.annotate(claim, pvc.ReleaseAnnotation, string(claim.UID))
	s.check("delete what was released", s.client.Delete(t.Context(), claim.DeepCopy(), client.DryRunAll)) // at once: the token goes soon
	s.awaitTold("ReleaseGranted", claim.Name)
	s.eventually("the token goes by itself", func() error {
		err := s.client.Get(t.Context(), client.ObjectKeyFromObject(claim), claim)
		return errors.Join(err, lacking("token", "", claim.Annotations[pvc.ReleaseAnnotation]), lacking("until", "", claim.Annotations[pvc.ReleaseUntilAnnotation]))
	})
	s.awaitTold("ReleaseExpired", claim.Name)
	if err := s.client.Delete(t.Context(), claim.DeepCopy(), client.DryRunAll); !refused(err) {
		t.Errorf("without the token the deletion ends with %v", err)
	}
	s.annotate(claim, pvc.ReleaseAnnotation, string(claim.UID))
	s.remove(claim.DeepCopy())
	s.awaitGone(claim.Name)
	s.awaitTold("Released", claim.Name)
}

// awaitCounted waits until the namespace tells that claims of it are held.
func (s *guarded) awaitCounted() *corev1.Namespace {
	s.Helper()
	itself := s.itself()
	s.eventually("the namespace counts its held claims", func() error {
		err := s.client.Get(s.Context(), client.ObjectKeyFromObject(itself), itself)
		return errors.Join(err, lacking("counted", true, itself.Annotations[pvc.HeldClaimsAnnotation] != ""))
	})
	return itself
}

func (s *guarded) namespaceEnds() {
	s.Helper()
	s.eventually("the namespace is gone", func() error {
		itself := s.itself()
		err := s.client.Get(s.Context(), client.ObjectKeyFromObject(itself), itself)
		if apierrors.IsNotFound(err) {
			return nil
		}
		return errors.Join(err, fmt.Errorf("it is there: %+v", itself.Status.Conditions))
	})
}

func namespaceRefused(err error) bool {
	return drillForbidden(err, "refuse-namespace.protection.lockstep.dev")
}

// namespaceStays whole while claims in it are held, and goes once they are not.
func namespaceStays(t *testing.T) {
	s := newGuarded(t)
	set, _ := s.settle(1, 2, volumes(keepClaims, keepClaims))
	itself := s.awaitCounted()
	if err := s.client.Delete(t.Context(), itself.DeepCopy()); !namespaceRefused(err) {
		t.Fatalf("its deletion ended with %v", err)
	}
	s.remove(set.DeepCopy(), propagation(metav1.DeletePropagationBackground))
	s.eventually("it may be deleted", func() error { return s.client.Delete(t.Context(), itself.DeepCopy()) })
	s.namespaceEnds()
}

// namespaceReleased goes with all that is in it, running or not, also what a person
// holds.
func namespaceReleased(t *testing.T) {
	s := newGuarded(t)
	s.settle(1, 2, volumes(keepClaims, keepClaims))
	s.claim("kept", map[string]string{pvc.HoldAnnotation: "for the auditors"})
	s.says("kept", "Hold/kept")
	itself := s.awaitCounted()
	s.annotate(itself, pvc.ReleaseAnnotation, string(itself.UID))
	s.remove(itself.DeepCopy())
	s.namespaceEnds()
}

// mistakeInModeBarrier: the deletion is admitted, and told of as one that a workload
// will suffer from.
func mistakeInModeBarrier(t *testing.T) {
	s := newGuarded(t)
	s.patch(s.itself(), `{"metadata":{"labels":{"protection.lockstep.dev/mode":"barrier"}}}`)
	set := s.newSet("a", 1, 2, imageA, volumes(keepClaims, keepClaims))
	s.create(set)
	s.awaitSettled(set)
	s.awaitBound(2)
	s.remove(s.claimNamed("data-a-0-1"))
	s.awaitTold("Doomed", "data-a-0-1")
	found, err := s.claims()
	s.check("list claims", err)
	claim := found["data-a-0-1"]
	if claim == nil || claim.DeletionTimestamp == nil || claim.Annotations[pvc.HoldersAnnotation] != "" {
		t.Errorf("a claim that its pod still uses is %+v", claim)
	}
}

// holdsWithoutOperator: what was held stays held, and can be released.
func holdsWithoutOperator(t *testing.T) {
	s := newGuarded(t)
	claim, deployment := s.wanted(nil)
	s.check("kill the operator", bed.operator.kill())
	s.remove(deployment, propagation(metav1.DeletePropagationBackground))
	err := s.client.Delete(t.Context(), claim.DeepCopy())
	if !refused(err) || !strings.Contains(err.Error(), "Deployment/deploy") {
		t.Errorf("the deletion ended with %v", err)
	}
	s.annotate(claim, pvc.ReleaseAnnotation, string(claim.UID))
	s.remove(claim.DeepCopy())
	found, err := s.claims()
	s.check("list claims", err)
	if left := found[claim.Name]; left != nil && left.DeletionTimestamp == nil {
		t.Error("released, and deleted, it is as it was")
	}
	s.check("start the operator", bed.operator.start())
	s.awaitTold("Released", claim.Name) // every use, also one that nobody saw
}

// deletedInModeObserve is let through, and told of.
func deletedInModeObserve(t *testing.T) {
	s := newGuarded(t)
	s.patch(s.itself(), `{"metadata":{"labels":{"protection.lockstep.dev/mode":"observe"}}}`)
	s.create(s.holders()[1].Object)
	claim := s.claim("deploy", nil)
	s.eventually("the claim names who wants it", func() error {
		err := s.client.Get(t.Context(), client.ObjectKeyFromObject(claim), claim)
		return errors.Join(err, lacking("observed", "Deployment/deploy", claim.Annotations[pvc.ObservedAnnotation]))
	})
	s.remove(claim.DeepCopy())
	s.awaitTold("DeletedInUse", claim.Name)
	s.awaitGone(claim.Name)
}

// deletedThoughIdle: a workload that is scaled to zero would want it again.
func deletedThoughIdle(t *testing.T) {
	s := newGuarded(t)
	claim, deployment := s.wanted(nil)
	s.patch(deployment, `{"spec":{"replicas":0}}`)
	s.awaitFree(claim.Name)
	s.remove(claim.DeepCopy())
	s.awaitTold("DeletedInUse", claim.Name)
}
