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

// builtIn is the controller manager's own protection of claims, behind a proxy.
type builtIn struct {
	*course
	proxy *delay.Proxy
	*process
}

// TestRaces replays how the built-in controller loses a PVC in use: by itself, which is the control,
// and beside ours. Then it replays the same in the place of the built-in controller.
func TestRaces(t *testing.T) {
	c := newCourse(t)
	c.part("the stand-in is today's kubelet", c.standIn)
	b := c.builtIn()
	c.part("R3: bound between the list and the write", func() { b.loses(b.replayR3) })
	c.part("R4: judged by the list of another claim", func() { b.loses(b.replayR4) })

	c.barrier = true
	o := c.ourOperator(false)
	c.part("R3 beside the built-in", func() { o.beside(b.replayR3) })
	c.part("R4 beside the built-in", func() { o.beside(b.replayR4) })
	o.stop()
	c.must(b.cmd.Process.Kill())
	o = c.ourOperator(true)
	c.part("R3 alone: bound between our reading and our write", o.aloneR3)
	c.part("R4 alone: deleted after pods were read for another claim", o.aloneR4)
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

// knowsPods returns when the controller has seen all events of pods until now: events come in order.
func (b *builtIn) knowsPods(namespace string) {
	b.t.Helper()
	last := b.pod(namespace, "last")
	b.until("it hears of pods", func() bool { return b.said("Enqueuing PVCs for Pod", string(last.UID)) > 0 })
}

// knowsClaims is knowsPods for PVCs.
func (b *builtIn) knowsClaims(namespace string) {
	b.t.Helper()
	b.must(b.Create(b.t.Context(), newClaim(namespace, "last")))
	b.until("it hears of claims", func() bool { return b.said("Got event on PVC", namespace+"/last") > 0 })
}

// race replays one race, and calls before when its step before the last is reached.
type race func(before func()) (*corev1.PersistentVolumeClaim, *corev1.Pod)

// loses checks that the built-in controller loses a PVC by a race.
func (b *builtIn) loses(replay race) {
	claim, pod := replay(func() {})
	b.gone(claim)
	if !b.lost(claim, pod) {
		b.t.Error("not lost: this race can no longer be seen")
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
	b.reached(write) // it has listed pods, and found none that is bound
	before()
	b.bind(pod)
	b.until("the kubelet mounts it: it is terminating, and still protected", func() bool { return b.kubelet.mounts(pod, claim) })
	if b.lost(claim, pod) {
		b.t.Fatal("lost before the write")
	}
	return claim, pod
}

// replayR4 mounts PVC b, and deletes it, after pods were listed for PVC a. Both are judged by that list.
func (b *builtIn) replayR4(before func()) (*corev1.PersistentVolumeClaim, *corev1.Pod) {
	b.t.Helper()
	ns, other := b.namespace(), b.namespace()
	claimA, claimB := b.claim(ns, "a"), b.claim(ns, "b")
	podA, podB := b.pod(ns, "a", "a", "b"), b.pod(ns, "b", "b")
	b.bind(podA)
	b.must(b.Delete(b.t.Context(), claimA))
	b.until("claim a is kept", func() bool { return b.said("Keeping PVC because it is being used", ns+"/a") > 0 })

	// The one worker is busy elsewhere, so that both claims come into one batch.
	busy := b.proxy.Hold(delay.Requests, delay.ListsPods(other))
	defer busy.Release()
	b.claim(other, "c")
	b.reached(busy)
	b.end(podA)
	b.knowsPods(other) // that pod a is gone: both claims are queued
	asked := len(b.proxy.Seen(delay.ListsPods(ns)))
	lag := b.proxy.Hold(delay.Streams, delay.Watches("pods"))
	defer lag.Release()
	list := b.proxy.Hold(delay.Answers, delay.ListsPods(ns))
	defer list.Release()
	busy.Release()
	b.reached(list) // pods were listed for claim a
	before()
	b.bind(podB)
	b.until("the kubelet mounts b", func() bool { return b.kubelet.mounts(podB, claimB) })
	b.must(b.Delete(b.t.Context(), claimB))
	b.knowsClaims(other) // that b is terminating
	b.reached(lag)       // and does not know pod b
	list.Release()
	b.until("b loses its protection", func() bool { return !b.bears(claimB, pvc.PodsFinalizer) })
	next := b.proxy.Seen(func(r delay.Request) bool { return delay.ListsPods(ns)(r) || delay.WritesPVC(ns, "b")(r) })[asked+1:]
	if len(next) > 0 && next[0].Verb == "list" { // what comes after b went does not matter
		b.t.Error("pods were listed again for b: this was another race")
	}
	return claimB, podB
}

// ourOperator is an operator that protects PVCs only, behind a proxy.
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

// lags stops events of pods until the test is over.
func (o *ourOperator) lags() (h *delay.Hold) {
	h = o.proxy.Hold(delay.Streams, delay.Watches("pods"))
	o.t.Cleanup(h.Release)
	return h
}

// keeps waits for the event that the PVC is in use without P, and checks that it is kept.
func (o *ourOperator) keeps(claim *corev1.PersistentVolumeClaim, pod *corev1.Pod) {
	o.t.Helper()
	o.until("P is gone", func() bool { return !o.bears(claim, pvc.PodsFinalizer) })
	o.until("ours tells that a pod uses "+claim.Name, func() bool { return o.told(claim, report.UsedWithoutProtection) })
	if o.lost(claim, pod) {
		o.t.Fatal("lost")
	}
	if !o.kubelet.mounts(pod, claim) || !o.bears(claim, pvc.BarrierFinalizer) {
		o.t.Fatal("this was no race: it is not mounted, or has no barrier")
	}
	if kubelet.Old.Admits(o.now(claim)) == nil || kubelet.Today.Admits(o.now(claim)) == nil {
		o.t.Error("another pod could still come to mount it")
	}
}

func (o *ourOperator) told(claim *corev1.PersistentVolumeClaim, reason string) bool {
	list := &eventsv1.EventList{}
	o.must(o.List(o.t.Context(), list, client.InNamespace(claim.Namespace)))
	for _, e := range list.Items {
		if e.Regarding.UID == claim.UID && e.Reason == reason {
			return true
		}
	}
	return false
}

// ends deletes the pod, and waits for the end of the PVC.
func (o *ourOperator) ends(claim *corev1.PersistentVolumeClaim, pod *corev1.Pod, lag *delay.Hold) {
	o.t.Helper()
	lag.Release()
	o.end(pod)
	o.gone(claim)
}

// beside replays a race of the built-in controller while ours gets no events of pods.
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
	o.reached(write) // of P: it has read pods, and found none that is bound
	lag := o.lags()
	o.bind(pod)
	o.until("the kubelet mounts it", func() bool { return o.kubelet.mounts(pod, claim) })
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
	o.reached(reading) // pods were read for claim a
	lag := o.lags()
	o.bind(pod)
	o.until("the kubelet mounts b", func() bool { return o.kubelet.mounts(pod, claimB) })
	o.must(o.Delete(o.t.Context(), claimB))
	reading.Release()
	o.gone(claimA)
	o.until("ours tells that b is in use", func() bool { return o.told(claimB, report.DeletionPostponed) })
	if o.lost(claimB, pod) || !o.bears(claimB, pvc.PodsFinalizer) {
		o.t.Fatal("lost, or about to be")
	}
	o.ends(claimB, pod, lag)
}

// standIn compares the kubelet's own code with its stand-in for every kind of PVC.
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
		c.until("a word about "+claim.Name, func() bool { return c.kubelet.mounts(pod, claim) || c.kubelet.refuses(pod) != "" })
		err := kubelet.Today.Admits(claim)
		if c.kubelet.mounts(pod, claim) != (err == nil) {
			c.t.Errorf("%s: the kubelet says %q, the stand-in %v", claim.Name, c.kubelet.refuses(pod), err)
		}
		if err != nil {
			refused++
			if said := c.kubelet.refuses(pod); !strings.Contains(said, err.Error()) {
				c.t.Errorf("%s: the kubelet says %q, the stand-in %v", claim.Name, said, err)
			}
		}
		if claim.DeletionTimestamp != nil && kubelet.Old.Admits(claim) == nil {
			c.t.Errorf("%s: an old kubelet mounts what is terminating", claim.Name)
		}
	}
	if refused == 0 || refused == len(pods) {
		c.t.Errorf("%d of %d refused", refused, len(pods))
	}
}

// claimIn creates a PVC in a state of choice.
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
