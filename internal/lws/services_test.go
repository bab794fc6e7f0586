package lws_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
)

// A Service that was edited is repaired; what others add to it stays.
func TestADriftedServiceIsRepaired(t *testing.T) {
	for what, drift := range map[string]func(Service){
		"another selector":   func(s Service) { s.Spec.Selector = map[string]string{"app": "x"} },
		"one label more":     func(s Service) { s.Spec.Selector = map[string]string{lwsv1.SetNameLabelKey: "w", "app": "x"} },
		"no selector":        func(s Service) { s.Spec.Selector = nil },
		"only ready pods":    func(s Service) { s.Spec.PublishNotReadyAddresses = false },
		"another type":       func(s Service) { s.Spec.Type, s.Spec.ClusterIP = corev1.ServiceTypeExternalName, "" },
		"another set's name": func(s Service) { s.Labels[lwsv1.SetNameLabelKey] = "v" },
	} {
		c := running(t, 1, 2)
		on("w", func(s Service) {
			s.Spec.Type, s.Spec.Ports = corev1.ServiceTypeClusterIP, []corev1.ServicePort{{Name: "metrics", Port: 9090}}
			s.Labels["scrape"] = "yes"
		})(c)
		if plan := c.decideSet(); len(plan.Actions) > 0 {
			t.Errorf("%s: first %v", what, spelled(plan))
		}
		want := find[Service](c, "w").DeepCopy()
		on("w", drift)(c)
		if apply := one[action.Apply](t, c.decideSet()); apply.Onto != identity.RefOf(identity.KindService, find[Service](c, "w")) {
			t.Errorf("%s: applies onto %v", what, apply.Onto)
		}
		c.settle("w-0")
		if got := find[Service](c, "w"); !cmp.Equal(want.Spec, got.Spec) || !cmp.Equal(want.Labels, got.Labels) {
			t.Errorf("%s: got %v %+v", what, got.Labels, got.Spec)
		}
	}
}

func TestAServiceWithAnAddressIsReported(t *testing.T) {
	c := running(t, 1, 2)
	on("w", func(s Service) { s.Spec.ClusterIP, s.Spec.Selector = "10.0.0.7", nil })(c)
	plan := c.decideSet()
	if wait, ok := waitFor(plan, lws.CodeNotHeadless); !ok || wait.Tell == nil || len(plan.Actions) > 0 {
		t.Errorf("got %v, waits %+v", spelled(plan), plan.Waits)
	}
}
