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

	"lockstep.dev/lockstep/internal/pvc"
)

func unread(what string, mayHold bool) []pvc.Unread {
	return []pvc.Unread{{What: what, Why: "you may not read it", MayHold: mayHold}}
}

// The sentence of an explanation is what a person reads first, and what an event
// says.
func TestSummary(t *testing.T) {
	web := pod("web", []string{"data"})
	db := pvc.OfStatefulSet(statefulSet("db", 1))
	for _, tt := range []struct {
		name string
		c    pvc.Case
		edit func(*pvc.Case)
		want string
	}{
		{"free", caseOf(claim("data"), pvc.Barrier, nil), nil, "is not in use: a DELETE would take it at once"},
		{"named by a pod that is not bound", caseOf(claim("data"), pvc.Barrier, []*corev1.Pod{pod("web", []string{"data"}, unbound)}), nil,
			"is named by Pod/web, which no node has: a DELETE would take it at once, and strand what names it"},
		{"bound", caseOf(claim("data"), pvc.Barrier, []*corev1.Pod{web}), nil,
			"is in use by Pod/web: a DELETE would be accepted, and the claim would stay until Pod/web lets go"},
		{"wanted, and nobody there", caseOf(claim("data-db-0"), pvc.Barrier, nil, db), nil,
			"is in use by StatefulSet/db: a DELETE would be accepted, and take the claim at once"},
		{"refused", caseOf(claim("data-db-0", annotated(pvc.HoldersAnnotation, "StatefulSet/db")), pvc.Hold, nil, db), nil,
			"is in use by StatefulSet/db: a DELETE is refused"},
		{"held by one who is not known here", caseOf(claim("data", annotated(pvc.HoldersAnnotation, "RayCluster/x, +2")), pvc.Hold, nil), nil,
			"is in use by RayCluster/x: a DELETE is refused"},
		{"nobody has looked", caseOf(claim("data", annotated(pvc.HoldersAnnotation, "unverified")), pvc.Hold, nil), nil,
			"has not been looked at by an operator: a DELETE is refused until one has"},
		{"nobody has looked, and no policies", caseOf(claim("data", annotated(pvc.HoldersAnnotation, "unverified")), pvc.Hold, nil),
			func(c *pvc.Case) { c.Unguarded = true }, "has not been looked at by an operator: a DELETE would be accepted, and take the claim at once"},
		{"nobody has looked, and pods could not be read", caseOf(claim("data", annotated(pvc.HoldersAnnotation, "unverified")), pvc.Hold, nil),
			func(c *pvc.Case) { c.Unguarded, c.Unread = true, unread("pods", true) },
			"has not been looked at by an operator: a DELETE would be accepted, and whether anything keeps the claim then cannot be told"},
		{"nobody has looked, and it is wanted", caseOf(claim("data-db-0", annotated(pvc.HoldersAnnotation, "unverified")), pvc.Hold, nil, db), nil,
			"is in use by StatefulSet/db: a DELETE is refused"},
		{"words, and no policies", caseOf(claim("data-db-0", annotated(pvc.HoldersAnnotation, "StatefulSet/db")), pvc.Hold, nil, db),
			func(c *pvc.Case) { c.Unguarded = true }, "is in use by StatefulSet/db: a DELETE would be accepted, and take the claim at once"},
		{"cooling", caseOf(claim("data", annotated(pvc.HoldersAnnotation, "cooling until 2026-11-21T12:05:00Z: StatefulSet/db")), pvc.Hold, nil), nil,
			"was in use by StatefulSet/db; a DELETE is refused, until 2026-11-21T12:05:00Z"},
		{"cooling for longer than it was to", caseOf(claim("data", annotated(pvc.HoldersAnnotation, "cooling until 2026-11-21T12:05:00Z: StatefulSet/db")), pvc.Hold, nil),
			func(c *pvc.Case) { c.Now = c.Now.Add(time.Hour) },
			"was in use by StatefulSet/db; a DELETE is refused still, though its hold was to end at 2026-11-21T12:05:00Z"},
		{"terminating, and its record cannot be read", caseOf(claim("data", dying, annotated(pvc.UsersAnnotation, "rubbish")), pvc.Barrier, nil), nil,
			"is being deleted, and stays because its use record cannot be read: who it named is not known"},
		{"nobody can tell", caseOf(claim("data"), pvc.Barrier, nil), func(c *pvc.Case) { c.Unread = unread("jobs", true) },
			"cannot be told to be free: jobs could not be read"},
		{"pods could not be read, and it is wanted", caseOf(claim("data-db-0"), pvc.Barrier, nil, db), func(c *pvc.Case) { c.Unread = unread("pods", true) },
			"is in use by StatefulSet/db: a DELETE would be accepted, and whether anything keeps the claim then cannot be told"},
		{"terminating, and pods could not be read", caseOf(claim("data", dying), pvc.Barrier, nil), func(c *pvc.Case) { c.Unread = unread("pods", true) },
			"is being deleted, and who holds it cannot be told: pods could not be read"},
		{"terminating, and jobs could not be read", caseOf(claim("data", dying), pvc.Barrier, nil), func(c *pvc.Case) { c.Unread = unread("jobs", true) },
			"is being deleted, and nobody is seen to hold it: it should go any moment"},
		{"terminating, others' finalizers", caseOf(claim("data", dying, finalizers("x/1")), pvc.Barrier, nil), nil,
			"is being deleted, and stays until the owners of other finalizers take them away"},
		{"terminating, others' finalizers and ours", caseOf(claim("data", dying, finalizers(pvc.BarrierFinalizer, "x/1")), pvc.Barrier, nil), nil,
			"is being deleted, and nobody is seen to hold it: protection.lockstep.dev/barrier should go any moment, and it stays until the owners of other finalizers take them away"},
		{"terminating, words in the way", caseOf(claim("data", dying, annotated(pvc.HoldersAnnotation, "a")), pvc.Hold, nil), nil,
			"is being deleted, and its finalizers are kept by words that still stand on it"},
		{"doomed", caseOf(claim("data-db-0", dying), pvc.Barrier, []*corev1.Pod{pod("db-0", []string{"data-db-0"})}, db), nil,
			"is being deleted, and stays until pod db-0 on node n1 lets go; StatefulSet/db still wants it, and can start no pod on it any more"},
		{"others' finalizers", caseOf(claim("data", finalizers(p, "x/1")), pvc.Barrier, nil), nil,
			"is not in use: a DELETE would take it as soon as the owners of other finalizers let go"},
		{"wanted, and others' finalizers", caseOf(claim("data-db-0", finalizers(p, "x/1")), pvc.Barrier, nil, db), nil,
			"is in use by StatefulSet/db: a DELETE would be accepted, and take the claim as soon as the owners of other finalizers let go"},
	} {
		if tt.edit != nil {
			tt.edit(&tt.c)
		}
		if got := pvc.Why(tt.c).Summary; got != tt.want {
			t.Errorf("%s: got\n  %s\nwant\n  %s", tt.name, got, tt.want)
		}
	}
}

func TestAPodInTheRecordHoldsBeforeItIsBound(t *testing.T) {
	c := caseOf(claim("data", dying, annotated(pvc.UsersAnnotation, "web=uid-web")), pvc.Strict, []*corev1.Pod{pod("web", []string{"data"}, unbound)})
	if h := pvc.Why(c).Holders[0]; !h.Holds || h.Why != "about to be bound: the claim names it in its use record" {
		t.Errorf("got %+v", h)
	}
	c.Claim.Annotations[pvc.UsersAnnotation] = "?"
	if e := pvc.Why(c); !slices.ContainsFunc(e.Notes, func(n string) bool { return strings.Contains(n, "as good as in use") }) {
		t.Errorf("got %v", e.Notes)
	}
}

func TestOneTaintFreesAllPodsOfALostNode(t *testing.T) {
	c := caseOf(claim("data", dying), pvc.Barrier, []*corev1.Pod{pod("a", []string{"data"}, leaving(30)), pod("b", []string{"data"}, leaving(30))})
	c.Nodes = map[string]*corev1.Node{"n1": node("n1", corev1.ConditionUnknown)}
	e := pvc.Why(c)
	if len(e.Actions) != 1 || !slices.Equal(e.Actions[0].Frees, []string{"Pod/a", "Pod/b"}) || !strings.HasPrefix(e.Actions[0].Command, "kubectl taint node n1 ") {
		t.Errorf("got %+v", e.Actions)
	}
}

func TestAPodThatShouldHaveEndedIsInTheWay(t *testing.T) {
	c := caseOf(claim("data", dying), pvc.Barrier, []*corev1.Pod{pod("a", []string{"data"}, leaving(30))})
	c.Nodes = map[string]*corev1.Node{"n1": node("n1", corev1.ConditionTrue)}
	if e := pvc.Why(c); len(e.Blockers) > 0 || len(e.Actions) != 1 || e.Actions[0].Do != "wait for Pod/a to end" {
		t.Errorf("in its time: %+v, %+v", e.Blockers, e.Actions)
	}
	c.Now = noon.Add(2 * time.Hour)
	if e := pvc.Why(c); len(e.Blockers) != 1 || len(e.Actions) != 1 || e.Actions[0].Command != "kubectl describe pod a -n ns" {
		t.Errorf("late: %+v, %+v", e.Blockers, e.Actions)
	}
	c.Nodes["n1"] = node("n1", corev1.ConditionUnknown, corev1.TaintNodeOutOfService)
	if e := pvc.Why(c); len(e.Blockers) != 1 || !strings.Contains(e.Blockers[0].What, "is marked out of service") {
		t.Errorf("late, its node given up: %+v", e.Blockers)
	}
}

func TestCommandsThatFree(t *testing.T) {
	held := func(name, words string) *corev1.PersistentVolumeClaim {
		return claim(name, annotated(pvc.HoldersAnnotation, words))
	}
	for _, tt := range []struct {
		name     string
		c        pvc.Case
		do, says string
	}{
		{"below the ordinal", caseOf(held("data-db-1", "StatefulSet/db"), pvc.Hold, nil, pvc.OfStatefulSet(statefulSet("db", 3))),
			"StatefulSet/db: scale it down below the ordinal, or delete it; scaled, it ends 2 of its 3 replicas", "kubectl scale statefulset/db -n ns --replicas=1"},
		{"below the ordinal, whose pod runs", caseOf(held("data-db-1", "StatefulSet/db"), pvc.Hold,
			[]*corev1.Pod{pod("db-1", []string{"data-db-1"}, setsPod)}, pvc.OfStatefulSet(statefulSet("db", 3))),
			"StatefulSet/db: scale it down below the ordinal, or delete it; scaled, it ends 2 of its 3 replicas", "kubectl scale statefulset/db -n ns --replicas=1"},
		{"a person's word", caseOf(claim("data", annotated(pvc.HoldAnnotation, "audit"), annotated(pvc.HoldersAnnotation, "Hold/data")), pvc.Hold, nil),
			"Hold/data: take the annotation away", "kubectl annotate pvc data -n ns protection.lockstep.dev/hold-"},
		{"a pod of a kind that is not known", caseOf(claim("data", dying), pvc.Barrier, []*corev1.Pod{podOf("TaskRun", "run")}),
			"delete Pod/web (TaskRun/owner controls it, and may make another)", "kubectl delete pod web -n ns"},
	} {
		e := pvc.Why(tt.c)
		if len(e.Actions) != 1 || e.Actions[0].Do != tt.do || e.Actions[0].Command != tt.says {
			t.Errorf("%s: got %+v", tt.name, e.Actions)
		}
	}
}

// setsPod has the StatefulSet control the pod.
func setsPod(p *corev1.Pod) { controlledBy("StatefulSet", "uid-db")(p) }

func podOf(kind string, uid types.UID) *corev1.Pod {
	o := pod("web", []string{"data"})
	controlledBy(kind, uid)(o)
	return o
}

func TestOthersWordsCannotWriteOverATerminal(t *testing.T) {
	nasty := "StatefulSet/db\x1b[2J\nnote: all is well" + strings.Repeat("x", 500)
	for _, key := range []string{pvc.HoldersAnnotation, pvc.HoldAnnotation} {
		c := caseOf(claim("data", annotated(key, nasty)), pvc.Hold, nil)
		e := pvc.Why(c)
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

func TestAnIdleWorkloadHoldsWhereTheOperatorSaysSo(t *testing.T) {
	db := pvc.OfStatefulSet(statefulSet("db", 0))
	e := pvc.Why(caseOf(claim("data-db-0", annotated(pvc.HoldersAnnotation, "StatefulSet/db")), pvc.Hold, nil, db))
	if len(e.Idle) > 0 || len(e.Holders) != 1 || !e.Holders[0].Holds || len(e.Actions) != 1 || e.Actions[0].Command != "kubectl delete statefulset db -n ns" {
		t.Errorf("got %+v", e)
	}
	e = pvc.Why(caseOf(claim("data-db-0"), pvc.Hold, nil, db))
	if len(e.Idle) != 1 || len(e.Holders) > 0 || e.State != pvc.Free {
		t.Errorf("without words: got %+v", e)
	}
}

func TestAFinishedJobGoesWithItsPods(t *testing.T) {
	ttl := int32(600)
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "train", UID: "uid-train"}}
	job.Spec.TTLSecondsAfterFinished = &ttl
	job.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobComplete, Status: corev1.ConditionTrue}}
	var pods []*corev1.Pod
	for _, name := range []string{"a", "b"} {
		o := pod(name, []string{"data"}, phase(corev1.PodSucceeded))
		controlledBy("Job", "uid-train")(o)
		pods = append(pods, o)
	}
	e := pvc.Why(caseOf(claim("data", dying), pvc.Barrier, pods, pvc.OfJob(job)))
	if len(e.Actions) != 1 || e.Actions[0].Command != "kubectl delete job train -n ns" || len(e.Actions[0].Frees) != 2 {
		t.Errorf("got %+v", e.Actions)
	}
	if want := "the pod has finished; it still holds as long as it is there, and goes with Job/train, 600 s after that finished"; e.Holders[0].Why != want {
		t.Errorf("got %q", e.Holders[0].Why)
	}
}

// A suspended CronJob goes on with what it has begun, and a Job makes pods again
// until it is suspended itself.
func TestWhatACronJobHasBegunIsEndedByItself(t *testing.T) {
	cron := &batchv1.CronJob{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "nightly", UID: "uid-nightly"}}
	cron.Spec.JobTemplate.Spec.Template.Spec.Volumes = []corev1.Volume{volume("data")}
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "nightly-1", UID: "uid-nightly-1"}}
	job.Spec.Template.Spec.Volumes = []corev1.Volume{volume("data")}
	controlledBy("CronJob", "uid-nightly")(job)
	var pods []*corev1.Pod
	for _, name := range []string{"a", "b"} {
		o := pod(name, []string{"data"})
		controlledBy("Job", "uid-nightly-1")(o)
		pods = append(pods, o)
	}
	commands := func(c pvc.Case) []string {
		var all []string
		for _, a := range pvc.Why(c).Actions {
			all = append(all, a.Command)
		}
		return all
	}
	const suspend = ` -n ns --type=merge -p '{"spec":{"suspend":true}}'`
	c := caseOf(claim("data", dying), pvc.Barrier, pods, pvc.OfCronJob(cron), pvc.OfJob(job))
	if got, want := commands(c), []string{"kubectl patch job nightly-1" + suspend}; !slices.Equal(got, want) {
		t.Errorf("on its way out: got %q", got)
	}
	c = caseOf(claim("data", annotated(pvc.HoldersAnnotation, "CronJob/nightly")), pvc.Hold, pods[:1], pvc.OfCronJob(cron), pvc.OfJob(job))
	if got, want := commands(c), []string{"kubectl patch cronjob nightly" + suspend, "kubectl patch job nightly-1" + suspend}; !slices.Equal(got, want) {
		t.Errorf("held: got %q", got)
	}
	// The Job waits for a node, and the CronJob is suspended.
	c = caseOf(claim("data", annotated(pvc.HoldersAnnotation, "CronJob/nightly")), pvc.Hold, nil, pvc.OfCronJob(cron), pvc.OfJob(job))
	if got, want := commands(c), []string{"kubectl patch cronjob nightly" + suspend, "kubectl patch job nightly-1" + suspend}; !slices.Equal(got, want) {
		t.Errorf("held, without a pod: got %q", got)
	}
	if d := pvc.DecideHold(holdView(claim("data"), pvc.OfCronJob(cron), pvc.OfJob(job))); d.Annotations[pvc.HoldersAnnotation] != "CronJob/nightly" {
		t.Errorf("words that change with every Job: %v", d.Annotations)
	}
	cron.Spec.Suspend = new(true)
	c = caseOf(claim("data", annotated(pvc.HoldersAnnotation, "Job/nightly-1")), pvc.Hold, nil, pvc.OfCronJob(cron), pvc.OfJob(job))
	if got, want := commands(c), []string{"kubectl patch job nightly-1" + suspend}; !slices.Equal(got, want) {
		t.Errorf("held by what a suspended one has begun: got %q", got)
	}
}

func TestHowAClaimIsDeletedThatRefusesIt(t *testing.T) {
	held := caseOf(claim("data", annotated(pvc.HoldersAnnotation, "StatefulSet/db")), pvc.Hold, nil)
	cooling := caseOf(claim("data", annotated(pvc.HoldersAnnotation, "cooling until 2026-11-21T12:05:00Z: StatefulSet/db")), pvc.Hold, nil)
	asked := caseOf(claim("data", annotated(pvc.HoldersAnnotation, "StatefulSet/db"), annotated(pvc.IntentAnnotation, "uid-data")), pvc.Hold, nil)
	hours := func(c pvc.Case) pvc.Case {
		c.Claim = c.Claim.DeepCopy()
		c.Claim.Annotations[pvc.VerifiedAnnotation] = c.Now.Add(-3 * time.Hour).Format(time.RFC3339)
		return c
	}
	hidden := hours(held)
	hidden.Unread = unread("rayclusters", true)
	inUse := caseOf(claim("data-db-0", annotated(pvc.HoldersAnnotation, "StatefulSet/db")), pvc.Hold, nil, pvc.OfStatefulSet(statefulSet("db", 1)))
	ended := cooling
	ended.Now = ended.Now.Add(3 * time.Hour)
	const now, later = "kubectl delete pvc data -n ns", "kubectl annotate pvc data -n ns protection.lockstep.dev/delete-when-free=uid-data"
	for _, tt := range []struct {
		name string
		c    pvc.Case
		says string
		do   []string
	}{
		{"held", held, "a hold outlives the last holder by 5 minutes, unless configured otherwise", []string{now, later}},
		{"cooling", cooling, "its hold lasts until 2026-11-21T12:05:00Z", []string{now, later}},
		{"nobody has looked", caseOf(claim("data", annotated(pvc.HoldersAnnotation, pvc.Unverified)), pvc.Hold, nil), "or lets itself be deleted", []string{""}},
		{"nobody has confirmed it for hours", hours(held), "lets go of what nobody holds any more", []string{"", "kubectl lockstep release pvc/data -n ns"}},
		{"nobody has confirmed it for hours, and who holds it may be among what is not read", hidden, "leads and can read all that may hold it: it lets go of what nobody holds any more", []string{""}},
		{"confirmed for hours by nobody, and in use", hours(inUse), "unless configured otherwise", []string{"kubectl delete pvc data-db-0 -n ns", "kubectl annotate pvc data-db-0 -n ns protection.lockstep.dev/delete-when-free=uid-data-db-0"}},
		{"nobody has ended it", ended, "lets go of what nobody holds any more", []string{"", "kubectl lockstep release pvc/data -n ns"}},
		{"asked for already", asked, "", nil},
		{"not refused", caseOf(claim("data"), pvc.Barrier, nil), "", nil},
		{"on its way out", caseOf(claim("data", dying), pvc.Barrier, nil), "", nil},
	} {
		var do []string
		for _, s := range pvc.Why(tt.c).Delete {
			do = append(do, s.Command)
		}
		if !slices.Equal(do, tt.do) {
			t.Errorf("%s: got %q", tt.name, do)
		}
		if len(do) > 0 && !strings.HasSuffix(pvc.Why(tt.c).Delete[0].Do, tt.says) {
			t.Errorf("%s: got %q", tt.name, pvc.Why(tt.c).Delete[0].Do)
		}
	}
}

// A kubelet refuses a claim on its way out without P, and says so: what waits there is not
// told to be in danger, but that it waits in vain.
func TestAPodThatCameTooLateToStartIsReported(t *testing.T) {
	waits := corev1.ContainerStatus{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}}}
	runs := corev1.ContainerStatus{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}
	for _, tt := range []struct {
		name       string
		init, main []corev1.ContainerStatus
		phase      corev1.PodPhase
		says       string
	}{
		{"nothing is told yet", nil, nil, corev1.PodPending, "has not started"},
		{"it waits", nil, []corev1.ContainerStatus{waits}, corev1.PodPending, "has not started"},
		{"it begins", []corev1.ContainerStatus{runs}, []corev1.ContainerStatus{waits}, corev1.PodPending, "is unmounted under it"},
		{"it runs", nil, []corev1.ContainerStatus{runs}, corev1.PodRunning, "is unmounted under it"},
	} {
		web := pod("web", []string{"data"})
		web.Status.Phase, web.Status.InitContainerStatuses, web.Status.ContainerStatuses = tt.phase, tt.init, tt.main
		e := pvc.Why(caseOf(claim("data", dying, finalizers(b)), pvc.Barrier, []*corev1.Pod{web}))
		if len(e.Notes) != 1 || !strings.Contains(e.Notes[0], tt.says) {
			t.Errorf("%s: got %q, want %q", tt.name, e.Notes, tt.says)
		}
	}
}

func TestAPodThatSlippedInIsReported(t *testing.T) {
	c := caseOf(claim("data", dying, finalizers(b)), pvc.Barrier, []*corev1.Pod{pod("web", []string{"data"})})
	if e := pvc.Why(c); len(e.Notes) != 1 || !strings.HasPrefix(e.Notes[0], "Pod/web uses it without kubernetes.io/pvc-protection") {
		t.Errorf("got %v", e.Notes)
	}
}

func TestAnUnknownModeIsReported(t *testing.T) {
	c := caseOf(claim("data", annotated(pvc.IntentAnnotation, "another UID")), pvc.Barrier, nil)
	c.NamespaceLabels = map[string]string{pvc.ModeKey: "Hold"}
	if got := pvc.Why(c).Notes; len(got) != 2 || !strings.Contains(got[0], `mode is "Hold", which is ignored`) {
		t.Errorf("got %q", got)
	}
}

func TestARecordThatCannotBeReadIsTakenAwayByHand(t *testing.T) {
	c := caseOf(claim("data", dying, annotated(pvc.UsersAnnotation, "rubbish")), pvc.Barrier, nil)
	actions := pvc.Why(c).Actions
	if len(actions) != 1 || actions[0].Command != "kubectl annotate pvc data -n ns "+pvc.UsersAnnotation+"-" {
		t.Errorf("got %+v", actions)
	}
}
