package integration

import (
	"errors"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/pvc"
	"lockstep.dev/lockstep/test/fakeapi"
)

// TestStrictLetsNoPodGetBy asks a real API server what the policies of mode strict do to pods.
func TestStrictLetsNoPodGetBy(t *testing.T) {
	g := newGuarded(t, nil, "strict.yaml")
	const strict, lax = "strict", "lax"
	g.create(inMode(strict, "strict"))
	g.create(inMode(lax, "hold"))
	g.grant("pods", []string{"alice", "wanda"}, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods", "pods/status"}, Verbs: []string{"*"}})
	for _, namespace := range []string{strict, lax} {
		g.create(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "default"}})
	}
	g.until("a pod that names its node is refused", func() bool {
		err := g.alice.Create(t.Context(), onNode(podWith(strict, "probe", "data")), client.DryRunAll)
		return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "gated.protection.lockstep.dev")
	})
	g.until("a pod is gated", func() bool {
		pod := podWith(strict, "probe", "data")
		return g.alice.Create(t.Context(), pod, client.DryRunAll) == nil && pvc.Gated(pod)
	})

	t.Run("pods that use claims are gated", func(t *testing.T) {
		gate := corev1.PodSchedulingGate{Name: pvc.UseGate}
		ephemeral := podWith(strict, "ephemeral")
		ephemeral.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
		others := podWith(strict, "others", "data")
		others.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.com/first"}, gate}
		for _, tt := range []struct {
			pod  *corev1.Pod
			want []corev1.PodSchedulingGate
		}{
			{podWith(strict, "web", "data"), []corev1.PodSchedulingGate{gate}},
			{podWith(strict, "none"), nil},
			{ephemeral, nil},
			{others, []corev1.PodSchedulingGate{{Name: "example.com/first"}, gate}},
			{podWith(lax, "web", "data"), nil},
		} {
			g.must(g.alice.Create(t.Context(), tt.pod))
			if !slices.Equal(tt.pod.Spec.SchedulingGates, tt.want) {
				t.Errorf("%s/%s: got %v, want %v", tt.pod.Namespace, tt.pod.Name, tt.pod.Spec.SchedulingGates, tt.want)
			}
		}
	})

	t.Run("a pod that names its node is refused", func(t *testing.T) {
		err := g.alice.Create(t.Context(), onNode(podWith(strict, "bound", "data")))
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), `this one names node "node-1". Leave spec.nodeName out`) {
			t.Errorf("got %v", err)
		}
		for _, free := range []*corev1.Pod{onNode(podWith(strict, "bound")), onNode(podWith(lax, "bound", "data"))} {
			if err := g.alice.Create(t.Context(), free); err != nil {
				t.Error(err)
			}
		}
	})

	t.Run("the gate is lifted by those who may release", func(t *testing.T) {
		lift := func(c client.Client) error {
			return c.Patch(t.Context(), podWith(strict, "web"), merge(`{"spec":{"schedulingGates":[]}}`))
		}
		if err := lift(g.alice); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), `needs permission to release claims.protection.lockstep.dev in namespace "strict"`) {
			t.Errorf("alice: got %v", err)
		}
		label := merge(`{"metadata":{"labels":{"a":"b"}}}`)
		if err := errors.Join(g.alice.Patch(t.Context(), podWith(strict, "web"), label), lift(g.wanda)); err != nil {
			t.Error(err)
		}
	})
}

// podWith returns a pod that uses PVCs.
func podWith(namespace, name string, claims ...string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "example.com/none"}}, Volumes: fakeapi.Using(claims...)},
	}
}

func onNode(pod *corev1.Pod) *corev1.Pod {
	pod.Spec.NodeName = "node-1"
	return pod
}
