package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	clilws "lockstep.dev/lockstep/internal/cli/lws"
	"lockstep.dev/lockstep/test/drill"
	"lockstep.dev/lockstep/test/expect"
)

// told is what the tests read of the plugin's JSON.
type told struct {
	Ready          int
	Exists, InStep bool
	Unattended     struct{ Reason string }
	Groups         []struct {
		Index, ReadyPods, Pods int
		Ready                  bool
		Waiting                []struct{ Reason, Message string }
		Ghosts                 []struct{ Kind, Name string }
	}
	Parts []struct {
		Actions []struct {
			Verb, Reason  string
			Object        struct{ Kind, Name string }
			Preconditions struct{ UID string }
		}
		Waits []struct{ Reason string }
	}
	Revisions []struct {
		Number  int64
		Groups  int
		Current bool
		Cause   string
	}
	Actions []struct{ Do, Command string }
}

// ask runs the plugin and reads what it tells programs.
func (s *scene) ask(in string, args ...string) told { return s.askOn(bed.Plane, in, args...) }

func (s *scene) askOn(on *drill.Plane, in string, args ...string) (t told) {
	out := s.answer(on, in, append(args, "-o", "json")...)
	s.Check("read "+out, json.Unmarshal([]byte(out), &t))
	return t
}

// answer is what a command prints on a control plane. It must succeed.
func (s *scene) answer(on *drill.Plane, in string, args ...string) string {
	out, errOut, err := s.PluginOn(on, in, args...)
	s.Check(fmt.Sprintf("kubectl-lockstep %v: %s%s", args, out, errOut), err)
	return out
}

// plan, status and history write nothing, whether the set starts, is settled or does not exist.
func TestPluginOnlyReads(t *testing.T) {
	s := asideScene(t)
	set := s.newSet("told", 2, 3, "one")
	s.Create(set)
	s.ask("", "plan", "told")
	s.ask("", "status", "told")
	s.awaitSettled(set)
	s.Eventually("the plan is in step", func() error {
		return drill.Lacking("in step", true, s.ask("", "plan", "told").InStep)
	})
	status := s.ask("", "status", "told")
	expect.Equal(t, 2, status.Ready)
	expect.Equalf(t, 2, len(status.Groups), "got %+v", status)
	for _, g := range status.Groups {
		expect.That(t, g.Ready && g.ReadyPods == 3 && g.Pods == 3 && len(g.Waiting)+len(g.Ghosts) == 0, "got %+v", g)
	}

	s.prints("1 set, 0 not ready\n", "status")
	living := s.ask(s.manifest(s.newSet("told", 2, 3, "two")), "plan", "-f", "-")
	expect.That(t, living.Exists && living.has("create ControllerRevision") && living.has("apply StatefulSet"),
		"over the living set: got %+v", living)
	unborn := s.ask(s.manifest(s.newSet("unborn", 2, 3, "two")), "plan", "-f", "-")
	expect.That(t, !unborn.Exists && unborn.has("create StatefulSet") && unborn.has("create Service"),
		"for a set that is not there: got %+v", unborn)
	expect.That(t, s.Set("unborn") == nil, "a plan created the set")
	s.steer("status", "told")
	s.steer("history", "told")
	s.onlyWrites(func(r drill.Request) bool { return strings.Contains(r.URI, "dryRun=All") })
}

func (s *scene) manifest(set *lwsv1.LeaderWorkerSet) string {
	set.SetGroupVersionKind(lwsv1.GroupVersion.WithKind("LeaderWorkerSet"))
	text, err := json.Marshal(set)
	s.Check("encode a manifest", err)
	return string(text)
}

func (t told) has(action string) bool {
	for _, part := range t.Parts {
		for _, a := range part.Actions {
			if a.Verb+" "+a.Object.Kind == action {
				return true
			}
		}
	}
	return false
}

// One command shows the pods, containers, nodes and events of a group. The same is shown without the right to read nodes.
func TestOneGroupIsShownWithItsNodesAndEvents(t *testing.T) {
	s := asideScene(t)
	nodes := s.lendNodes(2)
	set := s.settled(s.newSet("a", 2, 2, imageA, s.spreadOver(nodes...)))
	node, before := s.Pod("a-1-1").Spec.NodeName, s.UIDs()
	s.Patch(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}, `{"spec":{"unschedulable":true}}`)
	s.crash("a-1-1", 1)
	s.awaitRecreated(set, before, 1)
	s.Patch(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: s.Pod("a-1").Spec.NodeName}}, `{"spec":{"unschedulable":true}}`)
	s.grant("viewer", "ClusterRole", "lws-leaderworkerset-viewer-role")
	for _, want := range []string{
		"group 1 of a in namespace " + s.Namespace + ": 2 of 2 pods ready", "Ready, cordoned for ", "OOMKilled (exit code 137)", "RecreateGroup", "Scheduled",
		"pod a-1-1 (former)", "statefulset a-1", "leaderworkerset a ",
	} {
		s.Eventually("the group shows "+want, func() error {
			return drill.Lacking(want, true, strings.Contains(s.answer(bed.Plane, "", "status", "a", "1"), want))
		})
	}
	expect.That(t, !strings.Contains(s.answer(bed.Plane, "", "status", "a", "1"), "pod a-0 "), "events of another group are shown")
	s.prints("pod a-0-1", "status", "a", "--tree")
	s.prints(`"kind": "GroupReport"`, "status", "a", "a-1", "-o", "json")
	s.Eventually("the viewer sees the pods, and which right lacks", func() error {
		out, errOut, err := s.Plugin("", "status", "a", "1", "--as", "viewer")
		return errors.Join(err, drill.Lacking("right in "+out+errOut, true, strings.Contains(out, "? nodes are not shown: you need the right to get nodes") && strings.Contains(out, "a-1-1   ")))
	})
	s.refuse("a has groups 0-1", "status", "a", "7")
}

func TestPluginSaysWhatIsWrong(t *testing.T) {
	s := asideScene(t)
	s.Create(s.newSet("llama", 1, 1, "one"))
	for _, args := range [][]string{{"status"}, {"rollout", "status"}, {"rollout", "restart"}} {
		s.refuse("kubectl get leaderworkersets -A", append(args, "lama")...)
	}
	s.refuse(`"nobody" cannot list`, "plan", "llama", "--as", "nobody")
	s.refuse("https://127.0.0.1:1", "status", "llama", "--server", "https://127.0.0.1:1")
}

// refuse runs a command that must fail and name something.
func (s *scene) refuse(want string, args ...string) {
	if out, errOut, err := s.Plugin("", args...); err == nil || out != "" || !strings.Contains(errOut, want) {
		s.Errorf("%v: %v, printed %q and %q, want %q", args, err, out, errOut, want)
	}
}

// givesUp runs a rollout status that must wait in vain and name the reason. A second may be too
// short for the first read.
func (s *scene) givesUp(want string, args ...string) {
	var errOut string
	for within := time.Second; within < patience; within *= 2 {
		var err error
		_, errOut, err = s.Plugin("", append([]string{"rollout", "status", "--timeout=" + within.String()}, args...)...)
		if err == nil || strings.Contains(errOut, want) {
			s.Check("rollout status gives up", drill.Lacking("given up", true, err != nil))
			return
		}
	}
	s.Errorf("rollout status %v: printed %q, want %q", args, errOut, want)
}

// onlyWrites checks that the plugin read in the scene, and wrote what it may.
func (s *scene) onlyWrites(may func(drill.Request) bool) {
	s.Check("read the audit log", bed.Audit.Sync())
	writes := 0
	for _, r := range bed.Audit.Kept(s.Audited, func(r drill.Request) bool { return byPlugin(r) && r.Namespace == s.Namespace }) {
		switch {
		case slices.Contains([]string{"get", "list", "watch"}, r.Verb):
		case may(r):
			writes++
		default:
			s.Errorf("%s %s", r.Verb, r.URI)
		}
	}
	expect.That(s, writes != 0, "invalid run: the audit log has no write of the plugin")
}

// byPlugin reports whether the plugin sent a request.
func byPlugin(r drill.Request) bool { return strings.HasPrefix(r.Agent, "kubectl-lockstep/") }

// steer runs a rollout verb that must succeed and returns its output.
func (s *scene) steer(args ...string) string {
	return s.answer(bed.Plane, "", append([]string{"rollout"}, args...)...)
}

// prints runs a command that must succeed and print something.
func (s *scene) prints(want string, args ...string) {
	expect.Says(s, s.answer(bed.Plane, "", args...), want, args)
}

// says is prints for a rollout verb.
func (s *scene) says(want string, args ...string) {
	s.prints(want, append([]string{"rollout"}, args...)...)
}

// groupsBy counts the ready groups by image.
func (s *scene) groupsBy(set *lwsv1.LeaderWorkerSet) map[string]int {
	count := map[string]int{}
	for _, image := range s.readyGroups(set) {
		count[image]++
	}
	return count
}

func (s *scene) awaitGroups(what string, set *lwsv1.LeaderWorkerSet, want map[string]int) {
	s.Eventually(what, func() error {
		if have := s.groupsBy(set); !maps.Equal(have, want) {
			return fmt.Errorf("ready groups: %v", have)
		}
		return nil
	})
}

// A rollout is paused half-way, scaled and repaired meanwhile, resumed, undone and restarted.
func TestRolloutByHand(t *testing.T) {
	s := asideScene(t)
	set := s.settled(s.newSet("a", 5, 2, imageA, budget(1, 0, 3), annotated("kubernetes.io/change-cause", "first")))

	// A rollout that the partition holds is paused. Then the partition changes.
	s.Patch(set, `{"metadata":{"annotations":{"kubernetes.io/change-cause":"second"}}}`)
	s.become(set, pull(imageB))
	s.says("2 groups", "status", "lws/a", "--timeout=3m")
	half := map[string]int{imageA: 3, imageB: 2}
	s.awaitGroups("the groups from the partition on are rolled", set, half)
	s.says("paused", "pause", "lws", "a")
	s.refuse("already paused", "rollout", "pause", "a")
	s.become(s.Set("a"), unpartitioned)
	s.awaitHolds("a", lwsv1.LeaderWorkerSetUpdateInProgress, "RolloutPaused")
	outlast(t)
	same(t, "groups of the paused rollout", half, s.groupsBy(set))
	s.says("paused with 2 of 5 groups", "status", "a", "--watch=false")
	s.givesUp("paused", "a")
	s.givesUp("paused", "a", "lama")
	s.refuse("paused", "rollout", "restart", "a")

	// The paused set is scaled, and loses a leader of each revision.
	s.become(s.Set("a"), `{"spec":{"replicas":6}}`)
	more := map[string]int{imageA: 3, imageB: 3}
	s.awaitGroups("the new group is at the revision that is rolled out", set, more)
	for _, name := range []string{"a-0", "a-4"} {
		lost := s.Pod(name)
		s.Remove(lost)
		drill.Another(s.Scene, lost)
	}
	s.awaitGroups("lost groups come back as they were", set, more)

	s.says("resumed", "resume", "a")
	s.says("6 groups at revision 2", "status", "a", "--timeout=3m")
	s.awaitGroups("all groups are at the new template", set, map[string]int{imageB: 6})

	// The set goes back to the first revision.
	revisions := s.ask("", "rollout", "history", "a").Revisions
	if len(revisions) != 2 || !revisions[1].Current || revisions[1].Groups != 6 || revisions[1].Cause != "second" || revisions[0].Cause != "first" {
		t.Errorf("got history %+v", revisions)
	}
	s.says("+      - image: "+imageB, "diff", "a", "--revision=1", "--to-revision=2")
	s.refuse("revision 7", "rollout", "undo", "a", "--to-revision=7")
	s.says(") (server dry run)", "undo", "a", "--dry-run=server")
	same(t, "groups after a dry run", map[string]int{imageB: 6}, s.groupsBy(set))
	s.says("revision 1 (", "undo", "a")
	s.says("6 groups at revision 3", "status", "a", "--timeout=3m")
	s.awaitGroups("all groups are at the first template", set, map[string]int{imageA: 6})
	s.Eventually("the number of the revision rises", func() error {
		revisions := s.ask("", "rollout", "history", "a").Revisions
		last := revisions[len(revisions)-1]
		if len(revisions) != 2 || last.Number != 3 || !last.Current || last.Cause != "first" {
			return fmt.Errorf("got history %+v", revisions)
		}
		return nil
	})
	s.says("skipped", "undo", "a", "--to-revision=3")

	// A tool that can only change the set undoes as well, by an annotation that does not stay.
	asked := func(number string) string {
		return `{"metadata":{"annotations":{"` + lwsv1.UndoAnnotationKey + `":"` + number + `"}}}`
	}
	expect.ErrorSays(t, s.Client.Patch(s.Context(), s.Set("a"), drill.Merge(asked("7"))), "has no revision 7")
	s.Patch(s.Set("a"), asked("0"))
	_, stays := s.Set("a").Annotations[lwsv1.UndoAnnotationKey]
	expect.That(t, !stays, "the annotation stays")
	s.awaitGroups("all groups are at the second template", set, map[string]int{imageB: 6})

	// A restart replaces every pod by one of the same template.
	before := s.UIDs()
	s.says("restarted", "restart", "a")
	s.says("6 groups", "status", "a", "--timeout=3m")
	s.Eventually("every pod is another", func() error {
		now := s.UIDs()
		for name, uid := range before {
			if now[name] == uid {
				return fmt.Errorf("pod %s is not", name)
			}
		}
		return drill.Lacking("pods", 12, len(now))
	})
	s.onlyWrites(func(r drill.Request) bool {
		return r.Verb == "patch" && r.Resource == "leaderworkersets" && r.Subresource == ""
	})
}

// A rollout is paused after its first groups, and taken back before or right after it is resumed: no group is replaced
// that has the good template.
func TestAPausedRolloutIsTakenBack(t *testing.T) {
	resume := func(s *scene) { s.says("resumed", "resume", "a") }
	undo := func(s *scene) { s.says("rolled back", "undo", "a") }
	annotate := func(s *scene) {
		s.Patch(s.Set("a"), `{"metadata":{"annotations":{"`+lwsv1.UndoAnnotationKey+`":"0"}}}`)
	}
	file := func(s *scene) { s.Patch(s.Set("a"), pull(imageA)) }
	type takenBack struct {
		how  []edit
		ends []func(*scene)
	}
	ordinals, keys := []edit{budget(1, 0, 3)}, []edit{withKeys, budget(1, 0, 0)}
	each(t, map[string]takenBack{
		"undo, resume":            {ordinals, []func(*scene){undo, resume}},
		"resume, undo":            {ordinals, []func(*scene){resume, undo}},
		"annotation, resume":      {ordinals, []func(*scene){annotate, resume}},
		"resume, file":            {ordinals, []func(*scene){resume, file}},
		"undo, resume, with keys": {keys, []func(*scene){undo, resume}},
		"resume, undo, with keys": {keys, []func(*scene){resume, undo}},
	}, func(s *scene, r takenBack) {
		set := s.newSet("a", 4, 2, imageA, append(r.how, slowly("1s"))...)
		s.pausedInTheMiddle(set)
		before := map[string]types.UID{}
		for _, leader := range s.leadersOf(set) {
			if imageOf(leader) == imageA {
				before[leader.Name] = leader.UID
			}
		}
		expect.Must(s, len(before) > 0 && len(before) != 4, "invalid run: %d groups have the good template", len(before))
		for _, end := range r.ends {
			end(s)
		}
		s.Eventually("all groups have the good template", func() error { return s.mixed(set, imageA) })
		for name, uid := range before {
			expect.Equalf(s, uid, s.UIDs()[name], "leader %s was replaced", name)
		}
	})
}

// pausedInTheMiddle creates a set, and pauses its rollout once a group is new. A partition of it ends meanwhile.
func (s *scene) pausedInTheMiddle(set *lwsv1.LeaderWorkerSet) {
	s.Create(set)
	s.Eventually("all groups are ready", func() error { return s.mixed(set, imageA) })
	s.become(s.Set("a"), pull(imageB))
	s.Until("a group is new", func() bool {
		return slices.ContainsFunc(s.leadersOf(set), func(leader *corev1.Pod) bool {
			return imageOf(leader) == imageB && drill.PodReady(leader)
		})
	})
	s.says("paused", "pause", "a")
	s.Patch(s.Set("a"), unpartitioned)
	s.awaitHolds("a", lwsv1.LeaderWorkerSetUpdateInProgress, "RolloutPaused")
	s.Eventually("all groups are ready again", func() error { return s.mixed(set, imageA, imageB) })
	outlast(s.T)
}

// grant binds a role of a kind to a user.
func (s *scene) grant(user, kind, role string) {
	s.Create(&rbacv1.RoleBinding{
		ObjectMeta: s.Meta(s.Namespace + "-" + user), RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: role},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	})
}

// The roles for users allow what the plugin does, and no more.
func TestRolesOfUsers(t *testing.T) {
	s := asideScene(t)
	s.settled(s.newSet("a", 1, 2, imageA))
	for user, role := range map[string]string{"viewer": "lws-leaderworkerset-viewer-role", "editor": "lws-leaderworkerset-editor-role"} {
		s.grant(user, "ClusterRole", role)
	}
	tests := []struct {
		user, verb string
		allowed    bool
	}{
		{"viewer", "status", true}, {"viewer", "history", true}, {"viewer", "pause", false}, {"viewer", "restart", false},
		{"editor", "status", true}, {"editor", "pause", true}, {"editor", "resume", true}, {"editor", "restart", true}, {"editor", "undo", true},
	}
	for _, tt := range tests {
		s.Eventually(tt.user+" "+tt.verb, func() error { // a binding is not known at once
			out, errOut, err := s.Plugin("", "rollout", tt.verb, "a", "--as", tt.user)
			if forbidden := strings.Contains(errOut, "forbidden"); tt.allowed != (err == nil) || forbidden == tt.allowed {
				return fmt.Errorf("it failed: %t; printed %q and %q", err != nil, out, errOut)
			}
			return nil
		})
	}
}

// TestUsersLearnThatNoOperatorRuns runs the operator with leader election, whose lease names the version, and kills it:
// who may only view sets reads so beside conditions that are old.
func TestUsersLearnThatNoOperatorRuns(t *testing.T) {
	s := newScene(t)
	s.Check("stop the operator", bed.Operator.Kill())
	t.Cleanup(func() { must(t, bed.Operator.Start()) })
	s.Check("start the operator", bed.Operator.Start("--leader-elect"))
	s.settled(s.newSet("a", 1, 2, imageA))
	lease := &coordinationv1.Lease{}
	s.Check("read the lease", s.Client.Get(t.Context(), client.ObjectKey{Namespace: "lws-system", Name: "b8b2488c.x-k8s.io"}, lease))
	same(t, "version in the lease", true, lease.Labels["app.kubernetes.io/version"] != "")
	s.grant("viewer", "ClusterRole", "lws-leaderworkerset-viewer-role")
	for _, command := range []string{"status", "plan"} {
		s.Eventually(command+" answers the viewer", func() error {
			_, errOut, err := s.Plugin("", command, "a", "--as", "viewer", "--as-group", "system:authenticated")
			return drill.Lacking("errors", "<nil>", fmt.Sprint(errOut, err))
		})
		why := s.ask("", command, "a", "--as", "viewer", "--as-group", "system:authenticated").Unattended.Reason
		expect.Equalf(s, "", why, "%s beside an operator", command)
	}
	s.Check("kill the operator", bed.Operator.Kill())
	for _, command := range []string{"status", "plan"} {
		s.Eventually(command+" says that no operator runs", func() error { // once the lease has expired
			why := s.ask("", command, "a", "--as", "viewer", "--as-group", "system:authenticated").Unattended.Reason
			return drill.Lacking("reason", clilws.CodeNoOperator, why)
		})
	}
	out, _, err := s.Plugin("", "rollout", "status", "a", "--as", "viewer", "--as-group", "system:authenticated")
	expect.That(t, err == nil && strings.Contains(out, "b8b2488c.x-k8s.io"), "rollout status: got %q, %v", out, err)
}
