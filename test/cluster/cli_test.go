package cluster

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
)

// pluginAgent begins the user agent of every request that the plugin makes.
const pluginAgent = "kubectl-lockstep/"

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
	path, err := program("kubectl-lockstep")
	if err != nil {
		s.Fatal(err)
	}
	cmd := exec.CommandContext(s.Context(), path, append(args, "-n", s.namespace, "--kubeconfig", bed.plane.kubeconfig())...)
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
	aside(t)
	s := newScene(t)
	set := s.newSet("told", 2, 3, "one")
	s.create(set)
	s.awaitSettled(set)

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
	aside(t)
	s := newScene(t)
	first := s.newSet("haunted", 2, 2, "one")
	s.create(first)
	s.awaitSettled(first)
	held, _ := find[*corev1.Pod](s.recorder, "haunted-1")
	s.patch(held, `{"metadata":{"finalizers":["test.lockstep.dev/hold"]}}`)
	s.remove(first, propagation(metav1.DeletePropagationBackground))
	second := s.newSet("haunted", 2, 2, "two")
	s.create(second)

	s.eventually("the other group runs and the held one is told of", func() error {
		status := s.ask("", "status", "haunted")
		if len(status.Groups) != 2 || !status.Groups[0].Ready {
			return fmt.Errorf("group 0 is not ready: %+v", status.Groups)
		}
		g := status.Groups[1]
		if len(g.Ghosts) == 0 || g.Ghosts[0].Name != "haunted-1" || g.ReadyPods != 0 {
			return fmt.Errorf("group 1 does not show its ghost: %+v", g)
		}
		if len(g.Waiting) == 0 || g.Waiting[0].Reason != "WaitingForPreviousIncarnation" {
			return fmt.Errorf("group 1 does not say what it waits for: %+v", g.Waiting)
		}
		return nil
	})
	s.patch(held, `{"metadata":{"finalizers":null}}`)
	s.awaitSettled(second)
}

func TestPluginPlansForAFile(t *testing.T) {
	aside(t)
	s := newScene(t)
	set := s.newSet("planned", 1, 2, "one")
	s.create(set)
	s.awaitSettled(set)

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
	aside(t)
	s := newScene(t)
	s.create(s.newSet("llama", 1, 1, "one"))
	tests := []struct {
		args []string
		want string
	}{
		{[]string{"status", "lama"}, "kubectl get leaderworkersets -A"},
		{[]string{"rollout", "status", "lama"}, "kubectl get leaderworkersets -A"},
		{[]string{"rollout", "restart", "lama"}, "kubectl get leaderworkersets -A"},
		{[]string{"rollout", "pause", "-l", "no=such"}, "has the labels no=such"},
		{[]string{"plan", "llama", "--as", "nobody"}, `User "nobody" cannot list resource`},
		{[]string{"status", "llama", "--server", "https://127.0.0.1:1"}, "https://127.0.0.1:1 does not answer"},
	}
	for _, tt := range tests {
		out, errOut, err := s.plugin("", tt.args...)
		if err == nil || out != "" || !strings.Contains(errOut, tt.want) {
			t.Errorf("kubectl-lockstep %v: %v, printed %q and %q, want it to say %q", tt.args, err, out, errOut, tt.want)
		}
	}
}

// givesUp runs a rollout verb that must wait in vain, and say for what: with a second of
// time or, where that is not enough to look at all, with more.
func (s *scene) givesUp(want string, args ...string) {
	s.Helper()
	var errOut string
	for within := time.Second; within < patience; within *= 2 {
		var err error
		_, errOut, err = s.plugin("", append(append([]string{"rollout"}, args...), "--timeout="+within.String())...)
		if err == nil || strings.Contains(errOut, want) {
			s.check("rollout "+args[0]+" waited in vain", lacking("given up", true, err != nil))
			return
		}
	}
	s.Errorf("rollout %v: printed %q, want it to say %q", args, errOut, want)
}

// status, plan and history store nothing.
func TestPluginOnlyReads(t *testing.T) {
	s := newScene(t)
	set := s.newSet("read", 1, 2, "one")
	s.create(set)
	s.ask("", "plan", "read")
	s.ask(s.manifest("read", "two"), "plan", "-f", "-")
	s.ask("", "status", "read")
	s.awaitSettled(set)
	s.says("successfully rolled out", "status", "read")
	s.steer("history", "read")
	requests := s.pluginRequests()
	for _, r := range requests {
		switch r.Verb {
		case "get", "list", "watch":
		case "patch": // plan -f asks for a dry run
			if !strings.Contains(r.RequestURI, "dryRun=All") {
				t.Errorf("%s %s", r.Verb, r.RequestURI)
			}
		default:
			t.Errorf("%s %s", r.Verb, r.RequestURI)
		}
	}
	if len(requests) == 0 {
		t.Error("the plugin is not in the audit log")
	}
}
