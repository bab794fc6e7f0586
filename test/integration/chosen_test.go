package integration

import (
	"fmt"
	"slices"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/pvc"
)

// TestAReleaseTakesTwoWhereThatWasChosen asks a real API server who may release what,
// alone and together.
func TestAReleaseTakesTwoWhereThatWasChosen(t *testing.T) {
	g := newGuarded(t, nil, "barrier.yaml", "refuse.yaml")
	g.chosen = []string{"byTwo"}
	g.apply("forged.yaml")
	g.apply("guard.yaml")
	g.inForce()
	g.grant("claims", "wilma", rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"persistentvolumeclaims"}, Verbs: []string{"*"}},
		rbacv1.PolicyRule{APIGroups: []string{"protection.lockstep.dev"}, Resources: []string{"claims"}, Verbs: []string{"release"}})
	wilma := g.as(g.config, "wilma")
	c := g.claim("two", held)
	uid := string(c.UID)
	const first = "a release takes two people: one says so first, kubectl annotate pvc/two -n prod protection.lockstep.dev/confirmed-by=USER"
	g.mustRefuse2(g.annotate(g.wanda, "two", pvc.ReleaseAnnotation, uid), first)
	g.mustRefuse2(g.annotate(g.alice, "two", pvc.ConfirmedAnnotation, "alice"), "needs permission to release")
	g.mustRefuse2(g.annotate(g.wanda, "two", pvc.ConfirmedAnnotation, "wilma"), `is the name of who confirms a release, and yours is "wanda"`)
	both := g.read("two")
	both.Annotations[pvc.ConfirmedAnnotation], both.Annotations[pvc.ReleaseAnnotation] = "wanda", uid
	g.mustRefuse2(g.wanda.Update(t.Context(), both), first)
	for _, key := range []string{pvc.HoldersAnnotation, pvc.ModeKey, pvc.ReleaseUntilAnnotation} { // past both of them
		g.mustRefuse2(g.annotate(g.wanda, "two", key, "off"), "changing "+key+" is for the operator")
	}

	g.neitherIsTheOperatorFromBirth()

	b := &breaking{g, newPlugin(t, g.config, g.namespace)}
	b.mustSay(true, "wanda", "The first of the two says: kubectl lockstep release pvc/two -n prod --confirm", "release", "pvc/two", "--yes")
	b.mustSay(true, "alice", "you may not release pvc/two", "release", "pvc/two", "--confirm", "--yes")
	b.mustSay(false, "wanda", "pvc/two confirmed by wanda; somebody else releases it now: kubectl lockstep release pvc/two -n prod", "release", "pvc/two", "--confirm", "--yes")
	g.mustRefuse2(g.annotate(g.wanda, "two", pvc.ReleaseAnnotation, uid), `It is confirmed by "wanda"`)
	b.mustSay(true, "wanda", "nothing was released", "release", "pvc/two", "--yes")
	g.mustRefuse(g.alice.Delete(t.Context(), c), "in use")
	b.mustSay(false, "wilma", "pvc/two released", "release", "pvc/two", "--yes")
	g.must(g.alice.Delete(t.Context(), c))
	g.strip(g.read("two"))

	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "pair", Annotations: map[string]string{pvc.HeldClaimsAnnotation: "1"}}}
	g.make(ns)
	g.mustRefuse2(g.annotateNamespace(g.wanda, "pair", pvc.ReleaseAnnotation, string(ns.UID)), "kubectl annotate namespace/pair")
	g.mustRefuse2(g.annotateNamespace(g.wanda, "pair", pvc.HeldClaimsAnnotation, "0"), "is for the operator")
	b.mustSay(false, "wanda", "namespace/pair confirmed by wanda", "release", "namespace/pair", "--confirm", "--yes")
	g.mustRefuse2(g.annotateNamespace(g.wanda, "pair", pvc.ReleaseAnnotation, string(ns.UID)), `It is confirmed by "wanda"`)
	g.must(g.annotateNamespace(wilma, "pair", pvc.ReleaseAnnotation, string(ns.UID)))
	g.must(g.Delete(t.Context(), ns))
}

// neitherIsTheOperatorFromBirth: what one of the two may not change, nothing is created with.
func (g *guarded) neitherIsTheOperatorFromBirth() {
	g.t.Helper()
	g.confirmsForNobodyElse(g.wanda, "wanda")
	c, ns := newClaim(g.namespace, "dry"), dryNamespace(pvc.HeldClaimsAnnotation, pvc.ReleaseUntilAnnotation, pvc.ConfirmedUntilAnnotation)
	c.Annotations = map[string]string{pvc.HoldAnnotation: "mine", pvc.HoldersAnnotation: "a", pvc.ConfirmedUntilAnnotation: "2099-01-01T00:00:00Z", pvc.UsersAnnotation: "a=1"}
	for _, o := range []client.Object{c, ns} {
		g.needs(g.wanda.Create(g.t.Context(), o, client.DryRunAll))
	}
	if len(c.Annotations) != 1 || c.Annotations[pvc.HoldAnnotation] != "mine" || len(ns.Annotations) > 0 {
		g.t.Errorf("born with %v, and a namespace with %v", c.Annotations, ns.Annotations)
	}
}

// TestForgedWordsAreRefusedBeforeTheyCanBeTakenOff puts to a real API server what takes
// the place of the policies that those before 1.36 do not know.
func TestForgedWordsAreRefusedBeforeTheyCanBeTakenOff(t *testing.T) {
	for name, byTwo := range map[string][]string{"by one": nil, "by two": {"byTwo"}} {
		t.Run(name, func(t *testing.T) {
			g := newGuarded(t, nil)
			g.chosen = byTwo
			g.apply("older/forged.yaml")
			both := func(as client.Client, key, value string) (refusals []error) {
				for _, o := range []client.Object{newClaim(g.namespace, "dry"), dryNamespace()} {
					o.SetAnnotations(map[string]string{key: value})
					refusals = append(refusals, as.Create(t.Context(), o, client.DryRunAll))
				}
				return refusals
			}
			g.until("forged words are refused", func() bool {
				return !slices.Contains(both(g.alice, pvc.ReleaseAnnotation, "u"), nil)
			})
			for i, what := range []string{"claim", "namespace"} {
				g.mustRefuse2(both(g.alice, pvc.ConfirmedAnnotation, "alice")[i], "a new "+what+" cannot bear protection.lockstep.dev/confirmed-by: take the annotations off")
				g.mustRefuse2(both(g.wanda, pvc.ConfirmedAnnotation, "bob")[i], `of somebody else: it is the name of who confirms a release, and yours is "wanda"`)
				g.must(both(g.wanda, pvc.ConfirmedAnnotation, "wanda")[i])
				g.must(both(g.wanda, pvc.ReleaseAnnotation, "u")[i])
				g.must(both(g.alice, pvc.ModeKey, "hold")[i])
				g.must(both(g, pvc.ConfirmedUntilAnnotation, "x")[i])
				if err := both(g.wanda, pvc.ConfirmedUntilAnnotation, "x")[i]; byTwo == nil {
					g.must(err)
				} else {
					g.mustRefuse2(err, "cannot bear protection.lockstep.dev/confirmed-until: a release takes two people, and these are for the operator")
				}
			}
		})
	}
}

// TestClaimsAreHeldFromBirthWhereThatWasChosen: until the operator has looked.
func TestClaimsAreHeldFromBirthWhereThatWasChosen(t *testing.T) {
	g := newGuarded(t, nil, "barrier.yaml", "refuse.yaml", "guard.yaml")
	g.chosen = []string{"initialHold"}
	g.apply("forged.yaml")
	g.apply("initial.yaml")
	g.inForce()
	mode := func(m string) map[string]string { return map[string]string{pvc.ModeKey: m} }
	for name, labels := range map[string]map[string]string{"usual": nil, "holding": mode("hold"), "strictly": mode("strict"), "lax": mode("off")} {
		g.make(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}})
	}
	born := func(namespace, mode string) string {
		c := newClaim(namespace, "dry")
		if mode != "" {
			c.Annotations = map[string]string{pvc.ModeKey: mode}
		}
		g.needs(g.alice.Create(t.Context(), c, client.DryRunAll))
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
	g.needs(g.Get(t.Context(), client.ObjectKey{Name: "initial-hold.protection.lockstep.dev"}, binding))
	for i := range 100 { // policies run in another order each time that the server has read them anew
		binding.Labels["round"] = fmt.Sprint(i)
		g.needs(g.Update(t.Context(), binding))
		c := forging()
		g.needs(g.alice.Create(t.Context(), c, client.DryRunAll))
		if words := c.Annotations; words[pvc.HoldersAnnotation] != pvc.Unverified || words[pvc.HoldAnnotation] != "" {
			t.Fatalf("round %d: born with %v", i, words)
		}
	}
	c := forging()
	g.needs(g.alice.Create(t.Context(), c))
	if words := c.Annotations; words[pvc.HoldersAnnotation] != pvc.Unverified || words[pvc.HoldAnnotation] != "" {
		t.Errorf("born with %v", words)
	}
	g.mustRefuse(g.alice.Delete(t.Context(), c), "nobody has looked yet whether the claim is in use; the operator does, as soon as it runs. To delete it all the same: kubectl lockstep release pvc/new -n holding")
	own := newClaim("holding", "web-scratch")
	own.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "web", UID: "1", Controller: new(true)}}
	g.needs(g.alice.Create(t.Context(), own, client.DryRunAll))
	if len(own.Annotations) > 0 || slices.Contains(own.Finalizers, pvc.BarrierFinalizer) {
		t.Errorf("a pod's own claim is born with %v, %v", own.Annotations, own.Finalizers)
	}
}
