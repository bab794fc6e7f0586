package admission_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/lws/admission"
	"lockstep.dev/lockstep/test/expect"
)

const workerPath = "spec.leaderWorkerTemplate.workerTemplate."

func TestWarnings(t *testing.T) {
	gangs := withAnnotation(lwsv1.GangSchedulerAnnotationKey, "volcano")
	rack := withAnnotation(lwsv1.ExclusiveKeyAnnotationKey, "rack")
	byVolcano := func(p *corev1.PodTemplateSpec) { p.Spec.SchedulerName = "volcano" }
	const (
		moved = "metadata.annotations[leaderworkerset.sigs.k8s.io/exclusive-topology]: changing it replaces every group, within maxUnavailable and from the partition on"
		alone = workerPath + `spec.schedulerName: is not "volcano", so these pods are placed one by one`
	)
	for _, tt := range []struct {
		name     string
		old, set *lwsv1.LeaderWorkerSet
		want     []string
	}{
		{"nothing", nil, newSet(), nil},
		{"pods of another scheduler", nil, newSet(gangs), []string{alone}},
		{"pods of Volcano", nil, newSet(gangs, withWorkers(byVolcano)), nil},
		{"template that is not used", nil, newSet(withSize(1), gangs, withLeaderTemplate(byVolcano)), nil},
		{"told before", newSet(gangs), newSet(gangs, withReplicas(3)), nil},
		{"new in an update", newSet(), newSet(gangs), []string{alone}},
		{"placement added", newSet(), newSet(rack), []string{moved}},
		{"placement removed", newSet(rack), newSet(), []string{moved}},
	} {
		got := admission.Warnings(tt.set, tt.old)
		diff := cmp.Diff(tt.want, got, cmpopts.EquateEmpty())
		expect.That(t, diff == "", "%s: (-want +got):\n%s", tt.name, diff)
		for _, warning := range got {
			expect.That(t, len(warning) <= 256, "%s: the API server cuts %d characters: %s", tt.name, len(warning), warning)
		}
	}
}

// An update that makes a name too long is refused.
func TestAScaleThatMakesANameTooLongIsRefused(t *testing.T) {
	name := withName(strings.Repeat("a", 50))
	before := newSet(name, withReplicas(10))
	for text, after := range map[string]*lwsv1.LeaderWorkerSet{
		"replicas": newSet(name, withReplicas(11)), "surge": newSet(name, withReplicas(10), withBudget("1", "1")),
	} {
		faults := (admission.Scheduling{}).ValidateUpdate(after, before)
		expect.That(t, len(faults) == 1 && faults[0].Field == "metadata.name", "%s: %v", text, faults)
	}
}

// The limit is 63 characters less "-" and ten of hash, less the longest index.
func TestANameWithWhichNoPodStartsIsRefused(t *testing.T) {
	for _, tt := range []struct {
		name    string
		limit   int
		changes []change
	}{
		{"without workers", 52, []change{withSize(1)}},
		{"ten groups", 50, []change{withReplicas(10)}},
		{"eleven groups", 49, []change{withReplicas(11)}},
		{"ten and one to spare", 49, []change{withReplicas(10), withBudget("0", "1%")}},
		{"surge beyond replicas", 50, []change{withReplicas(2), withBudget("0", "1000")}},
		{"a million", 45, []change{withReplicas(1000000)}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			fits := newSet(append(tt.changes, withName(strings.Repeat("a", tt.limit)))...)
			checkFaults(t, admission.Scheduling{}.ValidateCreate(fits), nil)
			exceeds := newSet(append(tt.changes, withName(strings.Repeat("a", tt.limit+1)))...)
			faults := admission.Scheduling{}.ValidateCreate(exceeds)
			if len(faults) != 1 || faults[0].Field != "metadata.name" || !strings.Contains(faults[0].Error(), fmt.Sprintf("use at most %d ", tt.limit)) {
				t.Errorf("%d characters: %v", tt.limit+1, faults)
			}
			// A stored set is changed and scaled all the same, with a warning.
			for _, change := range []change{func(*lwsv1.LeaderWorkerSet) {}, withReplicas(2_000), withReplicas(0)} {
				after := newSet(append(tt.changes, withName(exceeds.Name), withBudget("1", "0"), change)...)
				checkFaults(t, admission.Scheduling{}.ValidateUpdate(after, exceeds), nil)
			}
			if got := admission.Warnings(exceeds, exceeds); len(got) != 1 || !strings.HasPrefix(got[0], "metadata.name: has ") {
				t.Errorf("%d characters: got %q, want one warning", tt.limit+1, got)
			}
		})
	}
}

// Each line of the file is an annotation, and what the warning of it names.
func TestAnnotationsThatDoNothingAreWarnedOf(t *testing.T) {
	text := expect.Value(os.ReadFile(filepath.Join("testdata", "idle-annotations.txt")))(t)
	for line := range strings.Lines(string(text)) {
		key, want, _ := strings.Cut(strings.TrimSpace(line), " ")
		set := newSet(withAnnotation(key, "true"))
		warnings := admission.Warnings(set, nil)
		if len(warnings) != 1 || !strings.HasPrefix(warnings[0], "metadata.annotations["+key+"]: ") || !strings.Contains(warnings[0], want) || len(warnings[0]) > 256 {
			t.Errorf("%s: %q, want one short warning with %s", key, warnings, want)
		}
		expect.Emptyf(t, admission.Warnings(newSet(withAnnotation(key, "true"), withReplicas(5)), set), "%s: an update repeats", key)
		later := admission.Warnings(set, newSet())
		expect.Equalf(t, 1, len(later), "%s: an update that adds it is told %q", key, later)
	}
}

func TestAnnotationsOfSetsAndOfOthersAreNotWarnedOf(t *testing.T) {
	for _, key := range []string{
		lwsv1.PausedAnnotationKey, lwsv1.UndoAnnotationKey, lwsv1.HistoryLimitAnnotationKey, "lockstep.dev/restart-backoff",
		lwsv1.RecreateGroupAfterStartAnnotationKey, lwsv1.GroupRestartCountsAnnotationKey, lwsv1.ExclusiveKeyAnnotationKey,
		lwsv1.SubGroupExclusiveKeyAnnotationKey, lwsv1.GangSchedulerAnnotationKey, lwsv1.GroupTemplateNameAnnotationKey,
		"kubernetes.io/change-cause", "example.com/paused", "not-lockstep.dev/paused", "paused", "xlockstep.dev/pause",
	} {
		expect.Emptyf(t, admission.Warnings(newSet(withAnnotation(key, "")), nil), "%s", key)
	}
}

func TestFewOfManyUnknownAnnotationsAreNamed(t *testing.T) {
	set := newSet()
	set.Annotations = map[string]string{}
	set.Annotations["lockstep.dev/"+strings.Repeat("a", 1<<20)] = "" // the API server has not checked it
	for i := range 10_000 {
		set.Annotations[fmt.Sprintf("lockstep.dev/key-%d", i)] = ""
	}
	if warnings := admission.Warnings(set, nil); len(warnings) == 0 || len(warnings) > 10 {
		t.Errorf("%d warnings", len(warnings))
	} else if len(warnings[0]) > 256 {
		t.Errorf("a warning has %d bytes", len(warnings[0]))
	}
}

var update = flag.Bool("update", false, "write docs/annotations.md, and the files of testdata")

// The page is the frame in testdata with the lines of the table: go test ./internal/lws/admission -run TestPageOfKeys -update.
func TestPageOfKeys(t *testing.T) {
	frame := expect.Value(os.ReadFile(filepath.Join("testdata", "annotations.md.tmpl")))(t)
	table := expect.Value(os.ReadFile("keys.txt"))(t)
	parts := map[string]string{}
	for line := range strings.Lines(string(table)) {
		row := strings.Split(strings.TrimSpace(line), " | ")
		expect.Must(t, len(row) == 5, "%d columns in %q", len(row), line)
		key := fmt.Sprintf("%s `%s`", row[1], row[2])
		if row[0] == "set" {
			key = fmt.Sprintf("`%s`", row[2])
		}
		parts[row[0]] += fmt.Sprintf("| %s | %s | %s |\n", key, row[3], row[4])
	}
	page := string(frame)
	for part, rows := range parts {
		page = strings.Replace(page, "{{"+part+"}}\n", rows, 1)
	}
	file := filepath.Join("..", "..", "..", "docs", "annotations.md")
	if *update {
		expect.OK(t, os.WriteFile(file, []byte(page), 0o644))
	}
	written := string(expect.Value(os.ReadFile(file))(t))
	expect.Equalf(t, page, written, "docs/annotations.md is not what the table says: run this test with -update")
}
