package integration

import (
	"context"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"lockstep.dev/lockstep/internal/pvc"
	"lockstep.dev/lockstep/test/delay"
)

// builtIn is the controller manager's own protection of claims, behind a proxy.
type builtIn struct {
	*course
	proxy *delay.Proxy
	*process
}

// TestRacesOfTheBuiltIn replays how the built-in controller loses a PVC in use. It is the control of
// TestRacesOfOurs.
func TestRacesOfTheBuiltIn(t *testing.T) {
	c := newCourse(t)
	t.Run("the stand-in is today's kubelet", c.standIn)
	b := c.builtIn()
	t.Run("R3: bound between the list and the write", b.boundAfterTheList)
	t.Run("R4: judged by the list of another claim", b.judgedByAnothersList)
}

func (c *course) builtIn() *builtIn {
	c.t.Helper()
	b := &builtIn{course: c, proxy: c.proxy("system:kube-controller-manager")}
	path := filepath.Join(c.t.TempDir(), "controllers.kubeconfig")
	c.must(b.proxy.WriteKubeconfig(path))
	b.process = c.run(nil, "kube-controller-manager", "--kubeconfig", path, "--secure-port=0", "--leader-elect=false",
		"--controllers=persistentvolumeclaim-protection-controller", "--kube-api-qps=200", "--kube-api-burst=300", "--v=4")
	c.until("the controller watches pods", func() bool { return len(b.proxy.Seen(watches("pods"))) > 0 })
	return b
}

func (b builtIn) on(t *testing.T) *builtIn {
	b.course = b.course.on(t)
	return &b
}

// wait returns a context that ends with the test, or with patience.
func (c *course) wait() context.Context {
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	c.t.Cleanup(cancel)
	return ctx
}

func (c *course) reached(h *delay.Hold) {
	c.t.Helper()
	_, err := h.Reached(c.wait())
	c.must(err)
}

func (c *course) namespace() string {
	c.t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "race-"}}
	c.must(c.Create(c.t.Context(), ns))
	return ns.Name
}

func watches(resource string) func(delay.Request) bool {
	return func(r delay.Request) bool { return r.Verb == "watch" && r.Resource == resource }
}

func listsPods(namespace string) func(delay.Request) bool {
	return func(r delay.Request) bool {
		return r.Verb == "list" && r.Resource == "pods" && r.Namespace == namespace
	}
}

// writes matches requests that can change finalizers.
func writes(namespace, claim string) func(delay.Request) bool {
	return func(r delay.Request) bool {
		return (r.Verb == "update" || r.Verb == "patch") && r.Resource == "persistentvolumeclaims" &&
			r.Namespace == namespace && r.Name == claim && r.Subresource == ""
	}
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

func (b *builtIn) boundAfterTheList(t *testing.T) {
	b = b.on(t)
	claim, pod := b.replayR3(nil)
	b.gone(claim)
	if !b.lost(claim, pod) {
		t.Error("not lost: this race can no longer be seen")
	}
}

// replayR3 binds a pod between the controller's list of pods and its write.
func (b *builtIn) replayR3(before func()) (*corev1.PersistentVolumeClaim, *corev1.Pod) {
	b.t.Helper()
	ns := b.namespace()
	claim, pod := b.claim(ns, "data"), b.pod(ns, "b", "data")
	write := b.proxy.Hold(delay.Requests, writes(ns, "data"))
	defer write.Release()
	b.must(b.Delete(b.t.Context(), claim))
	b.reached(write) // it has listed pods, and found none that is bound
	if before != nil {
		before()
	}
	b.bind(pod)
	b.until("the kubelet mounts it: it is terminating, and still protected", func() bool { return b.kubelet.mounts(pod, claim) })
	if b.lost(claim, pod) {
		b.t.Fatal("lost before the write")
	}
	return claim, pod
}

func (b *builtIn) judgedByAnothersList(t *testing.T) {
	b = b.on(t)
	claim, pod := b.replayR4(nil)
	b.gone(claim)
	if !b.lost(claim, pod) {
		t.Error("not lost: this race can no longer be seen")
	}
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
	busy := b.proxy.Hold(delay.Requests, listsPods(other))
	defer busy.Release()
	b.claim(other, "c")
	b.reached(busy)
	b.end(podA)
	b.knowsPods(other) // that pod a is gone: both claims are queued
	asked := len(b.proxy.Seen(listsPods(ns)))
	lag := b.proxy.Hold(delay.Streams, watches("pods"))
	defer lag.Release()
	list := b.proxy.Hold(delay.Answers, listsPods(ns))
	defer list.Release()
	busy.Release()
	b.reached(list) // pods were listed for claim a
	if before != nil {
		before()
	}
	b.bind(podB)
	b.until("the kubelet mounts b", func() bool { return b.kubelet.mounts(podB, claimB) })
	b.must(b.Delete(b.t.Context(), claimB))
	b.knowsClaims(other) // that b is terminating
	b.reached(lag)       // and does not know pod b
	list.Release()
	b.until("b loses its protection", func() bool { return !b.bears(claimB, pvc.PodsFinalizer) })
	next := b.proxy.Seen(func(r delay.Request) bool { return listsPods(ns)(r) || writes(ns, "b")(r) })[asked+1:]
	if len(next) > 0 && next[0].Verb == "list" { // what comes after b went does not matter
		b.t.Error("pods were listed again for b: this was another race")
	}
	return claimB, podB
}
