package pvc_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"lockstep.dev/lockstep/internal/pvc"
)

func caseOf(c *corev1.PersistentVolumeClaim, mode pvc.Mode, pods []*corev1.Pod, wants ...pvc.Want) pvc.Case {
	byUID := map[types.UID]*corev1.Pod{}
	for _, o := range pods {
		byUID[o.UID] = o
	}
	return pvc.Case{Claim: c, Mode: mode, World: world(index(pods...), wants...), Pods: byUID, Now: noon, Nodes: map[string]*corev1.Node{}}
}

func node(name string, ready corev1.ConditionStatus, taints ...string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{
		Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}},
	}}
	for _, taint := range taints {
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: taint})
	}
	return n
}

func volumeOf(c *corev1.PersistentVolumeClaim, policy corev1.PersistentVolumeReclaimPolicy) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: c.Spec.VolumeName},
		Spec:       corev1.PersistentVolumeSpec{PersistentVolumeReclaimPolicy: policy},
	}
}

// lines are what an explanation comes down to, for a test to read.
func lines(e pvc.Explanation) []string {
	told := []string{string(e.State)}
	for _, h := range e.Holders {
		told = append(told, h.Name+": "+h.Why)
	}
	for _, b := range e.Blockers {
		told = append(told, "blocked, "+b.Of+": "+b.What)
	}
	for _, a := range e.Actions {
		told = append(told, "do: "+a.Do)
	}
	for _, then := range e.Then {
		told = append(told, "then: "+then)
	}
	return told
}

func TestWhy(t *testing.T) {
	db := pvc.OfStatefulSet(statefulSet("db", 1))
	dbPod := func(edits ...func(*corev1.Pod)) *corev1.Pod {
		o := pod("db-0", []string{"data-db-0"}, edits...)
		controlledBy("StatefulSet", "uid-db")(o)
		return o
	}
	stuck := caseOf(claim("data", dying), pvc.Barrier, []*corev1.Pod{pod("web", []string{"data"}, leaving(30), func(o *corev1.Pod) { o.Finalizers = []string{"x/1"} })})
	stuck.Nodes["n1"] = node("n1", corev1.ConditionUnknown)
	off := stuck
	off.Nodes = map[string]*corev1.Node{"n1": node("n1", corev1.ConditionUnknown, corev1.TaintNodeOutOfService)}
	lost := stuck
	lost.Nodes = map[string]*corev1.Node{"n1": nil}
	kept := caseOf(claim("data", dying, finalizers(b, "x/1")), pvc.Barrier, nil)
	kept.Volume, kept.Attached = volumeOf(kept.Claim, corev1.PersistentVolumeReclaimRetain), []string{"n2"}
	gone := caseOf(claim("data"), pvc.Barrier, nil)
	gone.Volume = volumeOf(gone.Claim, corev1.PersistentVolumeReclaimDelete)
	held := caseOf(claim("data-db-0", annotated(pvc.HoldersAnnotation, "StatefulSet/db")), pvc.Hold, []*corev1.Pod{dbPod()}, db)
	lostAndHeld := held
	lostAndHeld.Nodes = map[string]*corev1.Node{"n1": node("n1", corev1.ConditionUnknown)}
	lostAndLiving := caseOf(claim("data"), pvc.Barrier, []*corev1.Pod{pod("web", []string{"data"}, func(o *corev1.Pod) { o.Finalizers = []string{"x/1", "batch.kubernetes.io/job-tracking"} })})
	lostAndLiving.Nodes["n1"] = node("n1", corev1.ConditionUnknown)
	tolerant := caseOf(claim("data", dying), pvc.Barrier, []*corev1.Pod{pod("web", []string{"data"}, func(o *corev1.Pod) {
		o.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	})})
	tolerant.Nodes["n1"] = node("n1", corev1.ConditionUnknown)
	elsewhere := caseOf(claim("data", dying), pvc.Barrier, nil)
	elsewhere.Volume = volumeOf(elsewhere.Claim, corev1.PersistentVolumeReclaimDelete)
	elsewhere.Volume.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "other", Name: "data", UID: "uid-other"}
	tests := []struct {
		name string
		c    pvc.Case
		want []string
	}{
		{"a finished pod", caseOf(claim("data", dying), pvc.Barrier, []*corev1.Pod{pod("job", []string{"data"}, phase(corev1.PodSucceeded))}), []string{
			"Draining", "Pod/job: the pod has finished; it still holds as long as it is there", "do: delete Pod/job",
			"then: volume pv-data was not read: what happens to the data is unknown",
		}},
		{"a pod that is not bound", caseOf(claim("data", dying), pvc.Barrier, []*corev1.Pod{pod("web", []string{"data"}, unbound)}), []string{
			"Draining", "Pod/web: not bound; it does not hold, but will be stranded",
			"do: wait some seconds; if it stays, see whether kube-controller-manager runs: it takes kubernetes.io/pvc-protection away",
			"then: volume pv-data was not read: what happens to the data is unknown",
		}},
		{"a pod that may not be scheduled yet", caseOf(claim("data"), pvc.Strict, []*corev1.Pod{pod("web", []string{"data"}, unbound, gated(pvc.UseGate))}), []string{
			"Free", "Pod/web: not bound; it waits under the gate " + pvc.UseGate + " until the operator has written it on all its claims, and does not hold before; if that lasts, see whether the operator runs",
			"then: volume pv-data was not read: what happens to the data is unknown",
		}},
		{"a pod that may not be scheduled on what goes", caseOf(claim("data", dying), pvc.Strict, []*corev1.Pod{pod("web", []string{"data"}, unbound, gated(pvc.UseGate))}), []string{
			"Draining", "Pod/web: not bound; it does not hold, and is never written on a claim that is on its way out: it will be stranded under the gate " + pvc.UseGate,
			"do: wait some seconds; if it stays, see whether kube-controller-manager runs: it takes kubernetes.io/pvc-protection away",
			"then: volume pv-data was not read: what happens to the data is unknown",
		}},
		{"a workload and its pod", caseOf(claim("data-db-0", dying), pvc.Barrier, []*corev1.Pod{dbPod()}, db), []string{
			"Doomed", "Pod/db-0: bound to node n1", "StatefulSet/db: wants the claim, and keeps no finalizer",
			"do: delete Pod/db-0",
			"then: volume pv-data-db-0 was not read: what happens to the data is unknown", "then: StatefulSet/db will create an empty claim of the same name",
		}},
		{"held", held, []string{
			"Held", "Pod/db-0: bound to node n1", "StatefulSet/db: its deletion is refused for this",
			"do: StatefulSet/db: scale it down below the ordinal, or delete it",
			"then: volume pv-data-db-0 was not read: what happens to the data is unknown", "then: StatefulSet/db will create an empty claim of the same name",
		}},
		{"a pod that cannot leave", stuck, []string{
			"Draining", "Pod/web: bound to node n1, and on its way out",
			"blocked, Pod/web: node n1 is not ready: nobody there can end the pod", "blocked, Pod/web: finalizer x/1",
			"do: if the machine n1 is off for certain, say so by a taint; if not, bring it back", "do: Pod/web, finalizer x/1: ask its owner",
			"then: volume pv-data was not read: what happens to the data is unknown",
		}},
		{"held, and its node is lost", lostAndHeld, []string{
			"Held", "Pod/db-0: bound to node n1", "StatefulSet/db: its deletion is refused for this", "blocked, Pod/db-0: node n1 is not ready: nobody there can end the pod",
			"do: StatefulSet/db: scale it down below the ordinal, or delete it", "do: if the machine n1 is off for certain, say so by a taint; if not, bring it back",
			"then: volume pv-data-db-0 was not read: what happens to the data is unknown", "then: StatefulSet/db will create an empty claim of the same name",
		}},
		{"a pod that could not leave if it were told to", lostAndLiving, []string{
			"Held", "Pod/web: bound to node n1",
			"blocked, Pod/web: node n1 is not ready: nobody there can end the pod", "blocked, Pod/web: finalizer x/1",
			"do: if the machine n1 is off for certain, say so by a taint; if not, bring it back", "do: Pod/web, finalizer x/1: ask its owner",
			"then: volume pv-data was not read: what happens to the data is unknown",
		}},
		{"a pod that a taint does not evict", tolerant, []string{
			"Draining", "Pod/web: bound to node n1", "blocked, Pod/web: node n1 is not ready: nobody there can end the pod",
			"do: delete Pod/web", "do: if the machine n1 is off for certain, say so by a taint; if not, bring it back",
			"then: volume pv-data was not read: what happens to the data is unknown",
		}},
		{"its volume is bound to another", elsewhere, []string{
			"Draining", "do: wait some seconds; if it stays, see whether kube-controller-manager runs: it takes kubernetes.io/pvc-protection away",
			"then: volume pv-data is not bound to this claim: nothing happens to it",
		}},
		{"its node is out of service", off, []string{
			"Draining", "Pod/web: bound to node n1, and on its way out", "blocked, Pod/web: finalizer x/1", "do: Pod/web, finalizer x/1: ask its owner",
			"then: volume pv-data was not read: what happens to the data is unknown",
		}},
		{"its node is gone", lost, []string{
			"Draining", "Pod/web: bound to node n1, and on its way out", "blocked, Pod/web: node n1 is gone", "blocked, Pod/web: finalizer x/1",
			"do: wait for the pod garbage collector, or force its deletion", "do: Pod/web, finalizer x/1: ask its owner",
			"then: volume pv-data was not read: what happens to the data is unknown",
		}},
		{"a foreign finalizer, the volume kept", kept, []string{
			"Draining", "blocked, PersistentVolume/pv-data: still attached to n2", "do: ask the owner of finalizer x/1",
			"do: wait some seconds; if it stays, see whether the operator of Lockstep runs: it takes protection.lockstep.dev/barrier away",
			"then: volume pv-data is kept, Released: the data stays",
		}},
		{"free", gone, []string{"Free", "then: volume pv-data is deleted, and the data with it"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			e := pvc.Why(tt.c)
			if got := lines(e); !slices.Equal(got, tt.want) {
				t.Errorf("got\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(tt.want, "\n  "))
			}
			if _, err := json.Marshal(e); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestWhyTellsWhoseTheFinalizersAre(t *testing.T) {
	c := caseOf(claim("data", dying, finalizers(p, b, "provisioner.storage.kubernetes.io/cloning-protection", "x/1")), pvc.Barrier, nil)
	var owners []string
	for _, f := range pvc.Why(c).Finalizers {
		owners = append(owners, f.Owner)
	}
	want := []string{"persistentvolumeclaim-protection-controller", "lockstep", "external-provisioner", "unknown"}
	if !slices.Equal(owners, want) {
		t.Errorf("got %v, want %v", owners, want)
	}
}

func TestWhyNamesTheCommandThatReleases(t *testing.T) {
	held := claim("data", annotated(pvc.HoldersAnnotation, "StatefulSet/db"))
	if got, want := pvc.Why(caseOf(held, pvc.Hold, nil)).Release, "kubectl lockstep release pvc/data -n ns"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	held.Annotations[pvc.ReleaseAnnotation] = "uid-data"
	if e := pvc.Why(caseOf(held, pvc.Hold, nil)); e.Refused || e.Release != "" {
		t.Errorf("released, and yet refused: %+v", e)
	}
}
