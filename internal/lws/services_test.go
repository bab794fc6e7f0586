package lws_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/test/fakeapi"
)

func TestADriftedServiceIsPutRight(t *testing.T) {
	for what, drift := range map[string]func(*corev1.Service){
		"another selector":   func(s *corev1.Service) { s.Spec.Selector = map[string]string{"app": "x"} },
		"one label more":     func(s *corev1.Service) { s.Spec.Selector = map[string]string{lwsv1.SetNameLabelKey: "w", "app": "x"} },
		"no selector":        func(s *corev1.Service) { s.Spec.Selector = nil },
		"only ready pods":    func(s *corev1.Service) { s.Spec.PublishNotReadyAddresses = false },
		"another type":       func(s *corev1.Service) { s.Spec.Type, s.Spec.ClusterIP = corev1.ServiceTypeExternalName, "" },
		"another set's name": func(s *corev1.Service) { s.Labels = map[string]string{lwsv1.SetNameLabelKey: "v"} },
	} {
		c := running(t, 1, 2)
		want := find[*corev1.Service](c, "w").Spec.DeepCopy()
		fakeapi.Edit(c.Server, "w", drift)
		apply := one[action.Apply](t, c.decideSet())
		if apply.Onto != identity.RefOf(identity.KindService, find[*corev1.Service](c, "w")) {
			t.Errorf("%s: applies onto %v", what, apply.Onto)
		}
		c.settle("w-0")
		want.Type = corev1.ServiceTypeClusterIP
		if diff := cmp.Diff(*want, find[*corev1.Service](c, "w").Spec); diff != "" {
			t.Errorf("%s (-want +got)\n%s", what, diff)
		}
	}
}

func TestWhatOthersAddToAServiceStays(t *testing.T) {
	c := running(t, 1, 2, fakeapi.UniquePerReplica)
	fakeapi.Edit(c.Server, "w-0", func(s *corev1.Service) {
		s.Spec.Ports = []corev1.ServicePort{{Name: "metrics", Port: 9090}}
		s.Labels["scrape"] = "yes"
	})
	if plan := c.decideGroup("w-0"); len(plan.Actions) > 0 {
		t.Errorf("got %v", spelled(plan))
	}
	fakeapi.Edit(c.Server, "w-0", func(s *corev1.Service) { s.Spec.PublishNotReadyAddresses = false })
	c.settle("w-0")
	service := find[*corev1.Service](c, "w-0")
	if !service.Spec.PublishNotReadyAddresses || len(service.Spec.Ports) != 1 || service.Labels["scrape"] != "yes" {
		t.Errorf("got %+v", service)
	}
}

func TestAServiceWithAnAddressIsToldOf(t *testing.T) {
	c := running(t, 1, 2)
	fakeapi.Edit(c.Server, "w", func(s *corev1.Service) { s.Spec.ClusterIP, s.Spec.Selector = "10.0.0.7", nil })
	plan := c.decideSet()
	if wait, ok := waitFor(plan, lws.CodeNotHeadless); !ok || wait.Tell == nil || len(plan.Actions) > 0 {
		t.Errorf("got %v, waits %+v", spelled(plan), plan.Waits)
	}
}

// TestServicesWhileThePolicyChanges: each group has the Service that it was made
// for, until it is rolled.
func TestServicesWhileThePolicyChanges(t *testing.T) {
	shared, unique := lwsv1.SubdomainShared, lwsv1.SubdomainUniquePerReplica
	to := func(c *cluster, policy lwsv1.SubdomainPolicy) {
		c.spec(func(spec *lwsv1.LeaderWorkerSetSpec) {
			spec.NetworkConfig = &lwsv1.NetworkConfig{SubdomainPolicy: &policy}
		})
	}
	partition := func(c *cluster, partition int32) {
		c.spec(func(spec *lwsv1.LeaderWorkerSetSpec) {
			spec.RolloutStrategy.RollingUpdateConfiguration = &lwsv1.RollingUpdateConfiguration{Partition: &partition}
			spec.RolloutStrategy.RollingUpdateConfiguration.MaxUnavailable.IntVal = 1
		})
	}
	t.Run("to one for each group", func(t *testing.T) {
		c := running(t, 2, 2)
		partition(c, 1)
		to(c, unique)
		c.settleAll()
		fakeapi.Drop[*corev1.Service](c.Server, "w")
		c.settleAll()
		service := find[*corev1.Service](c, "w") // group 0 hangs from it
		own := find[*corev1.Service](c, "w-1")
		if !metav1.IsControlledBy(own, find[*corev1.Pod](c, "w-1")) {
			t.Errorf("w-1 belongs to %+v", own.OwnerReferences)
		}
		partition(c, 0)
		c.settleAll()
		if now := find[*corev1.Service](c, "w"); now.UID != service.UID {
			t.Error("the shared service was made anew")
		}
		fakeapi.Drop[*corev1.Service](c.Server, "w")
		c.settleAll()
		if fakeapi.Find[*corev1.Service](c.Server, "w") != nil {
			t.Error("a shared service is made that nobody hangs from")
		}
	})
	t.Run("to one for all", func(t *testing.T) {
		c := running(t, 2, 2, fakeapi.UniquePerReplica)
		partition(c, 1)
		to(c, shared)
		c.settleAll()
		find[*corev1.Service](c, "w")
		fakeapi.Drop[*corev1.Service](c.Server, "w-0")
		c.settleAll()
		find[*corev1.Service](c, "w-0") // group 0 hangs from it
		partition(c, 0)
		c.settleAll()
		for _, own := range []string{"w-0", "w-1"} {
			if fakeapi.Find[*corev1.Service](c.Server, own) != nil {
				t.Errorf("service %s is left", own)
			}
		}
	})
}
