package cluster

import (
	"fmt"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/test/drill"
)

// The set reports what a quota or policy refuses. Other groups go on, and it ends with the refusal.
func TestWhatIsRefusedIsToldByTheSet(t *testing.T) {
	s := newScene(t)
	policy := s.refuseStatefulSet("w-1")
	quota := &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "no-services", Namespace: s.Namespace},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"services": resource.MustParse("0")}},
	}
	s.Create(quota)
	s.Eventually("the quota counts", func() error {
		return s.probed(foreignService("probe"), "exceeded quota")
	})

	set := s.newSet("w", 3, 2, imageA)
	s.Create(set)
	s.Eventually("the set tells who refuses what", func() error {
		return s.tells(set, "create statefulset w-1: ", "ValidatingAdmissionPolicy '"+policy.Name+"'",
			"create service w: ", "exceeded quota: no-services")
	})
	for _, index := range []int{0, 2} {
		s.awaitGroupReady(set, index)
	}

	s.Remove(policy)
	s.Eventually("all groups are ready, and the Service is still refused", func() error {
		now := s.Set(set.Name)
		if now == nil {
			return drill.ErrStill
		}
		if err := s.unavailable(now); err != nil {
			return err
		}
		return s.tells(set, "create service w: ", "exceeded quota: no-services")
	})
	s.Remove(quota)
	s.Eventually("nothing is refused any more", func() error {
		if err := s.tells(set); err != nil {
			return err
		}
		return s.Client.Get(s.Context(), client.ObjectKeyFromObject(set), &corev1.Service{})
	})
}

// refuseStatefulSet denies StatefulSets of a name until the policy is removed or the test ends.
func (s *scene) refuseStatefulSet(name string) *admissionv1.ValidatingAdmissionPolicy {
	policy := &admissionv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "refuse." + s.Namespace},
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{
				RuleWithOperations: admissionv1.RuleWithOperations{
					Operations: []admissionv1.OperationType{admissionv1.Create},
					Rule:       admissionv1.Rule{APIGroups: []string{"apps"}, APIVersions: []string{"v1"}, Resources: []string{"statefulsets"}},
				},
			}}},
			Validations: []admissionv1.Validation{{
				Expression: fmt.Sprintf("object.metadata.namespace != %q || !(object.metadata.name in [%q, 'probe'])", s.Namespace, name),
				Message:    "not here",
			}},
		},
	}
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: policy.Name},
		Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: policy.Name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
		},
	}
	s.Lend(policy)
	s.Lend(binding)
	s.Eventually("the policy acts", func() error { return s.probed(foreignStatefulSet("probe"), policy.Name) })
	return policy
}

// probed is an error unless the API server denies an object with this text.
func (s *scene) probed(o client.Object, words string) error {
	o.SetNamespace(s.Namespace)
	err := s.Client.Create(s.Context(), o, client.DryRunAll)
	return drill.Lacking("a probe is refused", true, err != nil && strings.Contains(err.Error(), words))
}

// tells is an error unless the condition reports refusals with these texts; without texts, if it reports any.
func (s *scene) tells(set *lwsv1.LeaderWorkerSet, words ...string) error {
	found := &lwsv1.LeaderWorkerSet{}
	if err := s.Get(set.Name, found); err != nil {
		return err
	}
	got := meta.FindStatusCondition(found.Status.Conditions, string(lwsv1.LeaderWorkerSetProgressing))
	if tells := got != nil && got.Reason == "Refused"; tells != (len(words) > 0) {
		return fmt.Errorf("it tells %+v", got)
	}
	for _, word := range words {
		if !strings.Contains(got.Message, word) {
			return fmt.Errorf("%q is not told: %s", word, got.Message)
		}
	}
	return nil
}
