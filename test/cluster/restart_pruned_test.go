package cluster

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
)

// An older CustomResourceDefinition drops the fields of the status that restarts need. A
// condition says so, and no group is recreated until the present definition is installed.
func TestOlderDefinitionDropsTheRecord(t *testing.T) {
	s := newScene(t)
	s.forgetfulDefinition()
	set := s.settled(s.newSet("a", 2, 2, imageA))
	s.eventually("the condition says so", func() error {
		now, _ := find[*lwsv1.LeaderWorkerSet](s.recorder, "a")
		if len(now.Status.Started) > 0 {
			t.Fatal("invalid run: the record is kept")
		}
		return holds(now, "RestartsUnrecorded", "DefinitionTooOld")
	})
	before := s.uids()
	s.crash("a-1-1", 1)
	s.check("kill the operator", bed.operator.Kill())
	s.crash("a-0-1", 1)
	s.check("start the operator", bed.operator.Start())
	outlast(t)
	same(t, "pods", before, s.uids())
	s.check("install the present definition", bed.operator.Install())
	s.eventually("the groups are recorded, and the condition has ended", func() error {
		now, _ := find[*lwsv1.LeaderWorkerSet](s.recorder, "a")
		if len(now.Status.Started) < 2 || holds(now, "RestartsUnrecorded", "DefinitionTooOld") == nil {
			return errStill
		}
		return nil
	})
	s.crash("a-1-1", 2)
	s.awaitRecreated(set, before, 1)
}

// forgetfulDefinition removes the fields of restarts from the status of the installed
// definition until the test ends.
func (s *scene) forgetfulDefinition() {
	s.Helper()
	definition := &unstructured.Unstructured{}
	definition.SetAPIVersion("apiextensions.k8s.io/v1")
	definition.SetKind("CustomResourceDefinition")
	definition.SetName("leaderworkersets.leaderworkerset.x-k8s.io")
	s.Cleanup(func() { s.check("install the present definition", bed.operator.Install()) })
	s.check("read the definition", s.client.Get(s.Context(), keyOf(definition), definition))
	versions, _, _ := unstructured.NestedSlice(definition.Object, "spec", "versions")
	for _, field := range []string{"started", "restarts", "restartsSince"} {
		unstructured.RemoveNestedField(versions[0].(map[string]any), "schema", "openAPIV3Schema", "properties", "status", "properties", field)
	}
	s.check("change the definition", unstructured.SetNestedSlice(definition.Object, versions, "spec", "versions"))
	s.check("write the definition", s.client.Update(s.Context(), definition))

	probe := s.newSet("probe", 0, 1, imageA, restartPolicy(lwsv1.NoneRestartPolicy))
	s.create(probe)
	s.eventually("the server goes by it", func() error {
		mark := probe.DeepCopy()
		data := `{"status":{"restartsSince":"2026-01-01T00:00:00Z"}}`
		if err := s.client.Status().Patch(s.Context(), mark, merge(data)); err != nil {
			return err
		}
		now := &lwsv1.LeaderWorkerSet{}
		if err := s.client.Get(s.Context(), keyOf(probe), now); err != nil {
			return err
		}
		return lacking("the mark is dropped", true, now.Status.RestartsSince == nil)
	})
	s.remove(probe)
}
