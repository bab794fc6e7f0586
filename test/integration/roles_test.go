package integration

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	dsv1 "lockstep.dev/lockstep/api/disaggregatedset/v1"
	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	clilws "lockstep.dev/lockstep/internal/cli/lws"
	"lockstep.dev/lockstep/internal/disaggregated"
	"lockstep.dev/lockstep/test/expect"
)

// Commands about DisaggregatedSets read and write what a real API server stores.
func TestCommandsAboutDisaggregatedSets(t *testing.T) {
	c := withDefinition(t)
	p := newPlugin(t, c.cfg, "default")
	live := expect.Value(client.New(c.cfg, client.Options{Scheme: clilws.Scheme()}))(t)
	role := func(name, image string) dsv1.DisaggregatedRole {
		r := dsv1.DisaggregatedRole{Name: name}
		replicas, size := int32(2), int32(2)
		r.Spec.Replicas, r.Spec.LeaderWorkerTemplate.Size = &replicas, &size
		r.Spec.StartupPolicy, r.Spec.RolloutStrategy.Type = lwsv1.LeaderCreatedStartupPolicy, lwsv1.RollingUpdateStrategyType
		r.Spec.LeaderWorkerTemplate.WorkerTemplate.Spec.Containers = []corev1.Container{{Name: "serve", Image: image}}
		return r
	}
	newSet := func(roles ...dsv1.DisaggregatedRole) *dsv1.DisaggregatedSet {
		set := &dsv1.DisaggregatedSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "pd"}}
		set.TypeMeta = metav1.TypeMeta{APIVersion: dsv1.GroupVersion.String(), Kind: "DisaggregatedSet"}
		set.Spec.Roles = roles
		return set
	}
	file := filepath.Join(t.TempDir(), "pd.yaml")
	plan := func(set *dsv1.DisaggregatedSet) string {
		t.Helper()
		expect.OK(t, os.WriteFile(file, expect.Value(yaml.Marshal(set))(t), 0o600))
		out, _, err := p.run(t, "", "plan", "-f", file)
		expect.OK(t, err)
		return out
	}
	says := func(part string, args ...string) string {
		t.Helper()
		out, errOut, err := p.run(t, "", args...)
		if err != nil {
			errOut += err.Error()
		}
		expect.Says(t, out+errOut, part)
		return out
	}
	says(`no disaggregatedset "pd" in namespace "default"`, "status", "dset/pd")
	first := newSet(role("prefill", "engine:1"), role("decode", "engine:1"))
	expect.Says(t, plan(first), "(no such set yet)")
	expect.OK(t, live.Create(t.Context(), first.DeepCopy()))
	stored := &dsv1.DisaggregatedSet{}
	reread := func() string {
		expect.OK(t, live.Get(t.Context(), client.ObjectKeyFromObject(first), stored))
		return expect.Value(disaggregated.RevisionOf(stored.Spec.Roles))(t)
	}
	record := func(number int64) *appsv1.ControllerRevision {
		r := disaggregated.Record(stored, reread(), number)
		expect.OK(t, live.Create(t.Context(), r))
		return r
	}
	one := reread()
	record(1)
	expect.Equal(t, "", plan(first))
	says("waiting: 0 of 4 groups are updated", "rollout", "status", "dset/pd", "--watch=false")
	stored.Spec.Roles = []dsv1.DisaggregatedRole{role("decode", "engine:2"), role("cache", "cache:1")}
	expect.OK(t, live.Update(t.Context(), stored))
	two := reread()
	record(2)
	says(one, "rollout", "history", "disaggregatedset/pd")
	says("+        - image: engine:2", "rollout", "diff", "dset", "pd")
	says("disaggregatedset.disaggregatedset.x-k8s.io/pd paused", "rollout", "pause", "dset/pd")
	says("rollout paused", "status", "dset/pd")
	says("resumed", "rollout", "resume", "dset/pd")
	generation := stored.Generation
	says("(server dry run)", "rollout", "undo", "dset/pd", "--dry-run=server")
	expect.Equal(t, two, reread())
	says("rolled back to revision 1 ("+one+")", "rollout", "undo", "dset/pd")
	expect.Equal(t, one, reread())
	expect.Equal(t, generation+1, stored.Generation)
	says("no revision 9; there are: 1, 2", "rollout", "undo", "dset/pd", "--to-revision=9")
	says("restarted", "rollout", "restart", "dset/pd")
	restarted := reread()
	expect.That(t, restarted != one && stored.Generation == generation+2, "a restart is one write of a new revision")
	out := says("STEP", "plan", "dset/pd")
	expect.Equal(t, out, says(restarted, "plan", "dset/pd"))
	expect.That(t, strings.Contains(says(`"revision"`, "plan", "dset/pd", "-o", "json"), restarted), "no revision")
}
