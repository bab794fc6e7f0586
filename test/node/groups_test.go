//go:build linux

package node

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1 "k8s.io/api/core/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
)

// A container of a worker ends: its kubelet starts it again, and its group, no other, is
// recreated, once and in parallel. Every pod finds what its former life wrote.
func TestAContainerEnds(t *testing.T) {
	s := newScene(t)
	s.check("make disks", bed.addDisks(t.Context(), 6))
	set := s.newSet("a", 2, 3, withDisks)
	s.create(set)
	s.awaitAvailable(set)
	before := s.uids()
	claims := s.claimUIDs()

	s.killContainerOf("a-1-2")
	s.tell("the container of a-1-2 is killed")
	group := []string{"a-1", "a-1-1", "a-1-2"}
	s.awaitAnother(set, before, group...)
	s.endedTogether(before, group...)

	for name, count := range s.created() {
		if want := 1 + boolean(strings.HasPrefix(name, "a-1")); count != want {
			t.Errorf("%d pods %s were created, want %d", count, name, want)
		}
	}
	if n := s.pods.life(before["a-1-2"]).restarts; n > 1 {
		t.Errorf("the kubelet restarted the container %d times before its group went", n)
	}
	s.checkEvidence(set, 1, lwsv1.PodFailure{Pod: "a-1-2", Container: "serve", ExitCode: new(int32(137)), Reason: "Error", Node: nodeName})
	for name, uid := range s.claimUIDs() {
		if claims[name] != uid {
			t.Errorf("claim %s is another one", name)
		}
	}
	s.checkInherited(before, s.uids(), group...)
}

// checkInherited checks that pods wrote onto what their former lives had written.
func (s *scene) checkInherited(before, now map[string]types.UID, names ...string) {
	s.Helper()
	for _, name := range names {
		claim, err := s.claim("data-" + name)
		s.check("claim of "+name, err)
		lives := strings.Join(s.livesOn(claim), "\n")
		if !strings.HasPrefix(lives, "born "+string(before[name])) || !strings.HasSuffix(lives, "born "+string(now[name])+" "+name) {
			s.Errorf("on the disk of %s:\n%s\nwant its lives %s and %s", name, lives, before[name], now[name])
		}
	}
}

// Under RecreateGroupAfterStart a group that is starting is left to its kubelet; once it has
// run, it is recreated.
func TestAfterStart(t *testing.T) {
	s := newScene(t)
	const gate = "example.com/gate"
	hold := func(set *lwsv1.LeaderWorkerSet) { // the group has not started while one of its pods waits
		leader := set.Spec.LeaderWorkerTemplate.WorkerTemplate.DeepCopy()
		leader.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: gate}}
		set.Spec.LeaderWorkerTemplate.LeaderTemplate = leader
	}
	set := s.newSet("a", 1, 3, restartPolicy(lwsv1.RecreateGroupAfterStart), hold)
	s.create(set)
	s.eventually("the workers run", func() error { return errors.Join(s.running("a-0-1"), s.running("a-0-2")) })
	before := s.uids()
	s.killContainerOf("a-0-1")
	s.eventually("the kubelet restarts a worker that starts", func() error { return s.restarted("a-0-1") })
	open := func() error {
		leader := s.mustPod("a-0")
		return s.Patch(t.Context(), leader, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"schedulingGates":null}}`)))
	}
	s.check("open the gate", open())
	s.awaitAvailable(set)
	if now := s.uids(); now["a-0-1"] != before["a-0-1"] || now["a-0"] != before["a-0"] {
		t.Error("a group that was starting was recreated")
	}
	s.killContainerOf("a-0-2")
	s.eventually("another leader waits", func() error {
		if now := s.uids()["a-0"]; now == "" || now == before["a-0"] {
			return errors.New("it does not")
		}
		return open()
	})
	s.awaitAnother(set, before, "a-0", "a-0-1", "a-0-2")
	s.checkEvidence(set, 0, lwsv1.PodFailure{Pod: "a-0-2", Container: "serve", ExitCode: new(int32(137)), Reason: "Error", Node: nodeName})
}

// A group that ends by itself again and again is recreated ever later, and says why it
// ended.
func TestACrashLoop(t *testing.T) {
	s := newScene(t)
	set := s.newSet("a", 1, 2, args("--exit", "3", "--after", "2s", "--say", "no shard 7"))
	s.create(set)
	s.eventually("the group failed twice, and waits", func() error {
		now := &lwsv1.LeaderWorkerSet{}
		s.check("read the set", s.Get(t.Context(), s.key("a"), now))
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
	s.tell("evidence: %+v", r.Failures)
	status := s.plugin("status", "a")
	for _, word := range []string{"no shard 7", "exit code 3"} {
		if !strings.Contains(status, word) {
			t.Errorf("kubectl lockstep status does not say %q:\n%s", word, status)
		}
	}
	leader := s.uids()["a-0"]
	s.eventually("the group is recreated when it is due", func() error {
		if now := s.uids()["a-0"]; now == "" || now == leader {
			return errors.New("it is not")
		}
		return nil
	})
}

// killContainerOf ends the container of a pod that runs.
func (s *scene) killContainerOf(name string) {
	s.Helper()
	s.check("kill a container", bed.node.killContainer(s.mustPod(name).Status.ContainerStatuses[0].ContainerID))
}

func (s *scene) running(name string) error {
	pod, err := s.pod(name)
	if err == nil && (len(pod.Status.ContainerStatuses) == 0 || pod.Status.ContainerStatuses[0].State.Running == nil) {
		err = fmt.Errorf("pod %s does not run: %+v", name, pod.Status.ContainerStatuses)
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

// checkEvidence checks what the status keeps of a group's one failure.
func (s *scene) checkEvidence(set *lwsv1.LeaderWorkerSet, group int32, want lwsv1.PodFailure) {
	s.Helper()
	r := s.restarts(set, group)
	if r == nil || r.Count != 1 || len(r.Failures) != 1 {
		s.Fatalf("restarts of group %d: %+v", group, r)
	}
	have := r.Failures[0]
	if have.Pod != want.Pod || have.Container != want.Container || have.ExitCode == nil || *have.ExitCode != *want.ExitCode ||
		have.Reason != want.Reason || have.Node != want.Node {
		s.Errorf("evidence %+v, want %+v", have, want)
	}
}

// claimUIDs are those of the claims that are there, by name.
func (s *scene) claimUIDs() map[string]types.UID {
	s.Helper()
	list := &corev1.PersistentVolumeClaimList{}
	s.check("list claims", s.List(s.Context(), list, client.InNamespace(s.namespace)))
	found := map[string]types.UID{}
	for _, claim := range list.Items {
		found[claim.Name] = claim.UID
	}
	return found
}

func boolean(is bool) int {
	if is {
		return 1
	}
	return 0
}
