package cluster

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	dsv1 "lockstep.dev/lockstep/api/disaggregatedset/v1"
	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/condition"
	"lockstep.dev/lockstep/test/drill"
	"lockstep.dev/lockstep/test/expect"
)

// A set waits with a changed template, another lost a worker while no operator runs, and a third is in step. The report
// holds no secret of them, and a replay of it answers as the cluster did.
func TestAReportReplays(t *testing.T) {
	s := newScene(t)
	secret := func(value string) func(*lwsv1.LeaderWorkerSet) {
		return func(set *lwsv1.LeaderWorkerSet) {
			template := &set.Spec.LeaderWorkerTemplate
			template.VolumeClaimTemplates = []corev1.PersistentVolumeClaim{{ObjectMeta: s.Meta("data"), Spec: drill.ClaimSpec()}}
			template.VolumeClaimTemplates[0].Namespace = ""
			withToken(value)(set)
			set.Annotations = map[string]string{"example.com/note": value}
		}
	}
	sets := map[string]*lwsv1.LeaderWorkerSet{}
	for _, name := range []string{"calm", "paused", "broken"} {
		sets[name] = s.newSet(name, 2, 3, imageA, secret("hidden-value-1"))
		s.Create(sets[name])
	}
	role := func(name, value string) dsv1.DisaggregatedRole { return s.roleOf(name, 2, 1, imageA, withToken(value)) }
	roles := s.settledRoles(s.rolesSet("pd", role("prefill", "hidden-value-1"), role("decode", "hidden-value-1")))
	for _, set := range sets {
		s.awaitSettled(set)
	}
	s.changeRoles(roles.Name, func(set *dsv1.DisaggregatedSet) {
		set.Annotations = map[string]string{lwsv1.PausedAnnotationKey: lwsv1.PausedValue}
		set.Spec.Roles = []dsv1.DisaggregatedRole{role("prefill", "hidden-value-2"), role("decode", "hidden-value-2")}
	})
	drill.Await(s.Scene, roles.Name, "the rollout is paused", func(set *dsv1.DisaggregatedSet) error {
		found, _ := condition.Of(set.Status.Conditions, dsv1.ConditionProgressing)
		return errors.Join(drill.Lacking("reason", "RolloutPaused", found.Reason), drill.Lacking("observed", set.Generation, set.Status.ObservedGeneration))
	})
	s.steer("pause", "paused")
	s.become(s.Set("paused"), `{"spec":{"leaderWorkerTemplate":{"workerTemplate":{"spec":{"containers":[{"name":"serve","image":"`+imageB+`",
		"env":[{"name":"TOKEN","value":"hidden-value-2"}]}]}}}}}`)
	s.awaitHolds("paused", lwsv1.LeaderWorkerSetUpdateInProgress, "RolloutPaused")
	for name := range sets {
		if name != "paused" {
			s.Eventually("the plan is in step", func() error { return drill.Lacking("in step", true, s.ask("", "plan", name).InStep) })
		}
	}

	s.Check("kill the operator", bed.Operator.Kill())
	defer func() { s.Check("start the operator", bed.Operator.Start()) }()
	s.Remove(s.Pod("broken-1-2"))
	s.Until("its group lacks a worker", func() bool { return s.Pod("broken-1-2") == nil })

	dir := t.TempDir()
	archive := filepath.Join(dir, "report.tar.gz")
	out, errOut, err := s.Plugin("", "report", "-o", archive)
	expect.Must(t, err == nil, "report: %v\n%s%s", err, out, errOut)
	files := unpacked(t, archive)
	for name, text := range files {
		expect.That(t, !strings.Contains(text, "hidden-value"), "%s has a secret", name)
	}

	replay := &drill.Plane{Program: bed.Plane.Program, Dir: filepath.Join(dir, "replay"), Log: filepath.Join(dir, "local.log")}
	s.Check("note the replay", bed.Reaper.Note("plane", replay.Program, replay.Dir))
	expect.OK(t, replay.Replay(archive))
	defer func() { s.Check("end the replay", replay.Down()) }()
	for _, name := range slices.Sorted(maps.Keys(sets)) {
		same(t, "the plan of "+name, s.decided(bed.Plane, name), s.decided(replay, name))
		for _, verb := range []string{"status", "plan"} {
			same(t, verb+" "+name, asAnswered(files["seen/"+name+"/"+verb+".txt"]), asAnswered(s.answer(replay, "", verb, name)))
		}
	}
	for _, verb := range []string{"status", "plan"} {
		same(t, verb+" dset/pd", asAnswered(files["seen/dset/pd/"+verb+".txt"]), asAnswered(s.answer(replay, "", verb, "dset/pd")))
	}
	explained := 0
	for name, text := range files {
		if claim, ok := strings.CutPrefix(strings.TrimSuffix(name, ".txt"), "seen/why/"); ok {
			explained++
			same(t, "why "+claim, asAnswered(text), asAnswered(s.answer(replay, "", "why", "pvc/"+claim)))
		}
	}
	expect.That(t, explained >= 18, "only %d PVCs are explained", explained)
}

// withToken gives the pods of a set a value in their environment.
func withToken(value string) edit {
	return func(set *lwsv1.LeaderWorkerSet) {
		c := &set.Spec.LeaderWorkerTemplate.WorkerTemplate.Spec.Containers[0]
		c.Env, c.Args = []corev1.EnvVar{{Name: "TOKEN", Value: value}}, []string{"--token=" + value}
	}
}

// decided lists the writes of a plan, with the incarnations that they are for. Revisions have other names in a replay.
func (s *scene) decided(on *drill.Plane, set string) (all []string) {
	for _, part := range s.askOn(on, "", "plan", set).Parts {
		for _, a := range part.Actions {
			if a.Object.Kind == "ControllerRevision" {
				a.Object.Name = ""
			}
			all = append(all, fmt.Sprint(a.Verb, a.Object, a.Reason, a.Preconditions))
		}
		for _, wait := range part.Waits {
			all = append(all, "wait "+wait.Reason)
		}
	}
	return all
}

// planVersion is the resourceVersion in a plan: etcd gives it anew.
var planVersion = regexp.MustCompile(`, its version is \d+`)

// asAnswered are the words of an answer: a token is longer than what it replaces, so columns move.
func asAnswered(text string) []string { return strings.Fields(planVersion.ReplaceAllString(text, "")) }

// unpacked are the files of an archive.
func unpacked(t *testing.T, path string) map[string]string {
	t.Helper()
	dir, files := t.TempDir(), map[string]string{}
	must(t, exec.Command("tar", "-xzf", path, "-C", dir).Run())
	must(t, filepath.WalkDir(dir, func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := os.ReadFile(file)
		files[strings.TrimPrefix(file, dir+"/")] = string(text)
		return err
	}))
	return files
}
