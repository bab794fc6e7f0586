package v1_test

import (
	"encoding/json"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	v1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
)

// The bytes below are a contract: the revision of a set is a hash of some of
// them, and every other client of this API reads and writes the rest.

func encode(t *testing.T, value any) string {
	t.Helper()
	raw, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

func TestEmptyValuesOnTheWire(t *testing.T) {
	const emptySpec = `{"leaderWorkerTemplate":{"workerTemplate":{"metadata":{},"spec":{"containers":null}}},"rolloutStrategy":{"type":""},"startupPolicy":""}`
	tests := []struct {
		value any
		want  string
	}{
		{v1.LeaderWorkerSet{}, `{"metadata":{},"spec":` + emptySpec + `,"status":{}}`},
		{v1.LeaderWorkerSetTemplateSpec{}, `{"metadata":{},"spec":` + emptySpec + `}`},
		{v1.LeaderWorkerSetSpec{}, emptySpec},
		{v1.NetworkConfig{}, `{"subdomainPolicy":null}`},
		{v1.SubGroupPolicy{}, `{}`},
		{v1.RollingUpdateConfiguration{}, `{"maxUnavailable":0,"maxSurge":0}`},
		{v1.LeaderWorkerSetStatus{}, `{}`},
	}
	for _, tt := range tests {
		if got := encode(t, tt.value); got != tt.want {
			t.Errorf("%T\ngot  %s\nwant %s", tt.value, got, tt.want)
		}
	}
}

func TestFullValuesOnTheWire(t *testing.T) {
	const image = "docker.io/nginxinc/nginx-unprivileged:1.27"
	template := v1.LeaderWorkerTemplate{
		LeaderTemplate: &corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "leader", Image: image}}}},
		WorkerTemplate: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "worker", Image: image, Ports: []corev1.ContainerPort{{ContainerPort: 8080, Protocol: corev1.ProtocolTCP}},
		}}}},
		Size:           ptr.To[int32](3),
		RestartPolicy:  v1.RecreateGroupOnPodRestart,
		SubGroupPolicy: &v1.SubGroupPolicy{Type: ptr.To(v1.SubGroupPolicyTypeLeaderWorker), SubGroupSize: ptr.To[int32](1)},
	}
	const want = `{"leaderTemplate":{"metadata":{},"spec":{"containers":[{"name":"leader","image":"docker.io/nginxinc/nginx-unprivileged:1.27","resources":{}}]}},` +
		`"workerTemplate":{"metadata":{},"spec":{"containers":[{"name":"worker","image":"docker.io/nginxinc/nginx-unprivileged:1.27","ports":[{"containerPort":8080,"protocol":"TCP"}],"resources":{}}]}},` +
		`"size":3,"restartPolicy":"RecreateGroupOnPodRestart","subGroupPolicy":{"subGroupPolicyType":"LeaderWorker","subGroupSize":1}}`
	if got := encode(t, template); got != want {
		t.Errorf("\ngot  %s\nwant %s", got, want)
	}
	status := v1.LeaderWorkerSetStatus{ReadyReplicas: 1, UpdatedReplicas: 2, Replicas: 3, HPAPodSelector: "s", ObservedGeneration: 4}
	if got, want := encode(t, status), `{"readyReplicas":1,"updatedReplicas":2,"replicas":3,"hpaPodSelector":"s","observedGeneration":4}`; got != want {
		t.Errorf("\ngot  %s\nwant %s", got, want)
	}
}

func TestNamesOnTheWire(t *testing.T) {
	const prefix = "leaderworkerset.sigs.k8s.io/"
	for got, want := range map[string]string{
		v1.SetNameLabelKey:                      prefix + "name",
		v1.GroupIndexLabelKey:                   prefix + "group-index",
		v1.WorkerIndexLabelKey:                  prefix + "worker-index",
		v1.GroupUniqueHashLabelKey:              prefix + "group-key",
		v1.RevisionKey:                          prefix + "template-revision-hash",
		v1.SubGroupIndexLabelKey:                prefix + "subgroup-index",
		v1.SubGroupUniqueHashLabelKey:           prefix + "subgroup-key",
		v1.ExclusiveKeyAnnotationKey:            prefix + "exclusive-topology",
		v1.SubGroupExclusiveKeyAnnotationKey:    prefix + "subgroup-exclusive-topology",
		v1.RecreateGroupAfterStartAnnotationKey: prefix + "experimental-recreate-group-after-start",
		v1.SizeAnnotationKey:                    prefix + "size",
		v1.ReplicasAnnotationKey:                prefix + "replicas",
		v1.LeaderPodNameAnnotationKey:           prefix + "leader-name",
		v1.SubGroupSizeAnnotationKey:            prefix + "subgroup-size",
		v1.RoleLabelKey:                         prefix + "role",
		v1.LeaderRole:                           "leader",
		v1.WorkerRole:                           "worker",
		v1.LeaderAddressAnnotationKey:           prefix + "leader-address",
		v1.SubGroupPolicyTypeAnnotationKey:      prefix + "subgroup-policy-type",
		v1.SubdomainPolicyAnnotationKey:         prefix + "subdomainPolicy",
		v1.LeaderRequestsTPUsAnnotationKey:      prefix + "leader-requests-tpus",
		v1.PodTerminationPolicyAnnotationKey:    prefix + "pod-termination-policy",
		v1.GroupIdentityAnnotationKey:           prefix + "group-identity",
		v1.GroupReadyCondition:                  prefix + "group-ready",
		v1.GroupReplacementGate:                 prefix + "group-replacement",
		v1.WorkersReadyReason:                   "WorkerStatefulSetReady",
		v1.WorkersNotReadyReason:                "WorkerStatefulSetNotReady",
		v1.RecoverAnnotationKey:                 prefix + "recover",
		v1.GroupRestartBudgetFinalizer:          prefix + "group-restart-budget-cleanup",
		v1.GroupRestartCountsAnnotationKey:      prefix + "group-restart-counts",
		v1.WorkloadSchedulingAnnotationKey:      prefix + "workload-aware-scheduling",
		v1.WorkloadNameAnnotationKey:            prefix + "workload-name",
		v1.SchedulingLevelLabelKey:              prefix + "scheduling-level",
		v1.GroupTemplateNameAnnotationKey:       "scheduling.k8s.io/group-template-name",
		v1.ParentPodGroupAnnotationKey:          "scheduling.k8s.io/parent-compositepodgroup",
		v1.LwsLeaderAddress:                     "LWS_LEADER_ADDRESS",
		v1.LwsGroupSize:                         "LWS_GROUP_SIZE",
		v1.LwsWorkerIndex:                       "LWS_WORKER_INDEX",

		v1.GroupRestartBudgetExhaustedAnnotationKey: prefix + "group-restart-budget-exhausted",
		string(v1.DeprecatedDefaultRestartPolicy):   "Default",
		string(v1.RecreateGroupOnPodRestart):        "RecreateGroupOnPodRestart",
		string(v1.RecreateGroupAfterStart):          "RecreateGroupAfterStart",
		string(v1.NoneRestartPolicy):                "None",
		string(v1.LeaderCreatedStartupPolicy):       "LeaderCreated",
		string(v1.LeaderReadyStartupPolicy):         "LeaderReady",
		string(v1.SubdomainShared):                  "Shared",
		string(v1.SubdomainUniquePerReplica):        "UniquePerReplica",
		string(v1.SubGroupPolicyTypeLeaderWorker):   "LeaderWorker",
		string(v1.SubGroupPolicyTypeLeaderExcluded): "LeaderExcluded",
		string(v1.OrdinalGroupIdentity):             "Ordinal",
		string(v1.HashGroupIdentity):                "Hash",
		string(v1.ImmediateGroupReplacement):        "Immediate",
		string(v1.PostTerminationGroupReplacement):  "PostTermination",
		string(v1.ParallelPodTermination):           "Parallel",
		string(v1.RollingUpdateStrategyType):        "RollingUpdate",
		string(v1.LeaderWorkerSetDegraded):          "Degraded",
		string(v1.LeaderWorkerSetAvailable):         "Available",
		string(v1.LeaderWorkerSetProgressing):       "Progressing",
		string(v1.LeaderWorkerSetUpdateInProgress):  "UpdateInProgress",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
