package webhook

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	names "lockstep.dev/lockstep/internal/identity"
	rule "lockstep.dev/lockstep/internal/lws/admission"
	"lockstep.dev/lockstep/test/fakeapi"
)

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
	for _, edit := range edits {
		edit(pod)
	}
	return pod
}

func admitted(t *testing.T, pod *corev1.Pod) *corev1.Pod {
	t.Helper()
	if err := (Pods{Kin: &kin{}}).mutatePod(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
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
		if pair[0] != pair[1] {
			t.Errorf("%s: got %q, want %q", what, pair[0], pair[1])
		}
	}
	if len(key) != 40 || !slices.Contains(pod.Spec.SchedulingGates, corev1.PodSchedulingGate{Name: lwsv1.GroupReplacementGate}) {
		t.Errorf("key %q, gates %v", key, pod.Spec.SchedulingGates)
	}
	if other := admitted(t, hashLeader()); other.Labels[lwsv1.GroupUniqueHashLabelKey] == key {
		t.Error("two leaders have one key")
	}
}

func TestALeaderWithAKeyHasASubdomainOfItsOwnWhereAsked(t *testing.T) {
	pod := admitted(t, hashLeader(note(lwsv1.SubdomainPolicyAnnotationKey, "UniquePerReplica")))
	if host := pod.Spec.Hostname; pod.Spec.Subdomain != host || environment(pod)[lwsv1.LwsLeaderAddress] != host+"."+host+".ns" {
		t.Errorf("subdomain %q, environment %v", pod.Spec.Subdomain, environment(pod))
	}
}

// A template that names a key gives all groups one.
func TestATemplateGivesNoKey(t *testing.T) {
	const fixed = "95e88034e460983f51a9952fe128729fbc0663b5"
	pod := admitted(t, hashLeader(label(lwsv1.GroupIndexLabelKey, fixed), label(lwsv1.GroupUniqueHashLabelKey, fixed)))
	if key := pod.Labels[lwsv1.GroupUniqueHashLabelKey]; key == fixed || pod.Spec.Hostname != "w-"+key[:8] {
		t.Errorf("key %q, host name %q", key, pod.Spec.Hostname)
	}
}

// A deletion cost of the user stays.
func TestADeletionCostOfTheUserStays(t *testing.T) {
	if pod := admitted(t, hashLeader(note(corev1.PodDeletionCost, "5"))); pod.Annotations[corev1.PodDeletionCost] != "5" {
		t.Errorf("got %v", pod.Annotations)
	}
}

func asksForTPUs(pod *corev1.Pod) {
	pod.Spec.Containers[0].Resources.Limits = corev1.ResourceList{"google.com/tpu": resource.MustParse("4")}
}

// The leader and its workers have one list of hosts. Workers of a StatefulSet of v0.11 have its name as a prefix.
func TestHostsOfAGroupWithAKey(t *testing.T) {
	leader := admitted(t, hashLeader(asksForTPUs, note(lwsv1.SizeAnnotationKey, "2")))
	key, host := leader.Labels[lwsv1.GroupUniqueHashLabelKey], leader.Spec.Hostname
	if got, want := environment(leader)["TPU_WORKER_HOSTNAMES"], host+".w,"+host+"-1.w"; got != want || environment(leader)["TPU_NAME"] != host {
		t.Errorf("leader: got %q, want %q", got, want)
	}
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
	pod := hashLeader(func(pod *corev1.Pod) {
		pod.Name, pod.OwnerReferences[0].Kind, pod.OwnerReferences[0].Name = "w-0", "StatefulSet", "w"
	})
	if admitted(t, pod); rule.LacksKey(pod) || pod.Labels[lwsv1.GroupIndexLabelKey] != "0" || len(pod.Spec.SchedulingGates) > 0 {
		t.Errorf("labels %v", pod.Labels)
	}
}
