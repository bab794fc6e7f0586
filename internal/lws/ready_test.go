package lws_test

import (
	"errors"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
	lwsset "lockstep.dev/lockstep/internal/lws/set"
	"lockstep.dev/lockstep/test/expect"
	"lockstep.dev/lockstep/test/fakeapi"
)

// verdict is what kstatus finds of a set.
type verdict string

const (
	current    verdict = "Current"
	inProgress verdict = "InProgress"
	failed     verdict = "Failed"
)

// kstatus stands for the library of that name, which judges the recorded sets in release/.
func kstatus(status lwsv1.LeaderWorkerSetStatus, generation int64) verdict {
	if status.ObservedGeneration != generation {
		return inProgress
	}
	for _, c := range status.Conditions {
		switch {
		case c.Type == "Reconciling" && c.Status == metav1.ConditionTrue:
			return inProgress
		case c.Type == "Stalled" && c.Status == metav1.ConditionTrue:
			return failed
		}
	}
	if condition(status, ready).Status == metav1.ConditionFalse {
		return inProgress
	}
	return current
}

// state is a set that tools are to judge.
type state struct {
	of      func(testing.TB) *cluster
	happens step
	// seen is what the operator knows beside the objects.
	seen func(*lws.SetSnapshot)
	want verdict
	// reason is that of the condition Ready.
	reason string
}

// states are by the names of their records in integrations/testdata.
var states = map[string]state{
	"being-created":          {fresh, nothing, nil, inProgress, "GroupsProgressing"},
	"ready":                  {with(2, 3), nothing, nil, current, "AllGroupsReady"},
	"without-groups":         {with(0, 3), nothing, nil, current, "AllGroupsReady"},
	"one-group-down":         {with(2, 3), on("w-1", unready), nil, inProgress, "GroupsProgressing"},
	"scaled-up":              {with(2, 3), user(replicas(3)), nil, inProgress, "GroupsProgressing"},
	"rolling-out":            {with(3, 2), user(fakeapi.Image("image:2")), nil, inProgress, "GroupsUpdating"},
	"canary":                 {with(3, 2, partitioned(2)), then(user(fakeapi.Image("image:2")), settled), nil, current, "AllGroupsReady"},
	"canary-down":            {with(3, 2, partitioned(2)), then(user(fakeapi.Image("image:2")), settled, on("w-2", unready)), nil, inProgress, "GroupsProgressing"},
	"paused":                 {with(3, 2), then(pause, user(fakeapi.Image("image:2")), settled), nil, inProgress, lws.CodePaused},
	"paused-at-rest":         {with(2, 2), pause, nil, current, "AllGroupsReady"},
	"backing-off":            {with(2, 2, fakeapi.Policy(lwsv1.RecreateGroupOnPodRestart)), backingOff, nil, inProgress, "GroupsFailing"},
	"budget-exceeded":        {budget(2, 2, 0), failures(1), nil, failed, lws.CodeBudgetExceeded},
	"previous":               {leftover, nothing, nil, inProgress, lws.CodePreviousIncarnation},
	"previous-stuck":         {leftover, then(carriedOut, after(time.Minute)), nil, failed, lwsset.CodePreviousStuck},
	"name-conflict":          {with(2, 2), occupied("w-1"), nil, failed, lws.CodeNameConflict},
	"service-name-conflict":  {with(2, 2), foreign[Service]("w"), nil, current, "AllGroupsReady"},
	"refused":                {fresh, nothing, refusing(quota), failed, lws.CodeRefused},
	"update-refused":         {with(2, 2), user(fakeapi.Image("image:2")), refusing(denied(403)), failed, lws.CodeRefused},
	"webhook-unreachable":    {fresh, nothing, refusing(unanswered), inProgress, lws.CodeRefused},
	"workers-refused":        {with(2, 2), withoutWorkers, refusingPart(quota), failed, lws.CodeRefused},
	"service-refused":        {with(2, 2), gone[Service]("w"), refusingPart(quota), failed, lws.CodeRefused},
	"other-claims":           {with(2, 2, fakeapi.Volumes(deleteClaims, retainClaims)), user(otherClaims["one more"], fakeapi.Image("image:2")), nil, failed, lws.CodeVolumeClaimsDiffer},
	"gang-scheduler-missing": {with(2, 2), on("w-1", unready), func(w *lws.SetSnapshot) { w.GangMissing = "no PodGroups are served" }, inProgress, lws.CodeGangSchedulerMissing},
	"unsupported":            {fresh, nothing, func(w *lws.SetSnapshot) { w.Beyond = []string{`spec.groupIdentity="Hash"`} }, failed, lws.CodeUnsupported},
}

var (
	quota      = forbidden("exceeded quota: few, requested: count/statefulsets.apps=1")
	unanswered = apierrors.NewInternalError(errors.New(`failed calling webhook "w.example.com": no route to host`))
)

// fresh is a set as it is created.
func fresh(t testing.TB) *cluster {
	c := newCluster(t)
	fakeapi.Add(c.Server, fakeapi.Set("w", 2, 2, func(set Set) { set.Status.ObservedGeneration = -1 }))
	return c
}

// leftover is a set whose previous incarnation left a pod that has a finalizer.
func leftover(t testing.TB) *cluster {
	c := createdAgain(t, 2, 1, "pod w-1")
	leaving[Pod]("w-1", "example.com/a")(c)
	return c
}

// backingOff lets a group fail for the second time.
func backingOff(c *cluster) {
	for range 2 {
		c.settle()
		on("w-1", crash)(c)
	}
	c.reconcileGroup("w-1")
}

func refusing(err error) func(*lws.SetSnapshot) {
	return func(w *lws.SetSnapshot) { w.Refusal, _ = action.RefusalOf(err, w.Now) }
}

func refusingPart(err error) func(*lws.SetSnapshot) {
	return func(w *lws.SetSnapshot) {
		refusal, _ := action.RefusalOf(err, w.Now)
		w.Refused = append(w.Refused, action.Refused{Index: 0, Refusal: refusal})
	}
}

// told is the set with the status that the operator gives it.
func told(c *cluster, seen func(*lws.SetSnapshot)) Set {
	c.t.Helper()
	snapshot := c.set()
	if seen != nil {
		seen(&snapshot)
	}
	set := find[Set](c, "w").DeepCopy()
	for _, write := range statusWrites(lwsset.Decide(snapshot)) {
		set.Status = write.Status
	}
	return set
}

var record = flag.Bool("record", false, "write the sets of integrations/testdata")

// Tools find a set current, in progress or failed. The recorded sets, by which the integrations are
// tested, are what the operator writes: go test ./internal/lws -run TestToolsJudgeSets -record.
func TestToolsJudgeSets(t *testing.T) {
	for name, state := range states {
		t.Run(name, func(t *testing.T) {
			c := state.of(t)
			state.happens(c)
			c.pass(time.Minute)
			set := told(c, state.seen)
			expect.Equal(t, state.want, kstatus(set.Status, set.Generation))
			expect.Equalf(t, state.reason, condition(set.Status, ready).Reason, "got %+v", set.Status.Conditions)
			checkRecord(t, name, set)
		})
	}
}

// checkRecord compares a set with its record, or records it.
func checkRecord(t *testing.T, name string, set Set) {
	t.Helper()
	set.ResourceVersion = ""
	set.TypeMeta = metav1.TypeMeta{APIVersion: lwsv1.GroupVersion.String(), Kind: "LeaderWorkerSet"}
	is, err := yaml.Marshal(set)
	file := filepath.Join("..", "..", "integrations", "testdata", name+".yaml")
	if err == nil && *record {
		err = os.WriteFile(file, is, 0o644)
	}
	was, unread := os.ReadFile(file)
	expect.OK(t, errors.Join(err, unread))
	expect.Equalf(t, string(was), string(is), "record again")
}

// groupStates are what may become of a group, and whether it is ready then. An outdated one is ready.
var groupStates = map[string]struct {
	happens func(leader string) step
	ready   bool
}{
	"ready":    {func(string) step { return nothing }, true},
	"outdated": {func(leader string) step { return on(leader, func(pod Pod) { pod.Labels[lwsv1.RevisionKey] = "old" }) }, true},
	"unready":  {func(leader string) step { return on(leader, unready) }, false},
	"gone":     {func(leader string) step { return gone[Pod](leader) }, false},
	"worker down": {func(leader string) step {
		return on(leader, func(sts StatefulSet) { sts.Status.AvailableReplicas = 0 })
	}, false},
	"taken": {occupied, false},
}

// obstacles are what keeps a set from being served, beside its groups.
var obstacles = map[string]struct {
	happens step
	seen    func(*lws.SetSnapshot)
	// holds: the set is not ready, whatever its groups are. lasts: only a person can help.
	holds, lasts bool
}{
	"none":                   {nothing, nil, false, false},
	"spec refused":           {nothing, refusing(quota), true, true},
	"webhook unreachable":    {nothing, refusing(unanswered), true, false},
	"part refused":           {nothing, refusingPart(quota), false, true},
	"part unanswered":        {nothing, refusingPart(unanswered), false, false},
	"Service of another":     {foreign[Service]("w"), nil, false, true},
	"no gang scheduler":      {nothing, func(w *lws.SetSnapshot) { w.GangMissing = "no PodGroups are served" }, false, false},
	"paused":                 {pause, nil, false, false},
	"previous Service":       {then(on("w", formerly), leaving[Service]("w", "example.com/a"), carriedOut), nil, true, false},
	"previous Service stuck": {then(on("w", formerly), leaving[Service]("w", "example.com/a"), carriedOut, after(time.Minute)), nil, true, true},
}

// formerly gives a Service the previous incarnation of the set as its controller.
func formerly(service Service) {
	fakeapi.OwnedBy(service, lwsv1.GroupVersion.String(), fakeapi.Former(identity.KindLeaderWorkerSet, "w"))
}

// TestReadyLaw: a set is current exactly when every wanted group is ready, those from the partition on
// run the wanted template, and nothing holds the set. Else it has failed exactly when only a person
// can help. The conditions of the reference do not change with that.
func TestReadyLaw(t *testing.T) {
	inWorlds(t, 1, func(t *rapid.T, m *met) {
		n, partition := rapid.Int32Range(0, 3).Draw(t, "replicas"), rapid.Int32Range(0, 3).Draw(t, "partition")
		c := running(t, n, 2, partitioned(partition))
		c.pass(time.Minute)
		good, lasts := true, false
		for i := range n {
			name := rapid.SampledFrom(slices.Sorted(maps.Keys(groupStates))).Draw(t, "group")
			groupStates[name].happens(identity.LeaderName("w", int(i)))(c)
			good = good && groupStates[name].ready && (name != "outdated" || i < partition)
			lasts = lasts || name == "taken"
		}
		what := rapid.SampledFrom(slices.Sorted(maps.Keys(obstacles))).Draw(t, "obstacle")
		obstacle := obstacles[what]
		obstacle.happens(c)
		want := inProgress
		switch {
		case good && !obstacle.holds:
			want = current
		case obstacle.lasts || lasts:
			want = failed
		}
		m.when(what+": "+string(want), true)
		set := told(c, obstacle.seen)
		got := kstatus(set.Status, set.Generation)
		expect.Must(t, got == want, "%s: it is %s, want %s: %+v", what, got, want, set.Status.Conditions)
		checkForTools(t, set)
	}, "none: Current", "none: InProgress", "none: Failed", "spec refused: Failed", "webhook unreachable: InProgress", "part refused: Failed",
		"part refused: Current", "Service of another: Current", "previous Service: InProgress", "previous Service stuck: Failed")
}

// checkForTools checks the form of the conditions: Ready is there, and True while Available is and no update is in
// progress. A condition, its reason and its message agree. Beside a False one is exactly one of the others, True.
func checkForTools(t fatal, set Set) {
	isReady := condition(set.Status, ready)
	for _, c := range set.Status.Conditions {
		is := c.Status == metav1.ConditionTrue
		if c.Type == available && (is != (c.Reason == "AllGroupsReady") || is != (c.Message == "All replicas are ready")) ||
			c.Type == updating && !is && c.Message == "Rolling Upgrade is in progress" ||
			c.Type == progressing && !is && c.Message == "Replicas are progressing" {
			t.Fatalf("its status, reason and message differ: %+v", c)
		}
	}
	wants := condition(set.Status, available).Status == metav1.ConditionTrue && condition(set.Status, updating).Status != metav1.ConditionTrue
	if isReady.Status == "" || (isReady.Status == metav1.ConditionTrue) != wants {
		t.Fatalf("ready is not available: %+v", set.Status.Conditions)
	}
	others := slices.DeleteFunc(slices.Clone(set.Status.Conditions), func(c metav1.Condition) bool {
		return c.Type != "Reconciling" && c.Type != "Stalled"
	})
	if isReady.Status == metav1.ConditionTrue && len(others) > 0 || isReady.Status == metav1.ConditionFalse &&
		(len(others) != 1 || others[0].Status != metav1.ConditionTrue || others[0].Reason != isReady.Reason || others[0].Message != isReady.Message) {
		t.Fatalf("ready %+v beside %+v", isReady, others)
	}
}
