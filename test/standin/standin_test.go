package standin

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
)

// The keys are test vectors of the contract.
func TestRevisionKeysOfTheContract(t *testing.T) {
	size, shared := int32(2), lwsv1.SubdomainShared
	const image = "docker.io/nginxinc/nginx-unprivileged:1.27"
	set := &lwsv1.LeaderWorkerSet{}
	set.Spec.NetworkConfig = &lwsv1.NetworkConfig{SubdomainPolicy: &shared}
	body := &set.Spec.LeaderWorkerTemplate
	body.Size, body.RestartPolicy = &size, lwsv1.RecreateGroupOnPodRestart
	body.LeaderTemplate = &corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "leader", Image: image}}}}
	body.WorkerTemplate.Spec.Containers = []corev1.Container{{
		Name: "worker", Image: image, Ports: []corev1.ContainerPort{{ContainerPort: 8080, Protocol: corev1.ProtocolTCP}},
	}}
	if key := Key(Data(set)); key != "7bdcf6cbd6" {
		t.Errorf("got key %s of %s", key, Data(set))
	}
	body.LeaderTemplate = nil
	if key := Key(Data(set)); key != "66c987c45d" {
		t.Errorf("without a leader template: got key %s of %s", key, Data(set))
	}
}
