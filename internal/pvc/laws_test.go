package pvc_test

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"lockstep.dev/lockstep/internal/pvc"
	"lockstep.dev/lockstep/test/expect"
	"lockstep.dev/lockstep/test/fakeapi"
)

// met counts how often the premise of a law was true.
type met map[string]int

func (m met) when(name string, holds bool) {
	if holds {
		m[name]++
	}
}

func TestLaws(t *testing.T) {
	for _, law := range []struct {
		name     string
		check    func(*rapid.T, met)
		premises []string
	}{
		{"a cache never releases", cacheNeverReleases, []string{"not in the cache", "written"}},
		{"only unused terminating PVCs are released", onlyUnusedAreReleased, []string{"used", "recorded", "living", "P", "B", "foreign"}},
		{"an unused PVC goes", unusedGoes, []string{"released"}},
		{"strangers keep nothing", strangersKeepNothing, []string{"released"}},
		{"decisions change no input", decisionsChangeNoInput, []string{"released"}},
		{"each holder has one step", eachHolderHasOneStep, []string{"a step", "two steps"}},
		{"a gate is lifted after the record", gateAfterRecord, []string{"lifted with PVCs", "lifted without", "waits"}},
	} {
		t.Run(law.name, func(t *testing.T) {
			m := met{}
			rapid.Check(t, func(t *rapid.T) { law.check(t, m) })
			for _, premise := range law.premises {
				expect.That(t, m[premise] != 0, "the premise %q was never met", premise)
			}
		})
	}
}

// scene is a namespace with PVCs, most of them terminating, and pods that may use them.
type scene struct {
	claims   []*corev1.PersistentVolumeClaim
	pods     []*corev1.Pod
	settings pvc.Settings
}

var names = []string{"data-db-0", "data-db-1", "logs", "web-scratch"}

func drawScene(t *rapid.T) scene {
	s := scene{settings: pvc.Settings{Alone: rapid.Bool().Draw(t, "alone"), Mode: pvc.Mode(rapid.IntRange(0, 4).Draw(t, "mode"))}}
	for _, name := range names {
		s.claims = append(s.claims, drawClaim(t, name))
	}
	for i := range rapid.IntRange(0, 4).Draw(t, "pods") {
		s.pods = append(s.pods, drawPod(t, fmt.Sprintf("pod-%d", i)))
	}
	return s
}

func drawClaim(t *rapid.T, name string) *corev1.PersistentVolumeClaim {
	c := claim(name, finalizers(rapid.SliceOfNDistinct(rapid.SampledFrom([]string{p, b, "x/1", "x/2"}), 0, 4, rapid.ID).Draw(t, "finalizers")...))
	if rapid.IntRange(0, 3).Draw(t, "dying") > 0 {
		dying(c)
	}
	if record := rapid.SampledFrom([]string{"", "", "pod-0=uid-pod-0", "gone=uid-gone", "?"}).Draw(t, "record"); record != "" {
		c.Annotations[pvc.UsersAnnotation] = record
	}
	if owner := rapid.SampledFrom([]types.UID{"", "", "uid-pod-1"}).Draw(t, "owner"); owner != "" {
		controlledBy("Pod", owner)(c)
	}
	return c
}

func drawPod(t *rapid.T, name string) *corev1.Pod {
	o := pod(name, rapid.SliceOfNDistinct(rapid.SampledFrom(names), 0, 2, rapid.ID).Draw(t, "claims"))
	o.Status.Phase = rapid.SampledFrom([]corev1.PodPhase{corev1.PodPending, corev1.PodRunning, corev1.PodSucceeded, corev1.PodFailed, ""}).Draw(t, "phase")
	if rapid.Bool().Draw(t, "unbound") {
		o.Spec.NodeName = ""
	}
	if rapid.IntRange(0, 3).Draw(t, "leaving") == 0 {
		leaving(rapid.SampledFrom([]int64{0, 30}).Draw(t, "grace"))(o)
	}
	return o
}

func (s scene) judge(err error) ([]pvc.Release, []pvc.Kept) {
	return s.settings.Take(ns, s.claims).Look(reading(err, s.pods...)).Judge()
}

// bound reports whether a bound pod names a PVC.
func (s scene) bound(name string) bool {
	return slices.ContainsFunc(s.pods, func(o *corev1.Pod) bool { return o.Spec.NodeName != "" && slices.Contains(pvc.ClaimsOf(o), name) })
}

// recorded reports whether the record of a PVC names a pod, or cannot be read.
func (s scene) recorded(c *corev1.PersistentVolumeClaim) bool {
	record := c.Annotations[pvc.UsersAnnotation]
	return record == "?" || slices.ContainsFunc(s.pods, func(o *corev1.Pod) bool { return record == o.Name+"="+string(o.UID) })
}

func (s scene) named(name string) *corev1.PersistentVolumeClaim {
	return s.claims[slices.Index(names, name)]
}

func cacheNeverReleases(t *rapid.T, m met) {
	s := drawScene(t)
	for _, c := range s.claims {
		d := pvc.Decide(pvc.View{Claim: c, Pods: index(s.pods...), Mode: s.settings.Mode, Settings: s.settings})
		m.when("not in the cache", d.Step == pvc.Look)
		m.when("written", d.Step == pvc.Write)
		expect.Must(t, (c.DeletionTimestamp == nil || d.Write == nil) && (!s.bound(c.Name) || d.Step != pvc.Look),
			"%s: %+v", c.Name, d)
	}
}

func onlyUnusedAreReleased(t *rapid.T, m met) {
	s := drawScene(t)
	s.claims[0].Namespace = rapid.SampledFrom([]string{ns, "other"}).Draw(t, "namespace")
	s.claims[0].ResourceVersion = rapid.SampledFrom([]string{"7", ""}).Draw(t, "version")
	if releases, _ := s.judge(errors.New("lost")); len(releases) > 0 {
		t.Fatalf("after an error: %v", releases)
	}
	releases, kept := s.judge(nil)
	judged := map[types.UID]bool{}
	for _, k := range kept {
		judged[k.Claim.UID] = true
	}
	for _, r := range releases {
		c := s.named(r.Target().Name)
		if judged[c.UID] || s.bound(c.Name) || s.recorded(c) || c.DeletionTimestamp == nil || c.Namespace != ns || r.Target().ResourceVersion == "" {
			t.Fatalf("%s is released", c.Name)
		}
		judged[c.UID] = true
		want := slices.DeleteFunc(slices.Clone(c.Finalizers), func(f string) bool { return f == r.Takes() })
		expect.Must(t, slices.Equal(want, r.Finalizers()) && len(want) == len(c.Finalizers)-1,
			"of %v, %v stay", c.Finalizers, r.Finalizers())
		if r.Takes() == b && slices.Contains(want, p) || r.Takes() == p && !s.settings.Alone || r.Takes() != p && r.Takes() != b {
			t.Fatalf("takes %s of %v", r.Takes(), c.Finalizers)
		}
		m.when("P", r.Takes() == p)
		m.when("B", r.Takes() == b)
		m.when("foreign", slices.Contains(want, "x/1"))
	}
	for _, c := range s.claims {
		m.when("used", s.bound(c.Name))
		m.when("recorded", s.recorded(c))
		m.when("living", c.DeletionTimestamp == nil)
	}
}

func unusedGoes(t *rapid.T, m met) {
	s := drawScene(t)
	s.pods, s.settings.Alone = nil, true
	for _, c := range s.claims {
		delete(c.Annotations, pvc.UsersAnnotation)
		dying(c)
	}
	for range 2 {
		releases, _ := s.judge(nil)
		m.when("released", len(releases) > 0)
		for _, r := range releases {
			s.named(r.Target().Name).Finalizers = r.Finalizers()
		}
	}
	for _, c := range s.claims {
		expect.Must(t, !slices.Contains(c.Finalizers, p) && !slices.Contains(c.Finalizers, b),
			"%s still has %v", c.Name, c.Finalizers)
	}
}

// A pod that is not bound or names other PVCs keeps nothing, nor does a workload of another
// namespace or name, whatever its labels and annotations.
func strangersKeepNothing(t *rapid.T, m met) {
	s := drawScene(t)
	before, _ := s.judge(nil)
	m.when("released", len(before) > 0)
	stranger := drawPod(t, "stranger")
	stranger.Labels = map[string]string{"app": "db"}
	stranger.Annotations = map[string]string{pvc.UsersAnnotation: "pod-0=uid-pod-0", pvc.HoldAnnotation: "mine"}
	controlledBy("StatefulSet", "uid-db")(stranger)
	if rapid.Bool().Draw(t, "elsewhere") {
		stranger.Spec.Volumes = fakeapi.Using("other")
	} else {
		stranger.Spec.NodeName = ""
	}
	s.pods = append(s.pods, stranger)
	after, _ := s.judge(nil)
	expect.Must(t, len(before) == len(after), "%d were released, and with a stranger %d", len(before), len(after))
	set, name := statefulSet("db", rapid.Int32Range(0, 5).Draw(t, "replicas")), "data-db-0"
	if rapid.Bool().Draw(t, "in another namespace") {
		set.Namespace = "other"
	} else {
		name = rapid.SampledFrom([]string{"data-db", "data-db-", "data-db-0-0", "data-db-5", "data-db--0", "xdata-db-0", "data-db-+0", "data-db-0x", ""}).Draw(t, "name")
	}
	holders, _ := world(index(), wantOf(set)).Holders(claim(name))
	expect.Must(t, len(holders) == 0, "%q is held by %q", name, theNames(holders))
}

func decisionsChangeNoInput(t *rapid.T, m met) {
	s, before := drawScene(t), scene{}
	for _, c := range s.claims {
		before.claims = append(before.claims, c.DeepCopy())
	}
	for _, o := range s.pods {
		before.pods = append(before.pods, o.DeepCopy())
	}
	releases, _ := s.judge(nil)
	m.when("released", len(releases) > 0)
	for _, c := range s.claims {
		pvc.Decide(pvc.View{Claim: c, Pods: index(s.pods...), Mode: s.settings.Mode, Settings: s.settings})
		pvc.DecideHold(pvc.HoldView{Claim: c, Mode: pvc.Hold, World: world(index(s.pods...)), Now: noon})
		pvc.Why(caseOf(c, s.settings.Mode, s.pods))
	}
	expect.Must(t, reflect.DeepEqual(before.claims, s.claims) && reflect.DeepEqual(before.pods, s.pods),
		"an input has changed")
}

func eachHolderHasOneStep(t *rapid.T, m met) {
	c := claim("data-db-0", dying)
	var pods []*corev1.Pod
	for i := range rapid.IntRange(1, 5).Draw(t, "pods") {
		o := pod(fmt.Sprintf("pod-%d", i), []string{c.Name}, phase(rapid.SampledFrom([]corev1.PodPhase{corev1.PodRunning, corev1.PodSucceeded}).Draw(t, "phase")))
		if owner := rapid.SampledFrom([]types.UID{"", "uid-db", "uid-web"}).Draw(t, "owner"); owner != "" {
			controlledBy("StatefulSet", owner)(o)
		}
		pods = append(pods, o)
	}
	e := pvc.Why(caseOf(c, pvc.Barrier, pods, wantOf(statefulSet("db", 1)), wantOf(statefulSet("web", 1))))
	m.when("a step", len(e.Actions) > 0)
	m.when("two steps", len(e.Actions) > 1)
	steps := map[string]int{}
	for _, a := range e.Actions {
		for _, name := range a.Frees {
			steps[name]++
		}
	}
	for _, h := range e.Holders {
		expect.Must(t, h.Holds == (steps[h.Name] == 1) && steps[h.Name] <= 1, "%s has %d steps", h.Name, steps[h.Name])
	}
}

// A gate is lifted only when each protected PVC lives, and names the pod after the writes.
// A pod that waits is written nowhere.
func gateAfterRecord(t *rapid.T, m met) {
	s := drawScene(t)
	live := pvc.Claims{}
	for _, c := range s.claims {
		if rapid.IntRange(0, 4).Draw(t, "usable") > 0 {
			c.DeletionTimestamp, c.Annotations = nil, map[string]string{}
		}
		if rapid.IntRange(0, 5).Draw(t, "there") > 0 {
			live[c.Name] = c
		}
	}
	for _, o := range append(s.pods, drawPod(t, "another"), drawPod(t, "third")) {
		gated(pvc.UseGate)(o)
		for _, mode := range []string{"off", "barrier", "strict"} {
			gateOf(t, m, s.settings, o, live, map[string]string{pvc.ModeKey: mode})
		}
	}
}

func gateOf(t *rapid.T, m met, settings pvc.Settings, o *corev1.Pod, live pvc.Claims, labels map[string]string) {
	protected := slices.DeleteFunc(pvc.ClaimsOf(o), func(name string) bool {
		c := live[name]
		if c == nil {
			c = claim(name)
		}
		return settings.ModeOf(c, labels) < pvc.Barrier
	})
	v := pvc.DecideGate(pvc.GateView{Pod: o, Live: live, NamespaceLabels: labels, Settings: settings})
	lifts := v.Lift.Target().UID != ""
	m.when("waits", v.Waits.Code != "")
	expect.Must(t, (o.DeletionTimestamp != nil || lifts != (v.Waits.Code != "")) && (lifts || len(v.Writes) == 0),
		"%s: %+v", o.Name, v)
	m.when("lifted with PVCs", lifts && len(protected) > 0)
	m.when("lifted without", lifts && len(protected) == 0)
	for _, name := range protected {
		if lifts && !recordedAfter(v, o, live[name]) {
			t.Fatalf("the gate of %s is lifted without a record on %s", o.Name, name)
		}
	}
}

// recordedAfter reports whether a living PVC names a pod once the writes are done.
func recordedAfter(v pvc.GateVerdict, o *corev1.Pod, c *corev1.PersistentVolumeClaim) bool {
	if c == nil || c.DeletionTimestamp != nil {
		return false
	}
	value := c.Annotations[pvc.UsersAnnotation]
	for _, w := range v.Writes {
		if w.Target().UID == c.UID && w.Target().ResourceVersion == c.ResourceVersion {
			value = w.Annotations[pvc.UsersAnnotation]
		}
	}
	record, err := pvc.ParseRecord(value)
	return err == nil && slices.Contains(record, pvc.Recorded{Name: o.Name, UID: o.UID})
}
