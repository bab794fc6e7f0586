package pvc_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"lockstep.dev/lockstep/internal/pvc"
)

func gated(gates ...string) func(*corev1.Pod) {
	return func(o *corev1.Pod) {
		o.Spec.NodeName = ""
		for _, gate := range gates {
			o.Spec.SchedulingGates = append(o.Spec.SchedulingGates, corev1.PodSchedulingGate{Name: gate})
		}
	}
}

func TestAGateIsLiftedAfterTheUseIsWritten(t *testing.T) {
	ours := gated("other", pvc.UseGate, "third")
	off := annotated(pvc.ModeKey, "off")
	recorded := annotated(pvc.UsersAnnotation, "web=uid-web")
	tests := []struct {
		name   string
		pod    *corev1.Pod
		claims []*corev1.PersistentVolumeClaim
		writes string
		lifts  bool
		waits  string
	}{
		{"a claim", pod("web", []string{"data"}, ours), claims(claim("data")), "data", true, ""},
		{"two claims", pod("web", []string{"data", "logs"}, ours), claims(claim("data"), claim("logs")), "data logs", true, ""},
		{"one is written on already", pod("web", []string{"data", "logs"}, ours), claims(claim("data", recorded), claim("logs")), "logs", true, ""},
		{"no claims", pod("web", nil, ours), nil, "", true, ""},
		{"an ephemeral one, not made yet", pod("web", nil, ephemeral("scratch"), ours), nil, "", true, ""},
		{"one that is not protected", pod("web", []string{"data"}, ours), claims(claim("data", off)), "", true, ""},
		{"one that is not protected, on its way out", pod("web", []string{"data"}, ours), claims(claim("data", off, dying)), "", true, ""},
		{"missing", pod("web", []string{"data", "logs"}, ours), claims(claim("data")), "", false, `AwaitingClaim: not scheduled before it is recorded on its PVCs: persistentvolumeclaim "logs" not found`},
		{"on its way out", pod("web", []string{"data"}, ours), claims(claim("data", dying)), "", false, `ClaimUnusable: not scheduled before it is recorded on its PVCs: persistentvolumeclaim "data" is being deleted`},
		{"a record that cannot be read", pod("web", []string{"data"}, ours), claims(claim("data", annotated(pvc.UsersAnnotation, "?"))), "", false, `UseNotRecorded: not scheduled before it is recorded on its PVCs: persistentvolumeclaim "data": use record`},
		{"another's gate", pod("web", []string{"data"}, gated("other")), claims(claim("data")), "", false, ""},
		{"the pod is leaving", pod("web", []string{"data"}, ours, leaving(0)), claims(claim("data")), "", false, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			live := pvc.Claims{}
			for _, c := range tt.claims {
				live[c.Name] = c
			}
			v := pvc.DecideGate(pvc.GateView{Pod: tt.pod, Live: live, Settings: pvc.Settings{Mode: pvc.Barrier}, NamespaceLabels: map[string]string{pvc.ModeKey: "strict"}, NamespaceLive: true})
			var on []string
			for _, w := range v.Writes {
				on = append(on, w.Target().Name)
			}
			if got := strings.Join(on, " "); got != tt.writes {
				t.Errorf("writes on %q, want %q", got, tt.writes)
			}
			if lifts := v.Lift.Target().UID != ""; lifts != tt.lifts {
				t.Errorf("lifts: %t, want %t", lifts, tt.lifts)
			}
			if tt.lifts && (v.Lift.Target().ResourceVersion != tt.pod.ResourceVersion || len(v.Lift.Gates()) != 2 || v.Lift.Gates()[1].Name != "third") {
				t.Errorf("lifts %+v, and leaves %v", v.Lift.Target(), v.Lift.Gates())
			}
			waits := ""
			if v.Waits.Code != "" {
				waits = v.Waits.Code + ": " + v.Waits.Sentence
			}
			if !strings.HasPrefix(waits, tt.waits) || (tt.waits == "") != (waits == "") {
				t.Errorf("waits %q, want %q", waits, tt.waits)
			}
		})
	}
}

func claims(all ...*corev1.PersistentVolumeClaim) []*corev1.PersistentVolumeClaim { return all }
