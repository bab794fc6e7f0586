package cluster

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/test/drill"
)

// told is what the tests read of the plugin's JSON.
type told struct {
	Desired, Ready int
	Exists, InStep bool
	Groups         []struct {
		Index, ReadyPods, Pods int
		Ready                  bool
		Waiting                []struct{ Reason, Message string }
		Ghosts                 []struct{ Kind, Name string }
	}
	Parts []struct {
		Actions []struct {
			Verb, Reason string
			Object       struct{ Kind, Name string }
		}
	}
}

// plugin runs kubectl-lockstep in the scene's namespace.
func (s *scene) plugin(in string, args ...string) (out, errOut string, err error) {
	s.Helper()
	path, err := drill.Program("kubectl-lockstep")
	if err != nil {
		s.Fatal(err)
	}
	cmd := exec.CommandContext(s.Context(), path, append(args, "-n", s.namespace, "--kubeconfig", bed.plane.Kubeconfig())...)
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(in), &stdout, &stderr
	err = cmd.Run()
	return stdout.String(), stderr.String(), err
}

// ask runs the plugin and reads what it tells programs.
func (s *scene) ask(in string, args ...string) told {
	s.Helper()
	out, errOut, err := s.plugin(in, append(args, "-o", "json")...)
	if err != nil {
		s.Fatalf("kubectl-lockstep %v: %v\n%s", args, err, errOut)
	}
	var t told
	if err := json.Unmarshal([]byte(out), &t); err != nil {
		s.Fatalf("kubectl-lockstep %v: %v in\n%s", args, err, out)
	}
	return t
}

func TestPluginTellsOfASetThatIsUp(t *testing.T) {
	s := asideScene(t)
	s.settled(s.newSet("told", 2, 3, "one"))

	s.eventually("the plan is in step", func() error {
		return lacking("in step", true, s.ask("", "plan", "told").InStep)
	})
	status := s.ask("", "status", "told")
	if status.Ready != 2 || len(status.Groups) != 2 {
		t.Errorf("got %+v", status)
	}
	for _, g := range status.Groups {
		if !g.Ready || g.ReadyPods != 3 || g.Pods != 3 || len(g.Waiting)+len(g.Ghosts) > 0 {
			t.Errorf("got %+v", g)
		}
	}
}

func TestPluginTellsOfGhosts(t *testing.T) {
	s := asideScene(t)
	first := s.newSet("haunted", 2, 2, "one")
	s.create(first)
	s.awaitSettled(first)
	held := s.keep("haunted-1")
	s.remove(first, propagation(metav1.DeletePropagationBackground))
	second := s.newSet("haunted", 2, 2, "two")
	s.create(second)

	s.eventually("group 0 is ready, and group 1 shows what it waits for", func() error {
		groups := s.ask("", "status", "haunted").Groups
		if len(groups) != 2 || !groups[0].Ready || groups[1].ReadyPods != 0 || len(groups[1].Ghosts) == 0 ||
			groups[1].Ghosts[0].Name != "haunted-1" || len(groups[1].Waiting) == 0 || groups[1].Waiting[0].Reason != waiting {
			return fmt.Errorf("have %+v", groups)
		}
		return nil
	})
	s.patch(held, noFinalizers)
	s.awaitSettled(second)
}

func TestPluginPlansForAFile(t *testing.T) {
	s := asideScene(t)
	s.settled(s.newSet("planned", 1, 2, "one"))

	living := s.ask(s.manifest("planned", "two"), "plan", "-f", "-")
	if !living.Exists || !living.has("create ControllerRevision") || !living.has("apply StatefulSet") {
		t.Errorf("over the living set: got %+v", living)
	}
	unborn := s.ask(s.manifest("unborn", "two"), "plan", "-f", "-")
	if unborn.Exists || !unborn.has("create StatefulSet") || !unborn.has("create Service") {
		t.Errorf("for a set that is not there: got %+v", unborn)
	}
	if _, found := find[*lwsv1.LeaderWorkerSet](s.recorder, "unborn"); found {
		t.Error("a plan created the set")
	}
}

func (s *scene) manifest(name, image string) string {
	set := s.newSet(name, 1, 2, image)
	set.SetGroupVersionKind(lwsv1.GroupVersion.WithKind("LeaderWorkerSet"))
	text, err := json.Marshal(set)
	s.check("encode a manifest", err)
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

func TestPluginSaysWhatIsWrong(t *testing.T) {
	s := asideScene(t)
	s.create(s.newSet("llama", 1, 1, "one"))
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"status", "lama"}, "kubectl get leaderworkersets -A"},
		{[]string{"rollout", "status", "lama"}, "kubectl get leaderworkersets -A"},
		{[]string{"rollout", "restart", "lama"}, "kubectl get leaderworkersets -A"},
		{[]string{"rollout", "pause", "-l", "no=such"}, "no=such"},
		{[]string{"plan", "llama", "--as", "nobody"}, `"nobody" cannot list`},
		{[]string{"status", "llama", "--server", "https://127.0.0.1:1"}, "https://127.0.0.1:1"},
	} {
		s.refuse(tt.want, tt.args...)
	}
}

// refuse runs a command that must fail and name something.
func (s *scene) refuse(want string, args ...string) {
	s.Helper()
	if out, errOut, err := s.plugin("", args...); err == nil || out != "" || !strings.Contains(errOut, want) {
		s.Errorf("%v: %v, printed %q and %q, want %q", args, err, out, errOut, want)
	}
}

// givesUp runs a rollout status that must wait in vain and name the reason. A second may be too
// short for the first read.
func (s *scene) givesUp(want string, args ...string) {
	s.Helper()
	var errOut string
	for within := time.Second; within < patience; within *= 2 {
		var err error
		_, errOut, err = s.plugin("", append([]string{"rollout", "status", "--timeout=" + within.String()}, args...)...)
		if err == nil || strings.Contains(errOut, want) {
			s.check("rollout status gives up", lacking("given up", true, err != nil))
			return
		}
	}
	s.Errorf("rollout status %v: printed %q, want %q", args, errOut, want)
}

// status, plan and history write nothing.
func TestPluginOnlyReads(t *testing.T) {
	s := newScene(t)
	set := s.newSet("read", 1, 2, "one")
	s.create(set)
	s.ask("", "plan", "read")
	s.ask(s.manifest("read", "two"), "plan", "-f", "-")
	s.ask("", "status", "read")
	s.awaitSettled(set)
	s.steer("status", "read")
	s.steer("history", "read")
	s.onlyPatches(func(r pluginRequest) bool { return strings.Contains(r.RequestURI, "dryRun=All") })
}

// pluginRequest is a request of the plugin in the audit log.
type pluginRequest struct {
	Verb, UserAgent, RequestURI string
	ObjectRef                   struct{ Resource, Subresource, Namespace string }
}

// onlyPatches checks that the plugin read in the scene, and patched what it may.
func (s *scene) onlyPatches(may func(pluginRequest) bool) {
	s.Helper()
	s.check("read the audit log", bed.audit.Sync())
	log, err := os.ReadFile(bed.plane.AuditLog())
	s.check("read the audit log", err)
	patches := 0
	for line := range bytes.Lines(log) {
		var r pluginRequest
		if json.Unmarshal(line, &r) != nil || !strings.HasPrefix(r.UserAgent, "kubectl-lockstep/") || r.ObjectRef.Namespace != s.namespace {
			continue
		}
		switch {
		case slices.Contains([]string{"get", "list", "watch"}, r.Verb):
		case r.Verb == "patch" && may(r):
			patches++
		default:
			s.Errorf("%s %s", r.Verb, r.RequestURI)
		}
	}
	if patches == 0 {
		s.Error("invalid run: the audit log has no patch of the plugin")
	}
}
