package admission_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws/admission"
)

type podChange = func(*corev1.Pod)

// newLeader is a leader of set w in namespace ns as the StatefulSet controller
// creates it.
func newLeader(name string, changes ...podChange) *corev1.Pod {
	return newPod(name, append([]podChange{withLabel(lwsv1.WorkerIndexLabelKey, "0")}, changes...)...)
}

// newWorker is a worker of group 0 of set w as the StatefulSet controller
// creates it.
func newWorker(name string, changes ...podChange) *corev1.Pod {
	return newPod(name, append([]podChange{
		withLabel(lwsv1.GroupIndexLabelKey, "0"),
		withLabel(lwsv1.GroupUniqueHashLabelKey, "b170a251aa73d74d5ba988f212b4fe940e717eef"),
		withPodAnnotation(lwsv1.LeaderPodNameAnnotationKey, "w-0"),
	}, changes...)...)
}

func newPod(name string, changes ...podChange) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: "ns",
			Labels:      map[string]string{lwsv1.SetNameLabelKey: "w", lwsv1.RevisionKey: "rev"},
			Annotations: map[string]string{lwsv1.SizeAnnotationKey: "4"},
		},
		Spec: corev1.PodSpec{Subdomain: "w", Containers: []corev1.Container{{Name: "c"}}},
	}
	for _, change := range changes {
		change(pod)
	}
	return pod
}

func withLabel(key, value string) podChange {
	return func(p *corev1.Pod) { metav1.SetMetaDataLabel(&p.ObjectMeta, key, value) }
}

func withPodAnnotation(key, value string) podChange {
	return func(p *corev1.Pod) { metav1.SetMetaDataAnnotation(&p.ObjectMeta, key, value) }
}

func withoutLabel(key string) podChange {
	return func(p *corev1.Pod) { delete(p.Labels, key) }
}

func withoutAnnotation(key string) podChange {
	return func(p *corev1.Pod) { delete(p.Annotations, key) }
}

func mutate(t *testing.T, pod *corev1.Pod) *corev1.Pod {
	t.Helper()
	if err := admission.MutatePod(pod); err != nil {
		t.Fatal(err)
	}
	return pod
}

// madeBy makes a pod one of a StatefulSet.
func madeBy(name string) podChange {
	return func(p *corev1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{{Kind: "StatefulSet", Name: name, Controller: new(true)}}
	}
}

// The file has the labels of each mutated pod, the subdomain and the address of its leader. A template
// says the same of every group, so it must not place pods: a worker that counted as a leader would
// get another group than its StatefulSet selects.
func TestPlacesOfPods(t *testing.T) {
	exclusive := withPodAnnotation(lwsv1.ExclusiveKeyAnnotationKey, "rack")
	subgroups := withPodAnnotation(lwsv1.SubGroupSizeAnnotationKey, "2")
	template := func(p *corev1.Pod) {
		for _, key := range []string{lwsv1.GroupIndexLabelKey, lwsv1.GroupUniqueHashLabelKey, lwsv1.SubGroupIndexLabelKey, lwsv1.SubGroupUniqueHashLabelKey} {
			withLabel(key, "7")(p)
		}
		subgroups(p)
	}
	index := func(value string) podChange { return withLabel(lwsv1.WorkerIndexLabelKey, value) }
	got := map[string]any{}
	for name, pod := range map[string]*corev1.Pod{
		"leader":                                   newLeader("w-0"),
		"leader that knows its group":              newLeader("no ordinal", withLabel(lwsv1.GroupIndexLabelKey, "7"), withLabel(lwsv1.GroupUniqueHashLabelKey, "key")),
		"leader with a subdomain of its own":       newLeader("w-0", withPodAnnotation(lwsv1.SubdomainPolicyAnnotationKey, "UniquePerReplica")),
		"leader whose template places it":          newLeader("w-0", template, madeBy("w")),
		"excluded leader whose template places it": newLeader("w-0", template, madeBy("w"), withPodAnnotation(lwsv1.SubGroupPolicyTypeAnnotationKey, "LeaderExcluded")),
		"leader whose annotation names the set":    newLeader("w-0", withPodAnnotation(lwsv1.LeaderPodNameAnnotationKey, "w"), madeBy("w")),
		"leader that knows its subgroup":           newLeader("w-0", subgroups, withLabel(lwsv1.SubGroupIndexLabelKey, "5")),
		"worker":                                   newWorker("w-0-3", index("9"), exclusive),
		"worker whose template calls it a leader":  newWorker("w-0-3", index("0"), exclusive, madeBy("w-0")),
		"worker whose template places it":          newWorker("w-0-3", template, madeBy("w-0"), withLabel(lwsv1.GroupIndexLabelKey, "0"), withLabel(lwsv1.GroupUniqueHashLabelKey, groupKey)),
	} {
		mutate(t, mutate(t, pod))
		got[name] = map[string]any{
			"labels": pod.Labels, "subdomain": pod.Spec.Subdomain, "leader": pod.Spec.Containers[0].Env[0].Value, "affinity": pod.Spec.Affinity,
		}
	}
	checkYAML(t, "places.yaml", got)
}

func TestEnvironment(t *testing.T) {
	user := func(p *corev1.Pod) {
		p.Spec.InitContainers = []corev1.Container{{Name: "i"}}
		p.Spec.EphemeralContainers = []corev1.EphemeralContainer{{}}
		p.Spec.Containers[0].Env = []corev1.EnvVar{
			{Name: "A", Value: "$(LWS_LEADER_ADDRESS)"}, {Name: "LWS_GROUP_SIZE", Value: "mine"}, {Name: "B", Value: "1"}, {Name: "A", Value: "again"},
		}
	}
	pod := mutate(t, newWorker("w-0-2", user))
	ours := []corev1.EnvVar{
		{Name: "LWS_LEADER_ADDRESS", Value: "w-0.w.ns"}, {Name: "LWS_GROUP_SIZE", Value: "4"}, {Name: "LWS_WORKER_INDEX", Value: "2"},
	}
	want := slices.Concat(ours, []corev1.EnvVar{{Name: "A", Value: "$(LWS_LEADER_ADDRESS)"}, {Name: "B", Value: "1"}})
	if diff := cmp.Diff(want, pod.Spec.Containers[0].Env); diff != "" {
		t.Errorf("container (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(ours, pod.Spec.InitContainers[0].Env); diff != "" {
		t.Errorf("init container (-want +got):\n%s", diff)
	}
	if pod.Spec.EphemeralContainers[0].Env != nil {
		t.Error("an ephemeral container was touched")
	}
}

// A worker has the address of its leader from its StatefulSet. A leader does not: its template may be that of workers.
func TestAddressOfTheLeader(t *testing.T) {
	address := withPodAnnotation(lwsv1.LeaderAddressAnnotationKey, "w-b170a251.w.ns")
	for want, pod := range map[string]*corev1.Pod{
		"w-b170a251.w.ns": newWorker("w-0-2", address),
		"w-0.w.ns":        newLeader("w-0", address),
	} {
		if got := mutate(t, mutate(t, pod)).Spec.Containers[0].Env[0]; got != (corev1.EnvVar{Name: "LWS_LEADER_ADDRESS", Value: want}) {
			t.Errorf("pod %s: %v, want %s", pod.Name, got, want)
		}
	}
}

func TestPodsThatMustNotBe(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	size := func(text string) podChange { return withPodAnnotation(lwsv1.SizeAnnotationKey, text) }
	part := func(text string) podChange { return withPodAnnotation(lwsv1.SubGroupSizeAnnotationKey, text) }
	const noEnv = "Failure constructing environment variables, no group index label found for pod ns/w-0-1"
	noCount := func(key, pod, value string) string {
		return fmt.Sprintf(`annotation leaderworkerset.sigs.k8s.io/%s of pod %q is "%s", want a whole number from 1 to 2147483647`, key, pod, value)
	}
	tests := []struct {
		name string
		pod  *corev1.Pod
		want string
	}{
		{"no size", newLeader("w-0", withoutAnnotation(lwsv1.SizeAnnotationKey)), "size annotation is unexpectedly missing for pod w-0"},
		{"size no number", newLeader("w-0", size("x")), noCount("size", "w-0", "x")},
		{"size beyond int32", newLeader("w-0", size("99999999999")), noCount("size", "w-0", "99999999999")},
		{"leader without ordinal", newLeader("w"), "parsing pod ordinal for pod w"},
		{"leader with ordinal beyond int32", newLeader("w-2147483648"), "parsing pod ordinal for pod w-2147483648"},
		{"worker without ordinal", newWorker("w-0-x"), "parsing pod ordinal for pod w-0-x"},
		{"worker without group", newWorker("w-0-1", withoutLabel(lwsv1.GroupIndexLabelKey)), noEnv},
		{"subgroup size no number", newWorker("w-0-1", part("two")), noCount("subgroup-size", "w-0-1", "two")},
		{"subgroup size of a leader", newLeader("w-0", part("-1")), noCount("subgroup-size", "w-0", "-1")},
		{"name of a megabyte", newLeader(long), `name of pod "` + long[:64] + `" has 1048576 characters, at most 253 are allowed`},
		{"subdomain of a megabyte", newLeader("w-0", func(p *corev1.Pod) { p.Spec.Subdomain = long }), `leader address of pod "w-0" has 1048583 characters, at most 253 are allowed`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if err := admission.MutatePod(tt.pod); err == nil || err.Error() != tt.want {
				t.Errorf("got  %v\nwant %s", err, tt.want)
			}
		})
	}
}

const groupKey = "b170a251aa73d74d5ba988f212b4fe940e717eef"

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
	has := func(affinity *corev1.Affinity) podChange { return func(p *corev1.Pod) { p.Spec.Affinity = affinity } }
	user, other := corev1.PodAffinityTerm{TopologyKey: "rack"}, corev1.PodAffinityTerm{TopologyKey: "zone"}
	nodes := &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{}}}
	got := map[string]any{}
	for name, pod := range map[string]*corev1.Pod{
		"leader by group":             newLeader("w-0", group("rack")),
		"leader by an empty topology": newLeader("w-0", group("")),
		"leader by subgroup":          newLeader("w-0", subgroup("host")),
		"leader by both":              newLeader("w-0", group("rack"), subgroup("host")),
		"leader by both alike":        newLeader("w-0", group("rack"), subgroup("rack")),
		"leader in no subgroup":       newLeader("w-0", subgroup("host"), excluded),
		"affinity to nodes":           newLeader("w-0", group("rack"), has(nodes)),
		"both from the user":          newLeader("w-0", group("rack"), has(affinity(terms{user}, terms{user}))),
		"affinity only":               newLeader("w-0", group("rack"), has(affinity(terms{user}, nil))),
		"anti-affinity only":          newLeader("w-0", group("rack"), has(affinity(nil, terms{user}))),
		"for another topology":        newLeader("w-0", group("rack"), has(affinity(terms{other}, terms{other}))),
		"worker by group":             newWorker("w-0-1", group("rack")),
		"worker by subgroup":          newWorker("w-0-1", group("rack"), subgroup("host")),
	} {
		got[name] = mutate(t, pod).Spec.Affinity
	}
	checkYAML(t, "exclusive.yaml", got)
}

// Each row gives the subgroup of every pod of group 0, the leader first; "" is
// none.
func TestSubgroups(t *testing.T) {
	for _, tt := range []struct {
		size, part int
		policy     lwsv1.SubGroupPolicyType
		want       []string
	}{
		{4, 2, lwsv1.SubGroupPolicyTypeLeaderWorker, []string{"0", "0", "1", "1"}},
		{3, 1, lwsv1.SubGroupPolicyTypeLeaderWorker, []string{"0", "1", "2"}},
		{5, 2, lwsv1.SubGroupPolicyTypeLeaderWorker, []string{"0", "0", "0", "1", "1"}},
		{5, 2, lwsv1.SubGroupPolicyTypeLeaderExcluded, []string{"", "0", "0", "1", "1"}},
		{4, 2, "", []string{"0", "0", "1", "1"}},
	} {
		t.Run(fmt.Sprintf("%d by %d %s", tt.size, tt.part, tt.policy), func(t *testing.T) {
			var got []string
			for w := range tt.size {
				labels := mutate(t, podOf(w, tt.size, tt.part, tt.policy)).Labels
				index := labels[lwsv1.SubGroupIndexLabelKey]
				got = append(got, index)
				want := ""
				if n, err := strconv.Atoi(index); err == nil {
					want = identity.SubgroupKey("w-0", n)
				}
				if labels[lwsv1.SubGroupUniqueHashLabelKey] != want {
					t.Errorf("worker %d: key %q, want %q", w, labels[lwsv1.SubGroupUniqueHashLabelKey], want)
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
