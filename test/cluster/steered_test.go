package cluster

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
)

// toldHistory is what the tests read of "rollout history -o json".
type toldHistory struct {
	Revisions []struct {
		Number  int64
		Groups  int
		Current bool
		Cause   string
	}
}

// steer runs a rollout verb that must succeed and returns its output.
func (s *scene) steer(args ...string) string {
	s.Helper()
	out, errOut, err := s.plugin("", append([]string{"rollout"}, args...)...)
	if err != nil {
		s.dump()
		s.Fatalf("rollout %v: %v\n%s%s", args, err, out, errOut)
	}
	return out
}

// says runs a rollout verb that must succeed and print something.
func (s *scene) says(want string, args ...string) {
	s.Helper()
	if out := s.steer(args...); !strings.Contains(out, want) {
		s.Errorf("rollout %v: printed %q, want it to say %q", args, out, want)
	}
}

func (s *scene) history(name string) toldHistory {
	s.Helper()
	var h toldHistory
	out := s.steer("history", name, "-o", "json")
	if err := json.Unmarshal([]byte(out), &h); err != nil {
		s.Fatalf("%v in %s", err, out)
	}
	return h
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
	s.Helper()
	s.eventually(what, func() error {
		if have := s.groupsBy(set); !maps.Equal(have, want) {
			return fmt.Errorf("ready groups: %v", have)
		}
		return nil
	})
}

// A rollout is paused half-way, scaled and repaired meanwhile, resumed, undone and restarted.
func TestRolloutByHand(t *testing.T) {
	s := asideScene(t)
	set := s.settled(s.newSet("a", 5, 2, imageA, budget(1, 0, 3), func(set *lwsv1.LeaderWorkerSet) {
		set.Annotations = map[string]string{"kubernetes.io/change-cause": "first"}
	}))

	s.pausedHalfWay(set)
	s.scaledAndMended(set)

	s.says("resumed", "resume", "a")
	s.says("6 groups at revision 2", "status", "a", "--timeout=3m")
	s.awaitGroups("all groups are at the new template", set, map[string]int{imageB: 6})

	s.undone(set)
	s.restarted(set)
	s.onlyPatches(func(r pluginRequest) bool {
		return r.ObjectRef.Resource == "leaderworkersets" && r.ObjectRef.Subresource == ""
	})
}

// pausedHalfWay pauses a rollout that the partition holds, then changes the partition.
func (s *scene) pausedHalfWay(set *lwsv1.LeaderWorkerSet) {
	s.Helper()
	s.patch(set, `{"metadata":{"annotations":{"kubernetes.io/change-cause":"second"}}}`)
	s.become(set, pull(imageB))
	s.says("2 groups", "status", "lws/a", "--timeout=3m")
	half := map[string]int{imageA: 3, imageB: 2}
	s.awaitGroups("the groups from the partition on are rolled", set, half)

	s.says("paused", "pause", "lws", "a")
	s.refuse("already paused", "rollout", "pause", "a")
	now, _ := find[*lwsv1.LeaderWorkerSet](s.recorder, "a")
	s.become(now, `{"spec":{"rolloutStrategy":{"rollingUpdateConfiguration":{"partition":0}}}}`)
	s.eventually("the condition says that it is paused", func() error {
		now, _ := find[*lwsv1.LeaderWorkerSet](s.recorder, set.Name)
		return holds(now, lwsv1.LeaderWorkerSetProgressing, "RolloutPaused")
	})
	outlast(s.T)
	same(s.T, "groups of the paused rollout", half, s.groupsBy(set))
	s.says("paused with 2 of 5 groups", "status", "a", "--watch=false")
	s.givesUp("paused", "a")
	s.givesUp("paused", "a", "lama")
	s.refuse("paused", "rollout", "undo", "a")
	s.refuse("paused", "rollout", "restart", "a")
}

// scaledAndMended scales the paused set, and deletes a leader of each revision.
func (s *scene) scaledAndMended(set *lwsv1.LeaderWorkerSet) {
	s.Helper()
	now, _ := find[*lwsv1.LeaderWorkerSet](s.recorder, "a")
	s.become(now, `{"spec":{"replicas":6}}`)
	more := map[string]int{imageA: 3, imageB: 3}
	s.awaitGroups("the new group is at the revision that is rolled out", set, more)
	for _, name := range []string{"a-0", "a-4"} {
		lost, _ := find[*corev1.Pod](s.recorder, name)
		s.remove(lost.DeepCopy())
		awaitAnother(s, lost)
	}
	s.awaitGroups("lost groups come back as they were", set, more)
}

// undone goes back to the first revision.
func (s *scene) undone(set *lwsv1.LeaderWorkerSet) {
	s.Helper()
	h := s.history("a")
	if len(h.Revisions) != 2 || !h.Revisions[1].Current || h.Revisions[1].Groups != 6 || h.Revisions[1].Cause != "second" ||
		h.Revisions[0].Cause != "first" {
		s.Errorf("got history %+v", h)
	}
	s.says("+      - image: "+imageB, "diff", "a", "--revision=1", "--to-revision=2")
	s.refuse("revision 7", "rollout", "undo", "a", "--to-revision=7")
	s.says("revision 1 (server dry run)", "undo", "a", "--dry-run=server")
	same(s.T, "groups after a dry run", map[string]int{imageB: 6}, s.groupsBy(set))
	s.says("revision 1\n", "undo", "a")
	s.says("6 groups at revision 3", "status", "a", "--timeout=3m")
	s.awaitGroups("all groups are at the first template", set, map[string]int{imageA: 6})
	s.eventually("the number of the revision rises", func() error {
		h := s.history("a")
		last := h.Revisions[len(h.Revisions)-1]
		if len(h.Revisions) != 2 || last.Number != 3 || !last.Current || last.Cause != "first" {
			return fmt.Errorf("got history %+v", h)
		}
		return nil
	})
	s.says("skipped", "undo", "a", "--to-revision=3")
}

// restarted replaces every pod by one of the same template.
func (s *scene) restarted(set *lwsv1.LeaderWorkerSet) {
	s.Helper()
	before := map[string]bool{}
	for _, pod := range s.podsOf(set) {
		before[string(pod.UID)] = true
	}
	s.says("restarted", "restart", "a")
	s.says("6 groups", "status", "a", "--timeout=3m")
	s.eventually("every pod is another", func() error {
		pods := s.podsOf(set)
		old := slices.ContainsFunc(pods, func(pod *corev1.Pod) bool { return before[string(pod.UID)] })
		if old || len(pods) != 12 {
			return fmt.Errorf("%d pods, old ones among them: %v", len(pods), old)
		}
		return nil
	})
}

// The roles for users allow what the plugin does, and no more.
func TestRolesOfUsers(t *testing.T) {
	s := asideScene(t)
	s.settled(s.newSet("a", 1, 2, imageA))
	for user, role := range map[string]string{"viewer": "lws-leaderworkerset-viewer-role", "editor": "lws-leaderworkerset-editor-role"} {
		s.create(&rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: user},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
		})
	}
	tests := []struct {
		user, verb string
		allowed    bool
	}{
		{"viewer", "status", true}, {"viewer", "history", true}, {"viewer", "pause", false}, {"viewer", "restart", false},
		{"editor", "status", true}, {"editor", "pause", true}, {"editor", "resume", true}, {"editor", "restart", true}, {"editor", "undo", true},
	}
	for _, tt := range tests {
		s.eventually(tt.user+" "+tt.verb, func() error { // a binding is not known at once
			out, errOut, err := s.plugin("", "rollout", tt.verb, "a", "--as", tt.user)
			if forbidden := strings.Contains(errOut, "forbidden"); tt.allowed != (err == nil) || forbidden == tt.allowed {
				return fmt.Errorf("it failed: %t; printed %q and %q", err != nil, out, errOut)
			}
			return nil
		})
	}
}
