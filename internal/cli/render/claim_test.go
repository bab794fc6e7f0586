package render_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	clipvc "lockstep.dev/lockstep/internal/cli/pvc"
	"lockstep.dev/lockstep/internal/cli/render"
	"lockstep.dev/lockstep/internal/pvc"
	"lockstep.dev/lockstep/internal/pvc/workloads"
)

// foundClaim is a terminating PVC that a pod on a lost node holds.
func foundClaim() *clipvc.Found {
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
	world := pvc.World{Pods: pvc.NewIndex(), Desire: workloads.NewDesire("prod", nil)}
	world.Pods.See(pod)
	return &clipvc.Found{ModeFrom: "label of the namespace", Case: pvc.Case{
		Claim: claim, Mode: pvc.Hold, World: world, Pods: map[types.UID]*corev1.Pod{pod.UID: pod},
		Nodes:  map[string]*corev1.Node{"n7": {ObjectMeta: metav1.ObjectMeta{Name: "n7"}}},
		Volume: &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv-1"}, Spec: corev1.PersistentVolumeSpec{PersistentVolumeReclaimPolicy: "Delete"}},
		Unread: []pvc.Unread{{What: "nodes", Why: "you may not read it"}},
		Now:    now,
	}}
}

// heldClaim is a PVC whose deletion is refused for a workload of an unknown kind.
func heldClaim() *clipvc.Found {
	f := foundClaim()
	f.Claim.DeletionTimestamp = nil
	f.Claim.Annotations = map[string]string{
		pvc.HoldersAnnotation: "RayCluster/x", pvc.VerifiedAnnotation: now.Add(-time.Hour).Format(time.RFC3339),
	}
	f.Pods["u-pod"].DeletionTimestamp = nil
	f.Nodes = nil
	return f
}

func freeClaim() *clipvc.Found {
	f := heldClaim()
	f.Claim.Annotations = nil
	f.World.Pods = pvc.NewIndex()
	return f
}

const (
	taint  = "kubectl taint node n7 node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"
	retain = `kubectl patch pv pv-1 -p '{"spec":{"persistentVolumeReclaimPolicy":"Retain"}}'`
)

func TestTextOfPVCs(t *testing.T) {
	why := func(f *clipvc.Found, attempt *clipvc.Deletion) string {
		var out strings.Builder
		if err := render.Claim(f, attempt).WriteText(&out, now); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	release := func(f *clipvc.Found, deletes, writes bool) string {
		var out strings.Builder
		if err := render.Claim(f, nil).WriteRelease(&out, now, deletes, writes); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	overview := func(found ...*clipvc.Found) string {
		var all []*render.ClaimWhy
		for _, f := range found {
			all = append(all, render.Claim(f, nil))
		}
		var out strings.Builder
		if err := render.Overview(all, true).WriteText(&out, now); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	elsewhere := foundClaim()
	elsewhere.Volume.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "prod", Name: "data-db-0", UID: "u-before"}
	foreign := freeClaim()
	foreign.Claim.Finalizers = append(foreign.Claim.Finalizers, "x/1")
	refused := &clipvc.Deletion{Outcome: clipvc.Refused, RefusedBy: "ValidatingAdmissionPolicy 'p'", Message: "in use", Warnings: []string{"think twice"}}
	accepted := &clipvc.Deletion{Outcome: clipvc.Accepted}
	for _, tt := range []struct {
		name, text string
		has        []string
		lacks      string
	}{
		{"terminating", why(foundClaim(), nil), []string{
			"pod db-0 on node n7", "state Draining for 3h; mode hold (label of the namespace); volume pv-1, 1Gi, reclaim policy Delete",
			pvc.BarrierFinalizer, "uid u-pod", "nodes: you may not read it", retain, taint, "volume pv-1 is deleted", "read 0s ago",
		}, "release pvc"},
		{"held", why(heldClaim(), refused), []string{
			"refused by ValidatingAdmissionPolicy 'p': in use", "warning: think twice", "RayCluster/x", "kubectl delete pod db-0 -n prod",
			"kubectl lockstep release pvc/data-db-0 -n prod", "operator last confirmed this 60m ago",
		}, taint},
		{"foreign finalizer", why(foreign, accepted), []string{"accepted: it stays", "finalizer x/1; this"}, "at once;"},
		{"free", why(freeClaim(), accepted), []string{"accepted: it is removed at once"}, "TO FREE IT"},
		{"volume of another PVC", why(elsewhere, nil), []string{"volume pv-1, not bound to this PVC"}, "Retain"},
		{"release", release(heldClaim(), true, true), []string{pvc.ReleaseAnnotation + "=u-claim", "gone: Pod/db-0; this cannot be undone", retain}, "delete nothing"},
		{"release of a foreign finalizer", release(foreign, false, false), []string{"delete nothing", "gone: finalizer x/1"}, "write "},
		{"overview", overview(freeClaim(), heldClaim(), foundClaim()), []string{"NAMESPACE", "under way", "refused", "Pod/db-0 and 1 more", "and 1 PVC not in use"}, "accepted"},
		{"empty overview", overview(), []string{"there are no PVCs"}, "NAMESPACE"},
	} {
		for _, has := range tt.has {
			if !strings.Contains(tt.text, has) {
				t.Errorf("%s lacks %q:\n%s", tt.name, has, tt.text)
			}
		}
		if strings.Contains(tt.text, tt.lacks) {
			t.Errorf("%s has %q:\n%s", tt.name, tt.lacks, tt.text)
		}
	}
	if text := overview(heldClaim(), foundClaim()); strings.Index(text, "Draining") > strings.Index(text, "Held") {
		t.Errorf("terminating PVCs do not come first:\n%s", text)
	}
}

// Clients read these fields: they are never renamed or removed.
func TestFieldsOfAClaimForPrograms(t *testing.T) {
	keys := func(in map[string]any) []string {
		var all []string
		for key, value := range in {
			all = append(all, key)
			list, _ := value.([]any)
			if len(list) == 0 {
				continue
			}
			if first, ok := list[0].(map[string]any); ok {
				for inner := range first {
					all = append(all, key+"."+inner)
				}
			}
		}
		return all
	}
	var have []string
	for _, f := range []*clipvc.Found{foundClaim(), heldClaim()} {
		raw, err := json.Marshal(render.Claim(f, &clipvc.Deletion{Outcome: clipvc.Accepted}))
		if err != nil {
			t.Fatal(err)
		}
		fields := map[string]any{}
		if err := json.Unmarshal(raw, &fields); err != nil {
			t.Fatal(err)
		}
		have = append(have, keys(fields)...)
	}
	for _, want := range strings.Fields(`kind apiVersion namespace name claim uid state since summary mode modeFrom verifiedAt refused release
		finalizers.key finalizers.owner finalizers.drops holders.name holders.uid holders.reason holders.proof holders.node holders.phase
		holders.since holders.leaving holders.holds holders.why holders.released actions.do actions.command actions.frees
		delete.do delete.command rescue.do rescue.command then volume unread.what unread.why unread.mayHold deletion
		askedBy live`) {
		if !slices.Contains(have, want) {
			t.Errorf("no field %s", want)
		}
	}
}
