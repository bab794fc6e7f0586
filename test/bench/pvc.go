package main

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/api/config/v1alpha1"
	"lockstep.dev/lockstep/test/drill"
)

const (
	// clientLimit is the rate limit of the operator and of the controller manager while the
	// release of PVCs is measured. The operator's burst is one.
	clientLimit = 100
	// modeLabel chooses the mode of a namespace.
	modeLabel = "protection.lockstep.dev/mode"
	// heldNodes are Node objects without a kubelet: a pod with the name of one is bound, and
	// stays as it is.
	heldNodes = 10
)

// createNodes creates the Nodes. The scheduler puts no pods there.
func (p *place) createNodes() {
	for i := range heldNodes {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: heldNode(i)}, Spec: corev1.NodeSpec{Unschedulable: true}}
		must(client.IgnoreAlreadyExists(p.Client.Create(p.ctx, node)))
	}
}

func heldNode(i int) string { return fmt.Sprintf("held-%d", i%heldNodes) }

// crowd creates bound pods, each with a PVC that is not released.
func (p *place) crowd(pods int) {
	must(drill.Together(numbers(pods), func(i int) error {
		return p.Client.Create(p.ctx, p.user(fmt.Sprintf("crowd-%d", i), i, fmt.Sprintf("of-crowd-%d", i)))
	}))
}

// user returns a bound pod that uses PVCs. It tolerates the taints of its node.
func (p *place) user(name string, node int, claims ...string) *corev1.Pod {
	spec := podSpec()
	spec.NodeName = heldNode(node)
	spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	for i, claim := range claims {
		spec.Volumes = append(spec.Volumes, drill.ClaimVolume(fmt.Sprintf("v%d", i), claim))
	}
	return &corev1.Pod{ObjectMeta: p.meta(name), Spec: spec}
}

// claim returns a PVC for a volume that does not exist: the controllers of volumes do the
// least for it.
func (p *place) claim(name string) *corev1.PersistentVolumeClaim {
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: p.meta(name), Spec: drill.ClaimSpec()}
	claim.Spec.StorageClassName, claim.Spec.VolumeName = new(string), "none"
	return claim
}

// heldClaims creates PVCs and pods that use them, and deletes the PVCs, which then wait for
// the pods.
func (p *place) heldClaims(prefix string, claims, users int) {
	names := claimNames(prefix, claims)
	each := (claims + users - 1) / users
	must(drill.Together(names, func(name string) error { return p.Client.Create(p.ctx, p.claim(name)) }))
	must(drill.Together(numbers(users), func(i int) error {
		return p.Client.Create(p.ctx, p.user(userOf(prefix, i), i, names[i*each:min((i+1)*each, claims)]...))
	}))
	must(drill.Together(names, func(name string) error { return p.Client.Delete(p.ctx, p.claim(name)) }))
	there := p.claimsBearing(prefix, drill.PodProtection)
	valid(there == claims, "%d of %d claims wait for their users", there, claims)
}

func userOf(prefix string, i int) string { return fmt.Sprintf("user-of-%s-%d", prefix, i) }

func claimNames(prefix string, n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("%s-%d", prefix, i)
	}
	return names
}

func numbers(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}

// claimsBearing counts the PVCs of a prefix that have a finalizer; any with "".
func (p *place) claimsBearing(prefix, finalizer string) (n int) {
	list := &metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolumeClaimList"}}
	must(p.Client.List(p.ctx, list, client.InNamespace(p.namespace)))
	for i := range list.Items {
		if strings.HasPrefix(list.Items[i].Name, prefix+"-") && (finalizer == "" || slices.Contains(list.Items[i].Finalizers, finalizer)) {
			n++
		}
	}
	return n
}

// inMode sets the mode of the namespace, and returns once admission acts on it.
func (p *place) inMode(mode string) {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: p.namespace}}
	must(p.Client.Patch(p.ctx, namespace, drill.Merge(fmt.Sprintf(`{"metadata":{"labels":{%q:%q}}}`, modeLabel, mode))))
	p.until("admission knows the mode "+mode, func() bool {
		probe := p.claim("probe")
		must(p.Client.Create(p.ctx, probe, client.DryRunAll))
		return slices.Contains(probe.Finalizers, drill.Barrier) == (mode != "off")
	})
}

// until waits until something holds.
func (p *place) until(what string, holds func() bool) {
	p.reach(what, 1, func() int {
		if holds() {
			return 1
		}
		return 0
	})
}

// reach waits until a count is reached.
func (p *place) reach(what string, want int, count func() int) {
	deadline := time.Now().Add(2*drill.Patience + time.Duration(want)*100*time.Millisecond)
	for n := count(); n < want; n = count() {
		valid(time.Now().Before(deadline), "never came true: %s; %d of %d", what, n, want)
		pause(p.ctx, 100*time.Millisecond)
	}
}

// byBuiltIn reports whether the built-in controller of PVCs sent a request.
func byBuiltIn(r drill.Request) bool { return strings.Contains(r.Agent, "pvc-protection-controller") }

// changesClaim reports whether a request changed a PVC.
func changesClaim(r drill.Request) bool {
	return r.Resource == "persistentvolumeclaims" && r.Subresource == "" && (r.Verb == "update" || r.Verb == "patch") && r.Code == http.StatusOK
}

// readsPods reports whether a request listed all pods, or one to learn the resourceVersion.
// Further pages of a list are not lists of their own.
func readsPods(r drill.Request) (all, one bool) {
	if r.Resource != "pods" || r.Verb != "list" {
		return false, false
	}
	asked, err := url.Parse(r.URI)
	if err != nil {
		return true, false
	}
	query := asked.Query()
	one = query.Get("limit") == "1"
	return !one && query.Get("continue") == "", one
}

// limited returns the flags of an operator with the client limit, in place of the built-in
// controller or beside it.
func (b *bed) limited(alone bool) []string {
	path := filepath.Join(filepath.Dir(b.Operator.Log), fmt.Sprintf("alone-%t.yaml", alone))
	text := fmt.Sprintf("apiVersion: %s\nkind: Configuration\nclientConnection: {qps: %d, burst: 1}\nprotection: {alone: %t}\n",
		v1alpha1.GroupVersion, clientLimit, alone)
	must(os.WriteFile(path, []byte(text), 0o600))
	return append(slices.Clone(b.flags), "--config", path)
}

// rerun ends the operator and starts it with other flags.
func (b *bed) rerun(flags []string) {
	if b.Operator.Check() == nil {
		must(b.Operator.Kill())
	}
	must(b.Operator.Start(flags...))
	b.rest()
}

// strike deletes the namespace. Pods that no kubelet runs go at once.
func (p *place) strike() error {
	if p.last {
		return nil
	}
	return errors.Join(
		p.Client.DeleteAllOf(p.ctx, &corev1.Pod{}, client.InNamespace(p.namespace), client.GracePeriodSeconds(0)),
		p.Client.Delete(p.ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: p.namespace}}),
		p.Client.DeleteAllOf(p.ctx, &corev1.Node{}, client.MatchingFields{"spec.unschedulable": "true"}))
}
