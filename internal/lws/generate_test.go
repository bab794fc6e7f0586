package lws_test

import (
	"flag"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/test/fakeapi"
)

// met counts how often the premises of a law were true. A law whose premise was
// never true was not tested.
type met struct {
	mu     sync.Mutex
	counts map[string]int
}

func (m *met) when(premise string, holds bool) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if holds {
		m.counts[premise]++
	}
	return holds
}

// check runs a property over generated worlds, twice as many as rapid would,
// and more while one of the premises was not met. It fails when one never was.
func check(t *testing.T, property func(*rapid.T, *cluster, *met), premises ...string) {
	t.Helper()
	m := &met{counts: map[string]int{}}
	given := flag.Lookup("rapid.seed").Value.String()
	defer func() { _ = flag.Set("rapid.seed", given) }() // the next law starts from the same worlds, whatever this one took
	missing := func() int {
		return slices.IndexFunc(premises, func(premise string) bool { return m.counts[premise] == 0 })
	}
	for round := 0; round < 2 || (round < 50 && missing() >= 0); round++ {
		otherWorlds(t)
		rapid.Check(t, func(t *rapid.T) { property(t, generate(t), m) })
		if t.Failed() {
			return
		}
	}
	if i := missing(); i >= 0 {
		t.Errorf("invalid run: never met a world with %s; met %v", premises[i], m.counts)
	}
}

// otherWorlds moves a seed that was given on, or every round would see the same
// worlds.
func otherWorlds(t *testing.T) {
	t.Helper()
	given := flag.Lookup("rapid.seed").Value
	seed, err := strconv.ParseUint(given.String(), 10, 64)
	if err == nil && seed != 0 {
		err = given.Set(strconv.FormatUint(seed+1, 10))
	}
	if err != nil {
		t.Fatalf("seed %q: %v", given, err)
	}
}

// generate draws a set, lets it settle, and then does it some harm.
func generate(t *rapid.T) *cluster {
	replicas := rapid.Int32Range(0, 4).Draw(t, "replicas")
	size := rapid.Int32Range(1, 3).Draw(t, "size")
	edits := []func(*lwsv1.LeaderWorkerSet){func(set *lwsv1.LeaderWorkerSet) {}}
	if rapid.Bool().Draw(t, "unique") {
		edits = append(edits, fakeapi.UniquePerReplica)
	}
	if rapid.Bool().Draw(t, "leader ready") {
		edits = append(edits, fakeapi.LeaderReady)
	}
	if rapid.Bool().Draw(t, "recreates") {
		edits = append(edits, fakeapi.Policy(lwsv1.RecreateGroupOnPodRestart))
	}
	if rapid.Bool().Draw(t, "no history") {
		edits = append(edits, fakeapi.Annotation(lwsv1.HistoryLimitAnnotationKey, "0"))
	}
	if rapid.IntRange(0, 2).Draw(t, "volumes") == 0 {
		edits = append(edits, drawVolumes(t))
	}
	c := newCluster(t)
	c.pass(time.Minute)
	fakeapi.Add(c.Server, fakeapi.Set("w", replicas, size, edits...))
	if rapid.IntRange(0, 9).Draw(t, "fresh") > 0 {
		c.settle(groupNames...)
	}
	for range rapid.IntRange(0, 6).Draw(t, "harms") {
		name := rapid.SampledFrom(harmNames).Draw(t, "harm")
		harms[name](t, c)
	}
	return c
}

// groupNames are those of all groups that a generated set may have.
var groupNames = []string{"w-0", "w-1", "w-2", "w-3", "w-4"}

var harmNames = []string{
	"rebirth", "half gone", "older revision", "terminate", "finalize", "former owner", "doomed owner", "stranger", "disown",
	"drop", "drop", "image", "replicas", "size", "network", "unready", "forge", "time", "time", "restart", "behind",
	"pause", "resume",
}

// harms are what can happen to a world, to our objects and to others'.
var harms = map[string]func(*rapid.T, *cluster){
	"rebirth": rebirth,
	// Of a former life, only some leaders are left.
	"half gone": func(t *rapid.T, c *cluster) {
		rebirth(t, c)
		for name, object := range c.Objects {
			_, isPod := object.(*corev1.Pod)
			parent, ordinal := identity.ParentAndOrdinal(name.Name)
			left := isPod && parent == "w" && ordinal > 0
			if !left && !KindIs(object, identity.KindLeaderWorkerSet) {
				delete(c.Objects, name)
			}
		}
		for _, pod := range fakeapi.All[*corev1.Pod](c.Objects) {
			fakeapi.Terminate[*corev1.Pod](c.Server, pod.Name, "example.com/stuck")
		}
		c.look()
	},
	"older revision": func(t *rapid.T, c *cluster) {
		raw := []byte(`{"older":true}`)
		older := &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{
			Namespace: fakeapi.Namespace, Name: "w-older-1", Labels: map[string]string{lwsv1.SetNameLabelKey: "w", lwsv1.RevisionKey: lws.RevisionKey(raw)},
		}, Data: runtime.RawExtension{Raw: raw}}
		fakeapi.OwnedBy(older, fakeapi.APIVersion(identity.KindLeaderWorkerSet), identity.RefOf(identity.KindLeaderWorkerSet, find[*lwsv1.LeaderWorkerSet](c, "w")))
		fakeapi.Add(c.Server, older)
	},
	"terminate": func(t *rapid.T, c *cluster) {
		c.harm(t, func(object client.Object) { object.SetDeletionTimestamp(&metav1.Time{Time: c.Now}) })
	},
	"finalize": func(t *rapid.T, c *cluster) {
		finalizer := rapid.SampledFrom([]string{"example.com/stuck", metav1.FinalizerOrphanDependents}).Draw(t, "finalizer")
		c.harm(t, func(object client.Object) { object.SetFinalizers([]string{finalizer}) })
	},
	"former owner": func(t *rapid.T, c *cluster) {
		c.harm(t, func(object client.Object) {
			fakeapi.OwnedBy(object, "v1", fakeapi.Former(identity.KindPod, "somebody"))
		})
	},
	"doomed owner": func(t *rapid.T, c *cluster) {
		if fakeapi.Find[*corev1.Pod](c.Server, "doomed") == nil {
			fakeapi.Add(c.Server, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: fakeapi.Namespace, Name: "doomed"}})
			fakeapi.Terminate[*corev1.Pod](c.Server, "doomed", "example.com/stuck")
		}
		doomed := fakeapi.Find[*corev1.Pod](c.Server, "doomed")
		c.harm(t, func(object client.Object) { fakeapi.OwnedBy(object, "v1", identity.RefOf(identity.KindPod, doomed)) })
	},
	"stranger": func(t *rapid.T, c *cluster) { c.harm(t, func(object client.Object) { strange(c, object) }) },
	"disown":   func(t *rapid.T, c *cluster) { c.harm(t, func(object client.Object) { object.SetOwnerReferences(nil) }) },
	"drop": func(t *rapid.T, c *cluster) {
		if object := c.anything(t); object != nil {
			delete(c.Objects, fakeapi.NameOf(object))
		}
	},
	"image": func(t *rapid.T, c *cluster) {
		image(c, rapid.SampledFrom([]string{"image:1", "image:2", "image:3"}).Draw(t, "image"))
	},
	"replicas": func(t *rapid.T, c *cluster) {
		replicas := rapid.Int32Range(0, 4).Draw(t, "replicas")
		c.spec(func(spec *lwsv1.LeaderWorkerSetSpec) { spec.Replicas = &replicas })
	},
	"size": func(t *rapid.T, c *cluster) {
		size := rapid.Int32Range(1, 3).Draw(t, "size")
		c.spec(func(spec *lwsv1.LeaderWorkerSetSpec) { spec.LeaderWorkerTemplate.Size = &size })
	},
	"network": func(t *rapid.T, c *cluster) {
		policy := rapid.SampledFrom([]lwsv1.SubdomainPolicy{lwsv1.SubdomainShared, lwsv1.SubdomainUniquePerReplica}).Draw(t, "policy")
		c.spec(func(spec *lwsv1.LeaderWorkerSetSpec) {
			spec.NetworkConfig = &lwsv1.NetworkConfig{SubdomainPolicy: &policy}
		})
	},
	"unready": func(t *rapid.T, c *cluster) {
		c.harm(t, func(object client.Object) {
			if pod, ok := object.(*corev1.Pod); ok {
				pod.Status.Conditions = nil
			}
		})
	},
	"forge":   func(t *rapid.T, c *cluster) { c.forge(t) },
	"time":    func(t *rapid.T, c *cluster) { c.look(); c.pass(drawDuration(t)); c.look() },
	"restart": func(t *rapid.T, c *cluster) { c.awake() },
	"pause":   func(t *rapid.T, c *cluster) { pause(c) },
	"resume":  func(t *rapid.T, c *cluster) { resume(c) },
	"behind": func(t *rapid.T, c *cluster) {
		for _, sts := range fakeapi.All[*appsv1.StatefulSet](c.Objects) {
			c.Sync(sts)
		}
	},
}

// rebirth deletes the set and creates it again.
func rebirth(t *rapid.T, c *cluster) {
	set := find[*lwsv1.LeaderWorkerSet](c, "w").DeepCopy()
	fakeapi.Drop[*lwsv1.LeaderWorkerSet](c.Server, "w")
	set.UID, set.Generation, set.Status, set.CreationTimestamp = "", 0, lwsv1.LeaderWorkerSetStatus{}, metav1.Time{}
	if rapid.Bool().Draw(t, "other image") {
		fakeapi.Image("image:2")(set)
	}
	fakeapi.Add(c.Server, set)
}

func drawDuration(t *rapid.T) time.Duration {
	return rapid.SampledFrom([]time.Duration{0, time.Second, 2 * time.Second, 3 * time.Second, 10 * time.Second, time.Minute}).Draw(t, "later")
}

// look takes note of what is there and writes nothing.
func (c *cluster) look() {
	c.decideSet()
	for _, group := range groupNames {
		c.decideGroup(group)
	}
}

func (c *cluster) spec(change func(*lwsv1.LeaderWorkerSetSpec)) {
	fakeapi.Edit(c.Server, "w", func(set *lwsv1.LeaderWorkerSet) { set.Generation++; change(&set.Spec) })
}

// anything draws one of the objects below the set, or nil.
func (c *cluster) anything(t *rapid.T) client.Object {
	var all []client.Object
	for _, object := range fakeapi.All[client.Object](c.Objects) {
		if !KindIs(object, identity.KindLeaderWorkerSet) {
			all = append(all, object)
		}
	}
	if len(all) == 0 {
		return nil
	}
	return rapid.SampledFrom(all).Draw(t, "object")
}

func (c *cluster) harm(t *rapid.T, change func(client.Object)) {
	object := c.anything(t)
	if object == nil {
		return
	}
	if object.GetDeletionTimestamp() != nil {
		return // nothing comes back
	}
	harmed, _ := object.DeepCopyObject().(client.Object)
	change(harmed)
	c.Put(harmed)
}

// forge adds an object that bears the set's labels under a name like one of
// ours, and belongs to nobody or to a stranger.
func (c *cluster) forge(t *rapid.T) client.Object {
	name := rapid.SampledFrom([]string{"w", "w-0", "w-1", "w-9", "w-00", "w-0-1", "w-0-01", "w-x", "w-", "w--1", "v-0", "w-2147483648"}).Draw(t, "name")
	meta := metav1.ObjectMeta{
		Namespace: fakeapi.Namespace, Name: name,
		Labels: map[string]string{lwsv1.SetNameLabelKey: "w", lwsv1.WorkerIndexLabelKey: rapid.SampledFrom([]string{"0", "1", "x"}).Draw(t, "index")},
	}
	if rapid.Bool().Draw(t, "owned") {
		strange(c, &meta)
	}
	if rapid.Bool().Draw(t, "terminating") {
		meta.DeletionTimestamp, meta.Finalizers = &metav1.Time{Time: c.Now}, []string{"example.com/stuck"}
	}
	var forged client.Object
	switch rapid.IntRange(0, 3).Draw(t, "kind") {
	case 0:
		forged = &corev1.Pod{ObjectMeta: meta}
	case 1:
		template := fakeapi.Template("x", "x")
		template.Labels = map[string]string{"forged": "x"}
		forged = &appsv1.StatefulSet{ObjectMeta: meta, Spec: appsv1.StatefulSetSpec{Replicas: fakeapi.Ptr[int32](1), Template: template}}
	case 2:
		forged = &corev1.Service{ObjectMeta: meta}
	case 3:
		meta.Labels[lwsv1.RevisionKey] = "forged"
		forged = &appsv1.ControllerRevision{ObjectMeta: meta, Revision: 1 << 40}
	}
	if _, taken := c.Objects[fakeapi.NameOf(forged)]; taken {
		return nil
	}
	return fakeapi.Add(c.Server, forged)
}

// claimed is what one snapshot says of an object.
type claimed struct {
	identity.Ref
	object metav1.Object
}

// sorted is everything that a snapshot points to, by class.
type sorted struct{ members, ghosts, orphans, squatters []claimed }

func sortInto[T metav1.Object](s *sorted, kind identity.Kind, claim identity.Claim[T]) {
	add := func(to *[]claimed, objects []T) {
		for _, object := range objects {
			*to = append(*to, claimed{identity.RefOf(kind, object), object})
		}
	}
	add(&s.members, claim.Members)
	add(&s.ghosts, claim.Ghosts)
	add(&s.orphans, claim.Orphans)
	add(&s.squatters, claim.Squatters)
}

func (s *sorted) group(g lws.Group) {
	sortInto(s, identity.KindStatefulSet, g.Workers)
	sortInto(s, identity.KindPod, g.Pods)
	sortInto(s, identity.KindService, g.Service)
	sortInto(s, identity.KindPersistentVolumeClaim, g.Volumes)
}

func sortSet(w lws.SetSnapshot) *sorted {
	s := &sorted{}
	sortInto(s, identity.KindStatefulSet, w.StatefulSet)
	sortInto(s, identity.KindPod, w.Leaders)
	sortInto(s, identity.KindService, w.Service)
	sortInto(s, identity.KindControllerRevision, w.Revisions)
	sortInto(s, identity.KindPersistentVolumeClaim, w.LeaderVolumes)
	for _, g := range w.Groups {
		s.group(g)
	}
	return s
}

func sortGroup(w lws.GroupSnapshot) *sorted {
	s := &sorted{}
	s.group(w.Group)
	sortInto(s, identity.KindControllerRevision, w.Revisions)
	return s
}

func byUID(all []claimed, uid types.UID) (claimed, bool) {
	for _, c := range all {
		if c.UID == uid {
			return c, true
		}
	}
	return claimed{}, false
}

func named(all []claimed, ref identity.Ref) bool {
	for _, c := range all {
		if c.Kind == ref.Kind && c.Name == ref.Name {
			return true
		}
	}
	return false
}

// decided is one decision and what it was made from.
type decided struct {
	what string
	plan lws.Plan
	seen *sorted
	set  *lws.SetSnapshot
	// group is nil for a decision about the set.
	group *lws.GroupSnapshot
	lives identity.Lives
}

func (d decided) String() string { return fmt.Sprintf("%s: %v", d.what, spelled(d.plan)) }

// decideAll decides about the set and about every group it could have.
func (c *cluster) decideAll() []decided {
	var groups []decided
	for _, name := range groupNames {
		group, plan := c.groupPlan(name)
		groups = append(groups, decided{what: "group " + name, plan: plan, seen: sortGroup(group), group: &group, lives: group.Lives})
	}
	set := c.set("w")
	for i := range groups {
		groups[i].set = &set
	}
	return append([]decided{{what: "set", plan: lws.DecideSet(set), seen: sortSet(set), set: &set, lives: set.Lives}}, groups...)
}
