package integration

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/operator"
	"lockstep.dev/lockstep/internal/pvc"
	"lockstep.dev/lockstep/internal/report"
	"lockstep.dev/lockstep/test/delay"
	"lockstep.dev/lockstep/test/kubelet"
)

// builtIn is the PVC protection controller of the controller manager, behind a proxy.
type builtIn struct {
	*course
	proxy *delay.Proxy
	*process
}

// TestRaces replays two races in which the built-in controller loses a PVC in use: first without the
// operator, as the control, and then beside it. Then the operator runs without the built-in controller.
func TestRaces(t *testing.T) {
	c := newCourse(t)
	c.part("the stand-in agrees with the kubelet", c.standIn)
	b := c.builtIn()
	c.part("R3: a pod is bound between the list and the write", func() { b.loses(b.replayR3) })
	c.part("R4: a PVC is judged by the list for another PVC", func() { b.loses(b.replayR4) })

	c.barrier = true
	o := c.ourOperator(false)
	c.part("R3 beside the built-in controller", func() { o.beside(b.replayR3) })
	c.part("R4 beside the built-in controller", func() { o.beside(b.replayR4) })
	o.stop()
	c.must(b.cmd.Process.Kill())
	o = c.ourOperator(true)
	c.part("R3 alone: a pod is bound between the read and the write", o.aloneR3)
	c.part("R4 alone: a PVC is deleted after pods were read for another PVC", o.aloneR4)
	o.stop()
}

func (c *course) builtIn() *builtIn {
	c.t.Helper()
	b := &builtIn{course: c, proxy: c.proxy("system:kube-controller-manager")}
	path := filepath.Join(c.t.TempDir(), "controllers.kubeconfig")
	c.must(b.proxy.WriteKubeconfig(path))
	b.process = c.run(nil, "kube-controller-manager", "--kubeconfig", path, "--secure-port=0", "--leader-elect=false",
		"--controllers=persistentvolumeclaim-protection-controller", "--kube-api-qps=200", "--kube-api-burst=300", "--v=4")
	c.until("the controller watches pods", func() bool { return len(b.proxy.Seen(delay.Watches("pods"))) > 0 })
	return b
}

func (c *course) reached(h *delay.Hold) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	_, err := h.Reached(ctx)
	c.must(err)
}

// knowsPods waits until the controller has received all pod events so far: events arrive in order.
func (b *builtIn) knowsPods(namespace string) {
	b.t.Helper()
	last := b.pod(namespace, "last")
	b.until("the controller receives pod events", func() bool { return b.logged("Enqueuing PVCs for Pod", string(last.UID)) > 0 })
}

// knowsClaims is knowsPods for PVCs.
func (b *builtIn) knowsClaims(namespace string) {
	b.t.Helper()
	b.must(b.Create(b.t.Context(), newClaim(namespace, "last")))
	b.until("the controller receives PVC events", func() bool { return b.logged("Got event on PVC", namespace+"/last") > 0 })
}

// race replays one race, and calls before just before its last step.
type race func(before func()) (*corev1.PersistentVolumeClaim, *corev1.Pod)

// loses checks that the built-in controller loses a PVC by a race.
func (b *builtIn) loses(replay race) {
	claim, pod := replay(func() {})
	b.gone(claim)
	if !b.lost(claim, pod) {
		b.t.Error("the PVC is not lost: the replay no longer shows this race")
	}
}

// replayR3 binds a pod between the controller's list of pods and its write.
func (b *builtIn) replayR3(before func()) (*corev1.PersistentVolumeClaim, *corev1.Pod) {
	b.t.Helper()
	ns := b.namespace()
	claim, pod := b.claim(ns, "data"), b.pod(ns, "b", "data")
	write := b.proxy.Hold(delay.Requests, delay.WritesPVC(ns, "data"))
	defer write.Release()
	b.must(b.Delete(b.t.Context(), claim))
	b.reached(write) // the list of pods had no bound pod
	before()
	b.bind(pod)
	b.until("the kubelet mounts the PVC, which is terminating and still protected", func() bool { return b.kubelet.mounts(pod, claim) })
	if b.lost(claim, pod) {
		b.t.Fatal("the PVC is lost before the write")
	}
	return claim, pod
}

// replayR4 mounts PVC b, and deletes it, after the controller listed pods for PVC a. The controller judges
// both PVCs by that list.
func (b *builtIn) replayR4(before func()) (*corev1.PersistentVolumeClaim, *corev1.Pod) {
	b.t.Helper()
	ns, other := b.namespace(), b.namespace()
	claimA, claimB := b.claim(ns, "a"), b.claim(ns, "b")
	podA, podB := b.pod(ns, "a", "a", "b"), b.pod(ns, "b", "b")
	b.bind(podA)
	b.must(b.Delete(b.t.Context(), claimA))
	b.until("PVC a is kept", func() bool { return b.logged("Keeping PVC because it is being used", ns+"/a") > 0 })

	// The only worker is busy with another namespace, so that one batch takes both PVCs.
	busy := b.proxy.Hold(delay.Requests, delay.ListsPods(other))
	defer busy.Release()
	b.claim(other, "c")
	b.reached(busy)
	b.end(podA)
	b.knowsPods(other) // of the end of pod a: both PVCs are queued
	asked := len(b.proxy.Seen(delay.ListsPods(ns)))
	lag := b.proxy.Hold(delay.Streams, delay.Watches("pods"))
	defer lag.Release()
	list := b.proxy.Hold(delay.Answers, delay.ListsPods(ns))
	defer list.Release()
	busy.Release()
	b.reached(list) // the controller has listed pods for PVC a
	before()
	b.bind(podB)
	b.until("the kubelet mounts b", func() bool { return b.kubelet.mounts(podB, claimB) })
	b.must(b.Delete(b.t.Context(), claimB))
	b.knowsClaims(other) // of the deletion of b
	b.reached(lag)       // the event of pod b is delayed
	list.Release()
	b.until("b loses the built-in finalizer", func() bool { return !b.hasFinalizer(claimB, pvc.PodsFinalizer) })
	next := b.proxy.Seen(func(r delay.Request) bool { return delay.ListsPods(ns)(r) || delay.WritesPVC(ns, "b")(r) })[asked+1:]
	if len(next) > 0 && next[0].Verb == "list" { // requests after the removal of b do not count
		b.t.Error("the controller listed pods again for b: this was another race")
	}
	return claimB, podB
}

// ourOperator is an operator that only protects PVCs, behind a proxy.
type ourOperator struct {
	*course
	proxy *delay.Proxy
	stop  func()
}

func (c *course) ourOperator(alone bool) *ourOperator {
	c.t.Helper()
	o := &ourOperator{course: c, proxy: c.proxy("lockstep")}
	config, err := operator.LoadConfig("")
	c.must(err)
	config.LeaderElection.LeaderElect = new(bool)
	config.Metrics.BindAddress = "0"
	config.Health.HealthProbeBindAddress = fmt.Sprintf("127.0.0.1:%d", port(c.t))
	config.Protection.Alone = alone
	r := &replica{c: c.cluster, ended: make(chan error, 1), options: operator.Options{
		REST: o.proxy.Config(), Config: *config, Namespace: systemName, Controllers: []string{operator.Protection}, Log: logr.Discard(),
	}}
	o.stop = r.start().untilReady().shut
	return o
}

// lags delays pod events until the test ends.
func (o *ourOperator) lags() (h *delay.Hold) {
	h = o.proxy.Hold(delay.Streams, delay.Watches("pods"))
	o.t.Cleanup(h.Release)
	return h
}

// keeps waits for the event UsedWithoutProtection, and checks that the PVC stays.
func (o *ourOperator) keeps(claim *corev1.PersistentVolumeClaim, pod *corev1.Pod) {
	o.t.Helper()
	o.until("the built-in finalizer is gone", func() bool { return !o.hasFinalizer(claim, pvc.PodsFinalizer) })
	o.until("an event says that a pod uses "+claim.Name, func() bool { return o.hasEvent(claim, report.UsedWithoutProtection) })
	if o.lost(claim, pod) {
		o.t.Fatal("the PVC is lost")
	}
	if !o.kubelet.mounts(pod, claim) || !o.hasFinalizer(claim, pvc.BarrierFinalizer) {
		o.t.Fatal("this was no race: the PVC is not mounted, or has no barrier")
	}
	if kubelet.Old.Admits(o.now(claim)) == nil || kubelet.Today.Admits(o.now(claim)) == nil {
		o.t.Error("a kubelet still admits another pod")
	}
}

func (o *ourOperator) hasEvent(claim *corev1.PersistentVolumeClaim, reason string) bool {
	list := &eventsv1.EventList{}
	o.must(o.List(o.t.Context(), list, client.InNamespace(claim.Namespace)))
	for _, e := range list.Items {
		if e.Regarding.UID == claim.UID && e.Reason == reason {
			return true
		}
	}
	return false
}

// ends deletes the pod, and waits until the PVC is gone.
func (o *ourOperator) ends(claim *corev1.PersistentVolumeClaim, pod *corev1.Pod, lag *delay.Hold) {
	o.t.Helper()
	lag.Release()
	o.end(pod)
	o.gone(claim)
}

// beside replays a race of the built-in controller while the operator receives no pod events.
func (o *ourOperator) beside(replay race) {
	var lag *delay.Hold
	claim, pod := replay(func() { lag = o.lags() })
	o.keeps(claim, pod)
	o.ends(claim, pod, lag)
}

func (o *ourOperator) aloneR3() {
	ns := o.namespace()
	claim, pod := o.claim(ns, "data"), o.pod(ns, "b", "data")
	write := o.proxy.Hold(delay.Requests, delay.WritesPVC(ns, "data"))
	defer write.Release()
	o.must(o.Delete(o.t.Context(), claim))
	o.reached(write) // of the built-in finalizer: the list of pods had no bound pod
	lag := o.lags()
	o.bind(pod)
	o.until("the kubelet mounts the PVC", func() bool { return o.kubelet.mounts(pod, claim) })
	write.Release()
	o.keeps(claim, pod)
	o.ends(claim, pod, lag)
}

func (o *ourOperator) aloneR4() {
	ns := o.namespace()
	claimA, claimB, pod := o.claim(ns, "a"), o.claim(ns, "b"), o.pod(ns, "b", "b")
	reading := o.proxy.Hold(delay.Answers, delay.ListsPods(ns))
	defer reading.Release()
	o.must(o.Delete(o.t.Context(), claimA))
	o.reached(reading) // the operator has read pods for PVC a
	lag := o.lags()
	o.bind(pod)
	o.until("the kubelet mounts b", func() bool { return o.kubelet.mounts(pod, claimB) })
	o.must(o.Delete(o.t.Context(), claimB))
	reading.Release()
	o.gone(claimA)
	o.until("an event says that b is in use", func() bool { return o.hasEvent(claimB, report.DeletionPostponed) })
	if o.lost(claimB, pod) || !o.hasFinalizer(claimB, pvc.PodsFinalizer) {
		o.t.Fatal("PVC b is lost, or lost the built-in finalizer")
	}
	o.ends(claimB, pod, lag)
}

// standIn compares the code of the kubelet with its stand-in, for every kind of PVC.
func (c *course) standIn() {
	ns := c.namespace()
	const foreign = "example.com/other"
	var pods []*corev1.Pod
	var claims []*corev1.PersistentVolumeClaim
	for i, finalizers := range [][]string{
		{pvc.PodsFinalizer},
		{pvc.PodsFinalizer, pvc.BarrierFinalizer},
		{foreign, pvc.PodsFinalizer},
		{pvc.BarrierFinalizer},
		{foreign},
	} {
		for _, terminating := range []bool{false, true} {
			for _, phase := range []corev1.PersistentVolumeClaimPhase{corev1.ClaimBound, corev1.ClaimPending, corev1.ClaimLost} {
				name := fmt.Sprintf("%d-%t-%s", i, terminating, strings.ToLower(string(phase)))
				claims = append(claims, c.claimIn(ns, name, terminating, phase, finalizers))
				pod := c.pod(ns, name, name)
				c.bind(pod)
				pods = append(pods, pod)
			}
		}
	}
	refused := 0
	for i, pod := range pods {
		claim := claims[i]
		c.until("the kubelet mounts or refuses "+claim.Name, func() bool { return c.kubelet.mounts(pod, claim) || c.kubelet.refuses(pod) != "" })
		err := kubelet.Today.Admits(claim)
		if c.kubelet.mounts(pod, claim) != (err == nil) {
			c.t.Errorf("%s: the kubelet answers %q, the stand-in %v", claim.Name, c.kubelet.refuses(pod), err)
		}
		if err != nil {
			refused++
			if said := c.kubelet.refuses(pod); !strings.Contains(said, err.Error()) {
				c.t.Errorf("%s: the kubelet answers %q, the stand-in %v", claim.Name, said, err)
			}
		}
		if claim.DeletionTimestamp != nil && kubelet.Old.Admits(claim) == nil {
			c.t.Errorf("%s: an old kubelet mounts a terminating PVC", claim.Name)
		}
	}
	if refused == 0 || refused == len(pods) {
		c.t.Errorf("%d of %d refused", refused, len(pods))
	}
}

// claimIn creates a PVC with a phase and finalizers, terminating or not.
func (c *course) claimIn(ns, name string, terminating bool, phase corev1.PersistentVolumeClaimPhase, finalizers []string) *corev1.PersistentVolumeClaim {
	c.t.Helper()
	claim := c.claim(ns, name)
	claim.Finalizers = finalizers
	c.must(c.Update(c.t.Context(), claim))
	if terminating {
		c.must(c.Delete(c.t.Context(), claim))
	}
	status := fmt.Appendf(nil, `{"status":{"phase":%q}}`, phase)
	c.must(c.Status().Patch(c.t.Context(), claim, client.RawPatch(types.MergePatchType, status)))
	return claim
}
