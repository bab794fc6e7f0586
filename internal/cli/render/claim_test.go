package render_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"lockstep.dev/lockstep/internal/cli/inquiry"
	"lockstep.dev/lockstep/internal/cli/render"
	"lockstep.dev/lockstep/internal/pvc"
)

// foundClaim is a claim on its way out that a pod on a lost node holds.
func foundClaim() *inquiry.Found {
	deleted := metav1.NewTime(now.Add(-3 * time.Hour))
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "prod", Name: "data-db-0", UID: "u-claim", DeletionTimestamp: &deleted,
			Finalizers: []string{pvc.PodsFinalizer, pvc.BarrierFinalizer},
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
	world := &inquiry.World{Namespace: "prod", At: now.Add(-time.Second), Holds: pvc.World{Pods: pvc.NewIndex(), Desire: pvc.NewDesire("prod", nil)}}
	world.Holds.Pods.See(pod)
	return &inquiry.Found{World: world, ModeFrom: "its namespace chose it", Case: pvc.Case{
		Claim: claim, Mode: pvc.Hold, World: world.Holds, Pods: map[types.UID]*corev1.Pod{pod.UID: pod},
		Nodes:  map[string]*corev1.Node{"n7": {ObjectMeta: metav1.ObjectMeta{Name: "n7"}}},
		Volume: &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv-1"}, Spec: corev1.PersistentVolumeSpec{PersistentVolumeReclaimPolicy: "Delete"}},
		Unread: []pvc.Unread{{What: "volumeattachments", Why: "you may not read it"}},
		Now:    now,
	}}
}

func claimText(t *testing.T, c *render.ClaimWhy) string {
	t.Helper()
	var out strings.Builder
	if err := c.WriteText(&out, now); err != nil {
		t.Fatal(err)
	}
	return "\n" + out.String()
}

func TestAClaimThatDoesNotGoIsExplained(t *testing.T) {
	checkClaim(t, render.Claim(foundClaim(), nil), `
pvc/data-db-0 in namespace prod is being deleted, and stays until pod db-0 on node n7 lets go.
Its deletion was asked for 3h ago. Who asked is unknown: the object does not say; the API server's audit log would.
state Draining for 3h; mode hold (its namespace chose it); volume pv-1, 1Gi, reclaim policy Delete

FINALIZER                         OWNER                                         GOES WHEN
kubernetes.io/pvc-protection      persistentvolumeclaim-protection-controller   no bound pod names the claim
protection.lockstep.dev/barrier   lockstep                                      kubernetes.io/pvc-protection is gone, and no bound pod names the claim in a reading after that

USED BY    HOLDS   SINCE   PHASE     WHY
Pod/db-0   yes     2d      Running   bound to node n7, and on its way out, was to be gone 3h ago
    by spec.volumes[data].persistentVolumeClaim.claimName, uid u-pod

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

func checkClaim(t *testing.T, c *render.ClaimWhy, want string) {
	t.Helper()
	if diff := cmp.Diff(want, claimText(t, c)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// heldClaim is a claim whose deletion is refused for a workload.
func heldClaim() *inquiry.Found {
	f := foundClaim()
	f.Claim.DeletionTimestamp = nil
	f.Claim.Annotations = map[string]string{
		pvc.HoldersAnnotation: "RayCluster/x", pvc.VerifiedAnnotation: now.Add(-3 * time.Hour).Format(time.RFC3339),
	}
	f.Pods["u-pod"].DeletionTimestamp = nil
	f.Nodes = nil
	f.Unread = []pvc.Unread{{What: "jobs", Why: "you may not read it", MayHold: true}}
	f.World.Live = true
	return f
}

func TestAClaimThatIsHeldIsExplained(t *testing.T) {
	refused := &inquiry.Attempt{Outcome: inquiry.Refused, By: "ValidatingAdmissionPolicy 'p'", Message: "the claim is in use", Warnings: []string{"think twice"}}
	checkClaim(t, render.Claim(heldClaim(), refused), `
pvc/data-db-0 in namespace prod is in use by RayCluster/x, Pod/db-0: a DELETE is refused.
state Held for 2d; mode hold (its namespace chose it); volume pv-1, 1Gi, reclaim policy Delete

IF DELETED NOW (tried on the server; nothing was deleted)
  refused by ValidatingAdmissionPolicy 'p': the claim is in use
  with a warning: think twice

FINALIZER                         OWNER                                         GOES WHEN
kubernetes.io/pvc-protection      persistentvolumeclaim-protection-controller   no bound pod names the claim
protection.lockstep.dev/barrier   lockstep                                      kubernetes.io/pvc-protection is gone, and no bound pod names the claim in a reading after that

USED BY        HOLDS   SINCE   PHASE     WHY
Pod/db-0       yes     2d      Running   bound to node n7
    by spec.volumes[data].persistentVolumeClaim.claimName, uid u-pod
RayCluster/x   yes     -       -         named by the operator; not found here
    by metadata.annotations[protection.lockstep.dev/holders]

CANNOT TELL
  jobs: you may not read it: what holds the claim may be among them

TO FREE IT (the fewest deeds)
  1. delete Pod/db-0
      kubectl delete pod db-0 -n prod
  2. RayCluster/x: the operator takes the word away once it is no longer so

TO DELETE IT
  1. delete it once nothing holds it: a hold outlives the last holder by 5 minutes, unless configured otherwise
      kubectl delete pvc data-db-0 -n prod
  2. or have the operator delete it then
      kubectl annotate pvc data-db-0 -n prod protection.lockstep.dev/delete-when-free=u-claim

THEN, once it is gone
  volume pv-1 is deleted, and the data with it

To let it be deleted while it is in use all the same:
      kubectl lockstep release pvc/data-db-0 -n prod

read 1s ago, live; operator last confirmed this 3h ago
`)
}

func TestWhatIsReadBeforeARelease(t *testing.T) {
	var out strings.Builder
	if err := render.Claim(heldClaim(), nil).WriteRelease(&out, now, true, true); err != nil {
		t.Fatal(err)
	}
	want := `
THIS WILL
  write protection.lockstep.dev/release=u-claim on the claim: its deletion is not refused any more
  delete the claim: no pod can start on it any more, it stays until Pod/db-0 lets go, and that cannot be taken back
  once it is gone: volume pv-1 is deleted, and the data with it

To keep the data, before anything else:
      kubectl patch pv pv-1 -p '{"spec":{"persistentVolumeReclaimPolicy":"Retain"}}'
`
	if _, after, found := strings.Cut(out.String(), "\n\nTHIS WILL"); !found || "\nTHIS WILL"+after != want {
		t.Errorf("got\n%s", out.String())
	}
}

func TestTheOverviewBeginsWithWhatWaitsToGo(t *testing.T) {
	free := heldClaim()
	free.Claim.Annotations, free.Unread = nil, nil
	free.Case.World.Pods = pvc.NewIndex()
	all := []*render.ClaimWhy{render.Claim(free, nil), render.Claim(heldClaim(), nil), render.Claim(foundClaim(), nil)}
	for _, tt := range []struct {
		spaces bool
		want   string
	}{
		{true, `
NAMESPACE   CLAIM       STATE      SINCE   DELETE      HELD BY                  TO FREE IT
prod        data-db-0   Draining   3h      under way   Pod/db-0                 if the machine n7 is off for certain, say so by a taint; if not, bring it back
prod        data-db-0   Held       2d      refused     Pod/db-0, RayCluster/x   -

and 1 claim that nobody uses

see one in full with: kubectl lockstep why pvc/NAME
`},
	} {
		var out strings.Builder
		if err := render.Overview(all, tt.spaces).WriteText(&out, now); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tt.want, "\n"+out.String()); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}

// TestOthersFinalizersOutliveADelete: neither a DELETE that is tried nor a release may
// promise that the claim goes at once.
func TestOthersFinalizersOutliveADelete(t *testing.T) {
	f := heldClaim()
	f.Claim.Finalizers = append(f.Claim.Finalizers, "x/1")
	f.Claim.Annotations, f.Unread = nil, nil
	f.Case.World.Pods = pvc.NewIndex()
	var out strings.Builder
	c := render.Claim(f, &inquiry.Attempt{Outcome: inquiry.Accepted})
	if err := c.WriteRelease(&out, now, true, false); err != nil {
		t.Fatal(err)
	}
	for says, in := range map[string]string{
		"accepted: it would stay, on its way out, until the owner of finalizer x/1 lets go": claimText(t, c),
		"it stays until the owner of finalizer x/1 lets go":                                 out.String(),
	} {
		if !strings.Contains(in, says) {
			t.Errorf("it does not say %q:\n%s", says, in)
		}
	}
}

// A volume that is bound to another claim is neither lost nor to be rescued.
func TestAnothersVolumeIsNotTouched(t *testing.T) {
	f := foundClaim()
	f.Volume.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "prod", Name: "data-db-0", UID: "u-before"}
	c := render.Claim(f, nil)
	text := claimText(t, c)
	if !strings.Contains(text, "; volume pv-1, not bound to this claim\n") || strings.Contains(text, "Retain") || c.Volume.Standing != "Elsewhere" {
		t.Errorf("got %s", text)
	}
}

// The names below are read by programs: they are never changed or taken away.
func TestFieldsOfAClaimForPrograms(t *testing.T) {
	raw, err := json.Marshal(render.Claim(foundClaim(), &inquiry.Attempt{Outcome: inquiry.Accepted}))
	if err != nil {
		t.Fatal(err)
	}
	want := `{"kind":"ClaimWhy","apiVersion":"cli.lockstep.dev/v1","namespace":"prod","name":"data-db-0",` +
		`"claim":"prod/data-db-0","uid":"u-claim","state":"Draining","summary":"is being deleted, and stays until pod db-0 on node n7 lets go","mode":"hold",` +
		`"since":"2026-01-01T09:00:00Z","askedBy":"unknown","refused":false,` +
		`"finalizers":[{"key":"kubernetes.io/pvc-protection","owner":"persistentvolumeclaim-protection-controller","drops":"no bound pod names the claim"},` +
		`{"key":"protection.lockstep.dev/barrier","owner":"lockstep","drops":"kubernetes.io/pvc-protection is gone, and no bound pod names the claim in a reading after that"}],` +
		`"holders":[{"name":"Pod/db-0","uid":"u-pod","reason":"BoundPod","proof":"spec.volumes[data].persistentVolumeClaim.claimName","node":"n7","phase":"Running",` +
		`"released":"delete the pod","since":"2025-12-30T12:00:00Z","leaving":"2026-01-01T09:00:00Z","holds":true,"why":"bound to node n7, and on its way out"}],` +
		`"blockers":[{"of":"Pod/db-0","what":"node n7 is not ready: nobody there can end the pod","remedy":"if the machine n7 is off for certain, say so by a taint; if not, bring it back",` +
		`"command":"kubectl taint node n7 node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"}],` +
		`"actions":[{"do":"if the machine n7 is off for certain, say so by a taint; if not, bring it back",` +
		`"command":"kubectl taint node n7 node.kubernetes.io/out-of-service=nodeshutdown:NoExecute","frees":["Pod/db-0"]}],` +
		`"then":["volume pv-1 is deleted, and the data with it"],` +
		`"rescue":[{"do":"keep the volume: change its reclaim policy before the claim goes","command":"kubectl patch pv pv-1 -p '{\"spec\":{\"persistentVolumeReclaimPolicy\":\"Retain\"}}'"}],` +
		`"unread":[{"what":"volumeattachments","why":"you may not read it","mayHold":false}],` +
		`"modeFrom":"its namespace chose it","volume":{"name":"pv-1","standing":"Bound","reclaimPolicy":"Delete","capacity":"1Gi"},` +
		`"deletion":{"outcome":"Accepted"},"readAt":"2026-01-01T11:59:59Z","live":false}`
	if diff := cmp.Diff(want, string(raw)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
