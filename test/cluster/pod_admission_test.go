package cluster

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
)

// hostile is a pod that no set creates. The webhooks must answer it.
type hostile struct {
	name   string
	labels map[string]string
	notes  map[string]string
	edit   func(*corev1.Pod)
}

var leaderLabels = map[string]string{lwsv1.SetNameLabelKey: "a", lwsv1.WorkerIndexLabelKey: "0"}
var workerLabels = map[string]string{lwsv1.SetNameLabelKey: "a", lwsv1.GroupIndexLabelKey: "0"}

func sized(size string) map[string]string { return map[string]string{lwsv1.SizeAnnotationKey: size} }

var hostiles = []hostile{
	{name: "a-0", labels: leaderLabels},
	{name: "a-0", labels: leaderLabels, notes: sized("")},
	{name: "a-0", labels: leaderLabels, notes: sized("many")},
	{name: "a-0", labels: leaderLabels, notes: sized("-1")},
	{name: "a-0", labels: leaderLabels, notes: sized("99999999999999999999")},
	{name: "a-0", labels: leaderLabels, notes: sized("2147483647"), edit: wantsTPU},
	{name: "a-0-1", labels: workerLabels, notes: sized("2147483647"), edit: wantsTPU},
	{name: "a-0", labels: leaderLabels, notes: subgrouped("2147483647", "0"), edit: wantsTPU},
	{name: "a-0-1", labels: workerLabels, notes: subgrouped("4", "0")},
	{name: "a-0-1", labels: workerLabels, notes: subgrouped("4", "-1")},
	{name: "a-0-1", labels: workerLabels, notes: subgrouped("2147483647", "2147483647"), edit: wantsTPU},
	{name: "no-ordinal", labels: leaderLabels, notes: sized("2")},
	{name: "no-ordinal", labels: workerLabels, notes: sized("2")},
	{name: "a-99999999999999999999", labels: leaderLabels, notes: sized("2")},
	{name: "a-0", labels: map[string]string{lwsv1.SetNameLabelKey: "a"}, notes: sized("2")},
	{name: "a-0", labels: map[string]string{lwsv1.SetNameLabelKey: ""}, notes: sized("2")},
	{name: "a-0-1", labels: map[string]string{lwsv1.SetNameLabelKey: "a", lwsv1.WorkerIndexLabelKey: "x"}, notes: sized("2")},
	{name: "a-0", labels: leaderLabels, notes: sized("2"), edit: megabyte},
	{name: "a-0", labels: leaderLabels, notes: sized("2"), edit: thousandContainers},
	{name: "", labels: leaderLabels, notes: sized("2"), edit: func(p *corev1.Pod) { p.GenerateName = "a-" }},
}

func subgrouped(size, subgroup string) map[string]string {
	return map[string]string{lwsv1.SizeAnnotationKey: size, lwsv1.SubGroupSizeAnnotationKey: subgroup,
		lwsv1.SubGroupPolicyTypeAnnotationKey: string(lwsv1.SubGroupPolicyTypeLeaderWorker)}
}

func wantsTPU(pod *corev1.Pod) {
	tpu := corev1.ResourceList{"google.com/tpu": resource.MustParse("1")}
	pod.Spec.Containers[0].Resources = corev1.ResourceRequirements{Limits: tpu, Requests: tpu}
}

func megabyte(pod *corev1.Pod) {
	pod.Annotations["test.lockstep.dev/large"] = strings.Repeat("x", 1<<20)
}

func thousandContainers(pod *corev1.Pod) {
	one := pod.Spec.Containers[0]
	for range 1000 {
		pod.Spec.Containers = append(pod.Spec.Containers, one)
	}
}

func TestHostilePodsAreAnswered(t *testing.T) {
	s := asideScene(t)
	alive := bed.Operator.PID()
	for _, h := range hostiles {
		s.answered(h)
	}
	s.Check("the operator", bed.Operator.Check())
	if now := bed.Operator.PID(); now != alive {
		t.Fatalf("the operator was started again: process %d became %d", alive, now)
	}
	outlast(t)
	s.silent(s.Audited)
}

// answered tries to create a hostile pod, and deletes it if it was admitted.
func (s *scene) answered(h hostile) {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: h.name, Labels: h.labels, Annotations: map[string]string{}},
		Spec:       template(imageA).Spec,
	}
	for key, value := range h.notes {
		pod.Annotations[key] = value
	}
	if h.edit != nil {
		h.edit(pod)
	}
	ctx, cancel := context.WithTimeout(s.Context(), patience)
	defer cancel()
	began := time.Now()
	err := s.Client.Create(ctx, pod)
	s.Logf("%q %v %.60v: %.0fms: %.120v", h.name, h.labels, h.notes, float64(time.Since(began).Milliseconds()), err)
	switch {
	case err == nil:
		s.Remove(pod)
		s.Until("pod "+pod.Name+" is gone", func() bool { return s.Now(pod) == nil })
	case unanswered(err):
		s.Errorf("pod %q %v %v was not answered: %v", h.name, h.labels, h.notes, err)
	}
}

// unanswered reports whether a webhook failed to answer.
func unanswered(err error) bool {
	refused := apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsRequestEntityTooLargeError(err)
	return !refused || strings.Contains(err.Error(), "failed calling webhook") || apierrors.IsTimeout(err)
}
