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
)

// met counts how often the premise of a law was true.
type met map[string]int

func (m met) when(name string, holds bool) {
	if holds {
		m[name]++
	}
}

func law(t *testing.T, check func(*rapid.T, met), premises ...string) {
	t.Helper()
	m := met{}
	rapid.Check(t, func(t *rapid.T) { check(t, m) })
	for _, premise := range premises {
		if m[premise] == 0 {
			t.Errorf("the premise %q was never met", premise)
		}
	}
}

func TestLaws(t *testing.T) {
	t.Run("cacheNeverReleases", func(t *testing.T) { law(t, cacheNeverReleases, "nobody in the cache", "written") })
	t.Run("anyErrorMeansInUse", func(t *testing.T) { law(t, anyErrorMeansInUse, "something to release") })
	t.Run("aUserKeeps", func(t *testing.T) { law(t, aUserKeeps, "used", "released") })
	t.Run("othersFinalizersStay", func(t *testing.T) { law(t, othersFinalizersStay, "others'") })
	t.Run("theBarrierGoesLast", func(t *testing.T) { law(t, theBarrierGoesLast, "B", "P") })
	t.Run("onlyTheDyingAreReleased", func(t *testing.T) { law(t, onlyTheDyingAreReleased, "a living one") })
	t.Run("whatIsNotUsedGoes", func(t *testing.T) { law(t, whatIsNotUsedGoes, "all gone") })
	t.Run("nobodyPinsSomebodyElses", func(t *testing.T) { law(t, nobodyPinsSomebodyElses, "released") })
	t.Run("everyClaimIsJudgedOnce", func(t *testing.T) { law(t, everyClaimIsJudgedOnce, "a claim") })
	t.Run("coreDoesNotMutate", func(t *testing.T) { law(t, coreDoesNotMutate, "a release") })
	t.Run("strangersHoldNothing", func(t *testing.T) { law(t, strangersHoldNothing, "free") })
	t.Run("actionsAreEnoughAndNoneTooMany", func(t *testing.T) { law(t, actionsAreEnough, "an action", "two actions") })
}

// A cached view decides nothing that takes P or B from a claim on its way out.
func cacheNeverReleases(t *rapid.T, m met) {
	s := drawScene(t)
	for _, c := range s.claims {
		d := pvc.Decide(pvc.View{Claim: c, Pods: index(s.pods...), Mode: s.settings.Mode, Settings: s.settings})
		m.when("nobody in the cache", d.Step == pvc.Look)
		m.when("written", d.Step == pvc.Write)
		if c.DeletionTimestamp != nil && d.Write != nil {
			t.Fatalf("%s is terminating, and is written: %v", c.Name, d.Write)
		}
		if s.bound(c.Name) && d.Step == pvc.Look {
			t.Fatalf("%s has a user in the cache, and is looked at", c.Name)
		}
	}
}

func anyErrorMeansInUse(t *rapid.T, m met) {
	s := drawScene(t)
	sound, _ := s.judge(nil)
	m.when("something to release", len(sound) > 0)
	if releases, kept := s.judge(errors.New("lost")); len(releases) > 0 {
		t.Fatalf("%d released, %d kept by half a reading", len(releases), len(kept))
	}
}

func aUserKeeps(t *rapid.T, m met) {
	s := drawScene(t)
	releases, _ := s.judge(nil)
	for _, r := range releases {
		m.when("released", true)
		if s.bound(r.Target().Name) {
			t.Fatalf("%s is released under a bound pod", r.Target())
		}
	}
	m.when("used", slices.ContainsFunc(s.claims, func(c *corev1.PersistentVolumeClaim) bool { return s.bound(c.Name) }))
}

func othersFinalizersStay(t *rapid.T, m met) {
	s := drawScene(t)
	releases, _ := s.judge(nil)
	for _, r := range releases {
		had := s.claimed(r.Target().Name).Finalizers
		var want []string
		for _, f := range had {
			if f != r.Takes() {
				want = append(want, f)
			}
		}
		m.when("others'", len(want) > 1)
		if !slices.Equal(want, r.Finalizers()) || len(want) != len(had)-1 {
			t.Fatalf("of %v, %v stay", had, r.Finalizers())
		}
	}
}

func theBarrierGoesLast(t *rapid.T, m met) {
	s := drawScene(t)
	releases, _ := s.judge(nil)
	for _, r := range releases {
		m.when("B", r.Takes() == b)
		m.when("P", r.Takes() == p)
		if r.Takes() == b && slices.Contains(r.Finalizers(), p) {
			t.Fatal("B goes before P")
		}
		if r.Takes() == p && !s.settings.Alone {
			t.Fatal("P is taken, and is the built-in's")
		}
	}
}

func onlyTheDyingAreReleased(t *rapid.T, m met) {
	s := drawScene(t)
	releases, _ := s.judge(nil)
	for _, c := range s.claims {
		m.when("a living one", c.DeletionTimestamp == nil)
	}
	for _, r := range releases {
		if s.claimed(r.Target().Name).DeletionTimestamp == nil {
			t.Fatalf("%s lives", r.Target())
		}
	}
}

// S2p: judged again after every write, a claim that nobody uses loses all that is
// ours.
func whatIsNotUsedGoes(t *rapid.T, m met) {
	s := drawScene(t)
	s.pods, s.settings.Alone = nil, true
	for _, c := range s.claims {
		delete(c.Annotations, pvc.UsersAnnotation)
		dying(c)
	}
	for range 2 {
		releases, _ := s.judge(nil)
		for _, r := range releases {
			s.claimed(r.Target().Name).Finalizers = r.Finalizers()
		}
	}
	for _, c := range s.claims {
		if slices.Contains(c.Finalizers, p) || slices.Contains(c.Finalizers, b) {
			t.Fatalf("%s still has %v", c.Name, c.Finalizers)
		}
	}
	m.when("all gone", true)
}

// What is in another namespace, is not bound, or names other claims, changes
// nothing, whatever it says of itself.
func nobodyPinsSomebodyElses(t *rapid.T, m met) {
	s := drawScene(t)
	before, _ := s.judge(nil)
	stranger := drawPod(t, "stranger")
	stranger.Labels = map[string]string{"app": "db"}
	stranger.Annotations = map[string]string{pvc.UsersAnnotation: "pod-0=uid-pod-0", pvc.HoldAnnotation: "mine"}
	controlledBy("StatefulSet", "uid-db")(stranger)
	if rapid.Bool().Draw(t, "elsewhere") {
		stranger.Spec.Volumes = []corev1.Volume{volume("other")}
	} else {
		stranger.Spec.NodeName = ""
	}
	s.pods = append(s.pods, stranger)
	after, _ := s.judge(nil)
	m.when("released", len(before) > 0)
	if len(before) != len(after) {
		t.Fatalf("%d were released, and with a stranger %d", len(before), len(after))
	}
}

func everyClaimIsJudgedOnce(t *rapid.T, m met) {
	s := drawScene(t)
	seen := map[types.UID]int{}
	releases, kept := s.judge(rapid.SampledFrom([]error{nil, errors.New("lost")}).Draw(t, "error"))
	for _, r := range releases {
		seen[r.Target().UID]++
	}
	for _, k := range kept {
		seen[k.Claim.UID]++
	}
	for uid, n := range seen {
		m.when("a claim", true)
		if n != 1 {
			t.Fatalf("%s was judged %d times", uid, n)
		}
	}
}

func coreDoesNotMutate(t *rapid.T, m met) {
	s := drawScene(t)
	before := scene{}
	for _, c := range s.claims {
		before.claims = append(before.claims, c.DeepCopy())
	}
	for _, o := range s.pods {
		before.pods = append(before.pods, o.DeepCopy())
	}
	releases, _ := s.judge(nil)
	m.when("a release", len(releases) > 0)
	for _, c := range s.claims {
		pvc.Decide(pvc.View{Claim: c, Pods: index(s.pods...), Mode: s.settings.Mode, Settings: s.settings})
		pvc.DecideHold(pvc.HoldView{Claim: c, Mode: pvc.Hold, World: world(index(s.pods...)), Now: noon})
		pvc.Why(caseOf(c, s.settings.Mode, s.pods))
	}
	if !reflect.DeepEqual(before.claims, s.claims) || !reflect.DeepEqual(before.pods, s.pods) {
		t.Fatal("what was looked at has changed")
	}
}

// Workloads of other namespaces, and of other names, want nothing here.
func strangersHoldNothing(t *rapid.T, m met) {
	stranger := statefulSet("db", rapid.Int32Range(0, 5).Draw(t, "replicas"))
	name := "data-db-0"
	if rapid.Bool().Draw(t, "elsewhere") {
		stranger.Namespace = "other"
	} else {
		name = rapid.SampledFrom([]string{"data-db", "data-db-", "data-db-0-0", "data-db-5", "data-db--0", "xdata-db-0", "data-db-+0", "data-db-0x", ""}).Draw(t, "name")
	}
	stranger.Labels = map[string]string{"app": "db"}
	holders, _ := world(index(), wantOf(stranger)).Holders(claim(name))
	m.when("free", true)
	if len(holders) > 0 {
		t.Fatalf("%q is held by %q", name, theNames(holders))
	}
}

// actionsAreEnough: with all that the actions free out of the way nothing holds,
// and each frees what no other does.
func actionsAreEnough(t *rapid.T, m met) {
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
	m.when("an action", len(e.Actions) > 0)
	m.when("two actions", len(e.Actions) > 1)
	freed := map[string]int{}
	for _, a := range e.Actions {
		if len(a.Frees) == 0 {
			t.Fatalf("%q frees nobody", a.Do)
		}
		for _, name := range a.Frees {
			freed[name]++
		}
	}
	for _, h := range e.Holders {
		want := 0
		if h.Holds {
			want = 1
		}
		if freed[h.Name] != want {
			t.Fatalf("%s is freed %d times, want %d", h.Name, freed[h.Name], want)
		}
	}
}
