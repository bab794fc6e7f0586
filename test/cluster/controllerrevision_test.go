package cluster

import (
	"fmt"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/test/drill"
)

// Revisions that are deleted in mid-rollout restart no pod. The current one is created again.
func TestDeletedRevisionsRestartNoPod(t *testing.T) {
	s := asideScene(t)
	set := s.settled(s.newSet("a", 2, 2, imageA, budget(1, 0, 1)))
	first := s.revision(set)
	set = s.become(set, pull(imageB))
	s.awaitImages(set, map[int]string{0: imageA, 1: imageB})
	i := slices.IndexFunc(s.revisions(set), func(r *appsv1.ControllerRevision) bool { return r.UID != first.UID })
	second := s.revisions(set)[i]
	// Deleted in mid-rollout, both: the one that the spec says is made anew.
	before := s.UIDs()
	s.Remove(first)
	s.Remove(second)
	s.Eventually("the current revision is created again", func() error {
		key := second.Labels[lwsv1.RevisionKey]
		if !slices.ContainsFunc(s.revisions(set), func(r *appsv1.ControllerRevision) bool {
			return r.Labels[lwsv1.RevisionKey] == key && r.UID != second.UID
		}) {
			return drill.ErrStill
		}
		return nil
	})
	same(t, "pods", before, s.UIDs())
	set = s.become(set, `{"spec":{"rolloutStrategy":{"rollingUpdateConfiguration":{"partition":0}}}}`)
	set = s.awaitSettled(set)
	s.awaitImages(set, map[int]string{0: imageB, 1: imageB})
	for _, name := range []string{"a-1", "a-1-1"} {
		if s.UIDs()[name] != before[name] {
			t.Errorf("pod %s is another one", name)
		}
	}
}

func (s *scene) awaitImages(set *lwsv1.LeaderWorkerSet, want map[int]string) {
	s.Eventually(fmt.Sprintf("the groups run %v", want), func() error {
		if have := s.readyGroups(set); fmt.Sprint(have) != fmt.Sprint(want) {
			return fmt.Errorf("have %v", have)
		}
		return nil
	})
}

// vectorData is the data of the plain set's revision, byte by byte.
const vectorData = `{"spec":{"leaderWorkerTemplate":{"$patch":"replace","leaderTemplate":{"metadata":{},"spec":{"containers":[{"image":"docker.io/nginxinc/nginx-unprivileged:1.27","name":"leader","resources":{}}]}},"restartPolicy":"RecreateGroupOnPodRestart","size":2,"workerTemplate":{"metadata":{},"spec":{"containers":[{"image":"docker.io/nginxinc/nginx-unprivileged:1.27","name":"worker","ports":[{"containerPort":8080,"protocol":"TCP"}],"resources":{}}]}}},"networkConfig":{"$patch":"replace","subdomainPolicy":"Shared"}}}`

// Keys are those of other implementations, so that a set changes hands without a restart.
func TestRevisionsOfLiveSets(t *testing.T) {
	aside(t)
	for _, v := range []struct {
		name, key, data string
		edit            edit
	}{
		{"plain", "7bdcf6cbd6", vectorData, func(*lwsv1.LeaderWorkerSet) {}},
		{"no leader template", "66c987c45d", "", func(set *lwsv1.LeaderWorkerSet) { set.Spec.LeaderWorkerTemplate.LeaderTemplate = nil }},
		{"unique per replica", "675dbb7bc5", "", uniquePerReplica},
		{"subgroups", "5cc8765c65", "", func(set *lwsv1.LeaderWorkerSet) {
			set.Spec.LeaderWorkerTemplate.Size = new(int32(3))
			partsOf(1, lwsv1.SubGroupPolicyTypeLeaderWorker)(set)
		}},
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
			s.Create(set)
			s.Eventually("the set has a revision", func() error { return drill.Lacking("revisions", 1, len(s.revisions(set))) })
			revision := s.revision(set)
			same(t, "key", v.key, revision.Labels[lwsv1.RevisionKey])
			same(t, "name", "test-sample-"+v.key+"-1", revision.Name)
			if v.data != "" {
				same(t, "data", v.data, string(revision.Data.Raw))
			}
		})
	}
}

// vectorSet returns the set of the vectors, without groups.
func (s *scene) vectorSet(change edit) *lwsv1.LeaderWorkerSet {
	const image = "docker.io/nginxinc/nginx-unprivileged:1.27"
	shared, none, size := lwsv1.SubdomainShared, int32(0), int32(2)
	leader := corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "leader", Image: image}}}}
	worker := corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "worker", Image: image,
		Ports: []corev1.ContainerPort{{ContainerPort: 8080, Protocol: corev1.ProtocolTCP}}}}}}
	set := &lwsv1.LeaderWorkerSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "test-sample"},
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
