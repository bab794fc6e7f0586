package render

import (
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	clilws "lockstep.dev/lockstep/internal/cli/lws"
	"lockstep.dev/lockstep/internal/cli/page"
	clipvc "lockstep.dev/lockstep/internal/cli/pvc"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/internal/lws/restart"
	"lockstep.dev/lockstep/internal/pvc"
	"lockstep.dev/lockstep/test/expect"
	"lockstep.dev/lockstep/test/fakeapi"
)

// says checks a text: its lines with single spaces between columns.
func says(t *testing.T, text string, lacks string, has ...string) {
	t.Helper()
	var lines strings.Builder
	for line := range strings.Lines(text) {
		lines.WriteString(strings.Join(strings.Fields(line), " ") + "\n")
	}
	for _, want := range has {
		expect.Says(t, lines.String(), want, text)
	}
	expect.That(t, lacks == "" || !strings.Contains(lines.String(), lacks), "has %q:\n%s", lacks, text)
}

// A pod that a gate keeps from the scheduler says which, and Kueue's gate that it waits for quota.
func TestAGatedPodNamesItsGates(t *testing.T) {
	blocked := []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "blocked"}}
	for gates, want := range map[string]string{
		"":                         ": blocked",
		"example.com/a":            ": held by the scheduling gate example.com/a",
		"kueue.x-k8s.io/admission": ": waits for quota, by the scheduling gate kueue.x-k8s.io/admission",
		"a.io/a b.io/b":            ": held by the scheduling gates a.io/a, b.io/b",
	} {
		pod := &corev1.Pod{Status: corev1.PodStatus{Conditions: blocked}}
		for gate := range strings.FieldsSeq(gates) {
			pod.Spec.SchedulingGates = append(pod.Spec.SchedulingGates, corev1.PodSchedulingGate{Name: gate})
		}
		expect.Equalf(t, want, schedulerSays(pod), "%q", gates)
	}
}

func TestTextOfStatus(t *testing.T) {
	exit := int32(137)
	for _, tt := range []struct {
		name   string
		survey clilws.Survey
		edit   func(*clilws.Survey)
		has    []string
		lacks  string
	}{
		{"groups", with(with(with(newSurvey(5, 4), 0, "++++"), 1, "+-?."), 2, "++++"), func(s *clilws.Survey) {
			s.Groups[2].Workers.Owned[0].Status.AvailableReplicas = 2
			s.Standing.Ready, s.Standing.Updated = 1, 3
		}, []string{
			"1 of 5 groups ready, 3 up to date, 4 pods", "\nrevision " + key + ", set created 5m ago\n",
			"\nProgressing True 90s GroupsProgressing Replicas are progressing\n",
			"\n0 4/4 " + key + " node-llama-0-1.example.com and 3 more 2m 12 -\n", // it is ready
			"\nGROUP READY REVISION NODES AGE CONTAINER RESTARTS WAITING FOR\n1 1/4 " + key + " node-llama-1-1.example.com and 1 more 2m 6 1 of 3 workers", "created yet: llama-1-3; 1 pod", "llama-1-2: 0/2 nodes",
			"llama-1-1 (CrashLoopBackOff)\n", "2m 12 statefulset llama-2 has not reported", "\n3-4 0/4 - - - 0 leader llama-3 ",
		}, "PREVIOUS"},
		{"a pause", with(newSurvey(1, 1), 0, "+"), func(s *clilws.Survey) { paused(s) }, []string{", rollout paused\n"}, ""},
		{"no operator", newSurvey(1_000_000, 8), func(s *clilws.Survey) { s.Set.Set.Status.Conditions = nil },
			[]string{"no operator has reconciled", "\n0-999999 ", "leader llama-0 "}, "CONDITION"},
		{"an operator that is down", with(newSurvey(1, 1), 0, "+"), func(s *clilws.Survey) {
			s.Unattended = &action.Reason{Code: clilws.CodeNoOperator, Sentence: "no lease"}
		}, []string{"ago\nno lease (NoOperator)\n"}, ""},
		{"a surplus group", with(with(newSurvey(1, 2), 0, "++"), 3, "++"), nil, []string{"\n3 (surplus) 2/2"}, ""},
		{"an old revision", with(newSurvey(1, 1), 0, "+"), func(s *clilws.Survey) { s.Standing.Key = "new" }, []string{key + " (old)"}, ""},
		{"failures", with(newSurvey(1, 2), 0, "++"), func(s *clilws.Survey) {
			s.Set.Set.Status.Restarts = []lwsv1.GroupRestarts{{Index: 0, Leader: "llama-0", Count: 2, Failures: []lwsv1.PodFailure{
				{Pod: "llama-0", Reason: "Evicted", Message: "low on memory", At: metav1.NewTime(now.Add(-time.Minute))},
				{Pod: "llama-0-1", Container: "serve", ExitCode: &exit, Reason: "OOMKilled", Message: "loading\nno memory left", Node: "n1", At: metav1.NewTime(now)},
			}}}
		}, []string{"\nCrash 0 llama-0-1 0s ago 2 n1 serve: OOMKilled (exit code 137): loading no memory left\nDisruption 0 llama-0 60s ago 2 - Evicted: low on memory\n"}, ""},
		{"failed containers", with(newSurvey(1, 2), 0, "++"), func(s *clilws.Survey) {
			s.Set.Set.Status.Restarts = []lwsv1.GroupRestarts{{Index: 0, Containers: []lwsv1.ContainerFailure{
				{Pod: "llama-0-1", Name: "serve", ExitCode: 137, Reason: "OOMKilled", Message: "loading\nno memory left", Log: "a\tb\nc\x1b[2J", At: metav1.NewTime(now)},
				{Pod: "llama-0", Name: "serve", ExitCode: 1, LogUnread: "no kubelet", At: metav1.NewTime(now)},
			}}}
		}, []string{
			"\nCONTAINERS THAT FAILED WITH GROUP 0\npod llama-0-1, container serve: OOMKilled (exit code 137), 0s ago\n| loading\n| no memory left\nlog:\n| a b\n| c\\u001b[2J\n",
			"\npod llama-0, container serve: - (exit code 1), 0s ago\nlog not read: no kubelet\n",
		}, ""},
		{"a failure without evidence", with(newSurvey(1, 2), 0, "++"), func(s *clilws.Survey) {
			s.Set.Set.Status.Restarts = []lwsv1.GroupRestarts{{Index: 0, Count: 1, FailedAt: metav1.NewTime(now)}}
		}, []string{"\nUnknown 0 - 0s ago 1 - -\n"}, ""},
		{"objects of a previous incarnation", without(newSurvey(1, 2), 0), func(s *clilws.Survey) {
			s.Set.StatefulSet.Owned = nil
			s.Set.Leaders.Previous = []*corev1.Pod{terminating("llama-0", 12*time.Second, "example.com/hold")}
			s.Groups[0].Pods.Previous = []*corev1.Pod{terminating("llama-0-1", 3*time.Second)}
		}, []string{
			"\n0 0/2 - - - 0 leader llama-0 of the previous", "\npod llama-0 12s node-llama-0.example.com example.com/hold\n", "\npod llama-0-1 3s node-llama-0-1.example.com -\n",
		}, ""},
	} {
		if tt.edit != nil {
			tt.edit(&tt.survey)
		}
		says(t, page.Text(Status(tt.survey), now), tt.lacks, tt.has...)
	}
}

// Five hundred groups fit on a screen. What is not as it should be has the first rows.
func TestEqualGroupsHaveOneRow(t *testing.T) {
	s := newSurvey(500, 2)
	for i := range 500 {
		s = with(s, i, map[bool]string{true: "+-", false: "++"}[i == 7])
	}
	s.Groups[300].Leader.Labels = map[string]string{lwsv1.RevisionKey: "older"}
	s.Standing.Key = key
	text := page.Text(Status(s), now)
	says(t, text, "", "\n7 1/2 "+key+" node-llama-7-1.example.com and 1 more 2m 6 1 pod", "\n300 2/2 older (old) node-llama-300", "\n0-6 2/2 "+key+" 14 nodes 2m 42 -\n",
		"\n8-299 2/2 "+key+" 584 nodes 2m 1752 -\n301-499 2/2 ")
	expect.That(t, strings.Count(text, "\n") < 20, "too long:\n%s", text)
	for _, colour := range []string{"\x1b[31m1/2\x1b[0m", "\x1b[32m2/2\x1b[0m", "\x1b[2molder (old)\x1b[0m"} {
		expect.Says(t, page.Coloured(Status(s), now), colour)
	}
	expect.Equalf(t, 500, len(Status(s).Groups), "groups for programs")
	status := &SetStatus{}
	for _, key := range []string{"2c59901", "3ab9f07", "a11ce55", "f00d001"} {
		status.Groups = append(status.Groups, GroupStatus{Key: key, Wanted: true, Exists: true, Ready: true, UpToDate: true})
	}
	says(t, page.Text(status, now), "", "\n2c59901 and 3 more 0/0 ")
	status.Groups = status.Groups[:3]
	says(t, page.Text(status, now), "more", "\na11ce55 0/0 ")
}

// Each step of a rollout waits for what the set itself had: no word of it is about a previous incarnation.
func TestAnOrdinaryStepOfARollout(t *testing.T) {
	for _, code := range []string{CodeLeaving, lws.CodePreviousIncarnation} {
		s := with(newSurvey(1, 2), 0, "+.")
		w := lws.Wait{Reason: reasonFor(lws.CodePreviousIncarnation, "1 object"), Ordinary: code == CodeLeaving}
		s.Plan.Waits, s.Groups[0].Plan.Waits = []lws.Wait{w}, []lws.Wait{w}
		for _, p := range Plan(s).Parts {
			expect.Equalf(t, code, p.Waits[0].Reason, "plan")
		}
		status := Status(s)
		expect.Equal(t, code, status.Waiting[0].Reason)
		expect.Equal(t, code, status.Groups[0].Waiting[0].Reason)
	}
}

// A revision has two names: undo takes its number, and pods have its key. Each text shows both.
func TestBothNamesOfARevision(t *testing.T) {
	s := twoGroups()
	s.Set.Revisions.Owned = revisions()
	s.Set.Set.Status.ObservedGeneration, s.Standing.Target, s.Standing.TargetUpdated, s.Standing.TargetReady = s.Set.Set.Generation, 2, 2, 2
	says(t, page.Text(Status(s), now), "", "\nrevision 2 ("+key+"), set created", "\n0 1/1 2 ("+key+") ", "\n1 1/1 1 (older) (old) ")
	says(t, page.Text(History(s, revisions()), now), "", "\n1 (older) 1 ", "\n2 ("+key+") (current) 1 ")
	says(t, RolloutOf(s).Message, "", "at revision 2 ("+key+")")
	says(t, Same(s.Set.Set, revisions(), Comparison{From: 1, To: Live}), "", "revision 1 (older)")
	if diff, err := Compare(s.Set.Set, revisions(), Comparison{From: 1, To: 2}); err != nil {
		t.Error(err)
	} else {
		says(t, diff, "", "revision 1 (older)", "revision 2 ("+key+")")
	}
	for _, g := range Status(s).Groups {
		expect.That(t, g.RevisionNumber == int64(2-g.Index) && g.Revision != "",
			"group %d: got %d and %q", g.Index, g.RevisionNumber, g.Revision)
	}
}

// A plan names the version where the write does.
func TestAPlanNamesTheVersionOfAWrite(t *testing.T) {
	pod := identity.Ref{Kind: identity.KindPod, Namespace: "ns", Name: "llama-0", UID: "pod", ResourceVersion: "9"}
	for name, tt := range map[string]struct {
		write action.Action
		want  string
	}{
		"a delete":                      {action.Delete{Object: pod}, "9"},
		"a delete of any version":       {action.Delete{Object: pod, AnyVersion: true}, ""},
		"a gate":                        {action.Ungate{Pod: pod}, ""},
		"a gate, and an annotation too": {action.Ungate{Pod: pod, Annotations: map[string]string{"a": ""}}, "9"},
		"a condition":                   {action.SetCondition{Object: pod}, ""},
	} {
		got := actionOf(tt.write).Preconditions
		expect.Equalf(t, tt.want, got.ResourceVersion, "%s", name)
		expect.Equalf(t, "pod", got.UID, "%s", name)
	}
}

func TestTextOfPlansAndHistories(t *testing.T) {
	for name, tt := range map[string]struct {
		report page.Report
		has    []string
		lacks  string
	}{
		"plan": {Plan(planned()), []string{
			"the set\ncreate service llama\nbecause there is none (Missing)\nonly if no object has the name, leaderworkerset llama (uid set) exists",
			"\napply statefulset llama\n", "uid is sts, its version is 8, leaderworkerset llama (uid set) exists",
			"\ndelete pod llama-0\n", "uid is pod, its version is 9, statefulset llama (uid old) is gone\n",
			"\nwrite the status of leaderworkerset llama\n", "uid is set, its version is 7\n",
			"\ngroup 0\nwait: the leader is not ready (WaitingForLeaderReady)", " in 10s ",
		}, "in step"},
		"a quota that refuses leaders": {Plan(starting(newSurvey(2, 2))), []string{"(WaitingForPods)"}, "in step"},
		"groups without room":          {Plan(starting(with(newSurvey(1, 2), 0, "??"))), []string{"group 0", "(WaitingForScheduling)"}, "in step"},
		"no group, and no reason":      {Plan(starting(keyed(newSurvey(1, 2)))), []string{"(WaitingForReadyPods)"}, "in step"},
		"a set that is deleted":        {Plan(leaving(newSurvey(1, 2))), []string{"(WaitingForDeletion)"}, "in step"},
		"nothing to do":                {Plan(newSurvey(1, 2)), []string{"in step"}, "the set"},
		"history":                      {History(twoGroups(), revisions()), []string{"2 revisions", "\nREVISION GROUPS AGE CHANGE-CAUSE\n1 (older) 1 9h -\n2 (7bdcf6cbd6) (current) 1 8h a better image\n"}, "paused"},
	} {
		t.Run(name, func(t *testing.T) { says(t, page.Text(tt.report, now), tt.lacks, tt.has...) })
	}
	_, err := Compare(twoGroups().Set.Set, revisions(), Comparison{From: 5})
	expect.That(t, err != nil && strings.HasSuffix(err.Error(), ": 1, 2"), "got %v", err)
}

// starting is a set whose groups are not ready.
func starting(s clilws.Survey) clilws.Survey {
	s.Standing.States[lws.GroupStarting] = *s.Set.Set.Spec.Replicas
	return s
}

func keyed(s clilws.Survey) clilws.Survey {
	s.Set.Set.Spec.GroupIdentity = lwsv1.HashGroupIdentity
	return s
}

func leaving(s clilws.Survey) clilws.Survey {
	at := metav1.NewTime(now)
	s.Set.Set.DeletionTimestamp = &at
	return s
}

const (
	taint  = "kubectl taint node n7 node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"
	retain = `kubectl patch pv pv-1 -p '{"spec":{"persistentVolumeReclaimPolicy":"Retain"}}'`
)

func TestTextOfPVCs(t *testing.T) {
	why := func(f *clipvc.Found) string { return page.Text(Claim(f), now) }
	refused := Claim(heldClaim())
	refused.Deletion = &Deletion{Outcome: Refused, Message: "in use"}
	overview := func(found ...*clipvc.Found) string {
		var all []*ClaimWhy
		for _, f := range found {
			all = append(all, Claim(f))
		}
		return page.Text(Overview(all), now)
	}
	elsewhere := foundClaim()
	elsewhere.Volume.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "prod", Name: "data-db-0", UID: "u-before"}
	foreign := freeClaim()
	foreign.Claim.Finalizers = append(foreign.Claim.Finalizers, "x/1")
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "prod", UID: "n", Annotations: map[string]string{pvc.HeldClaimsAnnotation: "3"}}}
	for name, tt := range map[string]struct {
		text  string
		has   []string
		lacks string
	}{
		"terminating": {why(foundClaim()), []string{
			"pod db-0 on node n7", "state Draining for 3h; mode hold (label of the namespace); volume pv-1, 1Gi, reclaim policy Delete",
			pvc.BarrierFinalizer, "uid u-pod", "nodes: you may not read it", retain, taint, "volume pv-1 is deleted", "read 0s ago",
		}, "release pvc"},
		"held": {why(heldClaim()), []string{
			"a DELETE is refused", "RayCluster/x", "kubectl delete pod db-0 -n prod",
			"kubectl lockstep release pvc/data-db-0 -n prod", "confirmed this 60m ago",
		}, taint},
		"deletion refused":               {page.Text(refused, now), []string{"refused: in use"}, "accepted"},
		"free":                           {why(freeClaim()), []string{"is not in use"}, "TO FREE IT"},
		"volume of another PVC":          {why(elsewhere), []string{"volume pv-1, not bound to this PVC"}, "Retain"},
		"release":                        {Release(Claim(heldClaim()), now), []string{pvc.ReleaseAnnotation + "=u-claim", "delete nothing", "gone: Pod/db-0; this", retain}, ""},
		"release of a foreign finalizer": {Release(Claim(foreign), now), []string{"gone: finalizer x/1"}, "at once"},
		"release of a namespace":         {ReleaseOfNamespace(namespace), []string{"namespace/prod has PVCs in use: 3.", pvc.ReleaseAnnotation + "=n"}, ""},
		"overview":                       {overview(freeClaim(), heldClaim(), foundClaim()), []string{"NAMESPACE PVC", "under way", "refused", "Pod/db-0 and 1 more", "and 1 PVC not in use"}, "accepted"},
		"terminating PVCs first":         {overview(heldClaim(), foundClaim()), []string{"Draining 3h under way Pod/db-0 node n7", "TO FREE IT\nprod data-db-0 Draining"}, ""},
		"overview of free PVCs":          {overview(freeClaim()), []string{"1 PVC, none in use"}, "NAMESPACE"},
		"empty overview":                 {overview(), []string{"no PVCs"}, "NAMESPACE"},
	} {
		t.Run(name, func(t *testing.T) { says(t, tt.text, tt.lacks, tt.has...) })
	}
}

func TestTextHasNoControlCharacters(t *testing.T) {
	const control = "red \x1b[31m\u009b2Jand\ttwo\nlines\r\v\f"
	wait := []Wait{{Message: control}}
	for name, report := range map[string]page.Report{
		"history": &SetHistory{Revisions: []Revision{{Number: 1, Cause: control}}},
		"waiting": &SetStatus{Waiting: wait},
		"group":   &SetStatus{Groups: []GroupStatus{{Wanted: true, Waiting: wait}}},
		"failure": &SetStatus{Groups: []GroupStatus{{Failed: &GroupFailure{Pods: []PodFailure{{Cause: restart.Crash, PodFailure: lwsv1.PodFailure{Pod: "a-0", Message: control}}}}}}},
		"plan":    &SetPlan{Parts: []Part{{Waits: wait}}},
		"PVC":     &ClaimWhy{Explanation: pvc.Explanation{Notes: []string{control}}},
	} {
		text := page.Text(report, now)
		if !strings.Contains(text, "and two lines") || strings.ContainsFunc(text, func(r rune) bool { return r != '\n' && (r < ' ' || r >= 0x7f && r < 0xa0) }) {
			t.Errorf("%s: got %q", name, text)
		}
	}
}

func TestLateLeaderIsShownWithItsRemedy(t *testing.T) {
	for after, want := range map[time.Duration]bool{time.Minute: false, 5 * time.Minute: true} {
		s := without(newSurvey(1, 1), 0)
		leader := terminating("llama-0", after)
		own := s.Set.StatefulSet.Own()
		leader.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(own, appsv1.SchemeGroupVersion.WithKind("StatefulSet"))}
		s.Set.Now, s.Set.Leaders.Previous = now, []*corev1.Pod{leader}
		waiting := Status(s).Groups[0].Waiting
		if len(waiting) != 1 || waiting[0].Reason != CodeLeaving || strings.Contains(waiting[0].Message, "kubectl taint node") != want {
			t.Errorf("%v after its end: got %+v, remedy wanted: %t", after, waiting, want)
		}
	}
}

// The leader of a stopped group is not late, and is not recreated.
func TestLeaderOfAStoppedGroupStays(t *testing.T) {
	s := without(newSurvey(1, 1), 0)
	leader := terminating("llama-0", 5*time.Minute, lwsv1.GroupRestartBudgetFinalizer)
	own := s.Set.StatefulSet.Own()
	leader.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(own, appsv1.SchemeGroupVersion.WithKind("StatefulSet"))}
	s.Set.Now, s.Set.Leaders.Previous = now, []*corev1.Pod{leader}
	waiting := Status(s).Groups[0].Waiting
	expect.That(t, len(waiting) == 1 && waiting[0].Message == "leader llama-0 stays as evidence", "got %+v", waiting)
}

func TestRefusedPodsAreShownWithTheReason(t *testing.T) {
	s := with(newSurvey(2, 3), 0, "++.")
	s.Groups[0].Workers.Owned[0].UID = "workers"
	s.Refusals = clilws.Refusals{
		{InvolvedObject: corev1.ObjectReference{UID: "workers"}, Message: "create Pod llama-0-2 in StatefulSet llama-0 failed error: exceeded quota"},
		{InvolvedObject: corev1.ObjectReference{UID: "leaders"}, Message: "create Pod llama-1 in StatefulSet llama failed error: too long"},
	}
	status := Status(s)
	for want, waiting := range map[string][]Wait{"exceeded quota": status.Groups[0].Waiting, "too long": status.Groups[1].Waiting} {
		if len(waiting) != 2 || waiting[1].Reason != lws.CodeRefused || !strings.Contains(waiting[1].Message, want) {
			t.Errorf("got %+v, want %q", waiting, want)
		}
	}
}

// A write that will be refused must not look due: a plan says what the write relies on.
func TestAPlanSaysWhatAWriteReliesOn(t *testing.T) {
	pod := identity.Ref{Kind: identity.KindPod, Namespace: "ns", Name: "w-0", UID: "u", ResourceVersion: "7"}
	set := action.Standing{Kind: identity.KindStatefulSet, Name: "w", Specified: map[types.UID]int64{"s": 1}}
	leaders := action.Standing{
		Kind: identity.KindPod, There: []types.UID{"a"}, Unchanged: []identity.Ref{pod}, NoOther: []action.Names{{Base: "w", End: 2}},
	}
	none := action.Standing{Kind: identity.KindPod, None: true, Labels: map[string]string{"a": "b"}}
	for _, tt := range []struct {
		write action.Action
		want  []string
	}{
		{action.Apply{Onto: pod, Relies: []action.Standing{set}}, []string{"statefulset w did not change since it was read"}},
		{action.Delete{Object: pod, Relies: []action.Standing{leaders}}, []string{"the judged pods exist (2, unchanged: 1), and no other has one of their names"}},
		{action.Relabel{Object: pod, Relies: []action.Standing{set, none}}, []string{"statefulset w did not change since it was read", "no pod with a=b exists"}},
		{action.SetFinalizers{Object: pod, Relies: []action.Standing{none}}, []string{"no pod with a=b exists"}},
		{action.Ungate{Pod: pod, Relies: []action.Standing{none}}, []string{"no pod with a=b exists"}},
	} {
		shown := actionOf(tt.write)
		expect.Equalf(t, tt.want, shown.Preconditions.Relies, "%T", tt.write)
		needs := shown.Preconditions.needs()
		expect.That(t, needs[len(needs)-1] == tt.want[len(tt.want)-1], "%T: the text has %q", tt.write, needs)
	}
	shown := actionOf(action.Delete{Object: pod, Foreground: true, After: true})
	expect.That(t, shown.Foreground && shown.After, "a delete in the foreground, after others: got %+v", shown)
}

// The status and the plan of a set say as much of a million groups, or workers, that do not exist as of a thousand.
func TestTextCostsWhatExists(t *testing.T) {
	for name, survey := range map[string]func(n int32) clilws.Survey{
		"no group":         func(n int32) clilws.Survey { return newSurvey(n, 2) },
		"gaps":             func(n int32) clilws.Survey { return with(with(newSurvey(n, 2), 3, "++"), 7, "+.") },
		"a surplus group":  func(n int32) clilws.Survey { return with(newSurvey(n, 2), int(n)+3, "++") },
		"workers lack":     func(n int32) clilws.Survey { return sized(with(newSurvey(2, n), 0, "+.+"), n) },
		"no worker exists": func(n int32) clilws.Survey { return sized(with(newSurvey(2, n), 0, "+"), n) },
	} {
		cost := func(n int32) float64 {
			s := survey(n)
			return testing.AllocsPerRun(2, func() {
				s.Standing.States[lws.GroupStarting] = n
				for _, report := range []page.Report{Status(s), Plan(s)} {
					text := page.Text(report, now)
					expect.That(t, len(text) <= 20_000, "%s: %d bytes", name, len(text))
				}
			})
		}
		if few, many := cost(1000), cost(1_000_000); many > few+100 {
			t.Errorf("%s: %.0f allocations, %.0f for 1000", name, many, few)
		}
	}
}

// sized makes the first group one of so many pods.
func sized(s clilws.Survey, size int32) clilws.Survey {
	workers := size - 1
	s.Groups[0].Workers.Owned[0].Spec.Replicas = &workers
	s.Groups[0].Leader.Annotations = nil
	return s
}

// Groups in a row of which nothing exists are one entry, and so are their waits.
func TestGroupsOfWhichNothingExistsAreOneEntry(t *testing.T) {
	s := with(newSurvey(1_000_000, 2), 3, "++")
	s.Standing.States[lws.GroupStarting] = 999_999
	got := fakeapi.Each(Status(s).Groups, func(g GroupStatus) [2]int { return [2]int{g.Index, g.LastIndex} })
	expect.Equal(t, [][2]int{{0, 2}, {3, 0}, {4, 999_999}}, got)
	waits := fakeapi.Each(Plan(s).Parts, func(part Part) int { return part.LastGroup })
	expect.That(t, len(waits) == 3 && waits[1] == 2 && waits[2] == 999_999,
		"the plan has waits for groups up to %v", waits)
}

// The missing workers that are named are the first ones.
func TestTheFirstMissingWorkersAreNamed(t *testing.T) {
	s := sized(with(newSurvey(1, 1_000_000), 0, "+-.+.."), 1_000_000)
	s.Groups[0].Pods.Owned = []*corev1.Pod{s.Groups[0].Pods.Owned[1], s.Groups[0].Pods.Owned[0]} // a cache has no order
	want := "999997 of 999999 workers not created yet: llama-0-2, llama-0-4, llama-0-5, llama-0-6 and 999993 more"
	waiting := Status(s).Groups[0].Waiting
	expect.That(t, waiting[0].Message == want, "got %q, want %q", waiting[0].Message, want)
}

func TestWhatARolloutWaitsFor(t *testing.T) {
	wait := func(code string) func(*clilws.Survey) {
		return func(s *clilws.Survey) { s.Plan.Waits = []lws.Wait{{Reason: reasonFor(code, "pod llama-0")}} }
	}
	refused := func(s *clilws.Survey) {
		s.Set.Set.Status.Conditions[0].Reason, s.Set.Set.Status.Conditions[0].Message = lws.CodeRefused, "too many"
	}
	unattended := func(s *clilws.Survey) {
		s.Unattended = &action.Reason{Code: clilws.CodeNoOperator, Sentence: "no lease"}
	}
	unobserved := func(s *clilws.Survey) { s.Set.Set.Generation = 8 }
	pending := func(s *clilws.Survey) { s.Standing.Pending = true }
	for _, tt := range []struct {
		name string
		// target is how many groups are to be at the revision; updated and ready of them are.
		target, updated, ready, surge int32
		edits                         []func(*clilws.Survey)
		want                          string
		done                          bool
	}{
		{"done", 10, 10, 10, 0, nil, `"llama" successfully rolled out: 10 groups at revision 4`, true},
		{"spec not observed", 10, 10, 10, 0, []func(*clilws.Survey){unobserved}, "generation 8 of llama", false},
		{"groups of the old revision", 10, 7, 6, 0, nil, "3 of 10 groups to be updated", false},
		{"groups that start", 10, 10, 8, 0, nil, "2 of 10 groups to be ready", false},
		{"a surge group", 10, 10, 10, 1, nil, "1 surge group", false},
		{"groups from the partition on", 4, 1, 1, 0, nil, "3 of 4 groups to be updated", false},
		{"done with a partition", 4, 4, 4, 0, nil, "partitioned roll out complete: 4 groups", true},
		{"paused", 10, 7, 7, 0, []func(*clilws.Survey){paused}, "waiting: the rollout is paused", false},
		{"paused, with a template that waits", 10, 10, 10, 0, []func(*clilws.Survey){paused, pending, wait(lws.CodePaused)}, "waiting: pod llama-0", false},
		{"done while paused", 10, 10, 10, 0, []func(*clilws.Survey){paused}, "successfully rolled out", true},
		{"PVCs that the set does not have", 10, 0, 0, 0, []func(*clilws.Survey){pending, wait(lws.CodeVolumeClaimsDiffer)}, "waiting: pod llama-0", false},
		{"the previous incarnation", 10, 0, 0, 0, []func(*clilws.Survey){wait(lws.CodePreviousIncarnation)}, "waiting: pod llama-0", false},
		{"an ordinary step", 10, 7, 7, 0, []func(*clilws.Survey){wait(lws.CodePreviousIncarnation), func(s *clilws.Survey) { s.Plan.Waits[0].Ordinary = true }},
			"3 of 10 groups to be updated", false},
		{"a refused spec", 10, 10, 10, 0, []func(*clilws.Survey){refused, unobserved}, "waiting: too many", false},
		{"a refusal below the partition", 4, 4, 4, 0, []func(*clilws.Survey){refused}, "6 are kept below the partition", true},
		{"done, without an operator", 10, 10, 10, 0, []func(*clilws.Survey){unattended}, "revision 4 (7bdcf6cbd6); no lease", true},
		{"groups that start without an operator", 10, 10, 8, 0, []func(*clilws.Survey){unattended}, "groups to be ready; no lease", false},
		{"a spec that is not observed", 10, 10, 10, 0, []func(*clilws.Survey){unobserved, unattended}, "of llama; no lease", false},
	} {
		s := newSurvey(10, 1)
		s.Set.Set.Generation, s.Set.Set.Status.ObservedGeneration = 7, 7
		s.Set.Revisions.Owned = []*appsv1.ControllerRevision{newRevision(3, "older", "image:1"), newRevision(4, key, "image:2")}
		s.Standing = lws.Standing{Key: key, Target: tt.target, TargetUpdated: tt.updated, TargetReady: tt.ready, Surge: tt.surge}
		for _, edit := range tt.edits {
			edit(&s)
		}
		got, number := RolloutOf(s), int64(4)
		if s.Set.Set.Generation == 8 { // a rollback gives a revision a new number: the old one is not the answer
			number = 0
		}
		expect.That(t, strings.Contains(got.Message, tt.want) && got.Done == tt.done && got.Number == number,
			"%s: got %+v, want %q, done %v", tt.name, got, tt.want, tt.done)
	}
}
