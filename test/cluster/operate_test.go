package cluster

import (
	"strings"
	"testing"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/test/drill"
	"lockstep.dev/lockstep/test/expect"
	"lockstep.dev/lockstep/test/fakeapi"
)

// A user restarts one group, though no group that fails may be recreated: it alone has other pods, and nothing counts it.
func TestAUserRestartsOneGroup(t *testing.T) {
	none := int32(0)
	each(t, map[string]edit{"no restarts": limited(&none), "None": fakeapi.Policy(lwsv1.NoneRestartPolicy)}, func(s *scene, edit edit) {
		set := s.settled(s.newSet("a", 2, 2, imageA, edit))
		before := s.UIDs()
		_, errOut, err := s.Plugin("", "recover", "a", "1")
		expect.That(s, err != nil && strings.Contains(errOut, "kubectl lockstep restart a 1"), "recover: %q", errOut)
		s.prints("asks to restart group 1", "restart", "a", "1")
		s.awaitRecreated(set, before, 1)
		restarts := s.Set("a").Status.Restarts // None records nothing
		expect.Equalf(s, set.Spec.LeaderWorkerTemplate.RestartPolicy != lwsv1.NoneRestartPolicy, len(restarts) == 1, "recorded: %+v", restarts)
		for _, r := range restarts {
			expect.That(s, r.Count == 0 && r.Recreations == nil && r.Failures[0].Reason == "Requested", "counted: %+v", r)
		}
		s.AwaitEvent("a", "RecreateGroup", "was asked to restart")
		s.prints("was asked to restart", "events", "a", "1")
		expect.That(s, !strings.Contains(s.answer(bed.Plane, "", "events", "a", "0"), "was asked"), "group 0 has the event")
	})
}

func TestAUserRecoversAGroup(t *testing.T) {
	s, none := asideScene(t), int32(0)
	set := s.settled(s.newSet("a", 2, 2, imageA, limited(&none)))
	before := s.UIDs()
	s.crash("a-1-1", 1)
	s.awaitStopped()
	_, errOut, err := s.Plugin("", "restart", "a", "1")
	expect.That(s, err != nil && strings.Contains(errOut, "kubectl lockstep recover a 1"), "restart: %q", errOut)
	s.prints("asks to recover group 1", "recover", "a", "1")
	s.awaitRecreated(set, before, 1)
}

// kwok stands in for the kubelets. It passes on neither the end of the input nor an exit code: a real kubelet does.
func TestLogsAndExec(t *testing.T) {
	s := asideScene(t)
	s.settled(s.newSet("a", 2, 2, imageA))
	s.prints("a-1-1 serve | second line", "logs", "a")
	out, errOut, err := s.Plugin("in\n", "exec", "a", "1", "-i", "--", "head", "-n", "1")
	expect.That(s, err == nil && out == "in\n", "exec: %q, %q, %v", out, errOut, err)
	for user, verbs := range map[string]map[string]bool{"viewer": {"logs": true, "restart": false}, "editor": {"logs": true, "restart": true}} {
		s.grant(user, "ClusterRole", "lws-leaderworkerset-"+user+"-role")
		for verb, isAllowed := range verbs {
			s.Eventually(user+" "+verb, func() error { // a binding is not known at once
				_, errOut, err := s.Plugin("", verb, "a", "0", "--as", user)
				return drill.Lacking("allowed", isAllowed, err == nil && !strings.Contains(errOut, "forbidden"))
			})
		}
	}
}

// What node says of a drain is what the drain does: one group goes, and the other waits for it.
func TestNodesAndDrains(t *testing.T) {
	s := asideScene(t)
	names := s.lendNodes(2)
	set := s.limited(s.newSet("a", 2, 2, imageA, byGroup, readyAfter("3s"), s.spreadOver(names...)))
	before := s.answer(bed.Plane, "", append([]string{"node"}, names...)...)
	expect.Equalf(s, 2, strings.Count(before, "recreated once, one group at a time"), "groups in %s", before)
	wait := s.drainEach(names...)
	s.Eventually("a group waits for the other", func() error {
		now := s.answer(bed.Plane, "", append([]string{"node"}, names...)...)
		return drill.Lacking("told", true, strings.Contains(now, "no: group "))
	})
	wait()
	s.awaitSettled(set)
	s.prints("no group of a LeaderWorkerSet has a pod there", append([]string{"node"}, names...)...)
}
