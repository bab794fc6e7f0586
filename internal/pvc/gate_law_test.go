package pvc_test

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"lockstep.dev/lockstep/internal/pvc"
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
	labels := map[string]string{pvc.ModeKey: rapid.SampledFrom([]string{"off", "barrier", "strict"}).Draw(t, "namespace")}
	live := pvc.Claims{}
	for _, c := range s.claims {
		if rapid.IntRange(0, 5).Draw(t, "there") > 0 {
			live[c.Name] = c
		}
	}
	for _, o := range s.pods {
		gated(pvc.UseGate)(o)
		view := pvc.GateView{Pod: o, Live: live, NamespaceLabels: labels, Settings: s.settings}
		cached := pvc.DecideGate(view)
		if recorded := len(claimsToRecord(o, live, labels, s.settings)) == len(pvc.ClaimsOf(o)); cached.Lift.Target().UID != "" && !recorded {
			t.Fatalf("pod %s is let go by what a cache says of its namespace", o.Name)
		}
		view.NamespaceLive = true
		v := pvc.DecideGate(view)
		m.when("asks", cached.NeedsLive)
		if v.NeedsLive || !cached.NeedsLive && (cached.Lift.Target() != v.Lift.Target() || len(cached.Writes) != len(v.Writes)) {
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

func claimsToRecord(o *corev1.Pod, live pvc.Claims, labels map[string]string, s pvc.Settings) []string {
	return slices.DeleteFunc(pvc.ClaimsOf(o), func(name string) bool {
		c := live[name]
		if c == nil {
			c = claim(name)
		}
		return s.ModeOf(c, labels) < pvc.Barrier
	})
}

// recordedAfter tells what is wrong with a claim, once the writes are through.
func recordedAfter(v pvc.GateVerdict, o *corev1.Pod, c *corev1.PersistentVolumeClaim) string {
	switch {
	case c == nil:
		return "is missing"
	case c.DeletionTimestamp != nil:
		return "is terminating"
	}
	value := c.Annotations[pvc.UsersAnnotation]
	for _, w := range v.Writes {
		if w.Target().UID == c.UID && w.Target().ResourceVersion == c.ResourceVersion {
			value = w.Value()
		}
	}
	record, err := pvc.ParseRecord(value)
	if err != nil || !slices.Contains(record, pvc.Recorded{Name: o.Name, UID: o.UID}) {
		return "does not name it"
	}
	return ""
}
