package integration

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/pvc"
	"lockstep.dev/lockstep/test/expect"
	"lockstep.dev/lockstep/test/fakeapi"
)

// The admission policies of protection run on a real API server.
func TestPoliciesOfProtection(t *testing.T) {
	g := newGuarded(t, "barrier.yaml", "forged.yaml", "refuse.yaml", "guard.yaml")
	g.inForce()
	g.part("a new PVC has both finalizers", g.birth)
	g.part("forged annotations are removed", g.forgery)
	g.part("a held PVC is not deleted", g.refusal)
	g.part("the finalizers of a held PVC stay", g.stripping)
	g.part("annotations need a permission of their own", g.permission)
	g.part("a held PVC does not become a pod's own", g.ownership)
	g.part("delete-when-free needs the permission to delete", g.intent)
	g.part("a terminating PVC cannot be held", g.tooLate)
	g.part("held or terminating, never both", g.atomic)
	g.part("mode observe warns", g.observed)
	g.part("a namespace with held PVCs stays", g.namespaces)
	g.part("the server counts what it refused", g.counted)
}

// counted checks that the metrics of the API server count refusals.
func (g *guarded) counted() {
	text := g.serverMetrics()
	for policy, action := range map[string]string{"refuse-delete": "deny", "guard": "deny", "refuse-namespace": "deny", "guard-namespace": "deny", "warn-delete": "warn"} {
		counted := regexp.MustCompile(`(?m)^apiserver_validating_admission_policy_check_total\{enforcement_action="` + action + `",.*policy="` + policy + `\.protection\.lockstep\.dev".* [1-9]`)
		expect.That(g.t, counted.MatchString(text), "%s: the metrics have no check with action %s", policy, action)
	}
}

func (g *guarded) birth() {
	c := g.claim("born", nil, "example.com/first")
	want := []string{"example.com/first", pvc.BarrierFinalizer, pvc.PodsFinalizer}
	expect.That(g.t, sameSet(c.Finalizers, want), "got %v, want %v", c.Finalizers, want)
	twice := g.claim("twice", nil, pvc.BarrierFinalizer, pvc.PodsFinalizer)
	expect.That(g.t, len(twice.Finalizers) == 2, "created with both, the PVC has %v", twice.Finalizers)
	own := newClaim(g.namespace, "pods-own")
	own.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "web", UID: "1", Controller: new(true)}}
	g.create(own)
	expect.That(g.t, !slices.Contains(own.Finalizers, pvc.BarrierFinalizer), "a pod's own PVC has %v", own.Finalizers)
	g.create(inMode("lax", "off"))
	for _, tt := range []struct {
		namespace, mode string
		barrier         bool
	}{
		{g.namespace, "off", false}, {g.namespace, "observe", false}, {g.namespace, "barrier", true}, {g.namespace, "hold", true},
		{g.namespace, "strict", true}, {g.namespace, "of", true}, {"lax", "", false}, {"lax", "hold", true}, {"kube-system", "", false},
	} {
		c := newClaim(tt.namespace, "born-"+tt.mode+"x")
		if tt.mode != "" {
			c.Annotations = map[string]string{pvc.ModeKey: tt.mode}
		}
		g.create(c)
		expect.That(g.t, slices.Contains(c.Finalizers, pvc.BarrierFinalizer) == tt.barrier,
			"%s, mode %q: %v", tt.namespace, tt.mode, c.Finalizers)
	}
}

func (g *guarded) forgery() {
	annotations := func() map[string]string {
		return map[string]string{pvc.HoldersAnnotation: "a", pvc.UsersAnnotation: "a=1", pvc.HoldAnnotation: "mine", pvc.ModeKey: "hold", "example.com/note": "x"}
	}
	c := newClaim(g.namespace, "forged")
	c.Annotations = annotations()
	g.must(g.alice.Create(g.t.Context(), c))
	if len(c.Annotations) != 2 || c.Annotations["example.com/note"] != "x" || c.Annotations[pvc.ModeKey] != "hold" {
		g.t.Errorf("the annotations left are %v", c.Annotations)
	}
	c = newClaim(g.namespace, "said")
	c.Annotations = annotations()
	g.must(g.wanda.Create(g.t.Context(), c))
	expect.That(g.t, len(c.Annotations) == 5, "a user with the permission to release keeps %v", c.Annotations)
	ns := dryNamespace(pvc.HeldClaimsAnnotation, pvc.ReleaseAnnotation)
	ns.Annotations["example.com/note"] = "x"
	g.must(g.alice.Create(g.t.Context(), ns, client.DryRunAll))
	expect.That(g.t, len(ns.Annotations) == 1 && ns.Annotations["example.com/note"] == "x",
		"the annotations left on a namespace are %v", ns.Annotations)
}

func dryNamespace(keys ...string) *corev1.Namespace {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "dry", Annotations: map[string]string{}}}
	for _, key := range keys {
		ns.Annotations[key] = "alice"
	}
	return ns
}

func (g *guarded) refusal() {
	c := g.claim("precious", held)
	err := g.alice.Delete(g.t.Context(), c)
	g.mustRefuse(err, "ValidatingAdmissionPolicy 'refuse-delete.protection.lockstep.dev' with binding 'refuse-delete.protection.lockstep.dev' denied request: "+
		"the claim is in use: StatefulSet/db, +2. To delete it all the same: kubectl lockstep release pvc/precious -n prod, or annotate it with protection.lockstep.dev/release="+string(c.UID))
	g.mustRefuse(g.Delete(g.t.Context(), c), "in use") // an administrator is no exception
	g.mustRefuse(g.Delete(g.t.Context(), c, client.GracePeriodSeconds(0), client.PropagationPolicy(metav1.DeletePropagationForeground)), "in use")
	expect.That(g.t, g.read("precious").DeletionTimestamp == nil, "the PVC is terminating")
	free := g.claim("free", map[string]string{pvc.HoldersAnnotation: ""})
	g.must(g.alice.Delete(g.t.Context(), free))
}

func (g *guarded) stripping() {
	c := g.claim("finalized", held, "example.com/first")
	null := merge(`{"metadata":{"finalizers":null}}`)
	const says = "the claim is in use: StatefulSet/db, +2. Its finalizers"
	g.mustRefuse(g.alice.Patch(g.t.Context(), c.DeepCopy(), null), says)
	g.mustRefuse(g.alice.Status().Patch(g.t.Context(), c.DeepCopy(), null), says)
	g.mustRefuse(g.Patch(g.t.Context(), c.DeepCopy(), null), says)
	for _, left := range [][]string{{pvc.PodsFinalizer}, {pvc.BarrierFinalizer, "example.com/first"}} {
		c := g.read("finalized")
		c.Finalizers = left
		g.mustRefuse(g.wanda.Update(g.t.Context(), c), says)
	}
	c = g.read("finalized")
	c.Finalizers, c.Annotations = nil, nil
	g.mustRefuse(g.wanda.Update(g.t.Context(), c), says) // annotations and finalizers in one request
	c = g.read("finalized")
	c.Finalizers = []string{pvc.PodsFinalizer, pvc.BarrierFinalizer}
	g.must(g.alice.Update(g.t.Context(), c)) // finalizers of other controllers are not protected
	loose := g.claim("loose", nil)
	g.must(g.alice.Patch(g.t.Context(), loose, null))
}

func (g *guarded) permission() {
	g.claim("annotated", held)
	for _, key := range []string{
		pvc.HoldersAnnotation, pvc.DigestAnnotation, pvc.VerifiedAnnotation, pvc.ReleaseAnnotation, pvc.HoldAnnotation, pvc.UsersAnnotation, pvc.ModeKey,
	} {
		says := "changing " + key + ` needs permission to release claims.protection.lockstep.dev "annotated" in namespace "prod"`
		g.mustRefuse(g.annotate(g.alice, "annotated", key, "off"), says)
		c := g.read("annotated")
		before := c.DeepCopy()
		metav1.SetMetaDataAnnotation(&c.ObjectMeta, key, "off")
		g.mustRefuse(g.alice.Status().Patch(g.t.Context(), c, client.MergeFrom(before)), says)
	}
	c := g.read("annotated")
	delete(c.Annotations, pvc.HoldersAnnotation)
	g.mustRefuse(g.alice.Update(g.t.Context(), c), "changing "+pvc.HoldersAnnotation+" needs permission")
	g.must(g.annotate(g.alice, "annotated", pvc.IntentAnnotation, string(c.UID)))
	g.must(g.annotate(g.alice, "annotated", "example.com/note", "x"))
	g.must(g.annotate(g.wanda, "annotated", pvc.HoldAnnotation, "audit"))
	g.claim("unheld", nil)
	g.must(g.annotate(g.alice, "unheld", pvc.ModeKey, "hold"))
}

// ownership checks that a held PVC cannot become an ephemeral PVC of a pod, which is not protected.
// Controllers may still change owners.
func (g *guarded) ownership() {
	g.claim("data-db-0", held)
	owned := func(as client.Client, name, pod string) error {
		c := g.read(name)
		c.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: pod, UID: "1", Controller: new(true)}}
		return as.Update(g.t.Context(), c)
	}
	const says = "changing metadata.ownerReferences needs permission to release"
	for _, pod := range []string{"data", "data-db"} {
		g.mustRefuse(owned(g.alice, "data-db-0", pod), says)
	}
	before := g.read("data-db-0")
	after := before.DeepCopy()
	after.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "data", UID: "1", Controller: new(true)}}
	g.mustRefuse(g.alice.Status().Patch(g.t.Context(), after, client.MergeFrom(before)), says)
	g.grant("carer", []string{"carl"}, claimRule("get", "update", "patch"))
	carl := g.as("carl", nil)
	g.mustRefuse(owned(carl, "data-db-0", "db-0"),
		`giving the claim another controller in metadata.ownerReferences needs permission to delete persistentvolumeclaims "data-db-0" in namespace "prod"`)
	g.grant("tier", []string{"tina"}, claimRule("get", "update", "patch"),
		rbacv1.PolicyRule{APIGroups: []string{"protection.lockstep.dev"}, Resources: []string{"claims"}, Verbs: []string{"tie"}})
	g.claim("data-db-2", held)
	g.must(owned(g.as("tina", nil), "data-db-2", "db-2"))                                 // an operator for sets, which protects no PVC
	g.must(owned(g.alice, "data-db-0", "db-0"))                                           // as a StatefulSet does before a scale-down
	g.must(owned(carl, "data-db-0", "db-0"))                                              // an unchanged ownerReference
	g.mustRefuse(owned(carl, "data-db-0", "db-1"), "giving the claim another controller") // a pod that does not exist
	g.must(owned(g.wanda, "data-db-0", "data"))
	g.must(g.annotate(g.alice, "data-db-0", "example.com/note", "x")) // an unchanged ownerReference
	g.claim("data-db-1", nil)
	g.must(owned(g.alice, "data-db-1", "data"))
}

// intent checks that only users with the permission to delete a PVC may ask the operator to delete it.
func (g *guarded) intent() {
	g.grant("editor", []string{"eve"}, claimRule("get", "update", "patch"))
	eve := g.as("eve", nil)
	c := g.claim("asked-for", nil)
	g.mustRefuse(g.annotate(eve, "asked-for", pvc.IntentAnnotation, string(c.UID)),
		`setting protection.lockstep.dev/delete-when-free needs permission to delete persistentvolumeclaims "asked-for" in namespace "prod"`)
	g.must(g.annotate(eve, "asked-for", pvc.IntentAnnotation, "another-uid"))
	g.must(g.annotate(g.alice, "asked-for", pvc.IntentAnnotation, string(c.UID)))
	g.must(g.annotate(eve, "asked-for", "example.com/note", "x"))
	g.must(g.annotate(eve, "asked-for", pvc.IntentAnnotation, "")) // every user that may update may withdraw the request
}

func (g *guarded) tooLate() {
	c := g.claim("leaving", map[string]string{pvc.UsersAnnotation: "a=1,b=2"})
	g.must(g.Delete(g.t.Context(), c))
	g.mustRefuse(g.annotate(g, "leaving", pvc.HoldersAnnotation, "x"), "the claim is being deleted, it is too late to hold it")
	g.mustRefuse(g.annotate(g, "leaving", pvc.HoldAnnotation, "x"), "the claim is being deleted, it is too late to hold it")
	g.mustRefuse(g.annotate(g, "leaving", pvc.UsersAnnotation, "a=1,b=2,c=3"), "the claim is being deleted, no pod may start to use it")
	g.must(g.annotate(g, "leaving", pvc.UsersAnnotation, "b=2"))
	g.strip(g.read("leaving"))
}

// atomic races a hold against a DELETE. Exactly one of them wins.
func (g *guarded) atomic() {
	heldOnly, goneOnly := 0, 0
	for i := 0; i < 150 || (heldOnly == 0 || goneOnly == 0) && i < 1500; i++ {
		c := g.claim(fmt.Sprintf("raced-%d", i), nil)
		remove := func() { _ = g.alice.Delete(g.t.Context(), c.DeepCopy()) }
		hold := func() {
			holding := c.DeepCopy()
			metav1.SetMetaDataAnnotation(&holding.ObjectMeta, pvc.HoldersAnnotation, "StatefulSet/db")
			_ = g.wanda.Patch(g.t.Context(), holding, client.MergeFrom(c))
		}
		if i%2 == 0 { // on one processor, the goroutine that is started last runs first
			remove, hold = hold, remove
		}
		var racers sync.WaitGroup
		racers.Go(remove)
		racers.Go(hold)
		racers.Wait()
		now := g.read(c.Name)
		isHeld, isGoing := now.Annotations[pvc.HoldersAnnotation] != "", now.DeletionTimestamp != nil
		expect.Must(g.t, isHeld != isGoing, "round %d: held %t, terminating %t", i, isHeld, isGoing)
		if isHeld {
			heldOnly++
		} else {
			goneOnly++
		}
	}
	expect.That(g.t, heldOnly != 0 && goneOnly != 0,
		"held %d times, gone %d times: no race took place", heldOnly, goneOnly)
}

func (g *guarded) observed() {
	c := g.claim("watched", map[string]string{pvc.ObservedAnnotation: "StatefulSet/db"})
	g.warned.taken()
	g.must(g.alice.Delete(g.t.Context(), c))
	expect.Says(g.t, g.warned.taken(), "the claim is in use: StatefulSet/db")
}

func (g *guarded) namespaces() {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "busy", Annotations: map[string]string{pvc.HeldClaimsAnnotation: "3"}}}
	g.create(ns)
	g.mustRefuse(g.Delete(g.t.Context(), ns), "the namespace has claims in use: 3. Delete what uses them first; kubectl lockstep why pvc -n busy names it. "+
		"To delete it all the same: kubectl lockstep release namespace/busy, or annotate it with protection.lockstep.dev/release="+string(ns.UID))
	for _, key := range []string{pvc.HeldClaimsAnnotation, pvc.ReleaseAnnotation} {
		g.mustRefuse(g.annotateNamespace(g.alice, "busy", key, "0"), "changing "+key+" needs permission")
	}
	loose := ns.DeepCopy()
	loose.Labels[pvc.ModeKey] = "off"
	g.mustRefuse(g.alice.Update(g.t.Context(), loose), "changing "+pvc.ModeKey+" needs permission")
	g.must(g.annotateNamespace(g.alice, "busy", "example.com/note", "x"))
	g.must(g.annotateNamespace(g.wanda, "busy", pvc.HeldClaimsAnnotation, "0"))
	g.must(g.Delete(g.t.Context(), ns))
}

// With initial holds, a new PVC is held until the operator has read it.
func TestNewPVCsAreHeldWithInitialHold(t *testing.T) {
	g := newGuarded(t, "barrier.yaml", "refuse.yaml", "guard.yaml")
	g.chosen = []string{"initialHold"}
	g.apply("forged.yaml")
	g.apply("initial.yaml")
	g.inForce()
	g.create(namespaced("usual"))
	for name, mode := range map[string]string{"holding": "hold", "strictly": "strict", "lax": "off"} {
		g.create(inMode(name, mode))
	}
	born := func(namespace, mode string) string {
		c := newClaim(namespace, "dry")
		if mode != "" {
			c.Annotations = map[string]string{pvc.ModeKey: mode}
		}
		g.must(g.alice.Create(t.Context(), c, client.DryRunAll))
		return c.Annotations[pvc.HoldersAnnotation]
	}
	g.until("new PVCs are held", func() bool {
		return born("holding", "") == pvc.Unverified && born("usual", "hold") == pvc.Unverified
	})
	for _, tt := range []struct {
		namespace, mode string
		held            bool
	}{
		{"usual", "", false}, {"usual", "barrier", false}, {"usual", "strict", true}, {"holding", "barrier", false}, {"holding", "off", false},
		{"holding", "nonsense", true}, {"strictly", "", true}, {"lax", "", false}, {"lax", "hold", true}, {"kube-system", "", false},
	} {
		held := born(tt.namespace, tt.mode) == pvc.Unverified
		expect.Equalf(t, tt.held, held, "in %q, mode %q, a new PVC is held", tt.namespace, tt.mode)
	}
	forging := func() *corev1.PersistentVolumeClaim {
		c := newClaim("holding", "new")
		c.Annotations = map[string]string{pvc.HoldersAnnotation: "forged", pvc.HoldAnnotation: "mine"}
		return c
	}
	binding := &admissionv1.MutatingAdmissionPolicyBinding{}
	g.must(g.Get(t.Context(), client.ObjectKey{Name: "initial-hold.protection.lockstep.dev"}, binding))
	for i := range 100 { // each time the server reloads policies, it runs them in another order
		binding.Labels["round"] = fmt.Sprint(i)
		g.must(g.Update(t.Context(), binding))
		c := forging()
		g.must(g.alice.Create(t.Context(), c, client.DryRunAll))
		if got := c.Annotations; got[pvc.HoldersAnnotation] != pvc.Unverified || got[pvc.HoldAnnotation] != "" {
			t.Fatalf("round %d: a new PVC has %v", i, got)
		}
	}
	c := forging()
	g.must(g.alice.Create(t.Context(), c))
	got := c.Annotations
	expect.That(t, got[pvc.HoldersAnnotation] == pvc.Unverified && got[pvc.HoldAnnotation] == "", "a new PVC has %v", got)
	g.mustRefuse(g.alice.Delete(t.Context(), c), "To delete it all the same: kubectl lockstep release pvc/new -n holding")
	own := newClaim("holding", "web-scratch")
	own.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "web", UID: "1", Controller: new(true)}}
	g.must(g.alice.Create(t.Context(), own, client.DryRunAll))
	expect.That(t, len(own.Annotations) == 0 && !slices.Contains(own.Finalizers, pvc.BarrierFinalizer),
		"a pod's own PVC has %v, %v", own.Annotations, own.Finalizers)
}

// The policies of mode strict gate pods that use PVCs, and refuse pods that name a node.
func TestStrictGatesPods(t *testing.T) {
	g := newGuarded(t, "strict.yaml")
	const strict, lax = "strict", "lax"
	g.create(inMode(strict, "strict"))
	g.create(inMode(lax, "hold"))
	g.grant("pods", []string{"alice", "wanda"}, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods", "pods/status"}, Verbs: []string{"*"}})
	for _, namespace := range []string{strict, lax} {
		g.create(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "default"}})
	}
	g.until("a pod that names its node is refused", func() bool {
		err := g.alice.Create(t.Context(), onNode(podWith(strict, "probe", "data")), client.DryRunAll)
		return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "gated.protection.lockstep.dev")
	})
	g.until("a pod is gated", func() bool {
		pod := podWith(strict, "probe", "data")
		return g.alice.Create(t.Context(), pod, client.DryRunAll) == nil && pvc.Gated(pod)
	})

	t.Run("pods that use PVCs are gated", func(t *testing.T) {
		gate := corev1.PodSchedulingGate{Name: pvc.UseGate}
		ephemeral := podWith(strict, "ephemeral")
		ephemeral.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
		others := podWith(strict, "others", "data")
		others.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.com/first"}, gate}
		for _, tt := range []struct {
			pod  *corev1.Pod
			want []corev1.PodSchedulingGate
		}{
			{podWith(strict, "web", "data"), []corev1.PodSchedulingGate{gate}},
			{podWith(strict, "none"), nil},
			{ephemeral, nil},
			{others, []corev1.PodSchedulingGate{{Name: "example.com/first"}, gate}},
			{podWith(lax, "web", "data"), nil},
		} {
			g.must(g.alice.Create(t.Context(), tt.pod))
			expect.Equalf(t, tt.want, tt.pod.Spec.SchedulingGates, "%s/%s", tt.pod.Namespace, tt.pod.Name)
		}
	})

	t.Run("a pod that names its node is refused", func(t *testing.T) {
		err := g.alice.Create(t.Context(), onNode(podWith(strict, "bound", "data")))
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), `this one names node "node-1". Leave spec.nodeName out`) {
			t.Errorf("got %v", err)
		}
		for _, free := range []*corev1.Pod{onNode(podWith(strict, "bound")), onNode(podWith(lax, "bound", "data"))} {
			if err := g.alice.Create(t.Context(), free); err != nil {
				t.Error(err)
			}
		}
	})

	t.Run("removing the gate needs the permission to release", func(t *testing.T) {
		lift := func(c client.Client) error {
			return c.Patch(t.Context(), podWith(strict, "web"), merge(`{"spec":{"schedulingGates":[]}}`))
		}
		if err := lift(g.alice); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), `needs permission to release claims.protection.lockstep.dev in namespace "strict"`) {
			t.Errorf("alice: got %v", err)
		}
		label := merge(`{"metadata":{"labels":{"a":"b"}}}`)
		err := errors.Join(g.alice.Patch(t.Context(), podWith(strict, "web"), label), lift(g.wanda))
		expect.That(t, err == nil, "%v", err)
	})
}

// podWith returns a pod that uses PVCs.
func podWith(namespace, name string, claims ...string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "example.com/none"}}, Volumes: fakeapi.Using(claims...)},
	}
}

func onNode(pod *corev1.Pod) *corev1.Pod {
	pod.Spec.NodeName = "node-1"
	return pod
}
