package admission_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws/admission"
	"lockstep.dev/lockstep/test/expect"
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
	expect.OK(t, admission.MutatePod(pod))
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
	expect.Equalf(t, want, pod.Spec.Containers[0].Env, "container")
	expect.Equalf(t, ours, pod.Spec.InitContainers[0].Env, "init container")
	expect.That(t, pod.Spec.EphemeralContainers[0].Env == nil, "an ephemeral container was touched")
}

// A worker has the address of its leader from its StatefulSet. A leader does not: its template may be that of workers.
func TestAddressOfTheLeader(t *testing.T) {
	address := withPodAnnotation(lwsv1.LeaderAddressAnnotationKey, "w-b170a251.w.ns")
	for want, pod := range map[string]*corev1.Pod{
		"w-b170a251.w.ns": newWorker("w-0-2", address),
		"w-0.w.ns":        newLeader("w-0", address),
	} {
		expect.Equalf(t, corev1.EnvVar{Name: "LWS_LEADER_ADDRESS", Value: want}, mutate(t, mutate(t, pod)).Spec.Containers[0].Env[0], "pod %s", pod.Name)
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
	for _, tt := range []struct {
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
	} {
		err := admission.MutatePod(tt.pod)
		expect.That(t, err != nil && err.Error() == tt.want, "%s: got  %v\nwant %s", tt.name, err, tt.want)
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
				expect.Equalf(t, want, labels[lwsv1.SubGroupUniqueHashLabelKey], "worker %d: key", w)
			}
			expect.Equal(t, tt.want, got)
		})
	}
}

// podOf is pod w of group 0 of set w, divided by part unless that is 0.
func podOf(w, size, part int, policy lwsv1.SubGroupPolicyType, changes ...podChange) *corev1.Pod {
	changes = append([]podChange{withPodAnnotation(lwsv1.SizeAnnotationKey, strconv.Itoa(size))}, changes...)
	if part != 0 {
		changes = append(changes, withPodAnnotation(lwsv1.SubGroupSizeAnnotationKey, strconv.Itoa(part)))
	}
	if policy != "" {
		changes = append(changes, withPodAnnotation(lwsv1.SubGroupPolicyTypeAnnotationKey, string(policy)))
	}
	if w == 0 {
		return newLeader("w-0", changes...)
	}
	return newWorker("w-0-"+strconv.Itoa(w), changes...)
}

func tpus(quantity string) corev1.ResourceRequirements {
	return corev1.ResourceRequirements{Limits: corev1.ResourceList{"google.com/tpu": resource.MustParse(quantity)}}
}

// withTPUContainers replaces the containers with so many that ask for TPUs.
func withTPUContainers(n int) podChange {
	return func(p *corev1.Pod) {
		p.Spec.Containers = nil
		for i := range n {
			p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: fmt.Sprint("c", i), Resources: tpus("4")})
		}
	}
}

var leaderTPU = withPodAnnotation(lwsv1.LeaderRequestsTPUsAnnotationKey, "true")

func env(c corev1.Container) map[string]string {
	values := map[string]string{}
	for _, variable := range c.Env {
		values[variable.Name] = variable.Value
	}
	return values
}

// Each row gives, for every pod of a group that has TPUs, its id and its hosts
// by the name of the pod.
func TestTPUSlices(t *testing.T) {
	const (
		both = lwsv1.SubGroupPolicyTypeLeaderWorker
		only = lwsv1.SubGroupPolicyTypeLeaderExcluded
	)
	for _, tt := range []struct {
		name       string
		size, part int
		policy     lwsv1.SubGroupPolicyType
		leaderless bool
		want       map[int]string
	}{
		{"size 3", 3, 0, "", false, map[int]string{0: "0 w-0,w-0-1,w-0-2", 1: "1 w-0,w-0-1,w-0-2", 2: "2 w-0,w-0-1,w-0-2"}},
		{"size 3, leader without", 3, 0, "", true, map[int]string{1: "0 w-0-1,w-0-2", 2: "1 w-0-1,w-0-2"}},
		{"size 4 by 2", 4, 2, both, false, map[int]string{0: "0 w-0,w-0-1", 1: "1 w-0,w-0-1", 2: "0 w-0-2,w-0-3", 3: "1 w-0-2,w-0-3"}},
		{"size 5 by 2, leader without", 5, 2, both, true, map[int]string{1: "0 w-0-1,w-0-2", 2: "1 w-0-1,w-0-2", 3: "0 w-0-3,w-0-4", 4: "1 w-0-3,w-0-4"}},

		// The leader on top of subgroup 0: one slice of three, the rest as ever.
		{"size 5 by 2", 5, 2, both, false, map[int]string{
			0: "0 w-0,w-0-1,w-0-2", 1: "1 w-0,w-0-1,w-0-2", 2: "2 w-0,w-0-1,w-0-2", 3: "0 w-0-3,w-0-4", 4: "1 w-0-3,w-0-4",
		}},
		// The leader in no subgroup: a slice of its own.
		{"size 5 by 2, leader excluded", 5, 2, only, false, map[int]string{
			0: "0 w-0", 1: "0 w-0-1,w-0-2", 2: "1 w-0-1,w-0-2", 3: "0 w-0-3,w-0-4", 4: "1 w-0-3,w-0-4",
		}},
		// Counted without the leader, the last slice comes out short.
		{"size 4 by 2, leader without", 4, 2, both, true, map[int]string{1: "0 w-0-1,w-0-2", 2: "1 w-0-1,w-0-2", 3: "0 w-0-3"}},
	} {
		got := map[int]string{}
		for w := range tt.size {
			changes := []podChange{withTPUContainers(1), leaderTPU}
			if tt.leaderless {
				if w == 0 {
					continue
				}
				changes = changes[:1]
			}
			values := env(mutate(t, podOf(w, tt.size, tt.part, tt.policy, changes...)).Spec.Containers[0])
			hosts := values["TPU_WORKER_HOSTNAMES"]
			got[w] = values["TPU_WORKER_ID"] + " " + strings.ReplaceAll(hosts, ".w", "")
			expect.Equalf(t, strings.ReplaceAll(hosts, ".w", ".w:8476"), values["TPU_PROCESS_ADDRESSES"], "%s: pod %d: addresses", tt.name, w)
			expect.Equalf(t, "w-0", values["TPU_NAME"], "%s: pod %d: name", tt.name, w)
			expect.Equalf(t, "8476", values["TPU_PROCESS_PORT"], "%s: pod %d: port", tt.name, w)
		}
		expect.Equalf(t, tt.want, got, "%s", tt.name)
	}
}

// Of a subgroup, the first container alone gets the hosts.
func TestTPUVariablesOfASubgroup(t *testing.T) {
	pod := mutate(t, podOf(0, 4, 2, "", withTPUContainers(2)))
	want := []corev1.EnvVar{
		{Name: "LWS_LEADER_ADDRESS", Value: "w-0.w.ns"}, {Name: "LWS_GROUP_SIZE", Value: "4"}, {Name: "LWS_WORKER_INDEX", Value: "0"},
		{Name: "TPU_WORKER_HOSTNAMES", Value: "w-0.w,w-0-1.w"}, {Name: "TPU_WORKER_ID", Value: "0"}, {Name: "TPU_NAME", Value: "w-0"},
		{Name: "TPU_PROCESS_ADDRESSES", Value: "w-0.w:8476,w-0-1.w:8476"}, {Name: "TPU_PROCESS_PORT", Value: "8476"},
	}
	expect.Equal(t, want, pod.Spec.Containers[0].Env)
	expect.Equalf(t, want[:3], pod.Spec.Containers[1].Env, "second container")
}

// A row has the TPU_WORKER_ID and the TPU_PROCESS_PORT of the container of worker 1, and those of
// its init container. The leader has one TPU as well.
func TestTPUIsAskedFor(t *testing.T) {
	requests := corev1.ResourceRequirements{Requests: corev1.ResourceList{"google.com/tpu": resource.MustParse("1")}}
	with := func(name, value string) corev1.Container {
		return corev1.Container{Resources: tpus("1"), Env: []corev1.EnvVar{{Name: name, Value: value}}}
	}
	none, one := corev1.Container{}, corev1.Container{Resources: tpus("1")}
	for _, tt := range []struct {
		name            string
		main, start     corev1.Container
		want, wantStart string
	}{
		{"by limit", one, none, "1 8476", " "},
		{"by request", corev1.Container{Resources: requests}, none, "1 8476", " "},
		{"none of it", corev1.Container{Resources: tpus("0")}, none, " ", " "},
		{"before the start", none, one, " ", "1 8476"},
		{"init containers last", one, one, "2 8476", "3 8477"},
		{"with a port", with("TPU_PROCESS_PORT", "9"), none, "1 9", " "},
		{"with hosts", with("TPU_WORKER_HOSTNAMES", ""), none, " ", " "},
		{"with an id", with("TPU_WORKER_ID", "7"), none, "7 ", " "},
	} {
		pod := mutate(t, podOf(1, 2, 0, "", leaderTPU, func(p *corev1.Pod) {
			p.Spec.Containers, p.Spec.InitContainers = []corev1.Container{tt.main}, []corev1.Container{tt.start}
		}))
		main, start := env(pod.Spec.Containers[0]), env(pod.Spec.InitContainers[0])
		for _, values := range []map[string]string{main, start} {
			if port := values["TPU_PROCESS_PORT"]; port != "" && strings.Count(values["TPU_PROCESS_ADDRESSES"], ":"+port) != 2 {
				t.Errorf("%s: addresses %q, want two with port %s", tt.name, values["TPU_PROCESS_ADDRESSES"], port)
			}
		}
		got, gotStart := main["TPU_WORKER_ID"]+" "+main["TPU_PROCESS_PORT"], start["TPU_WORKER_ID"]+" "+start["TPU_PROCESS_PORT"]
		expect.Equalf(t, tt.want, got, "%s: id and port", tt.name)
		expect.Equalf(t, tt.wantStart, gotStart, "%s: id and port of the init container", tt.name)
	}
}

// A size is a few digits in an annotation; the list of hosts it asks for may not
// fit into any machine.
func TestTPUOfAbsurdGroups(t *testing.T) {
	const max = 2147483647
	const advice = "use a smaller size, subgroups, or fewer TPU containers in a pod"
	exceeds := func(processes, bytes int) string {
		return fmt.Sprintf(`TPU_PROCESS_ADDRESSES of pod "w-0-1" would list %d processes and exceed the %d bytes a container can take: %s`, processes, bytes, advice)
	}
	for _, tt := range []struct {
		name       string
		size, part int
		containers int
		refused    string
	}{
		{"as large as it gets", 8000, 0, 1, ""},
		{"too many hosts", max, 0, 1, exceeds(max-1, 131049)},
		{"too many containers", 100, 0, 1000, exceeds(99000, 524)},
		{"small subgroups of a large group", max, 1, 1, ""},
	} {
		err := admission.MutatePod(podOf(1, tt.size, tt.part, "", withTPUContainers(tt.containers)))
		expect.That(t, (err == nil || fmt.Sprint(err) == tt.refused) && (err != nil || tt.refused == ""),
			"%s: got  %v\nwant %s", tt.name, err, tt.refused)
	}
}
