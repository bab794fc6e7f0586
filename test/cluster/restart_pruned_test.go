package cluster

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
)

// A definition from before, which another implementation may have installed, drops
// the record of what groups started with. It is told of, groups that fail are still
// recreated, and a new operator recreates nothing for what it cannot know.
func TestDefinitionFromBeforeDropsTheRecord(t *testing.T) {
	s := newScene(t)
	s.forgetfulDefinition()
	set := s.newSet("a", 2, 2, imageA)
	s.create(set)
	set = s.awaitSettled(set)
	s.eventually("it is told of", func() error {
		now, _ := find[*lwsv1.LeaderWorkerSet](s.recorder, "a")
		if len(now.Status.Started) > 0 {
			t.Fatal("invalid run: the record is kept")
		}
		return holds(now, "RestartsUnrecorded", "DefinitionTooOld")
	})
	before := s.uids()
	s.crash("a-1-1", 1)
	s.awaitRecreated(set, before, 1)
	before = s.uids()
	s.check("kill the operator", bed.operator.kill())
	s.crash("a-0-1", 1)
	s.check("start the operator", bed.operator.start())
	outlast(t)
	for name, uid := range s.uids() {
		if before[name] != uid {
			s.dump()
			t.Errorf("pod %s is another one", name)
		}
	}
	s.check("install the present definition", bed.operator.Install())
	s.crash("a-1-1", 1) // something to write about
	s.eventually("the record is kept again, and that is told of", func() error {
		now, _ := find[*lwsv1.LeaderWorkerSet](s.recorder, "a")
		if now.Status.RestartsSince == nil || holds(now, "RestartsUnrecorded", "DefinitionTooOld") == nil {
			return errStill
		}
		return nil
	})
}

// forgetfulDefinition takes from the installed definition what the status tells of
// restarts, until the test ends.
func (s *scene) forgetfulDefinition() {
	s.Helper()
	definition := &unstructured.Unstructured{}
	definition.SetAPIVersion("apiextensions.k8s.io/v1")
	definition.SetKind("CustomResourceDefinition")
	key := client.ObjectKey{Name: "leaderworkersets.leaderworkerset.x-k8s.io"}
	s.Cleanup(func() { s.check("install the present definition", bed.operator.Install()) })
	var patch []string
	for _, field := range []string{"started", "restarts", "restartsSince"} {
		patch = append(patch, fmt.Sprintf(`{"op":"remove","path":"/spec/versions/0/schema/openAPIV3Schema/properties/status/properties/%s"}`, field))
	}
	s.check("read the definition", s.client.Get(s.Context(), key, definition))
	s.check("patch the definition", s.client.Patch(s.Context(), definition, client.RawPatch(types.JSONPatchType, []byte("["+strings.Join(patch, ",")+"]"))))

	probe := s.newSet("probe", 0, 1, imageA, restartPolicy(lwsv1.NoneRestartPolicy))
	s.create(probe)
	s.eventually("the server goes by it", func() error {
		mark := probe.DeepCopy()
		data := []byte(`{"status":{"restartsSince":"2026-01-01T00:00:00Z"}}`)
		if err := s.client.Status().Patch(s.Context(), mark, client.RawPatch(types.MergePatchType, data)); err != nil {
			return err
		}
		now := &lwsv1.LeaderWorkerSet{}
		if err := s.client.Get(s.Context(), client.ObjectKeyFromObject(probe), now); err != nil {
			return err
		}
		return lacking("the mark is dropped", true, now.Status.RestartsSince == nil)
	})
	s.remove(probe)
}
