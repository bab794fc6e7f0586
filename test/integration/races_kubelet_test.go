package integration

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/pvc"
	"lockstep.dev/lockstep/test/kubelet"
)

// standIn compares the kubelet's own code with its stand-in for every kind of PVC.
func (c *course) standIn(t *testing.T) {
	c = c.on(t)
	ns := c.namespace()
	const foreign = "example.com/other"
	var pods []*corev1.Pod
	var claims []*corev1.PersistentVolumeClaim
	for i, finalizers := range [][]string{
		{pvc.PodsFinalizer},
		{pvc.PodsFinalizer, pvc.BarrierFinalizer},
		{foreign, pvc.PodsFinalizer},
		{pvc.BarrierFinalizer},
		{foreign},
	} {
		for _, terminating := range []bool{false, true} {
			for _, phase := range []corev1.PersistentVolumeClaimPhase{corev1.ClaimBound, corev1.ClaimPending, corev1.ClaimLost} {
				name := fmt.Sprintf("%d-%t-%s", i, terminating, strings.ToLower(string(phase)))
				claims = append(claims, c.claimIn(ns, name, terminating, phase, finalizers))
				pod := c.pod(ns, name, name)
				c.bind(pod)
				pods = append(pods, pod)
			}
		}
	}
	refused := 0
	for i, pod := range pods {
		claim := claims[i]
		c.until("a word about "+claim.Name, func() bool { return c.kubelet.mounts(pod, claim) || c.kubelet.refuses(pod) != "" })
		err := kubelet.Today.Admits(claim)
		if c.kubelet.mounts(pod, claim) != (err == nil) {
			t.Errorf("%s: the kubelet says %q, the stand-in %v", claim.Name, c.kubelet.refuses(pod), err)
		}
		if err != nil {
			refused++
			if said := c.kubelet.refuses(pod); !strings.Contains(said, err.Error()) {
				t.Errorf("%s: the kubelet says %q, the stand-in %v", claim.Name, said, err)
			}
		}
		if claim.DeletionTimestamp != nil && kubelet.Old.Admits(claim) == nil {
			t.Errorf("%s: an old kubelet mounts what is terminating", claim.Name)
		}
	}
	if refused == 0 || refused == len(pods) {
		t.Errorf("%d of %d refused", refused, len(pods))
	}
}

// claimIn creates a PVC in a state of choice.
func (c *course) claimIn(ns, name string, terminating bool, phase corev1.PersistentVolumeClaimPhase, finalizers []string) *corev1.PersistentVolumeClaim {
	c.t.Helper()
	claim := c.claim(ns, name)
	claim.Finalizers = finalizers
	c.must(c.Update(c.t.Context(), claim))
	if terminating {
		c.must(c.Delete(c.t.Context(), claim))
	}
	status := fmt.Appendf(nil, `{"status":{"phase":%q}}`, phase)
	c.must(c.Status().Patch(c.t.Context(), claim, client.RawPatch(types.MergePatchType, status)))
	return claim
}
