package cluster

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	dsv1 "lockstep.dev/lockstep/api/disaggregatedset/v1"
	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/test/drill"
	"lockstep.dev/lockstep/test/expect"
)

// example creates the objects of an example in the namespace of the scene, and returns its DisaggregatedSet.
func (s *scene) example(name string) (set *dsv1.DisaggregatedSet) {
	text, err := os.ReadFile(filepath.Join("..", "..", "examples", name+".yaml"))
	s.Check("read the example", err)
	for _, document := range strings.Split(string(text), "\n---\n") {
		o := &unstructured.Unstructured{}
		s.Check("read an object", yaml.Unmarshal([]byte(document), &o.Object))
		mapping, err := s.Client.RESTMapper().RESTMapping(o.GroupVersionKind().GroupKind())
		s.Check("find the kind", err)
		if mapping.Scope.Name() != "namespace" {
			s.Lend(o)
			continue
		}
		o.SetNamespace(s.Namespace)
		if s.Create(o); o.GetKind() == "DisaggregatedSet" {
			s.MayWrite(s.Namespace)
			set = &dsv1.DisaggregatedSet{ObjectMeta: s.Meta(o.GetName())}
			s.Check("read the set", s.Read(set))
		}
	}
	return set
}

// templates are the pod templates of a role.
func templatesOf(role *dsv1.DisaggregatedRole) (all []*corev1.PodTemplateSpec) {
	template := &role.Spec.LeaderWorkerTemplate
	if template.LeaderTemplate != nil {
		all = append(all, template.LeaderTemplate)
	}
	return append(all, &template.WorkerTemplate)
}

// The examples have the shapes of guides for inference. They are created, rolled, scaled and undone, and every group is
// where it belongs at each end.
func TestDisaggregatedSetsOfTheExamples(t *testing.T) {
	const next = "vllm/vllm-openai:v0.11.0"
	type shape struct {
		groups, most, scaled map[string]int // of all slices
		devices              bool
	}
	each(t, map[string]shape{
		"prefill-decode": {
			groups: map[string]int{"prefill": 8, "decode": 2}, most: map[string]int{"prefill": 10, "decode": 4},
			scaled: map[string]int{"prefill": 10, "decode": 2},
		},
		"wide-expert-parallel": {
			groups: map[string]int{"prefill": 2, "decode": 1}, most: map[string]int{"prefill": 3, "decode": 2},
			scaled: map[string]int{"prefill": 3, "decode": 1}, devices: true,
		},
	}, func(s *scene, of shape) {
		name := map[bool]string{false: "prefill-decode", true: "wide-expert-parallel"}[of.devices]
		if of.devices {
			s.example("simulated-devices")
		}
		set := s.awaitRoles(s.example(name))
		first := imageOf(s.Pods()[0])
		s.whole(set, of.groups, first)

		end := s.watching()
		set = s.awaitRoles(s.changeRoles(set.Name, func(set *dsv1.DisaggregatedSet) {
			for i := range set.Spec.Roles {
				for _, pods := range templatesOf(&set.Spec.Roles[i]) {
					pods.Spec.Containers[0].Image = next
				}
			}
		}))
		end().keep(s.T, of.groups, of.most)
		s.whole(set, of.groups, next)
		kept := s.uidsOf(next)
		set = s.awaitRoles(s.changeRoles(set.Name, func(set *dsv1.DisaggregatedSet) { *set.Spec.Roles[0].Spec.Replicas++ }))
		s.whole(set, of.scaled, next)
		for uid, name := range kept {
			expect.That(s, s.uidsOf(next)[uid] == name, "pod %s is gone after a scale", name)
		}

		s.says("rolled back to revision 1", "undo", "dset/"+set.Name)
		s.says("successfully rolled out", "status", "dset/"+set.Name, "--timeout=2m")
		s.Check("read the set", s.Read(set))
		set = s.awaitRoles(set)
		s.whole(set, of.scaled, first)
		var numbers []int64
		for _, record := range drill.Live[*appsv1.ControllerRevision](s.Recorder) {
			if metav1.IsControlledBy(record, set) {
				numbers = append(numbers, record.Revision)
			}
		}
		slices.Sort(numbers)
		expect.Equalf(s, []int64{2, 3}, numbers, "revisions after an undo")
	})
}

// whole waits until the pods of a set are those of these groups, all ready and of one image, and checks what its status
// says. A pod that asks for devices has them.
func (s *scene) whole(set *dsv1.DisaggregatedSet, groups map[string]int, image string) {
	s.Helper()
	s.Eventually("the pods are those of the groups", func() error {
		want := map[string]int{}
		for _, role := range set.Spec.Roles {
			want[role.Name] = groups[role.Name] * int(*role.Spec.LeaderWorkerTemplate.Size)
		}
		for _, pod := range s.Pods() {
			if want[pod.Labels[dsv1.RoleLabelKey]]--; !drill.PodReady(pod) || imageOf(pod) != image || len(pod.Status.ResourceClaimStatuses) != len(pod.Spec.ResourceClaims) {
				return fmt.Errorf("%s", drill.Outline(pod))
			}
		}
		for role, n := range want {
			if n != 0 {
				return fmt.Errorf("%s lacks %d pods", role, n)
			}
		}
		return s.unclaimed()
	})
	s.judgeStart(set)
	status := set.Status
	for _, role := range status.RoleStatuses {
		n := int32(groups[role.Name])
		expect.Equal(s, dsv1.RoleStatus{Name: role.Name, Replicas: n, ReadyReplicas: n, UpdatedReplicas: n}, role)
	}
	n := int32(len(set.Spec.Roles))
	expect.Equalf(s, [4]int32{n, n, n, n}, [4]int32{status.Roles, status.ReadyRoles, status.UpdatedRoles, int32(len(status.RoleStatuses))},
		"roles of %s: all, ready, updated, told", set.Name)
}

// unclaimed is an error unless each ResourceClaim has its devices, and is reserved for a pod that exists.
func (s *scene) unclaimed() error {
	var claims resourcev1.ResourceClaimList
	if err := s.Client.List(s.Context(), &claims, client.InNamespace(s.Namespace)); err != nil {
		return err
	}
	wanted := 0
	for _, pod := range s.Pods() {
		wanted += len(pod.Spec.ResourceClaims)
	}
	for _, claim := range claims.Items {
		if claim.Status.Allocation == nil || len(claim.Status.ReservedFor) != 1 {
			return fmt.Errorf("claim %s: %+v", claim.Name, claim.Status)
		}
	}
	return drill.Lacking("claims", wanted, len(claims.Items))
}

// judgeStart checks that no worker of a LeaderReady role is older than the readiness of its leader.
func (s *scene) judgeStart(set *dsv1.DisaggregatedSet) {
	for _, pod := range s.Pods() {
		at := slices.IndexFunc(set.Spec.Roles, func(r dsv1.DisaggregatedRole) bool { return r.Name == pod.Labels[dsv1.RoleLabelKey] })
		if pod.Labels[lwsv1.WorkerIndexLabelKey] == "0" || at < 0 || set.Spec.Roles[at].Spec.StartupPolicy != lwsv1.LeaderReadyStartupPolicy {
			continue
		}
		leader := s.Pod(pod.Labels[lwsv1.SetNameLabelKey] + "-" + pod.Labels[lwsv1.GroupIndexLabelKey])
		if leader == nil {
			s.Errorf("pod %s has no leader", pod.Name)
			continue
		}
		for _, c := range leader.Status.Conditions {
			expect.That(s, c.Type != corev1.PodReady || !pod.CreationTimestamp.Before(&c.LastTransitionTime),
				"pod %s is older than the readiness of its leader", pod.Name)
		}
	}
}
