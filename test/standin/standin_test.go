package standin

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/test/expect"
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
	for _, v := range []struct {
		key  string
		edit func(*lwsv1.LeaderWorkerSetSpec)
	}{
		{"7bdcf6cbd6", func(*lwsv1.LeaderWorkerSetSpec) {}},
		{"66c987c45d", func(s *lwsv1.LeaderWorkerSetSpec) { s.LeaderWorkerTemplate.LeaderTemplate = nil }},
		{"675dbb7bc5", func(s *lwsv1.LeaderWorkerSetSpec) { *s.NetworkConfig.SubdomainPolicy = lwsv1.SubdomainUniquePerReplica }},
		{"5cc8765c65", func(s *lwsv1.LeaderWorkerSetSpec) {
			one, with := int32(1), lwsv1.SubGroupPolicyTypeLeaderWorker
			*s.LeaderWorkerTemplate.Size = 3
			s.LeaderWorkerTemplate.SubGroupPolicy = &lwsv1.SubGroupPolicy{SubGroupSize: &one, Type: &with}
		}},
		{"6956876d89", func(s *lwsv1.LeaderWorkerSetSpec) {
			s.LeaderWorkerTemplate.WorkerTemplate.Spec.Containers[0].Name = "new-worker-name"
		}},
		{"d648b788b", func(s *lwsv1.LeaderWorkerSetSpec) { // with markup in arguments, and without a network
			s.LeaderWorkerTemplate.WorkerTemplate.Spec.Containers[0].Args, s.NetworkConfig = []string{"a<b>&c"}, nil
		}},
	} {
		changed := set.DeepCopy()
		v.edit(&changed.Spec)
		expect.Equalf(t, v.key, Key(Data(changed)), "the key of %s", Data(changed))
	}
}
