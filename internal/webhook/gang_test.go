package webhook

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/gang"
)

// kin returns its set and its leader.
type kin struct {
	set    *lwsv1.LeaderWorkerSet
	leader *corev1.Pod
	err    error
}

func (k *kin) Set(context.Context, *corev1.Pod) (*lwsv1.LeaderWorkerSet, error) {
	return k.set, k.err
}

func (k *kin) Leader(context.Context, *corev1.Pod) (*corev1.Pod, error) {
	return k.leader, k.err
}

func worker(edits ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: "w-0-1",
		Labels:      map[string]string{lwsv1.SetNameLabelKey: "w", lwsv1.GroupIndexLabelKey: "0", lwsv1.RevisionKey: "r"},
		Annotations: map[string]string{lwsv1.SizeAnnotationKey: "2", lwsv1.LeaderPodNameAnnotationKey: "w-0"},
	}}
	for _, edit := range edits {
		edit(pod)
	}
	return pod
}

// A pod gets the PodGroup of its gang. A pod whose set or leader cannot be read is refused: it would
// be placed alone. A pod that is in a gang, or of no set, costs no read.
func TestPodsGetThePodGroup(t *testing.T) {
	says := func(scheduler string) *lwsv1.LeaderWorkerSet {
		return &lwsv1.LeaderWorkerSet{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{lwsv1.GangSchedulerAnnotationKey: scheduler}}}
	}
	leader := func(edits ...func(*corev1.Pod)) *corev1.Pod {
		return worker(append(edits, func(pod *corev1.Pod) {
			pod.Name, pod.Labels[lwsv1.WorkerIndexLabelKey] = "w-0", "0"
			delete(pod.Annotations, lwsv1.LeaderPodNameAnnotationKey)
		})...)
	}
	tied := func(pod *corev1.Pod) { gang.Tie(pod, gang.NameOf(pod)) }
	older := func(pod *corev1.Pod) { pod.Labels[lwsv1.RevisionKey] = "older" }
	noAnswer := &kin{err: errors.New("no answer")}
	for name, tt := range map[string]struct {
		pod   *corev1.Pod
		gangs Gangs
		want  string
	}{
		"a leader goes where its set says":                  {leader(), Gangs{Kin: &kin{set: says("volcano")}}, "w-0-r"},
		"a leader of a set that wants none":                 {leader(), Gangs{Otherwise: true, Kin: &kin{set: says("none")}}, ""},
		"a leader of a set that does not say":               {leader(), Gangs{Otherwise: true, Kin: &kin{set: says("")}}, "w-0-r"},
		"a leader whose set is not found":                   {leader(), Gangs{Otherwise: true, Kin: &kin{}}, "w-0-r"},
		"a leader without any wish":                         {leader(), Gangs{Kin: &kin{}}, ""},
		"a worker follows its leader":                       {worker(), Gangs{Kin: &kin{set: says("none"), leader: leader(tied)}}, "w-0-r"},
		"a worker follows its leader that is in no gang":    {worker(), Gangs{Otherwise: true, Kin: &kin{set: says("volcano"), leader: leader()}}, ""},
		"a worker of another revision than the leader":      {worker(), Gangs{Kin: &kin{set: says("none"), leader: leader(older, tied)}}, ""},
		"a worker without a leader goes where its set says": {worker(), Gangs{Kin: &kin{set: says("volcano")}}, "w-0-r"},
		"a worker whose template is tied":                   {worker(tied), Gangs{Kin: noAnswer}, "w-0-r"},
		"not read":                                          {worker(), Gangs{Kin: noAnswer}, "refused"},
		"of no set":                                         {&corev1.Pod{}, Gangs{Kin: noAnswer}, ""},
	} {
		err := tt.gangs.mutatePod(t.Context(), tt.pod)
		if got := tt.pod.Annotations[gang.PodGroupAnnotationKey]; (err != nil) != (tt.want == "refused") || err == nil && got != tt.want {
			t.Errorf("%s: PodGroup %q, %v", name, got, err)
		}
	}
}
