package pvc_test

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"lockstep.dev/lockstep/internal/pvc"
)

// scene is a namespace with claims on their way out and pods that may use them.
type scene struct {
	claims   []*corev1.PersistentVolumeClaim
	pods     []*corev1.Pod
	settings pvc.Settings
}

var names = []string{"data-db-0", "data-db-1", "logs", "web-scratch"}

func drawScene(t *rapid.T) scene {
	s := scene{settings: pvc.Settings{Alone: rapid.Bool().Draw(t, "alone"), Mode: pvc.Mode(rapid.IntRange(0, 4).Draw(t, "mode"))}}
	for _, name := range names {
		s.claims = append(s.claims, drawClaim(t, name))
	}
	for i := range rapid.IntRange(0, 4).Draw(t, "pods") {
		s.pods = append(s.pods, drawPod(t, fmt.Sprintf("pod-%d", i)))
	}
	return s
}

func drawClaim(t *rapid.T, name string) *corev1.PersistentVolumeClaim {
	c := claim(name, finalizers(rapid.SliceOfNDistinct(rapid.SampledFrom([]string{p, b, "x/1", "x/2"}), 0, 4, rapid.ID).Draw(t, "finalizers")...))
	if rapid.IntRange(0, 3).Draw(t, "dying") > 0 {
		dying(c)
	}
	if record := rapid.SampledFrom([]string{"", "", "pod-0=uid-pod-0", "gone=uid-gone", "?"}).Draw(t, "record"); record != "" {
		c.Annotations[pvc.UsersAnnotation] = record
	}
	if owner := rapid.SampledFrom([]types.UID{"", "", "uid-pod-1"}).Draw(t, "owner"); owner != "" {
		controlledBy("Pod", owner)(c)
	}
	return c
}

func drawPod(t *rapid.T, name string) *corev1.Pod {
	o := pod(name, rapid.SliceOfNDistinct(rapid.SampledFrom(names), 0, 2, rapid.ID).Draw(t, "claims"))
	o.Status.Phase = rapid.SampledFrom([]corev1.PodPhase{corev1.PodPending, corev1.PodRunning, corev1.PodSucceeded, corev1.PodFailed, ""}).Draw(t, "phase")
	if rapid.Bool().Draw(t, "unbound") {
		o.Spec.NodeName = ""
	}
	if rapid.IntRange(0, 3).Draw(t, "leaving") == 0 {
		leaving(rapid.SampledFrom([]int64{0, 30}).Draw(t, "grace"))(o)
	}
	return o
}

func (s scene) judge(err error) ([]pvc.Release, []pvc.Kept) {
	return s.settings.Take(ns, s.claims).Look(reading(err, s.pods...)).Judge()
}

// bound reports whether a bound pod names a claim as an ordinary volume.
func (s scene) bound(name string) bool {
	return slices.ContainsFunc(s.pods, func(o *corev1.Pod) bool {
		return o.Spec.NodeName != "" && slices.ContainsFunc(o.Spec.Volumes, func(v corev1.Volume) bool { return v.PersistentVolumeClaim.ClaimName == name })
	})
}

func (s scene) claimed(name string) *corev1.PersistentVolumeClaim {
	return s.claims[slices.Index(names, name)]
}
