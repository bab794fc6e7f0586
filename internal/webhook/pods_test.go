package webhook

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1alpha3 "k8s.io/api/scheduling/v1alpha3"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/gang"
	names "lockstep.dev/lockstep/internal/identity"
	rule "lockstep.dev/lockstep/internal/lws/admission"
	"lockstep.dev/lockstep/test/expect"
	"lockstep.dev/lockstep/test/fakeapi"
)

// diff decodes raw as a pod, changes it, and returns the patch as text and raw
// with the patch applied.
func diff(t testing.TB, raw string, change func(*corev1.Pod)) (patch, patched string) {
	t.Helper()
	var before, after corev1.Pod
	for _, pod := range []*corev1.Pod{&before, &after} {
		expect.OK(t, json.Unmarshal([]byte(raw), pod))
	}
	change(&after)
	operations := expect.Value(Diff([]byte(raw), &before, &after))(t)
	text := make([]string, len(operations))
	for i, o := range operations {
		text[i] = o.Json()
	}
	all := "[" + strings.Join(text, ",") + "]"
	decoded := expect.Value(jsonpatch.DecodePatch([]byte(all)))(t)
	out, err := decoded.Apply([]byte(raw))
	expect.OKf(t, err, "the API server could not apply %s", all)
	return all, string(out)
}

func TestDiff(t *testing.T) {
	for name, c := range map[string]struct {
		raw    string
		change func(*corev1.Pod)
		want   string
	}{
		"nothing": {`{"metadata":{"name":"a"},"spec":{}}`, func(*corev1.Pod) {}, `[]`},
		"a label beside others": {
			`{"metadata":{"labels":{"a":"1"}}}`,
			func(p *corev1.Pod) { p.Labels["b/c~d"] = "2" },
			`[{"op":"add","path":"/metadata/labels/b~1c~0d","value":"2"}]`,
		},
		"a field whose parent is not in the object": {
			`{"metadata":{}}`,
			func(p *corev1.Pod) { p.Spec.Subdomain = "s" },
			`[{"op":"add","path":"/spec","value":{"containers":null,"subdomain":"s"}}]`,
		},
		"a field whose parent is null": {
			`{"metadata":{"labels":null}}`,
			func(p *corev1.Pod) { p.Labels = map[string]string{"a": "1"} },
			`[{"op":"add","path":"/metadata/labels","value":{"a":"1"}}]`,
		},
		"a field that goes": {
			`{"spec":{"subdomain":"s"}}`,
			func(p *corev1.Pod) { p.Spec.Subdomain = "" },
			`[{"op":"remove","path":"/spec/subdomain"}]`,
		},
		"a variable of the user's that is overridden": {
			`{"spec":{"containers":[{"name":"c","env":[{"name":"A"},{"name":"X","value":"mine"},{"name":"B"}]}]}}`,
			func(p *corev1.Pod) {
				p.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "X", Value: "9"}, {Name: "A"}, {Name: "B"}}
			},
			`[{"op":"add","path":"/spec/containers/0/env/0","value":{"name":"X","value":"9"}},{"op":"remove","path":"/spec/containers/0/env/2"}]`,
		},
		"an element without a name": {
			`{"spec":{"tolerations":[{"key":"a"}]}}`,
			func(p *corev1.Pod) { p.Spec.Tolerations = append(p.Spec.Tolerations, corev1.Toleration{Key: "b"}) },
			`[{"op":"add","path":"/spec/tolerations/1","value":{"key":"b"}}]`,
		},
		"a large number": {
			`{"spec":{"activeDeadlineSeconds":1}}`,
			func(p *corev1.Pod) { *p.Spec.ActiveDeadlineSeconds = 1<<62 + 1 },
			`[{"op":"replace","path":"/spec/activeDeadlineSeconds","value":4611686018427387905}]`,
		},
	} {
		got, _ := diff(t, c.raw, c.change)
		expect.Equalf(t, c.want, got, "%s", name)
	}
}

// A patch, applied to the raw object, results in the changed object, for any change of lists.
func TestAppliedPatchIsTheChangedObject(t *testing.T) {
	names := rapid.SliceOfN(rapid.SampledFrom([]string{"A", "B", "C", "D", "E"}), 0, 8)
	rapid.Check(t, func(rt *rapid.T) {
		var env []string
		for i, name := range names.Draw(rt, "before") {
			env = append(env, fmt.Sprintf(`{"name":%q,"value":"%d"}`, name, i))
		}
		raw := `{"spec":{"containers":[{"name":"c","env":[` + strings.Join(env, ",") + `]}]}}`
		var want []corev1.EnvVar
		_, patched := diff(t, raw, func(p *corev1.Pod) {
			for i, name := range names.Draw(rt, "after") {
				want = append(want, corev1.EnvVar{Name: name, Value: rapid.SampledFrom([]string{fmt.Sprint(i), "new"}).Draw(rt, "value")})
			}
			p.Spec.Containers[0].Env = want
		})
		var got corev1.Pod
		expect.OK(rt, json.Unmarshal([]byte(patched), &got))
		diff := cmp.Diff(want, got.Spec.Containers[0].Env, cmpopts.EquateEmpty())
		expect.Must(rt, diff == "", "from %s (-want +got):\n%s", raw, diff)
	})
}

// The patch of a decimal leaves all else as it is, also beside an undo, which replaces the container.
func TestUnquotedDecimalBecomesAText(t *testing.T) {
	decimal := func(set string) string {
		return strings.Replace(set, `"image":"i"`, `"image":"i","newer":0.5,"resources":{"newer":0.5,"limits":{"cpu":0.5,"memory":"0.5Gi","a":1}}`, 1)
	}
	asked := decimal(goodSet)
	after := string(patched(t, []byte(asked), post(t, PathMutateSet, review(admissionv1.Create, setKind, asked, "")).Patch))
	for _, want := range []string{`"cpu":"500m"`, `"memory":"0.5Gi"`, `"a":1`, `"newer":0.5,"resources"`} {
		expect.Says(t, after, want)
	}
	asked = decimal(undone("0"))
	after = string(patched(t, []byte(asked), post(t, PathMutateSet, review(admissionv1.Update, setKind, asked, goodSet)).Patch))
	expect.Says(t, after, `"image":"before"`, "the undo of decimals")
	expect.That(t, !strings.Contains(after, `"cpu"`), "the undo of decimals: %s", after)
}

func TestMistypedQuantityIsInvalid(t *testing.T) {
	asked := strings.Replace(goodSet, `"image":"i"`, `"image":"i","resources":{"limits":{"cpu":"half"}}`, 1)
	for _, path := range []string{PathMutateSet, PathValidateSet} {
		answer := post(t, path, review(admissionv1.Create, setKind, asked, ""))
		expect.That(t, !answer.Allowed && answer.Result.Code == http.StatusUnprocessableEntity &&
			strings.Contains(answer.Result.Message, "containers[0].resources.limits[cpu]"), "%s: %+v", path, answer.Result)
	}
}

func TestUnionsOfSchedulingAreChecked(t *testing.T) {
	set := func(policy *schedulingv1alpha3.WorkloadCompositePodGroupSchedulingPolicy) *lwsv1.LeaderWorkerSet {
		set := fakeapi.Set("w", 1, 4)
		set.Spec.Scheduling = &lwsv1.Scheduling{SchedulingPolicy: policy}
		return set
	}
	basic := &schedulingv1alpha3.WorkloadCompositePodGroupBasicSchedulingPolicy{}
	gang := &schedulingv1alpha3.WorkloadCompositePodGroupGangSchedulingPolicy{}
	none := set(&schedulingv1alpha3.WorkloadCompositePodGroupSchedulingPolicy{})
	for want, tt := range map[string]struct{ is, was *lwsv1.LeaderWorkerSet }{
		"spec.scheduling.schedulingPolicy: Invalid value: \"\": must specify one of: `basic`, `gang`": {none, nil},
		"spec.scheduling.schedulingPolicy: Invalid value: \"{basic, gang}\": must specify exactly one of: `basic`, `gang`": {
			set(&schedulingv1alpha3.WorkloadCompositePodGroupSchedulingPolicy{Basic: basic, Gang: gang}), none,
		},
	} {
		faults := checkUnits(t.Context(), tt.is, tt.was)
		expect.That(t, len(faults) == 1 && faults[0].Error() == want, "got %v, want %s", faults, want)
	}
	for _, tt := range []struct{ is, was *lwsv1.LeaderWorkerSet }{
		{none, none}, {fakeapi.Set("w", 1, 4), nil}, {set(&schedulingv1alpha3.WorkloadCompositePodGroupSchedulingPolicy{Gang: gang}), nil},
	} {
		expect.Emptyf(t, checkUnits(t.Context(), tt.is, tt.was), "faults")
	}
}

// hashLeader is a leader as a ReplicaSet creates it: its name is not known yet.
func hashLeader(edits ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", GenerateName: "w-5d8-",
			Labels:          map[string]string{lwsv1.SetNameLabelKey: "w", lwsv1.WorkerIndexLabelKey: "0", lwsv1.RevisionKey: "r"},
			Annotations:     map[string]string{lwsv1.SizeAnnotationKey: "4", lwsv1.GroupIdentityAnnotationKey: "Hash"},
			OwnerReferences: []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "w-5d8", Controller: fakeapi.Ptr(true)}},
		},
		Spec: corev1.PodSpec{Subdomain: "w", Containers: []corev1.Container{{Name: "c"}}},
	}
	return fakeapi.Edited(pod, edits...)
}

func admitted(t *testing.T, pod *corev1.Pod) *corev1.Pod {
	t.Helper()
	expect.OK(t, (Pods{Kin: &kin{}}).mutatePod(t.Context(), pod))
	return pod
}

func environment(pod *corev1.Pod) map[string]string {
	values := map[string]string{}
	for _, variable := range pod.Spec.Containers[0].Env {
		values[variable.Name] = variable.Value
	}
	return values
}

func TestALeaderDrawsTheKeyOfItsGroup(t *testing.T) {
	pod := admitted(t, hashLeader(
		note(lwsv1.ExclusiveKeyAnnotationKey, "rack"), note(lwsv1.SubGroupSizeAnnotationKey, "2"), label(lwsv1.GroupIndexLabelKey, "7")))
	key := pod.Labels[lwsv1.GroupUniqueHashLabelKey]
	host := "w-" + key[:8]
	for what, pair := range map[string][2]string{
		"index":     {pod.Labels[lwsv1.GroupIndexLabelKey], key},
		"host name": {pod.Spec.Hostname, host},
		"subdomain": {pod.Spec.Subdomain, "w"},
		"address":   {environment(pod)[lwsv1.LwsLeaderAddress], host + ".w.ns"},
		"subgroup":  {pod.Labels[lwsv1.SubGroupUniqueHashLabelKey], names.SubgroupKey(key, 0)},
		"exclusive": {pod.Spec.Affinity.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution[0].LabelSelector.MatchExpressions[0].Values[0], key},
		"cost":      {pod.Annotations[corev1.PodDeletionCost], "-100"},
	} {
		expect.Equalf(t, pair[1], pair[0], "%s", what)
	}
	isGated := slices.Contains(pod.Spec.SchedulingGates, corev1.PodSchedulingGate{Name: lwsv1.GroupReplacementGate})
	expect.That(t, len(key) == 40 && isGated, "key %q, gates %v", key, pod.Spec.SchedulingGates)
	expect.That(t, admitted(t, hashLeader()).Labels[lwsv1.GroupUniqueHashLabelKey] != key, "two leaders have one key")
}

func TestALeaderWithAKeyHasASubdomainOfItsOwnWhereAsked(t *testing.T) {
	pod := admitted(t, hashLeader(note(lwsv1.SubdomainPolicyAnnotationKey, "UniquePerReplica")))
	host := pod.Spec.Hostname
	expect.Equalf(t, host, pod.Spec.Subdomain, "subdomain")
	expect.Equal(t, host+"."+host+".ns", environment(pod)[lwsv1.LwsLeaderAddress])
}

// A template that names a key gives all groups one.
func TestATemplateGivesNoKey(t *testing.T) {
	const fixed = "95e88034e460983f51a9952fe128729fbc0663b5"
	pod := admitted(t, hashLeader(label(lwsv1.GroupIndexLabelKey, fixed), label(lwsv1.GroupUniqueHashLabelKey, fixed)))
	key := pod.Labels[lwsv1.GroupUniqueHashLabelKey]
	expect.That(t, key != fixed && pod.Spec.Hostname == "w-"+key[:8], "key %q, host name %q", key, pod.Spec.Hostname)
}

// A deletion cost of the user stays.
func TestADeletionCostOfTheUserStays(t *testing.T) {
	expect.Equal(t, "5", admitted(t, hashLeader(note(corev1.PodDeletionCost, "5"))).Annotations[corev1.PodDeletionCost])
}

func asksForTPUs(pod *corev1.Pod) {
	pod.Spec.Containers[0].Resources.Limits = corev1.ResourceList{"google.com/tpu": resource.MustParse("4")}
}

// The leader and its workers have one list of hosts. Workers of a StatefulSet of v0.11 have its name as a prefix.
func TestHostsOfAGroupWithAKey(t *testing.T) {
	leader := admitted(t, hashLeader(asksForTPUs, note(lwsv1.SizeAnnotationKey, "2")))
	key, host := leader.Labels[lwsv1.GroupUniqueHashLabelKey], leader.Spec.Hostname
	expect.Equalf(t, host+".w,"+host+"-1.w", environment(leader)["TPU_WORKER_HOSTNAMES"], "leader")
	expect.Equal(t, host, environment(leader)["TPU_NAME"])
	for prefix, want := range map[string]string{host: host + ".w," + host + "-1.w", "w-5d8-x7q2z": host + ".w,w-5d8-x7q2z-1.w"} {
		worker := admitted(t, hashLeader(asksForTPUs, note(lwsv1.SizeAnnotationKey, "2"), func(pod *corev1.Pod) {
			pod.Name, pod.OwnerReferences = prefix+"-1", []metav1.OwnerReference{{Kind: "StatefulSet", Name: prefix, Controller: fakeapi.Ptr(true)}}
			delete(pod.Annotations, lwsv1.GroupIdentityAnnotationKey)
			pod.Labels[lwsv1.GroupIndexLabelKey], pod.Labels[lwsv1.GroupUniqueHashLabelKey] = key, key
			pod.Annotations[lwsv1.LeaderRequestsTPUsAnnotationKey] = "true"
			pod.Annotations[lwsv1.LeaderAddressAnnotationKey] = host + ".w.ns"
		}))
		if got := environment(worker); got["TPU_WORKER_HOSTNAMES"] != want || got["TPU_NAME"] != host || got[lwsv1.LwsLeaderAddress] != host+".w.ns" {
			t.Errorf("worker of %s: got %v, want %q", prefix, got, want)
		}
	}
}

// The template of a StatefulSet gives no pod a key.
func TestOnlyAReplicaSetMakesLeadersWithKeys(t *testing.T) {
	pod := admitted(t, hashLeader(func(pod *corev1.Pod) {
		pod.Name, pod.OwnerReferences[0].Kind, pod.OwnerReferences[0].Name = "w-0", "StatefulSet", "w"
	}))
	expect.That(t, !rule.LacksKey(pod) && pod.Labels[lwsv1.GroupIndexLabelKey] == "0", "labels %v", pod.Labels)
	expect.Emptyf(t, pod.Spec.SchedulingGates, "gates")
}

// kinds are what a pod of a set may have beyond its name. Each pod draws any of them.
var kinds = map[string]func(*corev1.Pod){
	"a subdomain of the group":      note(lwsv1.SubdomainPolicyAnnotationKey, "UniquePerReplica"),
	"a domain of the group":         note(lwsv1.ExclusiveKeyAnnotationKey, "rack"),
	"subgroups":                     note(lwsv1.SubGroupSizeAnnotationKey, "2"),
	"subgroups without the leader":  note(lwsv1.SubGroupPolicyTypeAnnotationKey, "LeaderExcluded"),
	"a domain of the subgroup":      note(lwsv1.SubGroupExclusiveKeyAnnotationKey, "host"),
	"a leader with TPUs":            note(lwsv1.LeaderRequestsTPUsAnnotationKey, "true"),
	"an address of the leader":      note(lwsv1.LeaderAddressAnnotationKey, "w-0.w.ns"),
	"a template that names a group": label(lwsv1.GroupIndexLabelKey, "7"),
	"a template that names a key":   label(lwsv1.GroupUniqueHashLabelKey, "key"),
	"a subgroup of the template":    label(lwsv1.SubGroupIndexLabelKey, "5"),
	"a gate":                        func(p *corev1.Pod) { p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "users"}} },
	"a node":                        func(p *corev1.Pod) { p.Spec.NodeName = "n" },
	"no StatefulSet":                func(p *corev1.Pod) { p.OwnerReferences = nil },
	"a Workload":                    note(lwsv1.WorkloadNameAnnotationKey, "w-h"),
	"a level of PodGroups":          note(lwsv1.WorkloadSchedulingAnnotationKey, "replica"),
	"a PodGroup for each role":      note(lwsv1.WorkloadSchedulingAnnotationKey, "role"),
	"a Workload of its leader":      note(lwsv1.WorkloadNameAnnotationKey, "w-h.abcde"),
	"another PodGroup":              func(p *corev1.Pod) { gang.Tie(&p.ObjectMeta, "users") },
	"TPUs": func(p *corev1.Pod) {
		for i := range p.Spec.Containers {
			p.Spec.Containers[i].Resources.Limits = corev1.ResourceList{"google.com/tpu": resource.MustParse("4")}
		}
	},
	"variables": func(p *corev1.Pod) {
		p.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "A"}, {Name: lwsv1.LwsGroupSize, Value: "users"}, {Name: "A"}}
	},
	"an init container": func(p *corev1.Pod) { p.Spec.InitContainers = []corev1.Container{{Name: "i"}} },
	"half an affinity": func(p *corev1.Pod) {
		p.Spec.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{TopologyKey: "rack"}},
		}}
	},
}

func note(key, value string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { metav1.SetMetaDataAnnotation(&p.ObjectMeta, key, value) }
}

func label(key, value string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { metav1.SetMetaDataLabel(&p.ObjectMeta, key, value) }
}

// anyPod is a new pod of group 0 of the set w, as its StatefulSet creates it.
var anyPod = rapid.Custom(func(t *rapid.T) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: "w-0", Labels: map[string]string{lwsv1.SetNameLabelKey: "w", lwsv1.RevisionKey: "r", lwsv1.WorkerIndexLabelKey: "0"},
			Annotations:     map[string]string{lwsv1.SizeAnnotationKey: rapid.SampledFrom([]string{"1", "4", "5"}).Draw(t, "size")},
			OwnerReferences: []metav1.OwnerReference{{Kind: "StatefulSet", Name: "w", Controller: fakeapi.Ptr(true)}},
		},
		Spec: corev1.PodSpec{Subdomain: "w", Containers: []corev1.Container{{Name: "a"}, {Name: "b"}}},
	}
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		if rapid.IntRange(0, 3).Draw(t, kind) == 0 {
			kinds[kind](pod)
		}
	}
	if worker := rapid.SampledFrom([]string{"", "1", "3"}).Draw(t, "worker"); worker != "" {
		pod.Name += "-" + worker
		delete(pod.Labels, lwsv1.WorkerIndexLabelKey)
		label(lwsv1.GroupIndexLabelKey, "0")(pod)
		label(lwsv1.GroupUniqueHashLabelKey, "key")(pod)
		note(lwsv1.LeaderPodNameAnnotationKey, "w-0")(pod)
		if len(pod.OwnerReferences) > 0 {
			pod.OwnerReferences[0].Name = "w-0"
		}
	}
	return pod
})

// anyHashPod is a new pod of a set of Hash groups: a leader as a ReplicaSet creates it, or a worker.
var anyHashPod = rapid.Custom(func(t *rapid.T) *corev1.Pod {
	pod := anyPod.Draw(t, "pod")
	if rule.IsLeader(pod) {
		pod.Name, pod.GenerateName, pod.OwnerReferences = "", "w-5d8-", []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "w-5d8", Controller: fakeapi.Ptr(true)}}
		note(lwsv1.GroupIdentityAnnotationKey, "Hash")(pod)
		return pod
	}
	key := names.GroupKey("ns", "drawn")
	pod.Name = names.HashName("w", key) + "-1"
	label(lwsv1.GroupIndexLabelKey, key)(pod)
	label(lwsv1.GroupUniqueHashLabelKey, key)(pod)
	note(lwsv1.LeaderPodNameAnnotationKey, "w-5d8-x7q2z")(pod)
	return pod
})

// The API server may call a webhook again, after other webhooks or without them. Each further call changes nothing.
func TestFurtherCallsChangeNoPod(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pod := rapid.OneOf(anyPod, anyHashPod).Draw(t, "pod")
		set := fakeapi.Set("w", 1, 4)
		set.Annotations = map[string]string{lwsv1.GangSchedulerAnnotationKey: rapid.SampledFrom([]string{"", "volcano", "none"}).Draw(t, "gang")}
		if rapid.Bool().Draw(t, "spec.scheduling") {
			set.Spec.Scheduling = &lwsv1.Scheduling{}
		}
		webhook := Pods{Scheduler: rapid.SampledFrom([]string{"", gang.Volcano, gang.Kubernetes}).Draw(t, "scheduler"), Otherwise: rapid.Bool().Draw(t, "gangs"), Kin: &kin{set: set, mustWait: rapid.Bool().Draw(t, "a group before")}}
		expect.OK(t, webhook.mutatePod(t.Context(), pod))
		if _, byVolcano := pod.Annotations[gang.PodGroupAnnotationKey]; byVolcano && pod.Spec.SchedulingGroup != nil && pod.Annotations[gang.PodGroupAnnotationKey] != "users" {
			t.Fatalf("two schedulers place the pod: %v, %v", pod.Annotations, pod.Spec.SchedulingGroup)
		}
		isRun := webhook.Scheduler == gang.Kubernetes && set.Spec.Scheduling != nil
		expect.Must(t, gang.IsHanded(pod) == (pod.Spec.SchedulingGroup != nil) && (!gang.IsHanded(pod) || isRun),
			"a pod of a Workload is in no PodGroup, or nothing creates it: %v", pod.Annotations)
		once := pod.DeepCopy()
		for call := 2; call <= 3; call++ {
			expect.OK(t, webhook.mutatePod(t.Context(), pod))
			expect.Equalf(t, once, pod, "call %d", call)
		}
	})
}
