package integration

import (
	"fmt"
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/operator"
	"lockstep.dev/lockstep/internal/pvc"
	"lockstep.dev/lockstep/internal/report"
	"lockstep.dev/lockstep/test/delay"
	"lockstep.dev/lockstep/test/kubelet"
)

// ourOperator is an operator that protects PVCs only, behind a proxy.
type ourOperator struct {
	*course
	proxy *delay.Proxy
	stop  func()
}

// TestRacesOfOurs replays the races beside the built-in controller and in its place.
func TestRacesOfOurs(t *testing.T) {
	c := newCourse(t)
	c.barrier = true
	b := c.builtIn()
	o := c.ourOperator(false)
	t.Run("beside: bound between the built-in's list and its write", func(t *testing.T) { o.on(t).beside(b.on(t).replayR3) })
	t.Run("beside: judged by the built-in by the list of another claim", func(t *testing.T) { o.on(t).beside(b.on(t).replayR4) })
	o.stop()
	c.must(b.cmd.Process.Kill())
	o = c.ourOperator(true)
	t.Run("alone: bound between our reading and our write", func(t *testing.T) { o.on(t).aloneR3() })
	t.Run("alone: deleted after pods were read for another claim", func(t *testing.T) { o.on(t).aloneR4() })
	o.stop()
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

func (o ourOperator) on(t *testing.T) *ourOperator {
	o.course = o.course.on(t)
	return &o
}

// lags stops events of pods until the test is over.
func (o *ourOperator) lags() (h *delay.Hold) {
	h = o.proxy.Hold(delay.Streams, watches("pods"))
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

func (c *course) now(claim *corev1.PersistentVolumeClaim) *corev1.PersistentVolumeClaim {
	c.t.Helper()
	now := &corev1.PersistentVolumeClaim{}
	c.must(c.Get(c.t.Context(), client.ObjectKeyFromObject(claim), now))
	return now
}

// ends deletes the pod, and waits for the end of the PVC.
func (o *ourOperator) ends(claim *corev1.PersistentVolumeClaim, pod *corev1.Pod, lag *delay.Hold) {
	o.t.Helper()
	lag.Release()
	o.end(pod)
	o.gone(claim)
}

// beside replays a race of the built-in controller while ours gets no events of pods.
func (o *ourOperator) beside(replay func(func()) (*corev1.PersistentVolumeClaim, *corev1.Pod)) {
	var lag *delay.Hold
	claim, pod := replay(func() { lag = o.lags() })
	o.keeps(claim, pod)
	o.ends(claim, pod, lag)
}

func (o *ourOperator) aloneR3() {
	ns := o.namespace()
	claim, pod := o.claim(ns, "data"), o.pod(ns, "b", "data")
	write := o.proxy.Hold(delay.Requests, writes(ns, "data"))
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
	reading := o.proxy.Hold(delay.Answers, listsPods(ns))
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
