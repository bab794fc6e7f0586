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
	reads  int
}

func (k *kin) Set(context.Context, *corev1.Pod) (*lwsv1.LeaderWorkerSet, error) {
	k.reads++
	return k.set, k.err
}

func (k *kin) Leader(context.Context, *corev1.Pod) (*corev1.Pod, error) {
	k.reads++
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

func inGang(pod *corev1.Pod) { gang.Tie(pod, "w-0-r") }

func TestPodsGetThePodGroup(t *testing.T) {
	named := &lwsv1.LeaderWorkerSet{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{lwsv1.GangSchedulerAnnotationKey: "volcano"}}}
	tests := []struct {
		name  string
		gangs Gangs
		want  string
	}{
		{"no gang", Gangs{}, ""},
		{"by configuration", Gangs{Otherwise: true, Kin: &kin{}}, "w-0-r"},
		{"by annotation of the set", Gangs{Kin: &kin{set: named}}, "w-0-r"},
		{"by the leader", Gangs{Kin: &kin{leader: worker(inGang)}}, "w-0-r"},
		{"no gang of the leader", Gangs{Otherwise: true, Kin: &kin{set: named, leader: worker()}}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			pod := worker()
			if err := tt.gangs.mutatePod(t.Context(), pod); err != nil {
				t.Fatal(err)
			}
			if got := pod.Annotations[gang.PodGroupAnnotationKey]; got != tt.want {
				t.Errorf("pod group %q, want %q", got, tt.want)
			}
		})
	}
}

func TestPodOfAnUnknownGangIsRefused(t *testing.T) {
	gangs := Gangs{Kin: &kin{err: errors.New("no answer")}}
	if err := gangs.mutatePod(t.Context(), worker()); err == nil {
		t.Error("the pod would be placed alone")
	}
}

func TestNoReadsForPodsWithAGangOrWithoutASet(t *testing.T) {
	k := &kin{err: errors.New("no answer")}
	for _, pod := range []*corev1.Pod{worker(inGang), {}} {
		if err := (Gangs{Kin: k}).mutatePod(t.Context(), pod); err != nil || k.reads > 0 {
			t.Errorf("%d reads: %v", k.reads, err)
		}
	}
}
