//go:build linux

package node

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/test/drill"
	"lockstep.dev/lockstep/test/expect"
	"lockstep.dev/lockstep/test/fakeapi"
)

// The kubelet restarts a container of a worker. The operator recreates its group, once and in
// parallel, and no other group. Every pod finds the data of its previous incarnation.
func TestAContainerEnds(t *testing.T) {
	s := newScene(t)
	s.Check("make disks", bed.addDisks(t.Context(), 6))
	set := s.newSet("a", 2, 3, withDisks)
	s.Create(set)
	s.awaitAvailable(set)
	before := s.UIDs()
	claims := s.Claims()

	s.killContainerOf("a-1-2")
	s.tell("the container of a-1-2 is killed")
	group := []string{"a-1", "a-1-1", "a-1-2"}
	s.awaitAnother(set, before, group...)
	ended := fakeapi.Each(group, func(name string) drill.Record { return s.Of(before[name]) })
	s.EndedTogether(ended)

	s.wantCreated(func(name string) int { return 1 + boolean(strings.HasPrefix(name, "a-1")) })
	n := s.Of(before["a-1-2"]).Last.(*corev1.Pod).Status.ContainerStatuses[0].RestartCount
	expect.That(t, n <= 1, "the kubelet restarted the container %d times before its group went", n)
	s.checkEvidence(set, 1, lwsv1.PodFailure{Pod: "a-1-2", Container: "serve", ExitCode: new(int32(137)), Reason: "Error", Node: nodeName})
	for name, now := range s.Claims() {
		was := claims[name]
		expect.That(t, was != nil && was.UID == now.UID, "PVC %s was recreated", name)
	}
	s.checkInherited(before, s.UIDs(), group...)
}

// checkInherited checks that pods found the data of their previous incarnations.
func (s *scene) checkInherited(before, now map[string]types.UID, names ...string) {
	for _, name := range names {
		records := strings.Join(s.recordsOn(s.PVC("data-"+name)), "\n")
		if !strings.HasPrefix(records, "born "+string(before[name])) || !strings.HasSuffix(records, "born "+string(now[name])+" "+name) {
			s.Errorf("on the disk of %s:\n%s\nwant incarnations %s and %s", name, records, before[name], now[name])
		}
	}
}

// Under RecreateGroupAfterStart, only the kubelet restarts containers of a group that is starting. The
// operator recreates a group that has run.
func TestAfterStart(t *testing.T) {
	s := newScene(t)
	const gate = "example.com/gate"
	hold := func(set *lwsv1.LeaderWorkerSet) { // a gated leader keeps the group from having started
		leader := set.Spec.LeaderWorkerTemplate.WorkerTemplate.DeepCopy()
		leader.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: gate}}
		set.Spec.LeaderWorkerTemplate.LeaderTemplate = leader
	}
	set := s.newSet("a", 1, 3, fakeapi.Policy(lwsv1.RecreateGroupAfterStart), hold)
	s.Create(set)
	s.Eventually("the workers run", func() error { return errors.Join(s.running("a-0-1"), s.running("a-0-2")) })
	before := s.UIDs()
	s.killContainerOf("a-0-1")
	s.Eventually("the kubelet restarts a worker of the starting group", func() error { return s.restarted("a-0-1") })
	open := func() error {
		leader := s.mustPod("a-0")
		return s.Client.Patch(t.Context(), leader, drill.Merge((`{"spec":{"schedulingGates":null}}`)))
	}
	s.Check("open the gate", open())
	s.awaitAvailable(set)
	now := s.UIDs()
	expect.Equalf(t, before["a-0-1"], now["a-0-1"], "a-0-1 was starting")
	expect.Equalf(t, before["a-0"], now["a-0"], "a-0 was starting")
	s.killContainerOf("a-0-2")
	s.Eventually("another leader is gated", func() error {
		if now := s.UIDs()["a-0"]; now == "" || now == before["a-0"] {
			return errors.New("no new leader")
		}
		return open()
	})
	s.awaitAnother(set, before, "a-0", "a-0-1", "a-0-2")
	s.checkEvidence(set, 0, lwsv1.PodFailure{Pod: "a-0-2", Container: "serve", ExitCode: new(int32(137)), Reason: "Error", Node: nodeName})
}

// With --crash-log-lines, the status has the log of a container that was killed, read from the
// kubelet after it started the container again. The group is recreated as ever.
func TestACrashLeavesItsLog(t *testing.T) {
	s := newScene(t)
	s.Check("install with the right to read logs", bed.Operator.Install("--crash-log-lines=5"))
	s.RestartOperator("--crash-log-lines=5")
	t.Cleanup(func() {
		s.Check("install without it", bed.Operator.Install())
		s.RestartOperator()
	})
	set := s.newSet("a", 1, 2)
	s.Create(set)
	s.awaitAvailable(set)
	before := s.UIDs()
	s.killContainerOf("a-0-1")
	s.awaitAnother(set, before, "a-0", "a-0-1")
	s.wantCreated(func(string) int { return 2 })
	r := s.restarts(set, 0)
	expect.Must(t, r != nil && len(r.Containers) == 1, "restarts: %+v", r)
	want := fmt.Sprintf("born %s a-0-1", before["a-0-1"])
	if c := r.Containers[0]; c.Pod != "a-0-1" || c.ExitCode != 137 || c.Log != want {
		t.Errorf("the container left %+v, want the log %q", c, want)
	}
	s.tell("the container left: %+v", r.Containers[0])
	s.Want("kubectl lockstep status", lacks(s.say("status", "a"), "| "+want))
}

// TestLogsAndExec reads logs through a real kubelet: the run before a restart comes in front of the present one, which is
// followed. A command runs in a worker, and its exit code is that of the plugin.
func TestLogsAndExec(t *testing.T) {
	s := newScene(t)
	set := s.newSet("a", 1, 2, fakeapi.Policy(lwsv1.NoneRestartPolicy))
	s.Create(set)
	s.Eventually("both pods run", func() error { return errors.Join(s.running("a-0"), s.running("a-0-1")) })
	s.killContainerOf("a-0-1")
	s.Eventually("the kubelet restarts a worker", func() error { return errors.Join(s.restarted("a-0-1"), s.running("a-0-1")) })
	s.Eventually("the logs of both runs", func() error {
		out, errOut, err := s.Plugin("", "logs", "a", "0", "-f", "--previous", "--request-timeout", "3s")
		s.tell("logs: %s%s, %v", out, errOut, err)
		line := fmt.Sprintf("a-0-1 serve | born %s a-0-1", s.UIDs()["a-0-1"])
		return drill.Lacking("lines", 2, strings.Count(out, line))
	})
	out, errOut, err := s.Plugin("", "exec", "a", "0", "1", "--", "/container", "--exit", "7", "--say", "told")
	exit := &exec.ExitError{}
	expect.That(t, errors.As(err, &exit) && exit.ExitCode() == 7 && strings.Contains(out, "a-0-1\ntold\n"), "exec: %q, %q, %v", out, errOut, err)
}

// killContainerOf kills the first process of the container of a pod that runs, as the kernel does without memory.
func (s *scene) killContainerOf(name string) {
	_, id, _ := strings.Cut(s.mustPod(name).Status.ContainerStatuses[0].ContainerID, "://")
	out, err := bed.node.ctr("tasks", "kill", "--signal", "SIGKILL", id)
	s.Check("kill container "+id+": "+string(out), err)
}

func (s *scene) running(name string) error {
	pod := &corev1.Pod{}
	err := s.Get(name, pod)
	if err == nil && (len(pod.Status.ContainerStatuses) == 0 || pod.Status.ContainerStatuses[0].State.Running == nil) {
		err = fmt.Errorf("pod %s is not running: %+v", name, pod.Status.ContainerStatuses)
	}
	return err
}

func (s *scene) restarted(name string) error {
	if err := s.running(name); err != nil {
		return err
	}
	if n := s.mustPod(name).Status.ContainerStatuses[0].RestartCount; n != 1 {
		return fmt.Errorf("restarted %d times", n)
	}
	return nil
}

// checkEvidence checks the evidence of the only failure of a group in the status.
func (s *scene) checkEvidence(set *lwsv1.LeaderWorkerSet, group int32, want lwsv1.PodFailure) {
	r := s.restarts(set, group)
	expect.Must(s, r != nil && r.Count == 1 && len(r.Failures) == 1, "restarts of group %d: %+v", group, r)
	have := r.Failures[0]
	if have.Pod != want.Pod || have.Container != want.Container || have.ExitCode == nil || *have.ExitCode != *want.ExitCode ||
		have.Reason != want.Reason || have.Node != want.Node {
		s.Errorf("evidence %+v, want %+v", have, want)
	}
}

func boolean(is bool) int {
	if is {
		return 1
	}
	return 0
}

// A kubelet dies while a group terminates, so that its pods stay. The plugin says what the group waits
// for and what to do. The taint out-of-service removes the pods, and the group is recreated when the
// node is back.
func TestALostNode(t *testing.T) {
	s := newScene(t)
	s.Check("make disks", bed.addDisks(t.Context(), 4))
	set := s.newSet("a", 1, 3, args("--linger", "10m"), withDisks)
	s.Create(set)
	s.awaitAvailable(set)
	before := s.UIDs()
	claim := s.PVC("data-a-0-1")

	s.Remove(s.mustPod("a-0"))
	s.awaitEach(before, "are terminating", func(pod drill.Record) bool { return pod.Deleted != 0 })
	s.Check("kill the kubelet", bed.node.killKubelet())
	t.Cleanup(s.bringBack)
	s.tell("the kubelet was killed")

	s.Eventually("the node is not ready", s.nodeLost)
	s.Eventually("status says what the group waits for and what to do", func() error {
		return lacks(s.say("status", "a"), "pod a-0 goes", "pod a-0-1 goes", "pod a-0-2 goes", "kubectl taint nodes "+nodeName)
	})
	if plan := s.say("plan", "a"); strings.Contains(plan, "write") {
		t.Errorf("the plugin shows writes that the operator should have made:\n%s", plan)
	}
	s.Remove(claim)
	s.Eventually("why names the holder of a PVC and the next step", func() error {
		return lacks(s.say("why", "pvc/data-a-0-1"), "a-0-1", nodeName, "out-of-service")
	})
	s.AwaitFinalizers(claim, drill.PodProtection, drill.Barrier)
	s.wantCreated(func(string) int { return 1 }) // no new pod while the previous one exists

	s.Check("taint the node", s.taint(`[{"key":"node.kubernetes.io/out-of-service","value":"nodeshutdown","effect":"NoExecute"}]`))
	s.awaitEach(before, "are gone", func(pod drill.Record) bool { return pod.Died != 0 })
	s.AwaitGone(claim)
	s.bringBack()
	s.awaitAnother(set, before, "a-0", "a-0-1", "a-0-2")
	s.wantCreated(func(string) int { return 2 })
	if now := s.PVC("data-a-0-1"); now.UID == claim.UID || len(s.recordsOn(claim)) == 0 {
		t.Errorf("PVC %s, with the records of the previous one: %q", now.UID, s.recordsOn(claim))
	}
}

// awaitEach waits until a condition holds for each of the pods.
func (s *scene) awaitEach(pods map[string]types.UID, what string, holds func(drill.Record) bool) {
	s.Eventually("all pods "+what, func() error {
		for name, uid := range pods {
			if !holds(s.Of(uid)) {
				return fmt.Errorf("pod %s does not", name)
			}
		}
		return nil
	})
}

// bringBack starts the kubelet if it is dead, and removes the taint from the node.
func (s *scene) bringBack() {
	if s.nodeLost() != nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), drill.Patience)
	defer cancel()
	err := errors.Join(s.taint(`null`), bed.node.startKubelet(), bed.awaitNode(ctx))
	expect.That(s, err == nil, "bring the node back: %v", err)
}

func (s *scene) nodeLost() error {
	node := &corev1.Node{}
	if err := s.Client.Get(context.Background(), client.ObjectKey{Name: nodeName}, node); err != nil {
		return err
	}
	if nodeReady(node) {
		return errors.New("the node is ready")
	}
	return nil
}

func (s *scene) taint(taints string) error {
	node := &corev1.Node{}
	node.Name = nodeName
	return s.Client.Patch(context.Background(), node, drill.Merge(fmt.Sprintf(`{"spec":{"taints":%s}}`, taints)))
}

// lacks returns an error if an output does not contain all of these texts.
func lacks(output string, wanted ...string) error {
	for _, text := range wanted {
		if !strings.Contains(output, text) {
			return fmt.Errorf("no %q in:\n%s", text, output)
		}
	}
	return nil
}

// The operator recreates a group that fails again and again after growing delays. The status has the
// evidence of each failure.
func TestACrashLoop(t *testing.T) {
	s := newScene(t)
	set := s.newSet("a", 1, 2, args("--exit", "3", "--after", "2s", "--say", "no shard 7"))
	s.Create(set)
	s.Eventually("the group failed twice, and waits", func() error {
		now := s.Set("a")
		if r := s.restarts(set, 0); r == nil || r.Count < 2 || !r.DueAt.After(r.FailedAt.Time) {
			return fmt.Errorf("restarts %+v", r)
		}
		if !meta.IsStatusConditionTrue(now.Status.Conditions, "RestartBackOff") {
			return fmt.Errorf("conditions %+v", now.Status.Conditions)
		}
		return nil
	})
	r := s.restarts(set, 0)
	for _, failure := range r.Failures {
		if failure.ExitCode == nil || *failure.ExitCode != 3 || failure.Message != "no shard 7" || failure.Node != nodeName {
			t.Errorf("evidence: %+v", failure)
		}
	}
	expect.That(t, len(r.Containers) > 0 && r.Containers[0].Message == "no shard 7" && r.Containers[0].LogUnread == "",
		"containers: %+v", r.Containers)
	s.tell("evidence: %+v", r.Failures)
	s.Want("kubectl lockstep status", lacks(s.say("status", "a"), "no shard 7", "exit code 3"))
	leader := s.UIDs()["a-0"]
	s.Until("the group is recreated when it is due", func() bool {
		now := s.UIDs()["a-0"]
		return now != "" && now != leader
	})
}
