package integration

import (
	"fmt"
	"slices"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/pvc"
)

// TestClaimsAreHeldFromBirthWhereThatWasChosen: until the operator has read the PVC.
func TestClaimsAreHeldFromBirthWhereThatWasChosen(t *testing.T) {
	g := newGuarded(t, nil, "barrier.yaml", "refuse.yaml", "guard.yaml")
	g.chosen = []string{"initialHold"}
	g.apply("forged.yaml")
	g.apply("initial.yaml")
	g.inForce()
	mode := func(m string) map[string]string { return map[string]string{pvc.ModeKey: m} }
	for name, labels := range map[string]map[string]string{"usual": nil, "holding": mode("hold"), "strictly": mode("strict"), "lax": mode("off")} {
		g.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}})
	}
	born := func(namespace, mode string) string {
		c := newClaim(namespace, "dry")
		if mode != "" {
			c.Annotations = map[string]string{pvc.ModeKey: mode}
		}
		g.must(g.alice.Create(t.Context(), c, client.DryRunAll))
		return c.Annotations[pvc.HoldersAnnotation]
	}
	g.until("claims are held from birth", func() bool {
		return born("holding", "") == pvc.Unverified && born("usual", "hold") == pvc.Unverified
	})
	for _, tt := range []struct {
		namespace, mode string
		held            bool
	}{
		{"usual", "", false}, {"usual", "barrier", false}, {"usual", "strict", true}, {"holding", "barrier", false}, {"holding", "off", false},
		{"holding", "nonsense", true}, {"strictly", "", true}, {"lax", "", false}, {"lax", "hold", true}, {"kube-system", "", false},
	} {
		if got := born(tt.namespace, tt.mode); (got == pvc.Unverified) != tt.held {
			t.Errorf("in %q, mode %q, a claim is born with %q", tt.namespace, tt.mode, got)
		}
	}
	forging := func() *corev1.PersistentVolumeClaim {
		c := newClaim("holding", "new")
		c.Annotations = map[string]string{pvc.HoldersAnnotation: "forged", pvc.HoldAnnotation: "mine"}
		return c
	}
	binding := &admissionv1.MutatingAdmissionPolicyBinding{}
	g.must(g.Get(t.Context(), client.ObjectKey{Name: "initial-hold.protection.lockstep.dev"}, binding))
	for i := range 100 { // policies run in another order each time that the server has read them anew
		binding.Labels["round"] = fmt.Sprint(i)
		g.must(g.Update(t.Context(), binding))
		c := forging()
		g.must(g.alice.Create(t.Context(), c, client.DryRunAll))
		if got := c.Annotations; got[pvc.HoldersAnnotation] != pvc.Unverified || got[pvc.HoldAnnotation] != "" {
			t.Fatalf("round %d: born with %v", i, got)
		}
	}
	c := forging()
	g.must(g.alice.Create(t.Context(), c))
	if got := c.Annotations; got[pvc.HoldersAnnotation] != pvc.Unverified || got[pvc.HoldAnnotation] != "" {
		t.Errorf("born with %v", got)
	}
	g.mustRefuse(g.alice.Delete(t.Context(), c), "To delete it all the same: kubectl lockstep release pvc/new -n holding")
	own := newClaim("holding", "web-scratch")
	own.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "web", UID: "1", Controller: new(true)}}
	g.must(g.alice.Create(t.Context(), own, client.DryRunAll))
	if len(own.Annotations) > 0 || slices.Contains(own.Finalizers, pvc.BarrierFinalizer) {
		t.Errorf("a pod's own claim is born with %v, %v", own.Annotations, own.Finalizers)
	}
}
