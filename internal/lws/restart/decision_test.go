package restart_test

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws/restart"
	"lockstep.dev/lockstep/test/expect"
	"lockstep.dev/lockstep/test/fakeapi"
)

// A decision counts for the leader with its UID alone, and not if it is from before
// restartsSince.
func TestADecisionIsBoundToItsLeader(t *testing.T) {
	since := metav1.NewTime(fakeapi.Epoch)
	set := fakeapi.Set("w", 1, 2, fakeapi.Policy(lwsv1.RecreateGroupOnPodRestart))
	set.Status.RestartsSince = &since
	for name, tt := range map[string]struct {
		edit func(*restart.Decision)
		want bool
	}{
		"its own":        {func(*restart.Decision) {}, true},
		"another leader": {func(d *restart.Decision) { d.Leader = "former" }, false},
		"too old":        {func(d *restart.Decision) { d.At = metav1.NewTime(since.Add(-time.Hour)) }, false},
	} {
		leader := fakeapi.Pod("w-0", "w", 0)
		leader.UID = "leader"
		decision := restart.Group{Set: set, Leader: leader}.Decide(&restart.Failure{Code: restart.CodePodEnded}, fakeapi.Epoch.Add(time.Minute))
		tt.edit(decision)
		leader.Annotations = map[string]string{restart.AnnotationKey: decision.Annotation()}
		got := restart.Of(set, leader)
		expect.Equalf(t, tt.want, got != nil, "%s: got %+v", name, got)
	}
}

// A group starts under the policy of its leader's revision, whatever its set says by now. The
// annotation is in no revision.
func TestAGroupStartsUnderThePolicyOfItsRevision(t *testing.T) {
	since := metav1.NewTime(fakeapi.Epoch)
	leader := fakeapi.Pod("w-0", "w", 0)
	leader.CreationTimestamp = since
	for _, policy := range []lwsv1.RestartPolicyType{lwsv1.NoneRestartPolicy, lwsv1.RecreateGroupOnPodRestart, lwsv1.RecreateGroupAfterStart} {
		set := fakeapi.Set("w", 1, 2)
		set.Status.RestartsSince = &since
		for _, now := range []lwsv1.RestartPolicyType{lwsv1.RecreateGroupOnPodRestart, lwsv1.RecreateGroupAfterStart} {
			set.Spec.LeaderWorkerTemplate.RestartPolicy = now
			expect.Equalf(t, policy != lwsv1.RecreateGroupOnPodRestart, restart.ForgivesStart(set, policy, leader), "%s, now %s: forgives", policy, now)
		}
		fakeapi.Annotation(lwsv1.RecreateGroupAfterStartAnnotationKey, "")(set)
		expect.That(t, restart.ForgivesStart(set, policy, leader), "%s: the annotation does not hold", policy)
	}
}

// The note of an event fits one line whatever the names are. Those of usual lengths stay whole, and of long ones their
// ends stay.
func TestNotesOfLongNamesFit(t *testing.T) {
	long := strings.Repeat("abc.", 62) + "ab-17"
	for _, node := range []string{"", "gpu-7", long} {
		for _, container := range []string{"", "serve", strings.Repeat("c", 63)} {
			for _, reason := range []string{"OOMKilled", strings.Repeat("r", 63)} {
				for _, group := range []string{"7", "0123456789"} {
					for _, leader := range []string{"llama-7", long} {
						for _, pod := range []string{leader, leader + "-17"} {
							d := restart.Decision{Failure: restart.Failure{PodFailure: lwsv1.PodFailure{Pod: pod, Container: container, Reason: reason, Node: node}}}
							if container != "" {
								d.ExitCode = new(int32(-2147483648))
							}
							of := &corev1.Pod{}
							of.Name = leader
							note := d.Note(of, group)
							n := utf8.RuneCountInString(note)
							expect.That(t, n <= 120 && utf8.ValidString(note), "%d characters: %s", n, note)
							role := map[bool]string{true: "Leader ", false: "Worker "}[pod == leader]
							expect.That(t, strings.HasPrefix(note, role), "not a %s: %s", role, note)
							expect.That(t, strings.Contains(note, "7 failed (") && strings.Contains(note, "group "+group),
								"the end of the name or the group is missing: %s", note)
						}
					}
				}
			}
		}
	}
	usual := restart.Decision{Failure: restart.Failure{PodFailure: lwsv1.PodFailure{
		Pod: "llama-405b-12-3", Container: "serve", Reason: "OOMKilled", ExitCode: new(int32(137)), Node: "gpu-7.example.com",
	}}}
	leader := &corev1.Pod{}
	leader.Name = "llama-405b-12"
	note := usual.Note(leader, "12")
	for _, part := range []string{"llama-405b-12-3", "container serve", "OOMKilled", "exit code 137", "node gpu-7.example.com", "group 12"} {
		expect.Says(t, note, part)
	}
}

// Each container has the end of its log, or says why it has none: no log is read twice.
func TestADecisionTakesTheEndsOfLogs(t *testing.T) {
	before := restart.Decision{Failure: restart.Failure{Containers: []lwsv1.ContainerFailure{{Name: "a"}, {Name: "b"}, {Name: "c"}}}}
	before.AwaitLogs()
	after := before.WithLogs([]restart.Log{
		{Text: "first\n" + strings.Repeat("x", restart.LogBytes-4) + "\nend\n"},
		{Unread: "no kubelet" + strings.Repeat("!", 1000)},
		{Text: " \n", Unread: ""},
	})
	got := after.Containers
	if len(got[0].Log) != restart.LogBytes || !strings.HasSuffix(got[0].Log, "x\nend") || got[0].LogUnread != "" {
		t.Errorf("a log: %+v", got[0])
	}
	expect.That(t, got[1].Log == "" && len(got[1].LogUnread) == 256, "an unread log: %+v", got[1])
	expect.That(t, got[2].Log == "" && got[2].LogUnread != "", "an empty log: %+v", got[2])
	expect.That(t, before.AwaitsLogs() && !after.AwaitsLogs(),
		"awaits logs: before %t, after %t", before.AwaitsLogs(), after.AwaitsLogs())
}

// The log is that of the incarnation of the container that failed.
func TestEndedFindsTheIncarnationOfAContainer(t *testing.T) {
	at := metav1.NewTime(fakeapi.Epoch)
	end := func(exit int32, at metav1.Time) corev1.ContainerState {
		return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: exit, FinishedAt: at}}
	}
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	for name, tt := range map[string]struct {
		now, last corev1.ContainerState
		want      [2]bool
	}{
		"it is down":        {end(1, at), end(1, metav1.NewTime(at.Add(-time.Hour))), [2]bool{true, false}},
		"it runs again":     {running, end(1, at), [2]bool{true, true}},
		"it failed again":   {end(1, metav1.NewTime(at.Add(time.Second))), end(1, at), [2]bool{true, true}},
		"another pod":       {running, corev1.ContainerState{}, [2]bool{}},
		"another exit code": {end(2, at), corev1.ContainerState{}, [2]bool{}},
		"no time is known":  {end(1, metav1.Time{}), corev1.ContainerState{}, [2]bool{true, false}},
	} {
		pod := &corev1.Pod{Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{Name: "c", State: tt.now, LastTerminationState: tt.last}}}}
		found, again := restart.Ended(pod, lwsv1.ContainerFailure{Name: "c", ExitCode: 1, At: at})
		expect.Equalf(t, tt.want, [2]bool{found, again}, "%s", name)
	}
}

// startedSet is a set whose status has a record of group 0.
func startedSet(record lwsv1.StartedGroup) *lwsv1.LeaderWorkerSet {
	set := fakeapi.Set("w", 1, 1, fakeapi.Policy(lwsv1.RecreateGroupOnPodRestart))
	set.Status.RestartsSince = &metav1.Time{Time: fakeapi.Epoch}
	set.Status.Started = []lwsv1.StartedGroup{record}
	return set
}

func leaderAt(uid types.UID, revision string) *corev1.Pod {
	pod := fakeapi.Pod("w-0", "w", 0)
	pod.UID, pod.Labels[lwsv1.RevisionKey] = uid, revision
	return pod
}

// A field marks a group that is counted: another leader is no failure then. A record of the release before, and one
// whose field an older definition dropped, lack the revision instead.
func TestAGroupIsMarkedAsCountedByAField(t *testing.T) {
	for name, tt := range map[string]struct {
		record    lwsv1.StartedGroup
		isCounted bool
	}{
		"not counted":                     {lwsv1.StartedGroup{Leader: "a", Pods: "AA.r"}, false},
		"counted":                         {lwsv1.StartedGroup{Leader: "a", Pods: "AA.r", Counted: true}, true},
		"counted by the release before":   {lwsv1.StartedGroup{Leader: "a", Pods: "AA"}, true},
		"counted, for the release before": {lwsv1.StartedGroup{Leader: "a", Pods: "AA", Counted: true}, true},
	} {
		set := startedSet(tt.record)
		s := restart.Status{Started: set.Status.Started}
		s.Count(set, []*corev1.Pod{leaderAt("b", "r")}, false, fakeapi.Epoch)
		expect.Equalf(t, !tt.isCounted, len(s.Failures) > 0, "%s: another leader is a failure", name)
		expect.Equalf(t, tt.isCounted, restart.IsReplaced(set, 0, leaderAt("a", "r")), "%s: a rollout replaces the leader", name)
	}
}

// A rollout marks a record once, and takes the mark from a leader that stays.
func TestARolloutMarksARecordOnce(t *testing.T) {
	plain := lwsv1.StartedGroup{Leader: "a", Pods: "AA.r"}
	marked := lwsv1.StartedGroup{Leader: "a", Pods: "AA", Counted: true}
	pruned := lwsv1.StartedGroup{Leader: "a", Pods: "AA"} // by an older definition
	for _, tt := range []struct {
		record     lwsv1.StartedGroup
		isReplaced bool
		want       lwsv1.StartedGroup
	}{
		{plain, true, marked}, {marked, true, marked}, {pruned, true, pruned},
		{plain, false, plain}, {marked, false, plain}, {pruned, false, plain},
		{lwsv1.StartedGroup{Leader: "a", Pods: "AA.r", Counted: true}, false, plain},
	} {
		set := startedSet(tt.record)
		s := restart.Status{Started: set.Status.Started}
		s.Expect(set, []*corev1.Pod{leaderAt("a", "r")}, func(int) bool { return tt.isReplaced })
		expect.Equalf(t, []lwsv1.StartedGroup{tt.want}, s.Started, "%+v, replaced %t", tt.record, tt.isReplaced)
	}
}

func entryOf(index int32, revision string, count int32) lwsv1.GroupRestarts {
	return lwsv1.GroupRestarts{Index: index, Leader: types.UID('a' + index), Revision: revision, Count: count, Recreations: ptr.To(count)}
}

// counts are the entries of a status, by index.
func counts(s restart.Status) map[int32]int32 {
	found := map[int32]int32{}
	for _, entry := range s.Restarts {
		found[entry.Index] = entry.Count
	}
	return found
}

func TestAGroupInheritsTheHighestCountOfItsRevision(t *testing.T) {
	all := []lwsv1.GroupRestarts{entryOf(1, "r", 2), entryOf(2, "r", 5), entryOf(3, "s", 9), entryOf(4, "r", 1)}
	for name, tt := range map[string]struct {
		owners restart.Owners
		want   map[int32]int32
		isNew  bool
	}{
		"nothing is replaced":          {restart.Owners{Living: map[int]bool{1: true, 2: true, 3: true, 4: true}}, map[int32]int32{1: 2, 2: 5, 3: 9, 4: 1}, false},
		"one is":                       {restart.Owners{Living: map[int]bool{1: true, 3: true, 4: true, 7: true}, Heirs: []restart.Heir{{Index: 7, Revision: "r"}}}, map[int32]int32{1: 2, 7: 5, 3: 9, 4: 1}, true},
		"the highest of two":           {restart.Owners{Living: map[int]bool{3: true, 7: true}, Vacant: 2, Heirs: []restart.Heir{{Index: 7, Revision: "r"}}}, map[int32]int32{7: 5, 1: 2, 3: 9, 4: 1}, true},
		"of another revision, nothing": {restart.Owners{Living: map[int]bool{1: true, 2: true, 4: true, 7: true}, Heirs: []restart.Heir{{Index: 7, Revision: "r"}}}, map[int32]int32{1: 2, 2: 5, 4: 1}, false},
		"one that is stopped keeps it": {restart.Owners{Living: map[int]bool{1: true, 3: true, 4: true, 7: true}, Kept: map[int]bool{2: true}, Heirs: []restart.Heir{{Index: 7, Revision: "r"}}}, map[int32]int32{1: 2, 2: 5, 3: 9, 4: 1}, false},
		"an heir has one already":      {restart.Owners{Living: map[int]bool{1: true, 3: true}, Heirs: []restart.Heir{{Index: 1, Revision: "r"}}, Vacant: 1}, map[int32]int32{1: 2, 2: 5, 3: 9}, false},
	} {
		s := restart.Status{Restarts: all}
		s.Inherit(tt.owners)
		expect.Equalf(t, tt.want, counts(s), "%s", name)
		expect.Equalf(t, tt.isNew, s.IsNew, "%s: new", name)
	}
}

// No entry appears from nothing, none is doubled, and no more stay than living, stopped and vacant groups can have.
func TestInheritanceMakesNoEntries(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s restart.Status
		for index := range int32(6) {
			if rapid.Bool().Draw(t, "entry") {
				s.Restarts = append(s.Restarts, entryOf(index, rapid.SampledFrom([]string{"r", "s"}).Draw(t, "revision"), rapid.Int32Range(0, 9).Draw(t, "count")))
			}
		}
		before := map[types.UID]bool{}
		for _, entry := range s.Restarts {
			before[entry.Leader] = true
		}
		o := restart.Owners{Living: map[int]bool{}, Kept: map[int]bool{}, Vacant: rapid.IntRange(0, 3).Draw(t, "vacant")}
		for index := range 9 {
			switch rapid.IntRange(0, 3).Draw(t, "group") {
			case 0:
				o.Living[index] = true
				if rapid.Bool().Draw(t, "heir") {
					o.Heirs = append(o.Heirs, restart.Heir{Index: index, Revision: "r"})
				}
			case 1:
				o.Kept[index] = true
			}
		}
		s.Inherit(o)
		free := 0
		for _, entry := range s.Restarts {
			expect.Must(t, before[entry.Leader], "entry %+v comes from nothing", entry)
			delete(before, entry.Leader)
			if index := int(entry.Index); !o.Living[index] && !o.Kept[index] {
				free++
			}
		}
		expect.That(t, free <= o.Vacant, "%d entries without a group, and %d groups may come", free, o.Vacant)
	})
}

// Another implementation counts the restarts of a Hash group under its key, and of another group under its ordinal.
func TestCountsOfAnotherImplementationHaveTheKeyOfTheGroup(t *testing.T) {
	key, made := strings.Repeat("a", 40), metav1.NewTime(time.Unix(1000, 0))
	index := identity.HashIndex(key)
	leader := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: "w-r-a", CreationTimestamp: made,
		Labels:      map[string]string{lwsv1.RevisionKey: "r", lwsv1.GroupUniqueHashLabelKey: key, lwsv1.GroupIndexLabelKey: key},
		Annotations: map[string]string{lwsv1.GroupIdentityAnnotationKey: string(lwsv1.HashGroupIdentity)},
	}}
	ordinal := leader.DeepCopy()
	ordinal.Name, ordinal.Annotations = "w-3", nil
	for name, tt := range map[string]struct {
		leader   *corev1.Pod
		index    int
		counts   string
		exhausts bool
	}{
		"of its key":       {leader, index, fmt.Sprintf(`{"r/%s": 2}`, key), true},
		"of its number":    {leader, index, fmt.Sprintf(`{"r/%d": 2}`, index), false},
		"of another key":   {leader, index, `{"r/b": 2}`, false},
		"of its ordinal":   {ordinal, 3, `{"r/3": 2}`, true},
		"of no ordinal":    {ordinal, 3, fmt.Sprintf(`{"r/%s": 2}`, key), false},
		"of fewer than it": {leader, index, fmt.Sprintf(`{"r/%s": 1}`, key), false},
	} {
		set := &lwsv1.LeaderWorkerSet{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{lwsv1.GroupRestartCountsAnnotationKey: tt.counts}}}
		set.Spec.LeaderWorkerTemplate.MaxGroupRestarts = ptr.To[int32](2)
		set.Status.RestartsSince = &metav1.Time{Time: made.Add(time.Second)}
		decision := restart.Group{Set: set, Index: tt.index, Leader: tt.leader}.Decide(&restart.Failure{}, made.Time)
		expect.Equalf(t, tt.exhausts, decision.Exhausted, "%s: exhausts", name)
	}
}

// Drains and lost nodes are told apart from crashes. What the status does not record stays unknown.
func TestCausesOfFailures(t *testing.T) {
	for want, reasons := range map[restart.Cause][]string{
		restart.Crash:      {"OOMKilled", restart.CodePodEnded, restart.CodePodRestarted},
		restart.LostNode:   {"DeletionByTaintManager", "DeletionByPodGC", "NodeLost"},
		restart.Disruption: {"EvictionByEvictionAPI", "PreemptionByScheduler", "Evicted", "Terminated", "TerminationTarget", "DisruptionTarget"},
		restart.Request:    {restart.CodeRequested},
		restart.Deletion:   {restart.CodePodDeleted, restart.CodePodGone, restart.CodeLeaderReplaced, restart.CodeWorkersetDeleted},
		restart.Unknown:    {""},
	} {
		for _, reason := range reasons {
			expect.Equalf(t, want, restart.CauseOf(lwsv1.PodFailure{Reason: reason}), "%q", reason)
		}
	}
}
