package cluster

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/test/drill"
)

// warnings fails a test on each warning.
type warnings struct{ s *scene }

func (w warnings) HandleWarningHeader(_ int, _, text string) { w.s.Errorf("warned: %s", text) }

func (w warnings) HandleWarningHeaderWithContext(_ context.Context, _ int, _, text string) {
	w.HandleWarningHeader(0, "", text)
}

// The operator's own account may make the dry runs. Only a write of a template makes any, and a plan of a file tells what
// they find.
func TestTemplatesAreTriedByTheOperator(t *testing.T) {
	s := newScene(t)
	s.MayWrite(s.Namespace)
	config := rest.CopyConfig(bed.Rest)
	config.WarningHandler = warnings{s}
	user, err := client.New(config, client.Options{Scheme: s.Client.Scheme()})
	must(t, err)
	for what, identity := range map[string]lwsv1.GroupIdentityType{"a": lwsv1.OrdinalGroupIdentity, "b": lwsv1.HashGroupIdentity} {
		set := s.newSet(what, 1, 2, imageA, func(set *lwsv1.LeaderWorkerSet) { set.Spec.GroupIdentity = identity })
		must(t, user.Create(s.Context(), set, client.DryRunAll))
		must(t, user.Create(s.Context(), set))
		s.Patch(set, `{"spec":{"replicas":2}}`)
		s.Patch(set, `{"metadata":{"annotations":{"lockstep.dev/paused":"true"}}}`)
	}
	must(t, s.Audit.Sync())
	tried := s.Audit.Kept(0, func(r drill.Request) bool {
		return drill.IsDryRun(r) && r.Namespace == s.Namespace && drill.ByLockstep(r)
	})
	resources := map[string]int{}
	for _, r := range tried {
		resources[r.Resource]++
	}
	same(t, "dry runs", map[string]int{"statefulsets": 6, "deployments": 2}, resources)

	bad := s.newSet("c", 1, 2, imageA)
	bad.APIVersion, bad.Kind = lwsv1.GroupVersion.String(), "LeaderWorkerSet"
	bad.Spec.LeaderWorkerTemplate.WorkerTemplate.Spec.Containers[0].Name = "Main"
	text, err := yaml.Marshal(bad)
	must(t, err)
	file := filepath.Join(t.TempDir(), "c.yaml")
	must(t, os.WriteFile(file, text, 0o600))
	if out, errOut, err := s.Plugin("", "plan", "-f", file); err == nil || !strings.Contains(out+errOut, "workerTemplate.spec.containers[0].name") {
		t.Errorf("plan -f: %v\n%s%s", err, out, errOut)
	}
}
