package protect_test

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"lockstep.dev/lockstep/internal/protect"
)

func TestGateLaws(t *testing.T) {
	t.Run("noGateIsLiftedBeforeTheUseIsWritten", func(t *testing.T) {
		law(t, noGateIsLiftedBeforeTheUseIsWritten, "asks", "lifted with claims", "lifted without", "waits")
	})
}

// A gate is lifted off a pod only when each of its protected claims lives, and names
// it once the writes are through. Nothing is written for one that has to wait.
func noGateIsLiftedBeforeTheUseIsWritten(t *rapid.T, m met) {
	s := drawScene(t)
	labels := map[string]string{protect.ModeKey: rapid.SampledFrom([]string{"off", "barrier", "strict"}).Draw(t, "namespace")}
	live := protect.Claims{}
	for _, c := range s.claims {
		if rapid.IntRange(0, 5).Draw(t, "there") > 0 {
			live[c.Name] = c
		}
	}
	for _, o := range s.pods {
		gated(protect.UseGate)(o)
		view := protect.GateView{Pod: o, Live: live, NamespaceLabels: labels, Settings: s.settings}
		cached := protect.DecideGate(view)
		if recorded := len(claimsToRecord(o, live, labels, s.settings)) == len(protect.ClaimsOf(o)); cached.Lift.Target().UID != "" && !recorded {
			t.Fatalf("pod %s is let go by what a cache says of its namespace", o.Name)
		}
		view.NamespaceLive = true
		v := protect.DecideGate(view)
		m.when("asks", cached.AskNamespace)
		if v.AskNamespace || !cached.AskNamespace && (cached.Lift.Target() != v.Lift.Target() || len(cached.Writes) != len(v.Writes)) {
			t.Fatalf("pod %s: %+v, and once the namespace was read %+v", o.Name, cached, v)
		}
		lifts := v.Lift.Target().UID != ""
		m.when("waits", v.Waits.Code != "")
		if o.DeletionTimestamp == nil && lifts == (v.Waits.Code != "") || !lifts && len(v.Writes) > 0 {
			t.Fatalf("pod %s: %+v", o.Name, v)
		}
		if !lifts {
			continue
		}
		protected := claimsToRecord(o, live, labels, s.settings)
		m.when("lifted with claims", len(protected) > 0)
		m.when("lifted without", len(protected) == 0)
		for _, name := range protected {
			if why := recordedAfter(v, o, live[name]); why != "" {
				t.Fatalf("the gate of pod %s is lifted, and claim %s %s", o.Name, name, why)
			}
		}
	}
}

func claimsToRecord(o *corev1.Pod, live protect.Claims, labels map[string]string, s protect.Settings) []string {
	return slices.DeleteFunc(protect.ClaimsOf(o), func(name string) bool {
		c := live[name]
		if c == nil {
			c = claim(name)
		}
		return s.ModeOf(c, labels) < protect.Barrier
	})
}

// recordedAfter tells what is wrong with a claim, once the writes are through.
func recordedAfter(v protect.GateVerdict, o *corev1.Pod, c *corev1.PersistentVolumeClaim) string {
	switch {
	case c == nil:
		return "is missing"
	case c.DeletionTimestamp != nil:
		return "is terminating"
	}
	value := c.Annotations[protect.UsersAnnotation]
	for _, w := range v.Writes {
		if w.Target().UID == c.UID && w.Target().ResourceVersion == c.ResourceVersion {
			value = w.Value()
		}
	}
	record, err := protect.ParseRecord(value)
	if err != nil || !slices.Contains(record, protect.Recorded{Name: o.Name, UID: o.UID}) {
		return "does not name it"
	}
	return ""
}
