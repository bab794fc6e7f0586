package demo

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"lockstep.dev/lockstep/internal/cli/report"
)

const shipped = "../../examples/inference.yaml"

func images(t *testing.T, e example) []string {
	t.Helper()
	var all []string
	for _, template := range []string{"leaderTemplate", "workerTemplate"} {
		containers, found, err := unstructured.NestedSlice(e.set.Object, "spec", "leaderWorkerTemplate", template, "spec", "containers")
		if err != nil || !found {
			t.Fatalf("%s: found %v, %v", template, found, err)
		}
		for _, container := range containers {
			all = append(all, container.(map[string]any)["image"].(string))
		}
	}
	return all
}

func TestTheSecondLifeDiffersInItsImagesOnly(t *testing.T) {
	first, err := readExample(shipped)
	if err != nil {
		t.Fatal(err)
	}
	before := images(t, first)
	second, err := first.withImage(secondImage)
	if err != nil {
		t.Fatal(err)
	}
	for i, image := range images(t, second) {
		if image != secondImage || before[i] == secondImage || images(t, first)[i] != before[i] {
			t.Errorf("container %d: %q, then %q", i, before[i], image)
		}
	}
	vanish, _, _ := unstructured.NestedString(second.set.Object, "spec", "leaderWorkerTemplate", "workerTemplate", "metadata", "annotations", vanishKey)
	if vanish != vanishAfter {
		t.Errorf("pods vanish after %q", vanish)
	}
}

func TestAnExampleWithoutASetIsNamed(t *testing.T) {
	file := filepath.Join(t.TempDir(), "x.yaml")
	if err := os.WriteFile(file, []byte("kind: Service\napiVersion: v1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readExample(file); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("got %v", err)
	}
}

func podWith(uid, image string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: uid, UID: types.UID(uid)}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Image: image}}}}
}

func TestTheCensusForgetsNobodyAndAcceptsExactlyWhatIsWanted(t *testing.T) {
	c := &census{pods: map[types.UID]*corev1.Pod{}}
	c.see(podWith("old", "one"))
	before := c.all()
	c.see(podWith("a", "two"))
	c.see(podWith("b", "two"))
	c.see(podWith("a", "two")) // an update is no birth
	if err := c.check(before, 2, "two"); err != nil {
		t.Error(err)
	}
	for name, err := range map[string]error{
		"one too few":   c.check(before, 3, "two"),
		"one too many":  c.check(before, 1, "two"),
		"the old image": c.check(before, 2, "three"),
	} {
		if err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
}

func TestAvailableMeansEveryGroupAndNoGhost(t *testing.T) {
	status := func(condition string, ready bool, ghosts ...report.Ghost) *report.SetStatus {
		return &report.SetStatus{
			Desired: 1, Ready: 1, Conditions: []metav1.Condition{{Type: condition, Status: metav1.ConditionTrue}},
			Groups: []report.GroupStatus{{Ready: ready, Ghosts: ghosts}},
		}
	}
	for name, tt := range map[string]struct {
		status *report.SetStatus
		want   bool
	}{
		"all well":            {status("Available", true), true},
		"not said yet":        {status("Progressing", true), false},
		"a group is not up":   {status("Available", false), false},
		"a ghost still there": {status("Available", true, report.Ghost{Name: "g"}), false},
	} {
		if got := available(tt.status); got != tt.want {
			t.Errorf("%s: got %v", name, got)
		}
	}
}

func TestOnlyTheProcessThatWasStartedIsEnded(t *testing.T) {
	p, ended, err := detach(filepath.Join(t.TempDir(), "log"), "sleep", "600")
	if err != nil {
		t.Fatal(err)
	}
	stranger := process{PID: p.PID, Start: "another time"}
	if stranger.alive() {
		t.Error("a stranger with the same pid is taken for ours")
	}
	if err := stranger.stop(t.Context()); err != nil || !p.alive() {
		t.Errorf("stopping a stranger: %v, ours alive: %v", err, p.alive())
	}
	if err := p.stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-ended
	if err := p.stop(t.Context()); err != nil || p.alive() {
		t.Errorf("stopping twice: %v", err)
	}
}

func options(dir string, out *strings.Builder) Options {
	return Options{Bin: filepath.Join(dir, "bin"), Dir: filepath.Join(dir, "demo"), Example: shipped, Out: out}
}

func TestDownWhereNothingRunsIsNoError(t *testing.T) {
	var out strings.Builder
	o := options(t.TempDir(), &out)
	if err := Down(t.Context(), o); err != nil || !strings.Contains(out.String(), "nothing to end") {
		t.Errorf("got %v, %q", err, out.String())
	}
	if err := os.Mkdir(o.Dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := Down(t.Context(), o); err != nil {
			t.Error(err)
		}
	}
}

func TestWithoutProgramsItSaysWhatToDo(t *testing.T) {
	var out strings.Builder
	err := Run(t.Context(), options(t.TempDir(), &out))
	if err == nil || !strings.Contains(err.Error(), "make build") {
		t.Errorf("got %v", err)
	}
}

func TestASecondDemoSaysThatOneRuns(t *testing.T) {
	var out strings.Builder
	o := options(t.TempDir(), &out)
	for _, name := range []string{"lockstep", "lockstep-local", "kubectl-lockstep"} {
		if err := os.MkdirAll(o.Bin, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(o.Bin, name), nil, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	d, err := newDemo(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(o.Dir, 0o755); err != nil {
		t.Fatal(err)
	}
	p, _, err := detach(d.place.log(), "sleep", "600")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.stop(context.Background()) })
	if err := d.place.save(state{Operator: p}); err != nil {
		t.Fatal(err)
	}
	if err := Run(t.Context(), o); err == nil || !strings.Contains(err.Error(), "running already") || !strings.Contains(err.Error(), "make demo-down") {
		t.Errorf("got %v", err)
	}
	if !p.alive() {
		t.Error("what runs was ended")
	}
}

func TestTwoDemosAtOnceDoNotMix(t *testing.T) {
	p := place{dir: t.TempDir()}
	release, err := p.lock()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.lock(); err == nil {
		t.Error("a second one got in")
	}
	release()
	again, err := p.lock()
	if err != nil {
		t.Fatal(err)
	}
	again()
}
