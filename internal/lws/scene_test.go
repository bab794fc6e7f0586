package lws_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/test/expect"
	"lockstep.dev/lockstep/test/fakeapi"
)

// The kinds of a scene.
type (
	Set         = *lwsv1.LeaderWorkerSet
	StatefulSet = *appsv1.StatefulSet
	Pod         = *corev1.Pod
	Service     = *corev1.Service
	PVC         = *corev1.PersistentVolumeClaim
	Revision    = *appsv1.ControllerRevision
)

type (
	// edit changes a set, before it is created or after.
	edit = func(Set)
	// step is what happens to a cluster.
	step = func(*cluster)
)

func then(steps ...step) step {
	return func(c *cluster) {
		for _, step := range steps {
			step(c)
		}
	}
}

func nothing(*cluster) {}

// on edits an object.
func on[T client.Object](name string, change func(T)) step {
	return func(c *cluster) { fakeapi.Edit(c.Server, name, change) }
}

// gone removes objects at once.
func gone[T client.Object](names ...string) step {
	return func(c *cluster) {
		for _, name := range names {
			fakeapi.Drop[T](c.Server, name)
		}
	}
}

// leaving deletes an object that stays for now.
func leaving[T client.Object](name string, finalizers ...string) step {
	return func(c *cluster) { fakeapi.Terminate[T](c.Server, name, finalizers...) }
}

// removed deletes an object as a user does.
func removed[T client.Object](name string) step {
	return func(c *cluster) { c.Remove(fakeapi.Find[T](c.Server, name), metav1.DeletePropagationBackground) }
}

// orphaned takes the controller from an object.
func orphaned[T client.Object](name string) step {
	return on(name, func(object T) { object.SetOwnerReferences(nil) })
}

// foreign gives an object another controller, which exists.
func foreign[T client.Object](name string) step {
	return func(c *cluster) { fakeapi.Edit(c.Server, name, func(object T) { strange(c, object) }) }
}

// previous gives an object a former leader of its group as its controller.
func previous[T client.Object](name, leader string) step {
	return on(name, func(object T) { fakeapi.OwnedBy(object, "v1", fakeapi.Former(identity.KindPod, leader)) })
}

// user edits the set called w.
func user(edits ...edit) step {
	return on("w", func(set Set) {
		before := set.Spec.DeepCopy()
		fakeapi.Edited(set, edits...)
		if !equality.Semantic.DeepEqual(*before, set.Spec) {
			set.Generation++
		}
	})
}

func replicas(n int32) edit { return func(set Set) { set.Spec.Replicas = &n } }

// partitioned keeps the groups below n at their revision.
func partitioned(n int32) edit { return func(set Set) { rollingOf(set).Partition = &n } }

func without(annotation string) edit { return func(set Set) { delete(set.Annotations, annotation) } }

func shared(set Set) {
	set.Spec.NetworkConfig = &lwsv1.NetworkConfig{SubdomainPolicy: fakeapi.Ptr(lwsv1.SubdomainShared)}
}

var (
	pause   = user(fakeapi.Annotation(lwsv1.PausedAnnotationKey, lwsv1.PausedValue))
	resume  = user(without(lwsv1.PausedAnnotationKey))
	settled = (*cluster).settle
	// withoutWorkers takes the workers of group 0, of up to three pods.
	withoutWorkers = then(gone[StatefulSet]("w-0"), gone[Pod]("w-0-1", "w-0-2"))
)

func unready(pod Pod)            { pod.Status.Conditions = nil }
func ends(pod Pod)               { pod.Status.Phase = corev1.PodFailed }
func unscheduled(pod Pod)        { pod.Spec.NodeName = "" }
func withoutRevision(c *cluster) { gone[Revision](revision(c).Name)(c) }
func carriedOut(c *cluster)      { c.reconcileSet() }

func image(c *cluster, image string) { user(fakeapi.Image(image))(c) }

func after(d time.Duration) step { return func(c *cluster) { c.pass(d) } }

// node adds the node of all pods.
func node(labels map[string]string) step {
	return func(c *cluster) {
		fakeapi.Add(c.Server, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fakeapi.Node, Labels: labels}})
	}
}

// strange gives an object another controller, which exists.
func strange(c *cluster, object metav1.Object) {
	owner := fakeapi.Find[Pod](c.Server, "stranger")
	if owner == nil {
		owner = fakeapi.Add(c.Server, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: fakeapi.Namespace, Name: "stranger"}})
	}
	fakeapi.OwnedBy(object, "v1", identity.RefOf(identity.KindPod, owner))
}

// occupied puts a foreign pod in the place of a pod.
func occupied(name string) step {
	return func(c *cluster) {
		pod := fakeapi.Pod(name, "w", 0)
		strange(c, pod)
		fakeapi.Drop[Pod](c.Server, name)
		fakeapi.Add(c.Server, pod)
	}
}

// with returns a set of groups in step, once it is asked for.
func with(replicas, size int32, edits ...edit) func(testing.TB) *cluster {
	return func(t testing.TB) *cluster { return running(t, replicas, size, edits...) }
}

// decision is what is decided about a set in step after something happened to it.
type decision struct {
	name    string
	of      func(testing.TB) *cluster
	happens step
	about   string // the leader of a group, or "" for the set
	want    string // actions, and after "|" waits, each with the reason of its event
}

// checkDecisions decides in scenes. A decision that was carried out is not made again.
func checkDecisions(t *testing.T, decisions []decision) {
	t.Helper()
	for _, d := range decisions {
		t.Run(d.name, func(t *testing.T) {
			c := d.of(t)
			d.happens(c)
			decide := c.decideSet
			if d.about != "" {
				decide = func() lws.Plan { return c.decideGroup(d.about) }
			}
			plan := decide()
			got := short(plan)
			expect.Must(t, got == d.want, "got %q, want %q", got, d.want)
			c.do(plan)
			again := spelled(decide())
			for _, done := range spelled(plan) {
				expect.That(t, strings.HasPrefix(done, "delete") || !slices.Contains(again, done), "again: %s", done)
			}
		})
	}
}

// short is a plan without its prose: "apply service w | NameConflict".
func short(plan lws.Plan) string {
	actions := strings.Join(spelled(plan), ", ")
	var waits []string
	for _, wait := range plan.Waits {
		code := wait.Code
		if wait.Tell != nil {
			code += "!" + wait.Tell.Reason
		}
		if !slices.Contains(waits, code) {
			waits = append(waits, code)
		}
	}
	if len(waits) > 0 {
		actions += " | " + strings.Join(waits, " ")
	}
	return strings.TrimSpace(actions)
}

// spelled is a plan in short: "create statefulset w".
func spelled(plan lws.Plan) []string {
	words := []string{}
	for _, a := range plan.Actions {
		verb := a.About().Verb
		if a.About().Because.Code == lws.CodeNudge {
			verb = "touch"
		}
		words = append(words, verb+" "+a.Target().String())
	}
	return words
}

// waitFor returns a wait of a plan.
func waitFor(plan lws.Plan, code string) (lws.Wait, bool) {
	i := slices.IndexFunc(plan.Waits, func(w lws.Wait) bool { return w.Code == code })
	if i < 0 {
		return lws.Wait{}, false
	}
	return plan.Waits[i], true
}

func of[A action.Action](plan lws.Plan) []A {
	var found []A
	for _, a := range plan.Actions {
		if a, ok := a.(A); ok {
			found = append(found, a)
		}
	}
	return found
}

// one is the only action of its form.
func one[A action.Action](t testing.TB, plan lws.Plan) A {
	t.Helper()
	found := of[A](plan)
	expect.Must(t, len(found) == 1, "got %d actions %T, want 1: %s", len(found), *new(A), spelled(plan))
	return found[0]
}

// statusWrite is a write of the status of a set.
type statusWrite struct {
	action.WriteStatus
	Status lwsv1.LeaderWorkerSetStatus
}

// statusWrites are the writes of a status in a plan.
func statusWrites(plan lws.Plan) (found []statusWrite) {
	for _, write := range of[action.WriteStatus](plan) {
		found = append(found, statusWrite{write, write.Status.(Set).Status})
	}
	return found
}

// oneStatus is the only write of a status.
func oneStatus(t testing.TB, plan lws.Plan) statusWrite {
	t.Helper()
	one[action.WriteStatus](t, plan)
	return statusWrites(plan)[0]
}

// revisions are all revisions, and revision is the only one.
func revisions(c *cluster) []Revision { return fakeapi.All[Revision](c.Objects) }

func revision(c *cluster) Revision {
	c.t.Helper()
	all := revisions(c)
	if len(all) != 1 {
		c.t.Fatalf("%d revisions", len(all))
	}
	return all[0]
}

// runningImages are the images of all pods.
func runningImages(c *cluster) map[string]int {
	images := map[string]int{}
	for _, pod := range fakeapi.All[Pod](c.Objects) {
		images[pod.Spec.Containers[0].Image]++
	}
	return images
}

// checkImage checks that so many pods exist, and that all run an image.
func checkImage(c *cluster, image string, pods int) {
	c.t.Helper()
	if got := runningImages(c); !maps.Equal(got, map[string]int{image: pods}) {
		c.t.Fatalf("pods run %v, want %d of %s", got, pods, image)
	}
}

// checkAvailable checks that a set is available with so many ready and updated groups.
func checkAvailable(c *cluster, groups int32) {
	c.t.Helper()
	status := c.status()
	if brief(status)[available] != isAvailable || status.ReadyReplicas != groups || status.UpdatedReplicas != groups {
		c.t.Fatalf("got %v, %+v, want %d groups", brief(status), status, groups)
	}
}
