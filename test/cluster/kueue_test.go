package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/test/drill"
)

const (
	queueLabel = "kueue.x-k8s.io/queue-name"
	quotaGate  = "kueue.x-k8s.io/admission"
)

// gateQueued stands for Kueue's webhook: pods with a queue are created with its gate.
func (s *scene) gateQueued() {
	s.gateCreated(queueLabel, "team", quotaGate)
}

// gateCreated stands for the webhook of another program: pods with a label are created with a gate. What it returns ends it.
func (s *scene) gateCreated(label, value, gate string) client.Object {
	binding := s.lendManifest("gate", "LABEL", label, "VALUE", value, "GATE", gate)[1]
	s.Eventually("the stand-in gates pods", func() error {
		pod := &corev1.Pod{ObjectMeta: s.Meta("a-0"), Spec: template(imageA).Spec}
		pod.Labels, pod.Annotations = map[string]string{lwsv1.SetNameLabelKey: "a", lwsv1.WorkerIndexLabelKey: "0", label: value}, sized("2")
		return errors.Join(s.Client.Create(s.Context(), pod, client.DryRunAll), drill.Lacking("gate", true, hasGate(pod, gate)))
	})
	return binding
}

func isQueued(pod *corev1.Pod) bool { return hasGate(pod, quotaGate) }

func hasGate(pod *corev1.Pod, name string) bool {
	return slices.ContainsFunc(pod.Spec.SchedulingGates, func(gate corev1.PodSchedulingGate) bool { return gate.Name == name })
}

// admit removes the gate from the pods of a group, as Kueue does when there is quota.
func (s *scene) admit(names ...string) {
	for _, name := range names {
		s.Until("pod "+name+" is queued", func() bool { pod := s.Pod(name); return pod != nil && isQueued(pod) })
		s.Patch(s.Pod(name), `{"spec":{"schedulingGates":null}}`)
	}
}

// waitsForQuota is an error until the plugin says that exactly these groups wait for quota.
func (s *scene) waitsForQuota(groups ...int) error {
	out, _, err := s.Plugin("", "status", "a", "-o", "json")
	if err != nil {
		return err
	}
	var status struct {
		Groups []struct {
			Index   int
			Waiting []struct{ Message string }
		}
	}
	if err := json.Unmarshal([]byte(out), &status); err != nil {
		return err
	}
	var waiting []int
	for _, group := range status.Groups {
		for _, wait := range group.Waiting {
			if strings.Contains(wait.Message, "waits for quota") && strings.Contains(wait.Message, quotaGate) {
				waiting = append(waiting, group.Index)
			}
		}
	}
	if !slices.Equal(waiting, groups) {
		return fmt.Errorf("groups %v wait for quota, want %v:\n%s", waiting, groups, out)
	}
	return nil
}

// Groups wait for quota, each on its own, and the plugin says so. A group that is recreated asks for
// quota again. Quota is no failure: nothing else is recreated.
func TestASetThatWaitsForQuota(t *testing.T) {
	s := asideScene(t)
	s.gateQueued()
	queued := func(set *lwsv1.LeaderWorkerSet) {
		set.Spec.LeaderWorkerTemplate.WorkerTemplate.Labels = map[string]string{queueLabel: "team"}
	}
	set := s.newSet("a", 2, 2, imageA, queued)
	s.Create(set)
	s.Eventually("both groups wait", func() error { return s.waitsForQuota(0, 1) })
	s.admit("a-0", "a-0-1")
	s.Eventually("one group waits", func() error {
		if now := s.Set("a"); now.Status.ReadyReplicas != 1 {
			return drill.Lacking("ready groups", 1, now.Status.ReadyReplicas)
		}
		return s.waitsForQuota(1)
	})
	s.admit("a-1", "a-1-1")
	s.awaitSettled(set)

	before := s.UIDs()
	s.crash("a-0-1", 1)
	s.Eventually("the recreated group waits", func() error {
		if now := s.UIDs()["a-0"]; now == "" || now == before["a-0"] {
			return drill.ErrStill
		}
		return s.waitsForQuota(0)
	})
	s.admit("a-0", "a-0-1")
	s.awaitRecreated(set, before, 0)
	if r := s.Set("a").Status.Restarts; len(r) != 1 || r[0].Count != 1 {
		t.Errorf("restarts: %+v", r)
	}
}
