package cluster

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
)

// vectorData is what the revision of the plain vector set holds, byte by byte.
const vectorData = `{"spec":{"leaderWorkerTemplate":{"$patch":"replace","leaderTemplate":{"metadata":{},"spec":{"containers":[{"image":"docker.io/nginxinc/nginx-unprivileged:1.27","name":"leader","resources":{}}]}},"restartPolicy":"RecreateGroupOnPodRestart","size":2,"workerTemplate":{"metadata":{},"spec":{"containers":[{"image":"docker.io/nginxinc/nginx-unprivileged:1.27","name":"worker","ports":[{"containerPort":8080,"protocol":"TCP"}],"resources":{}}]}}},"networkConfig":{"$patch":"replace","subdomainPolicy":"Shared"}}}`

// Keys are those that other implementations give the same set, so that a set can
// change hands without a restart; through admission and storage too.
func TestRevisionsOfLiveSets(t *testing.T) {
	aside(t)
	for _, v := range []struct {
		name, key, data string
		edit            edit
	}{
		{"plain", "7bdcf6cbd6", vectorData, func(*lwsv1.LeaderWorkerSet) {}},
		{"no leader template", "66c987c45d", "", func(set *lwsv1.LeaderWorkerSet) { set.Spec.LeaderWorkerTemplate.LeaderTemplate = nil }},
		{"unique per replica", "675dbb7bc5", "", uniquePerReplica},
		{"subgroups", "5cc8765c65", "", subgroups},
		{"other worker name", "6956876d89", "", func(set *lwsv1.LeaderWorkerSet) {
			set.Spec.LeaderWorkerTemplate.WorkerTemplate.Spec.Containers[0].Name = "new-worker-name"
		}},
		{"markup in arguments, network left out", "d648b788b", "", func(set *lwsv1.LeaderWorkerSet) {
			set.Spec.LeaderWorkerTemplate.WorkerTemplate.Spec.Containers[0].Args = []string{"a<b>&c"}
			set.Spec.NetworkConfig = nil
		}},
	} {
		t.Run(v.name, func(t *testing.T) {
			s := newScene(t)
			set := s.vectorSet(v.edit)
			s.create(set)
			s.eventually("the set has a revision", func() error {
				if len(s.revisionsSince(0)) == 0 {
					return errors.New("none yet")
				}
				return nil
			})
			revision := s.revision(set)
			same(t, "key", v.key, revision.Labels[lwsv1.RevisionKey])
			same(t, "name", "test-sample-"+v.key+"-1", revision.Name)
			if v.data != "" {
				same(t, "data", v.data, string(revision.Data.Raw))
			}
		})
	}
}

// vectorSet is the set that the vectors are of. It runs nothing: the number of
// groups is not part of a revision.
func (s *scene) vectorSet(change edit) *lwsv1.LeaderWorkerSet {
	const image = "docker.io/nginxinc/nginx-unprivileged:1.27"
	shared, none, size := lwsv1.SubdomainShared, int32(0), int32(2)
	leader := corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "leader", Image: image}}}}
	worker := corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "worker", Image: image,
		Ports: []corev1.ContainerPort{{ContainerPort: 8080, Protocol: corev1.ProtocolTCP}}}}}}
	set := &lwsv1.LeaderWorkerSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "test-sample"},
		Spec: lwsv1.LeaderWorkerSetSpec{
			Replicas:      &none,
			StartupPolicy: lwsv1.LeaderCreatedStartupPolicy,
			NetworkConfig: &lwsv1.NetworkConfig{SubdomainPolicy: &shared},
			LeaderWorkerTemplate: lwsv1.LeaderWorkerTemplate{LeaderTemplate: &leader, WorkerTemplate: worker, Size: &size,
				RestartPolicy: lwsv1.RecreateGroupOnPodRestart},
		},
	}
	change(set)
	return set
}

func subgroups(set *lwsv1.LeaderWorkerSet) {
	size, one, kind := int32(3), int32(1), lwsv1.SubGroupPolicyTypeLeaderWorker
	set.Spec.LeaderWorkerTemplate.Size = &size
	set.Spec.LeaderWorkerTemplate.SubGroupPolicy = &lwsv1.SubGroupPolicy{Type: &kind, SubGroupSize: &one}
}
