package report_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"lockstep.dev/lockstep/internal/cli/inquiry"
	"lockstep.dev/lockstep/internal/cli/report"
	"lockstep.dev/lockstep/internal/protect"
)

// foundClaim is a claim on its way out that a pod on a lost node holds.
func foundClaim() *inquiry.Found {
	deleted := metav1.NewTime(now.Add(-3 * time.Hour))
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "prod", Name: "data-db-0", UID: "u-claim", DeletionTimestamp: &deleted,
			Finalizers: []string{protect.PodsFinalizer, protect.BarrierFinalizer},
		},
		Spec:   corev1.PersistentVolumeClaimSpec{VolumeName: "pv-1"},
		Status: corev1.PersistentVolumeClaimStatus{Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "prod", Name: "db-0", UID: "u-pod", DeletionTimestamp: &deleted, CreationTimestamp: metav1.NewTime(now.Add(-48 * time.Hour)),
		},
		Spec: corev1.PodSpec{NodeName: "n7", Volumes: []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data-db-0"},
		}}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
	world := &inquiry.World{Namespace: "prod", At: now.Add(-time.Second), Holds: protect.World{Pods: protect.NewIndex(), Desire: protect.NewDesire("prod", nil)}}
	world.Holds.Pods.See(pod)
	return &inquiry.Found{World: world, ModeFrom: "its namespace chose it", Case: protect.Case{
		Claim: claim, Mode: protect.Hold, World: world.Holds, Pods: map[types.UID]*corev1.Pod{pod.UID: pod},
		Nodes:  map[string]*corev1.Node{"n7": {ObjectMeta: metav1.ObjectMeta{Name: "n7"}}},
		Volume: &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv-1"}, Spec: corev1.PersistentVolumeSpec{PersistentVolumeReclaimPolicy: "Delete"}},
		Unread: []protect.Unread{{What: "volumeattachments", Why: "you may not read it"}},
		Now:    now,
	}}
}

func claimText(t *testing.T, c *report.ClaimWhy) string {
	t.Helper()
	var out strings.Builder
	if err := c.WriteText(&out, now); err != nil {
		t.Fatal(err)
	}
	return "\n" + out.String()
}

func TestAClaimThatDoesNotGoIsExplained(t *testing.T) {
	checkClaim(t, report.Claim(foundClaim(), nil), `
pvc/data-db-0 in namespace prod is being deleted, and stays until Pod/db-0 lets go.
Its deletion was asked for 3h ago. Who asked is unknown: the object does not say; the API server's audit log would.
mode hold (its namespace chose it); volume pv-1, 1Gi, reclaim policy Delete

USED BY    HOLDS   SINCE   PHASE     WHY                                                           PROOF                                                UID
Pod/db-0   yes     2d      Running   bound to node n7, and on its way out, was to be gone 3h ago   spec.volumes[data].persistentVolumeClaim.claimName   u-pod

FINALIZER                         OWNER                                         GOES WHEN
kubernetes.io/pvc-protection      persistentvolumeclaim-protection-controller   no bound pod names the claim
protection.lockstep.dev/barrier   lockstep                                      kubernetes.io/pvc-protection is gone, and no bound pod names the claim in a reading after that

IN THE WAY
  Pod/db-0: node n7 is not ready: nobody there can end the pod

CANNOT TELL
  volumeattachments: you may not read it

TO KEEP THE DATA, before anything else
  keep the volume: change its reclaim policy before the claim goes
      kubectl patch pv pv-1 -p '{"spec":{"persistentVolumeReclaimPolicy":"Retain"}}'

TO FREE IT (the fewest deeds)
  if the machine n7 is off for certain, say so by a taint; if not, bring it back
      kubectl taint node n7 node.kubernetes.io/out-of-service=nodeshutdown:NoExecute

THEN, once it is gone
  volume pv-1 is deleted, and the data with it

read 1s ago, from the API server's cache, which may be some seconds behind (--live asks for the newest)
`)
}

func checkClaim(t *testing.T, c *report.ClaimWhy, want string) {
	t.Helper()
	if diff := cmp.Diff(want, claimText(t, c)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
