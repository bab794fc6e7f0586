package webhook

import (
	"encoding/json"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// workerPod is a pod as the StatefulSet controller makes it, and as the API server
// hands it on: with defaults and the fields that its maker owns.
const workerPod = `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a-7-3","generateName":"a-7-","namespace":"ns","uid":"8b0d2c59-4a3e-4c50-9c25-33b8d9c5a0c1",
"creationTimestamp":"2026-01-01T00:00:00Z","labels":{"apps.kubernetes.io/pod-index":"3","controller-revision-hash":"a-7-5f8b9c","leaderworkerset.sigs.k8s.io/group-index":"7",
"leaderworkerset.sigs.k8s.io/group-key":"0a1b2c3d","leaderworkerset.sigs.k8s.io/name":"a","leaderworkerset.sigs.k8s.io/template-revision-hash":"5f8b9c","statefulset.kubernetes.io/pod-name":"a-7-3"},
"annotations":{"leaderworkerset.sigs.k8s.io/leader-name":"a-7","leaderworkerset.sigs.k8s.io/size":"8"},
"ownerReferences":[{"apiVersion":"apps/v1","kind":"StatefulSet","name":"a-7","uid":"9b0d2c59-4a3e-4c50-9c25-33b8d9c5a0c1","controller":true,"blockOwnerDeletion":true}],
"managedFields":[{"manager":"kube-controller-manager","operation":"Update","apiVersion":"v1","time":"2026-01-01T00:00:00Z","fieldsType":"FieldsV1","fieldsV1":{"f:metadata":{"f:annotations":{".":{},
"f:leaderworkerset.sigs.k8s.io/leader-name":{},"f:leaderworkerset.sigs.k8s.io/size":{}},"f:generateName":{},"f:labels":{".":{},"f:apps.kubernetes.io/pod-index":{},"f:controller-revision-hash":{},
"f:leaderworkerset.sigs.k8s.io/group-index":{},"f:leaderworkerset.sigs.k8s.io/group-key":{},"f:leaderworkerset.sigs.k8s.io/name":{},"f:statefulset.kubernetes.io/pod-name":{}},
"f:ownerReferences":{".":{},"k:{\"uid\":\"9b0d2c59-4a3e-4c50-9c25-33b8d9c5a0c1\"}":{}}},"f:spec":{"f:containers":{"k:{\"name\":\"serve\"}":{".":{},"f:env":{".":{},"k:{\"name\":\"MODEL\"}":{".":{},"f:name":{},"f:value":{}}},
"f:image":{},"f:imagePullPolicy":{},"f:name":{},"f:resources":{}}},"f:dnsPolicy":{},"f:enableServiceLinks":{},"f:hostname":{},"f:restartPolicy":{},"f:schedulerName":{},"f:securityContext":{},"f:subdomain":{}}}}]},
"spec":{"volumes":[{"name":"kube-api-access-x","projected":{"sources":[{"serviceAccountToken":{"expirationSeconds":3607,"path":"token"}},{"configMap":{"name":"kube-root-ca.crt","items":[{"key":"ca.crt","path":"ca.crt"}]}}],"defaultMode":420}}],
"containers":[{"name":"serve","image":"registry.example/serve:a","env":[{"name":"MODEL","value":"llama"}],"resources":{"limits":{"cpu":"2","memory":"4Gi"}},"volumeMounts":[{"name":"kube-api-access-x","readOnly":true,"mountPath":"/var/run/secrets"}],
"terminationMessagePath":"/dev/termination-log","terminationMessagePolicy":"File","imagePullPolicy":"IfNotPresent"}],"restartPolicy":"Always","terminationGracePeriodSeconds":30,"dnsPolicy":"ClusterFirst","serviceAccountName":"default",
"securityContext":{},"hostname":"a-7-3","subdomain":"a","schedulerName":"default-scheduler","tolerations":[{"key":"node.kubernetes.io/not-ready","operator":"Exists","effect":"NoExecute","tolerationSeconds":300}],"priority":0,
"enableServiceLinks":true,"preemptionPolicy":"PreemptLowerPriority"},"status":{"phase":"Pending","qosClass":"BestEffort"}}`

// BenchmarkMutatePod is what the operator does for each pod that is created.
func BenchmarkMutatePod(b *testing.B) {
	if !json.Valid([]byte(workerPod)) {
		b.Fatal("the pod is not JSON")
	}
	answer := handlers(Gangs{})[PathMutatePod]
	request := admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{Operation: admissionv1.Create, Object: runtime.RawExtension{Raw: []byte(workerPod)}}}
	b.ReportAllocs()
	for b.Loop() {
		if got := answer(b.Context(), request); !got.Allowed || len(got.Patches) == 0 {
			b.Fatalf("got %+v", got)
		}
	}
}
