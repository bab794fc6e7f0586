package pvc_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"lockstep.dev/lockstep/api/config/v1alpha1"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/pvc"
	"lockstep.dev/lockstep/internal/pvc/workloads"
	"lockstep.dev/lockstep/test/expect"
	"lockstep.dev/lockstep/test/fakeapi"
)

func caseOf(c *corev1.PersistentVolumeClaim, mode pvc.Mode, pods []*corev1.Pod, wants ...workloads.Want) pvc.Case {
	byUID, w := map[types.UID]*corev1.Pod{}, world(index(pods...), wants...)
	w.Links = map[types.UID]types.UID{}
	for _, o := range pods {
		byUID[o.UID] = o
		if owner := metav1.GetControllerOf(o); owner != nil {
			w.Links[o.UID] = owner.UID
		}
	}
	return pvc.Case{HoldView: pvc.HoldView{Claim: c, Mode: mode, World: w, Now: noon}, Pods: byUID, Nodes: map[string]*corev1.Node{}}
}

func node(ready corev1.ConditionStatus, taints ...corev1.Taint) func(*pvc.Case) {
	return func(c *pvc.Case) {
		c.Nodes["n1"] = &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Spec: corev1.NodeSpec{Taints: taints},
			Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}},
		}
	}
}

func held(name, holders string) *corev1.PersistentVolumeClaim {
	return claim(name, annotated(pvc.HoldersAnnotation, holders))
}

func unread(what string) func(*pvc.Case) {
	return func(c *pvc.Case) { c.Unread = []pvc.Unread{{What: what, Why: "you may not read it", MayHold: true}} }
}

func steps(all []pvc.Suggestion) (commands []string) {
	return fakeapi.Each(all, func(s pvc.Suggestion) string { return s.Command })
}

// TestWhy checks the state, the holders (with "+" those that hold), the commands of the next
// steps ("" is a step without one), and words of the summary.
func TestWhy(t *testing.T) {
	db, db3 := wantOf(statefulSet("db", 1)), wantOf(statefulSet("db", 3))
	dbPod := pod("db-0", []string{"data-db-0"}, func(o *corev1.Pod) { controlledBy("StatefulSet", "uid-db")(o) })
	named := func(kind identity.Kind, apiVersion string) workloads.Want {
		x := identity.Ref{Kind: kind, APIVersion: apiVersion, Namespace: ns, Name: "x", UID: "uid-x"}
		return workloads.Want{Workload: x, Named: map[string]string{"data": "spec"}}
	}
	training := wantOf(&batchv1.Job{ObjectMeta: meta("train"), Spec: batchv1.JobSpec{Template: naming("data")}})
	finished := training
	finished.Idle = workloads.Finished
	ofJob := func(name string) *corev1.Pod {
		return pod(name, []string{"data"}, func(o *corev1.Pod) { controlledBy("Job", "uid-train")(o) })
	}
	web := func(edits ...func(*corev1.Pod)) []*corev1.Pod {
		return []*corev1.Pod{pod("web", []string{"data"}, edits...)}
	}
	foreign := func(o *corev1.Pod) { o.Finalizers = []string{"x/1"} }
	later := func(c *pvc.Case) { c.Now = c.Now.Add(time.Hour) }
	lost := func(c *pvc.Case) { c.Nodes["n1"] = nil }
	down, up := node(corev1.ConditionUnknown), node(corev1.ConditionTrue)
	outOfService := node(corev1.ConditionUnknown, corev1.Taint{Key: corev1.TaintNodeOutOfService})
	const (
		taint    = "kubectl taint node n1 node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"
		scaleDB  = "kubectl scale statefulset/db -n ns --replicas="
		suspend  = ` -n ns --type=merge -p '{"spec":{"suspend":true}}'`
		deleteIt = "kubectl delete pod web -n ns"
	)
	none := []string(nil)
	for _, tt := range []struct {
		name     string
		c        pvc.Case
		edit     func(*pvc.Case)
		state    pvc.State
		holders  string
		commands []string
		summary  string
	}{
		{"free", caseOf(claim("data"), pvc.Barrier, nil), nil, pvc.Free, "", none, "is not in use"},
		{"an unscheduled pod", caseOf(claim("data"), pvc.Barrier, web(unbound)), nil, pvc.Free, "-Pod/web", none, "is not in use"},
		{"foreign finalizers", caseOf(claim("data", finalizers(p, "x/1")), pvc.Barrier, nil), nil, pvc.Free, "", []string{""}, ""},
		{"a bound pod", caseOf(claim("data"), pvc.Barrier, web()), nil, pvc.Held, "+Pod/web", []string{deleteIt}, "pod web on node n1"},
		{"a workload without pods", caseOf(claim("data-db-0"), pvc.Barrier, nil, db), nil, pvc.Held, "-StatefulSet/db", none, "StatefulSet/db: a DELETE is accepted"},
		{"an unread kind", caseOf(claim("data"), pvc.Barrier, nil), unread("jobs"), pvc.Unknown, "", none, "jobs could not be read"},

		{"held", caseOf(held("data-db-0", "StatefulSet/db"), pvc.Hold, []*corev1.Pod{dbPod}, db), nil, pvc.Held, "+Pod/db-0 +StatefulSet/db", []string{scaleDB + "0"}, "StatefulSet/db: a DELETE is refused"},
		{"held, a higher ordinal", caseOf(held("data-db-1", "StatefulSet/db"), pvc.Hold, nil, db3), nil, pvc.Held, "+StatefulSet/db", []string{scaleDB + "1"}, ""},
		{"held, on a lost node", caseOf(held("data-db-0", "StatefulSet/db"), pvc.Hold, []*corev1.Pod{dbPod}, db), down, pvc.Held, "+Pod/db-0 +StatefulSet/db", []string{taint, scaleDB + "0"}, ""},
		{"held by an idle workload", caseOf(held("data-db-0", "StatefulSet/db"), pvc.Hold, nil, wantOf(statefulSet("db", 0))), func(c *pvc.Case) { c.World.Idle = v1alpha1.IdleHold },
			pvc.Held, "+StatefulSet/db", []string{"kubectl delete statefulset db -n ns"}, ""},
		{"held by a job", caseOf(held("data", "Job/train"), pvc.Hold, nil, training), nil, pvc.Held, "+Job/train", []string{"kubectl patch job train" + suspend}, ""},
		{"held by a cronjob", caseOf(held("data", "CronJob/x"), pvc.Hold, nil, named("CronJob", "batch/v1")), nil, pvc.Held, "+CronJob/x", []string{"kubectl patch cronjob x" + suspend}, ""},
		{"held by a daemonset", caseOf(held("data", "DaemonSet/x"), pvc.Hold, nil, named("DaemonSet", "apps/v1")), nil, pvc.Held, "+DaemonSet/x", []string{"kubectl delete daemonset x -n ns"}, ""},
		{"held by a job of another group", caseOf(held("data", "Job/x"), pvc.Hold, nil, named("Job", "batch.volcano.sh/v1alpha1")), nil, pvc.Held, "+Job/x", []string{""}, ""},
		{"held by a replicationcontroller", caseOf(held("data", "ReplicationController/x"), pvc.Hold, nil, named("ReplicationController", "v1")), nil, pvc.Held, "+ReplicationController/x", []string{""}, ""},
		{"held by annotation", caseOf(claim("data", annotated(pvc.HoldAnnotation, "audit"), annotated(pvc.HoldersAnnotation, "Hold/data")), pvc.Hold, nil), nil,
			pvc.Held, "+Hold/data", []string{"kubectl annotate pvc data -n ns protection.lockstep.dev/hold-"}, ""},
		{"held by an unread kind", caseOf(held("data", "RayCluster/x, +2"), pvc.Hold, nil), nil, pvc.Held, "+RayCluster/x", []string{""}, "RayCluster/x: a DELETE is refused"},
		{"unverified", caseOf(held("data", pvc.Unverified), pvc.Hold, nil), nil, pvc.Held, "", none, "was not checked"},
		{"cooling", caseOf(held("data", "cooling until 2026-11-21T12:05:00Z: StatefulSet/db"), pvc.Hold, nil), nil, pvc.Cooling, "", none, "refused, until 2026-11-21T12:05:00Z"},

		{"terminating, a finished pod", caseOf(claim("data", dying), pvc.Barrier, web(phase(corev1.PodSucceeded))), nil, pvc.Draining, "+Pod/web", []string{deleteIt}, "pod web on node n1"},
		{"terminating, an unscheduled pod", caseOf(claim("data", dying), pvc.Barrier, web(unbound)), nil, pvc.Draining, "-Pod/web", []string{""}, "no pod holds it"},
		{"terminating, a recorded pod", caseOf(claim("data", dying, annotated(pvc.UsersAnnotation, "web=uid-web")), pvc.Strict, web(unbound)), nil, pvc.Draining, "+Pod/web", []string{deleteIt}, "Pod/web"},
		{"terminating, a workload and its pod", caseOf(claim("data-db-0", dying), pvc.Barrier, []*corev1.Pod{dbPod}, db), nil, pvc.Doomed, "+Pod/db-0 -StatefulSet/db", []string{"kubectl delete pod db-0 -n ns"}, ""},
		{"terminating, two pods of a job", caseOf(claim("data", dying), pvc.Barrier, []*corev1.Pod{ofJob("t1"), ofJob("t2")}, training), nil, pvc.Doomed,
			"-Job/train +Pod/t1 +Pod/t2", []string{"kubectl patch job train" + suspend}, ""},
		{"terminating, two pods of a finished job", caseOf(claim("data", dying), pvc.Barrier, []*corev1.Pod{ofJob("t1"), ofJob("t2")}, finished), nil, pvc.Draining,
			"+Pod/t1 +Pod/t2", []string{"kubectl delete job train -n ns"}, ""},
		{"terminating, a node that is not ready", caseOf(claim("data", dying), pvc.Barrier, web(leaving(30))), down, pvc.Draining, "+Pod/web", []string{taint}, ""},
		{"terminating, a node out of service", caseOf(claim("data", dying), pvc.Barrier, web(leaving(30), foreign)), outOfService, pvc.Draining, "+Pod/web", []string{""}, ""},
		{"terminating, a deleted node", caseOf(claim("data", dying), pvc.Barrier, web(leaving(30))), lost, pvc.Draining, "+Pod/web", []string{deleteIt + " --force --grace-period=0"}, ""},
		{"terminating, a pod that ends", caseOf(claim("data", dying), pvc.Barrier, web(leaving(30))), up, pvc.Draining, "+Pod/web", []string{""}, ""},
		{"terminating, a pod that is stuck", caseOf(claim("data", dying), pvc.Barrier, web(leaving(30))), later, pvc.Draining, "+Pod/web", []string{"kubectl describe pod web -n ns"}, ""},
		{"terminating, unread pods", caseOf(claim("data", dying), pvc.Barrier, nil), unread("pods"), pvc.Draining, "", none, "pods could not be read"},
		{"terminating, unread jobs", caseOf(claim("data", dying), pvc.Barrier, nil), unread("jobs"), pvc.Draining, "", []string{""}, "no pod holds it"},
		{"terminating, foreign finalizers", caseOf(claim("data", dying, finalizers("x/1")), pvc.Barrier, nil), nil, pvc.Draining, "", []string{""}, "no pod holds it"},
		{"terminating, annotated as held", caseOf(claim("data", dying, annotated(pvc.HoldersAnnotation, "a")), pvc.Hold, nil), nil, pvc.Draining, "", []string{"kubectl lockstep release pvc/data -n ns"}, ""},
		{"terminating, an unreadable record", caseOf(claim("data", dying, annotated(pvc.UsersAnnotation, "?")), pvc.Barrier, nil), nil,
			pvc.Draining, "", []string{"kubectl annotate pvc data -n ns " + pvc.UsersAnnotation + "-"}, ""},
	} {
		if tt.edit != nil {
			tt.edit(&tt.c)
		}
		e := pvc.Why(tt.c)
		var holders []string
		for _, h := range e.Holders {
			holders = append(holders, map[bool]string{true: "+", false: "-"}[h.Holds]+h.Name)
		}
		if e.State != tt.state || strings.Join(holders, " ") != tt.holders || !slices.Equal(steps(e.Actions), tt.commands) {
			t.Errorf("%s: got %s, %q, %q", tt.name, e.State, holders, steps(e.Actions))
		}
		expect.Says(t, e.Summary, tt.summary, tt.name)
	}
}

func TestWhyDeletesAndReleasesAHeldPVC(t *testing.T) {
	const now, free = "kubectl delete pvc data -n ns", "kubectl annotate pvc data -n ns protection.lockstep.dev/delete-when-free=uid-data"
	const release = "kubectl lockstep release pvc/data -n ns"
	asked, released := held("data", "a"), held("data", "a")
	asked.Annotations[pvc.IntentAnnotation] = "uid-data"
	released.Annotations[pvc.ReleaseAnnotation] = "uid-data"
	for name, tt := range map[string]struct {
		c       *corev1.PersistentVolumeClaim
		want    []string
		release string
	}{
		"held": {held("data", "a"), []string{now, free}, release}, "unverified": {held("data", pvc.Unverified), []string{""}, release},
		"delete-when-free": {asked, nil, release}, "released": {released, nil, ""}, "free": {claim("data"), nil, ""}, "terminating": {claim("data", dying), nil, ""},
	} {
		if e := pvc.Why(caseOf(tt.c, pvc.Hold, nil)); !slices.Equal(steps(e.Delete), tt.want) || e.Release != tt.release || e.Refused != (tt.release != "") {
			t.Errorf("%s: got %q, %q, refused %t", name, steps(e.Delete), e.Release, e.Refused)
		}
	}
}

func TestWhyReportsTheData(t *testing.T) {
	volume := func(policy corev1.PersistentVolumeReclaimPolicy, boundTo types.UID) *corev1.PersistentVolume {
		v := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv-data"}}
		v.Spec.PersistentVolumeReclaimPolicy = policy
		v.Spec.ClaimRef = &corev1.ObjectReference{Namespace: ns, Name: "data-db-0", UID: boundTo}
		return v
	}
	const retain, remove = corev1.PersistentVolumeReclaimRetain, corev1.PersistentVolumeReclaimDelete
	for _, tt := range []struct {
		volume *corev1.PersistentVolume
		gone   bool
		says   string
		rescue bool
	}{
		{nil, false, "was not read", false},
		{nil, true, "does not exist", false},
		{volume(retain, "uid-data-db-0"), false, "the data stays", false},
		{volume(remove, "uid-data-db-0"), false, "the data with it", true},
		{volume(remove, "another"), false, "not bound to this PVC", false},
	} {
		c := caseOf(claim("data-db-0", dying), pvc.Barrier, nil, wantOf(statefulSet("db", 1)))
		c.Volume, c.VolumeGone = tt.volume, tt.gone
		e := pvc.Why(c)
		if !strings.Contains(e.Then[0], tt.says) || len(e.Rescue) > 0 != tt.rescue || !strings.Contains(e.Then[1], "StatefulSet/db creates an empty PVC") {
			t.Errorf("%s: got %q, %+v", tt.says, e.Then, e.Rescue)
		}
	}
}

func ownedByDB(c *corev1.PersistentVolumeClaim) {
	c.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "db", UID: "before", Controller: new(true)}}
}

func TestWhyNotes(t *testing.T) {
	unconfirmed, orphaned := held("data", "a"), caseOf(claim("data", ownedByDB), pvc.Hold, nil)
	unconfirmed.Annotations[pvc.VerifiedAnnotation] = noon.Add(-3 * time.Hour).Format(time.RFC3339)
	orphaned.World.OwnersGone = true
	for says, c := range map[string]pvc.Case{
		"has not confirmed the hold":           caseOf(unconfirmed, pvc.Hold, nil),
		"bears a release token":                caseOf(claim("data", annotated(pvc.ReleaseAnnotation, "uid-data")), pvc.Hold, nil),
		"delete-when-free is set":              caseOf(claim("data", annotated(pvc.IntentAnnotation, "uid-data")), pvc.Hold, nil),
		"the PVC bears no hold yet":            caseOf(claim("data-db-0"), pvc.Hold, nil, wantOf(statefulSet("db", 1))),
		"use record cannot be read":            caseOf(claim("data", annotated(pvc.UsersAnnotation, "?")), pvc.Strict, nil),
		"keeps its finalizers":                 caseOf(claim("data", dying, annotated(pvc.HoldersAnnotation, "a")), pvc.Hold, nil),
		"owned by StatefulSet/db (UID before)": caseOf(claim("data", ownedByDB), pvc.Hold, nil),
		"--type=merge -p '" + pvc.Disown + "'": orphaned,
	} {
		notes := pvc.Why(c).Notes
		expect.That(t, len(notes) == 1 && strings.Contains(notes[0], says), "%q: got %q", says, notes)
	}
}

func TestHeldAndOwned(t *testing.T) {
	type edits = []func(*corev1.PersistentVolumeClaim)
	holders := func(value string) func(*corev1.PersistentVolumeClaim) { return annotated(pvc.HoldersAnnotation, value) }
	for _, tt := range []struct {
		name  string
		edits edits
		want  string
	}{
		{"held and owned", edits{ownedByDB, holders("StatefulSet/db")}, "StatefulSet/db"},
		{"without owner", edits{holders("StatefulSet/db")}, ""},
		{"not held", edits{ownedByDB}, ""},
		{"unverified", edits{ownedByDB, holders(pvc.Unverified)}, ""},
		{"cooling", edits{ownedByDB, holders(pvc.HoldersValue{Names: "StatefulSet/db", Until: noon}.String())}, ""},
		{"terminating", edits{ownedByDB, holders("StatefulSet/db"), dying}, ""},
		{"a name that controls a terminal", edits{ownedByDB, holders("db\x1b[2J")}, "db [2J"},
	} {
		expect.Equalf(t, tt.want, pvc.HeldAndOwned(claim("c", tt.edits...)), "%s", tt.name)
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
			expect.That(t, !strings.ContainsAny(text, "\x1b\n") && len(text) <= 600, "%s: %q", key, text)
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
