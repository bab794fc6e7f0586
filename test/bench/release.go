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

// releaseLoad is the load of release.
type releaseLoad struct {
	claims, users, crowd int // PVCs released at once, the pods that use them, and other pods
	trickle              int // PVCs released one by one
}

// release measures how fast deleted PVCs are removed after their pods end, all at once and one by
// one, in a namespace with many other pods:
//
//   - by the operator alone, with the built-in controller switched off: one write for each PVC;
//   - by the built-in controller alone, as the floor. The PVCs have the barrier as well;
//   - by the operator after the built-in controller removed its finalizer: again one write each.
//
// One by one, the PVCs have both finalizers, and both must be removed.
func release(b *bed) {
	l := releaseLoad{claims: 1000, users: 10, crowd: 10000, trickle: 200}
	p := b.newPlace(map[string]string{modeLabel: "off"})
	defer p.restore()
	p.inPlace(l)
	p.builtIn(l)
	p.beside(l)
}

func (p *place) inPlace(l releaseLoad) {
	must(p.Plane.Restart(drill.ControllerManager, "--kcm-controllers", "*,-persistentvolumeclaim-protection-controller"))
	p.rerun(p.limited(true))
	idle := p.used().rss
	p.createNodes()
	p.crowd(l.crowd)
	p.heldClaims("own", l.claims, l.users)
	p.rest()
	full := p.used().rss
	p.resetPeak()
	cpu := p.used().cpu
	freed := p.free("own", l, drill.ByLockstep)
	p.rest()
	p.tell("claims-per-second", freed.rate())
	p.tell("cpu-ms-per-claim", milliseconds(p.used().cpu-cpu)/float64(l.claims))
	p.tell("rss-mib-idle", idle)
	p.tell("rss-mib-above-idle", p.used().peak-idle)
	p.tell("rss-mib-above-full", p.used().peak-full)
	p.tellReads()
	p.inMode("barrier")
	p.tellLags("", p.trickle("single", l.trickle, 50*time.Millisecond))
}

// builtIn measures the floor: the PVCs have both finalizers, and the controller removes its own.
func (p *place) builtIn(l releaseLoad) {
	must(p.Operator.Kill())
	must(p.Plane.Restart(drill.ControllerManager, "--kcm-controllers", "*", "--kcm-qps", fmt.Sprint(clientLimit)))
	p.heldClaims("both", l.claims, l.users)
	p.tell("built-in-claims-per-second", p.free("both", l, byBuiltIn).rate())
}

// beside starts the operator after the built-in controller removed its finalizer from the PVCs. Then
// both run side by side.
func (p *place) beside(l releaseLoad) {
	left := p.claimsWith("both", drill.Barrier)
	valid(left == l.claims, "%d of %d PVCs wait for the operator", left, l.claims)
	flags := p.limited(false)
	p.remark()
	must(p.Operator.Start(flags...))
	freed := p.taken(l.claims, drill.ByLockstep)
	freed.begun = freed.first
	p.tell("beside-claims-per-second", freed.rate())
	p.rest()
	p.tellLags("beside-", p.trickle("beside", l.trickle/2, 200*time.Millisecond))
}

func (p *place) tellLags(prefix string, lags []time.Duration) {
	p.tell(prefix+"after-last-user-ms-median", milliseconds(percentile(lags, 50)))
	p.tell(prefix+"after-last-user-ms-p99", milliseconds(percentile(lags, 99)))
}

// restore restores the control plane and the operator for other scenarios.
func (p *place) restore() {
	if !p.last {
		p.left = errors.Join(
			p.Plane.Restart(drill.ControllerManager, "--kcm-controllers", "*", "--kcm-qps", fmt.Sprint(p.Plane.QPS)),
			p.strike(), attempt(func() { p.rerun(p.flags) }))
	}
}

// freed is the time of a release: from the deletion of the first pod to the last write.
type freed struct {
	begun, first, last time.Time
	claims             int
}

func (f freed) rate() float64 { return float64(f.claims) / f.last.Sub(f.begun).Seconds() }

// free deletes all user pods at once, and waits for one write to each PVC.
func (p *place) free(prefix string, l releaseLoad, by func(drill.Request) bool) freed {
	p.remark()
	must(drill.Together(numbers(l.users), func(i int) error { return p.kill(userOf(prefix, i)) }))
	f := p.taken(l.claims, by)
	left := p.since(func(r drill.Request) bool { return r.Verb == "delete" && r.Resource == "pods" && r.Agent == benchAgent })
	valid(len(left) == l.users, "%d of %d user pods were deleted", len(left), l.users)
	f.begun, _ = span(left)
	protected := p.claimsWith(prefix, drill.PodProtection)
	valid(protected == 0, "%d PVCs still wait for their users", protected)
	return f
}

// taken waits until each PVC was written, and returns when.
func (p *place) taken(claims int, by func(drill.Request) bool) freed {
	f := freed{claims: claims}
	p.reach("all PVCs are written", claims, func() int {
		writes := p.since(func(r drill.Request) bool { return changesClaim(r) && by(r) })
		f.first, f.last = span(writes)
		return len(lastWrites(writes))
	})
	return f
}

// lastWrites returns when the last write to each object was done.
func lastWrites(writes []drill.Request) map[string]time.Time {
	last := map[string]time.Time{}
	for _, r := range writes {
		if r.Done.After(last[r.Name]) {
			last[r.Name] = r.Done
		}
	}
	return last
}

// span returns when the first request began and the last one was done.
func span(requests []drill.Request) (first, last time.Time) {
	for _, r := range requests {
		if first.IsZero() || r.Begun.Before(first) {
			first = r.Begun
		}
		if r.Done.After(last) {
			last = r.Done
		}
	}
	return first, last
}

// tellReads adds the figures for the reads of the operator since the mark. Each batch of PVCs begins
// with a probe, so that the number of probes is the number of batches.
func (p *place) tellReads() {
	must(p.Audit.Sync())
	full, probes, events := 0, 0, 0
	for _, r := range p.since(drill.ByLockstep) {
		all, one := readsPods(r)
		switch {
		case all:
			full++
		case one:
			probes++
		case r.Resource == "events":
			events++
		}
	}
	p.tell("full-reads", float64(full))
	p.tell("batches", float64(probes))
	p.tell("full-reads-per-batch", float64(full)/float64(max(probes, 1)))
	p.tell("events", float64(events))
}

// trickle deletes PVCs, each with its own pod, and then deletes the pods one by one. It returns the
// times from the end of each pod to the removal of its PVC, by the clock of the API server.
func (p *place) trickle(prefix string, claims int, pace time.Duration) []time.Duration {
	p.heldClaims(prefix, claims, claims)
	p.rest()
	p.remark()
	tick := time.NewTicker(pace)
	defer tick.Stop()
	for i := range claims {
		must(p.kill(userOf(prefix, i)))
		<-tick.C
		must(p.ctx.Err())
	}
	p.until("the PVCs are gone", func() bool { return p.claimsWith(prefix, "") == 0 })
	must(p.Audit.Sync())
	lags, err := lagsOf(p.since(func(drill.Request) bool { return true }), prefix, claims)
	must(err)
	return lags
}

// lagsOf returns the times from the end of the deletion of each pod to the last change of its PVC,
// shortest first.
func lagsOf(requests []drill.Request, prefix string, claims int) ([]time.Duration, error) {
	went, writes := map[string]time.Time{}, []drill.Request{}
	for _, r := range requests {
		if r.Verb == "delete" && r.Resource == "pods" {
			went[r.Name] = r.Done
		}
		if changesClaim(r) {
			writes = append(writes, r)
		}
	}
	last := lastWrites(writes)
	var lags []time.Duration
	for i, claim := range claimNames(prefix, claims) {
		end, changed := last[claim]
		begin, left := went[userOf(prefix, i)]
		if !changed || !left {
			return nil, fmt.Errorf("%w: the audit log lacks the release of PVC %s", errInvalid, claim)
		}
		lags = append(lags, end.Sub(begin))
	}
	slices.Sort(lags)
	return lags, nil
}

const (
	// clientLimit is the rate limit of the operator and of the controller manager while the
	// release of PVCs is measured. The operator's burst is one.
	clientLimit = 100
	// modeLabel chooses the mode of a namespace.
	modeLabel = "protection.lockstep.dev/mode"
	// heldNodes is the number of Node objects without a kubelet: a pod on one of them is bound, and
	// its status never changes.
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
	waiting := p.claimsWith(prefix, drill.PodProtection)
	valid(waiting == claims, "%d of %d PVCs wait for their users", waiting, claims)
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

// claimsWith counts the PVCs of a prefix that have a finalizer; any with "".
func (p *place) claimsWith(prefix, finalizer string) (n int) {
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
		valid(time.Now().Before(deadline), "never true: %s; %d of %d", what, n, want)
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

// rerun stops the operator and starts it with other flags.
func (b *bed) rerun(flags []string) {
	if b.Operator.Ready() == nil {
		must(b.Operator.Kill())
	}
	must(b.Operator.Start(flags...))
	b.rest()
}

// strike deletes the namespace. It force-deletes the pods, because no kubelet runs them.
func (p *place) strike() error {
	if p.last {
		return nil
	}
	return errors.Join(
		p.Client.DeleteAllOf(p.ctx, &corev1.Pod{}, client.InNamespace(p.namespace), client.GracePeriodSeconds(0)),
		p.Client.Delete(p.ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: p.namespace}}),
		p.Client.DeleteAllOf(p.ctx, &corev1.Node{}, client.MatchingFields{"spec.unschedulable": "true"}))
}
