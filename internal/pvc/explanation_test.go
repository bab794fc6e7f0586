package pvc_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"lockstep.dev/lockstep/internal/pvc"
	"lockstep.dev/lockstep/internal/pvc/workloads"
)

func caseOf(c *corev1.PersistentVolumeClaim, mode pvc.Mode, pods []*corev1.Pod, wants ...workloads.Want) pvc.Case {
	byUID := map[types.UID]*corev1.Pod{}
	for _, o := range pods {
		byUID[o.UID] = o
	}
	return pvc.Case{Claim: c, Mode: mode, World: world(index(pods...), wants...), Pods: byUID, Now: noon, Nodes: map[string]*corev1.Node{}}
}

func on(node *corev1.Node) func(*pvc.Case) {
	return func(c *pvc.Case) { c.Nodes["n1"] = node }
}

func node(ready corev1.ConditionStatus, taints ...corev1.Taint) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Spec: corev1.NodeSpec{Taints: taints},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}},
	}
}

func held(name, holders string) *corev1.PersistentVolumeClaim {
	return claim(name, annotated(pvc.HoldersAnnotation, holders))
}

func unread(what string) func(*pvc.Case) {
	return func(c *pvc.Case) { c.Unread = []pvc.Unread{{What: what, Why: "you may not read it", MayHold: true}} }
}

func later(d time.Duration) func(*pvc.Case) { return func(c *pvc.Case) { c.Now = c.Now.Add(d) } }

func foreign(o *corev1.Pod) { o.Finalizers = []string{"x/1"} }

// TestWhy checks the state, the holders (with "+" those that hold), and the commands of the
// next steps, "-" for a step without one.
func TestWhy(t *testing.T) {
	db, db3 := wantOf(statefulSet("db", 1)), wantOf(statefulSet("db", 3))
	dbPod := pod("db-0", []string{"data-db-0"})
	controlledBy("StatefulSet", "uid-db")(dbPod)
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "train", UID: "uid-train"}}
	job.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobComplete, Status: corev1.ConditionTrue}}
	running := job.DeepCopy()
	running.Status.Conditions = nil
	jobPods := func(edits ...func(*corev1.Pod)) (pods []*corev1.Pod) {
		for _, name := range []string{"a", "b"} {
			o := pod(name, []string{"data"}, edits...)
			controlledBy("Job", "uid-train")(o)
			pods = append(pods, o)
		}
		return pods
	}
	web := func(edits ...func(*corev1.Pod)) []*corev1.Pod {
		return []*corev1.Pod{pod("web", []string{"data"}, edits...)}
	}
	const (
		taint    = "kubectl taint node n1 node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"
		scaleDB  = "kubectl scale statefulset/db -n ns --replicas="
		suspend  = `kubectl patch job train -n ns --type=merge -p '{"spec":{"suspend":true}}'`
		deleteIt = "kubectl delete pod web -n ns"
		release  = "kubectl lockstep release pvc/data -n ns"
	)
	outOfService := corev1.Taint{Key: corev1.TaintNodeOutOfService}
	for _, tt := range []struct {
		name     string
		c        pvc.Case
		edit     func(*pvc.Case)
		state    pvc.State
		holders  string
		commands []string
		summary  string
	}{
		{"free", caseOf(claim("data"), pvc.Barrier, nil), nil, pvc.Free, "", nil, "is not in use"},
		{"an unscheduled pod", caseOf(claim("data"), pvc.Barrier, web(unbound)), nil, pvc.Free, "-Pod/web", nil, "Pod/web, not scheduled, would stay Pending"},
		{"foreign finalizers", caseOf(claim("data", finalizers(p, "x/1")), pvc.Barrier, nil), nil, pvc.Free, "", []string{"-"}, "once other finalizers are removed"},
		{"a bound pod", caseOf(claim("data"), pvc.Barrier, web()), nil, pvc.Held, "+Pod/web", []string{deleteIt}, "the PVC stays until Pod/web ends"},
		{"a workload without pods", caseOf(claim("data-db-0"), pvc.Barrier, nil, db), nil, pvc.Held, "-StatefulSet/db", nil, "is in use by StatefulSet/db: a DELETE is accepted"},
		{"an unread kind", caseOf(claim("data"), pvc.Barrier, nil), unread("jobs"), pvc.Unknown, "", nil, "jobs could not be read"},

		{"held", caseOf(held("data-db-0", "StatefulSet/db"), pvc.Hold, []*corev1.Pod{dbPod}, db), nil,
			pvc.Held, "+Pod/db-0 +StatefulSet/db", []string{scaleDB + "0"}, "is in use by StatefulSet/db, Pod/db-0: a DELETE is refused"},
		{"held for a higher ordinal", caseOf(held("data-db-1", "StatefulSet/db"), pvc.Hold, nil, db3), nil, pvc.Held, "+StatefulSet/db", []string{scaleDB + "1"}, ""},
		{"held, on a lost node", caseOf(held("data-db-0", "StatefulSet/db"), pvc.Hold, []*corev1.Pod{dbPod}, db), on(node(corev1.ConditionUnknown)),
			pvc.Held, "+Pod/db-0 +StatefulSet/db", []string{taint, scaleDB + "0"}, ""},
		{"held by annotation", caseOf(claim("data", annotated(pvc.HoldAnnotation, "audit"), annotated(pvc.HoldersAnnotation, "Hold/data")), pvc.Hold, nil), nil,
			pvc.Held, "+Hold/data", []string{"kubectl annotate pvc data -n ns protection.lockstep.dev/hold-"}, ""},
		{"held by an unknown kind", caseOf(held("data", "RayCluster/x, +2"), pvc.Hold, nil), nil, pvc.Held, "+RayCluster/x", []string{"-"}, "RayCluster/x: a DELETE is refused"},
		{"held, and no policies", caseOf(held("data-db-0", "StatefulSet/db"), pvc.Hold, nil, db), func(c *pvc.Case) { c.Unguarded = true },
			pvc.Held, "-StatefulSet/db", nil, "a DELETE is accepted"},
		{"unverified", caseOf(held("data", pvc.Unverified), pvc.Hold, nil), nil, pvc.Held, "", nil, "was not checked by an operator yet: a DELETE is refused"},
		{"cooling", caseOf(held("data", "cooling until 2026-11-21T12:05:00Z: StatefulSet/db"), pvc.Hold, nil), nil,
			pvc.Cooling, "", nil, "was in use by StatefulSet/db; a DELETE is refused, until 2026-11-21T12:05:00Z"},

		{"terminating, a finished pod", caseOf(claim("data", dying), pvc.Barrier, web(phase(corev1.PodSucceeded))), nil, pvc.Draining, "+Pod/web", []string{deleteIt}, "on node n1 ends"},
		{"terminating, an unscheduled pod", caseOf(claim("data", dying), pvc.Barrier, web(unbound)), nil, pvc.Draining, "-Pod/web", []string{"-"}, "nothing holds it"},
		{"terminating, a recorded pod", caseOf(claim("data", dying, annotated(pvc.UsersAnnotation, "web=uid-web")), pvc.Strict, web(unbound)), nil, pvc.Draining, "+Pod/web", []string{deleteIt}, ""},
		{"terminating, a workload and its pod", caseOf(claim("data-db-0", dying), pvc.Barrier, []*corev1.Pod{dbPod}, db), nil,
			pvc.Doomed, "+Pod/db-0 -StatefulSet/db", []string{"kubectl delete pod db-0 -n ns"}, "StatefulSet/db wants it, and cannot start a pod on it"},
		{"terminating, pods of a job", caseOf(claim("data", dying), pvc.Barrier, jobPods(), wantOf(running)), nil, pvc.Draining, "+Pod/a +Pod/b", []string{suspend}, ""},
		{"terminating, pods of a finished job", caseOf(claim("data", dying), pvc.Barrier, jobPods(phase(corev1.PodSucceeded)), wantOf(job)), nil,
			pvc.Draining, "+Pod/a +Pod/b", []string{"kubectl delete job train -n ns"}, ""},
		{"terminating, a lost node", caseOf(claim("data", dying), pvc.Barrier, jobPods(leaving(30))), on(node(corev1.ConditionUnknown)), pvc.Draining, "+Pod/a +Pod/b", []string{taint}, ""},
		{"terminating, a node out of service", caseOf(claim("data", dying), pvc.Barrier, web(leaving(30), foreign)), on(node(corev1.ConditionUnknown, outOfService)), pvc.Draining, "+Pod/web", []string{"-"}, ""},
		{"terminating, a deleted node", caseOf(claim("data", dying), pvc.Barrier, web(leaving(30))), on(nil), pvc.Draining, "+Pod/web", []string{deleteIt + " --force --grace-period=0"}, ""},
		{"terminating, a pod that ends", caseOf(claim("data", dying), pvc.Barrier, web(leaving(30))), on(node(corev1.ConditionTrue)), pvc.Draining, "+Pod/web", []string{"-"}, ""},
		{"terminating, a pod that should have ended", caseOf(claim("data", dying), pvc.Barrier, web(leaving(30))), later(time.Hour), pvc.Draining, "+Pod/web", []string{"kubectl describe pod web -n ns"}, ""},
		{"terminating, unread pods", caseOf(claim("data", dying), pvc.Barrier, nil), unread("pods"), pvc.Draining, "", nil, "pods could not be read"},
		{"terminating, unread jobs", caseOf(claim("data", dying), pvc.Barrier, nil), unread("jobs"), pvc.Draining, "", []string{"-"}, "nothing holds it"},
		{"terminating, late", caseOf(claim("data", dying), pvc.Barrier, nil), later(time.Hour), pvc.Draining, "", []string{"-"}, "has not removed " + p},
		{"terminating, foreign finalizers", caseOf(claim("data", dying, finalizers("x/1")), pvc.Barrier, nil), nil, pvc.Draining, "", []string{"-"}, "until other finalizers are removed"},
		{"terminating, annotated as held", caseOf(claim("data", dying, annotated(pvc.HoldersAnnotation, "a")), pvc.Hold, nil), nil, pvc.Draining, "", []string{release}, "keeps its finalizers"},
		{"terminating, an unreadable record", caseOf(claim("data", dying, annotated(pvc.UsersAnnotation, "?")), pvc.Barrier, nil), nil,
			pvc.Draining, "", []string{"kubectl annotate pvc data -n ns " + pvc.UsersAnnotation + "-"}, "use record cannot be read"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.edit != nil {
				tt.edit(&tt.c)
			}
			e := pvc.Why(tt.c)
			var holders, commands []string
			for _, h := range e.Holders {
				holders = append(holders, map[bool]string{true: "+", false: "-"}[h.Holds]+h.Name)
			}
			for _, a := range e.Actions {
				command := a.Command
				if command == "" {
					command = "-"
				}
				commands = append(commands, command)
			}
			if e.State != tt.state || strings.Join(holders, " ") != tt.holders || !slices.Equal(commands, tt.commands) {
				t.Errorf("got %s, %q, %q", e.State, holders, commands)
			}
			if !strings.Contains(e.Summary, tt.summary) {
				t.Errorf("summary %q, want %q", e.Summary, tt.summary)
			}
			if _, err := json.Marshal(e); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestWhyDeletesAHeldPVC(t *testing.T) {
	const now, free = "kubectl delete pvc data -n ns", "kubectl annotate pvc data -n ns protection.lockstep.dev/delete-when-free=uid-data"
	asked := held("data", "a")
	asked.Annotations[pvc.IntentAnnotation] = "uid-data"
	for name, tt := range map[string]struct {
		c    *corev1.PersistentVolumeClaim
		want []string
	}{
		"held": {held("data", "a"), []string{now, free}}, "unverified": {held("data", pvc.Unverified), []string{""}},
		"asked": {asked, nil}, "free": {claim("data"), nil}, "terminating": {claim("data", dying), nil},
	} {
		var commands []string
		for _, s := range pvc.Why(caseOf(tt.c, pvc.Hold, nil)).Delete {
			commands = append(commands, s.Command)
		}
		if !slices.Equal(commands, tt.want) {
			t.Errorf("%s: got %q", name, commands)
		}
	}
}

func TestWhyNamesTheReleaseCommand(t *testing.T) {
	c := held("data", "StatefulSet/db")
	if got := pvc.Why(caseOf(c, pvc.Hold, nil)).Release; got != "kubectl lockstep release pvc/data -n ns" {
		t.Errorf("got %q", got)
	}
	c.Annotations[pvc.ReleaseAnnotation] = "uid-data"
	if e := pvc.Why(caseOf(c, pvc.Hold, nil)); e.Refused || e.Release != "" {
		t.Errorf("released, and still refused: %+v", e)
	}
}

func TestWhyReportsTheData(t *testing.T) {
	volume := func(policy corev1.PersistentVolumeReclaimPolicy, boundTo types.UID) *corev1.PersistentVolume {
		v := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv-data"}}
		v.Spec.PersistentVolumeReclaimPolicy = policy
		v.Spec.ClaimRef = &corev1.ObjectReference{Namespace: ns, Name: "data", UID: boundTo}
		return v
	}
	for _, tt := range []struct {
		volume *corev1.PersistentVolume
		says   string
		rescue bool
	}{
		{nil, "was not read", false},
		{volume(corev1.PersistentVolumeReclaimRetain, "uid-data"), "the data stays", false},
		{volume(corev1.PersistentVolumeReclaimDelete, "uid-data"), "the data with it", true},
		{volume(corev1.PersistentVolumeReclaimDelete, "another"), "not bound to this PVC", false},
	} {
		c := caseOf(claim("data", dying), pvc.Barrier, nil)
		c.Volume = tt.volume
		if e := pvc.Why(c); !strings.Contains(e.Then[0], tt.says) || (len(e.Rescue) > 0) != tt.rescue {
			t.Errorf("%s: got %q, %+v", tt.says, e.Then, e.Rescue)
		}
	}
}

func TestWhyNotes(t *testing.T) {
	slipped := caseOf(claim("data", dying, finalizers(b)), pvc.Barrier, []*corev1.Pod{pod("web", []string{"data"})})
	unconfirmed := caseOf(held("data", "a"), pvc.Hold, nil)
	unconfirmed.Claim.Annotations[pvc.VerifiedAnnotation] = noon.Add(-3 * time.Hour).Format(time.RFC3339)
	for says, c := range map[string]pvc.Case{
		"Pod/web uses the PVC":       slipped,
		"has not confirmed the hold": unconfirmed,
		"bears a release token":      caseOf(claim("data", annotated(pvc.ReleaseAnnotation, "uid-data")), pvc.Hold, nil),
		"delete-when-free is set":    caseOf(claim("data", annotated(pvc.IntentAnnotation, "uid-data")), pvc.Hold, nil),
		"the PVC bears no hold yet":  caseOf(claim("data-db-0"), pvc.Hold, nil, wantOf(statefulSet("db", 1))),
		"use record cannot be read":  caseOf(claim("data", annotated(pvc.UsersAnnotation, "?")), pvc.Strict, nil),
		"owned by LeaderWorkerSet/db": caseOf(claim("data", func(c *corev1.PersistentVolumeClaim) {
			c.OwnerReferences = []metav1.OwnerReference{{Kind: "LeaderWorkerSet", Name: "db"}}
		}), pvc.Hold, nil),
	} {
		if notes := pvc.Why(c).Notes; len(notes) != 1 || !strings.Contains(notes[0], says) {
			t.Errorf("%q: got %q", says, notes)
		}
	}
}

func TestAnnotationsCannotControlATerminal(t *testing.T) {
	nasty := "StatefulSet/db\x1b[2J\nnote: all is well" + strings.Repeat("x", 500)
	for _, key := range []string{pvc.HoldersAnnotation, pvc.HoldAnnotation} {
		e := pvc.Why(caseOf(claim("data", annotated(key, nasty)), pvc.Hold, nil))
		texts := append([]string{e.Summary}, e.Then...)
		for _, h := range e.Holders {
			texts = append(texts, h.Name, h.Proof)
		}
		for _, a := range e.Actions {
			texts = append(texts, a.Do, a.Command)
		}
		for _, text := range texts {
			if strings.ContainsAny(text, "\x1b\n") || len(text) > 600 {
				t.Errorf("%s: %q", key, text)
			}
		}
	}
}

// A workload may be older than a PVC that was created again.
func TestAHoldBeginsWithThePVC(t *testing.T) {
	db := wantOf(statefulSet("db", 1))
	db.Since = noon.Add(-time.Hour)
	c := caseOf(claim("data-db-0"), pvc.Barrier, nil, db)
	for _, born := range []time.Duration{-time.Minute, -2 * time.Hour} {
		c.Claim.CreationTimestamp = metav1.NewTime(noon.Add(born))
		if since := pvc.Why(c).Since; since == nil || !since.Equal(noon.Add(max(born, -time.Hour))) {
			t.Errorf("created at %v: held since %v", born, since)
		}
	}
}
