package admission_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/lws/admission"
)

const (
	groupKey    = "b170a251aa73d74d5ba988f212b4fe940e717eef"
	subgroupKey = "4cb5f2a553b68e27600205b557f708ab7cbf81b7"
)

// exclusive is what must be found in a pod for one topology.
func exclusive(topology, key, value string) (together, apart corev1.PodAffinityTerm) {
	together = corev1.PodAffinityTerm{TopologyKey: topology, LabelSelector: &metav1.LabelSelector{
		MatchExpressions: []metav1.LabelSelectorRequirement{{Key: key, Operator: "In", Values: []string{value}}},
	}}
	apart = corev1.PodAffinityTerm{TopologyKey: topology, LabelSelector: &metav1.LabelSelector{
		MatchExpressions: []metav1.LabelSelectorRequirement{{Key: key, Operator: "Exists"}, {Key: key, Operator: "NotIn", Values: []string{value}}},
	}}
	return together, apart
}

func affinity(together, apart []corev1.PodAffinityTerm) *corev1.Affinity {
	a := &corev1.Affinity{}
	if together != nil {
		a.PodAffinity = &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: together}
	}
	if apart != nil {
		a.PodAntiAffinity = &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: apart}
	}
	return a
}

func TestExclusiveAffinities(t *testing.T) {
	type terms = []corev1.PodAffinityTerm
	together, apart := exclusive("rack", lwsv1.GroupUniqueHashLabelKey, "v")
	user := corev1.PodAffinityTerm{TopologyKey: "rack"}
	other := corev1.PodAffinityTerm{TopologyKey: "zone"}
	nodes := &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{}}
	withNodes := affinity(terms{together}, terms{apart})
	withNodes.NodeAffinity = nodes

	tests := []struct {
		name     string
		in, want *corev1.Affinity
	}{
		{"none", nil, affinity(terms{together}, terms{apart})},
		{"empty", &corev1.Affinity{}, affinity(terms{together}, terms{apart})},
		{"to nodes", &corev1.Affinity{NodeAffinity: nodes}, withNodes},
		{"done before", affinity(terms{together}, terms{apart}), affinity(terms{together}, terms{apart})},
		{"both from the user", affinity(terms{user}, terms{user}), affinity(terms{user}, terms{user})},
		{"affinity only", affinity(terms{user}, nil), affinity(terms{user, together}, terms{apart})},
		{"anti-affinity only", affinity(nil, terms{user}), affinity(terms{together}, terms{user, apart})},
		{"for another topology", affinity(terms{other}, terms{other}), affinity(terms{other, together}, terms{other, apart})},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			pod := &corev1.Pod{Spec: corev1.PodSpec{Affinity: tt.in}}
			admission.SetExclusiveAffinities(pod, "v", "rack", lwsv1.GroupUniqueHashLabelKey)
			if diff := cmp.Diff(tt.want, pod.Spec.Affinity); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestExclusivePlacement(t *testing.T) {
	type terms = []corev1.PodAffinityTerm
	group := func(topology string) podChange { return withPodAnnotation(lwsv1.ExclusiveKeyAnnotationKey, topology) }
	subgroup := func(topology string) podChange {
		return func(p *corev1.Pod) {
			withPodAnnotation(lwsv1.SubGroupSizeAnnotationKey, "2")(p)
			withPodAnnotation(lwsv1.SubGroupExclusiveKeyAnnotationKey, topology)(p)
		}
	}
	excluded := withPodAnnotation(lwsv1.SubGroupPolicyTypeAnnotationKey, "LeaderExcluded")
	groupTogether, groupApart := exclusive("rack", lwsv1.GroupUniqueHashLabelKey, groupKey)
	subTogether, subApart := exclusive("host", lwsv1.SubGroupUniqueHashLabelKey, subgroupKey)

	tests := []struct {
		name string
		pod  *corev1.Pod
		want *corev1.Affinity
	}{
		{"leader by group", newLeader("w-0", group("rack")), affinity(terms{groupTogether}, terms{groupApart})},
		{"leader by an empty topology", newLeader("w-0", group("")), nil},
		{"leader by subgroup", newLeader("w-0", subgroup("host")), affinity(terms{subTogether}, terms{subApart})},
		{"leader by both", newLeader("w-0", group("rack"), subgroup("host")), affinity(terms{groupTogether, subTogether}, terms{groupApart, subApart})},
		{"leader by both alike", newLeader("w-0", group("rack"), subgroup("rack")), affinity(terms{groupTogether}, terms{groupApart})},
		{"leader in no subgroup", newLeader("w-0", subgroup("host"), excluded), nil},
		{"worker by group", newWorker("w-0-1", group("rack")), nil},
		{"worker by subgroup", newWorker("w-0-1", group("rack"), subgroup("host")), affinity(terms{subTogether}, terms{subApart})},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, mutate(t, tt.pod).Spec.Affinity); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
