package admission_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/lws/admission"
)

// Each line of the file is an annotation, and what the warning of it names.
func TestAnnotationsThatDoNothingAreWarnedOf(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("testdata", "idle-annotations.txt"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		key, want, _ := strings.Cut(strings.TrimSpace(line), " ")
		set := newSet(withAnnotation(key, "true"))
		warnings := admission.Warnings(set, nil)
		if len(warnings) != 1 || !strings.HasPrefix(warnings[0], "metadata.annotations["+key+"]: ") || !strings.Contains(warnings[0], want) || len(warnings[0]) > 256 {
			t.Errorf("%s: %q, want one short warning with %s", key, warnings, want)
		}
		if again := admission.Warnings(newSet(withAnnotation(key, "true"), withReplicas(5)), set); len(again) > 0 {
			t.Errorf("%s: an update repeats %q", key, again)
		}
		if later := admission.Warnings(set, newSet()); len(later) != 1 {
			t.Errorf("%s: an update that adds it is told %q", key, later)
		}
	}
}

func TestAnnotationsOfSetsAndOfOthersAreNotWarnedOf(t *testing.T) {
	for _, key := range []string{
		lwsv1.PausedAnnotationKey, lwsv1.UndoAnnotationKey, lwsv1.HistoryLimitAnnotationKey, "lockstep.dev/restart-backoff",
		lwsv1.RecreateGroupAfterStartAnnotationKey, lwsv1.GroupRestartCountsAnnotationKey, lwsv1.ExclusiveKeyAnnotationKey,
		lwsv1.SubGroupExclusiveKeyAnnotationKey, lwsv1.GangSchedulerAnnotationKey, lwsv1.GroupTemplateNameAnnotationKey,
		"kubernetes.io/change-cause", "example.com/paused", "not-lockstep.dev/paused", "paused", "xlockstep.dev/pause",
	} {
		if warnings := admission.Warnings(newSet(withAnnotation(key, "")), nil); len(warnings) > 0 {
			t.Errorf("%s: %q", key, warnings)
		}
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

var update = flag.Bool("update", false, "write docs/annotations.md, and the faults of testdata")

// The page is the frame in testdata with the lines of the table: go test ./internal/lws/admission -run TestPageOfKeys -update.
func TestPageOfKeys(t *testing.T) {
	frame, err := os.ReadFile(filepath.Join("testdata", "annotations.md.tmpl"))
	if err != nil {
		t.Fatal(err)
	}
	table, err := os.ReadFile("keys.txt")
	if err != nil {
		t.Fatal(err)
	}
	parts := map[string]string{}
	for line := range strings.Lines(string(table)) {
		row := strings.Split(strings.TrimSpace(line), " | ")
		if len(row) != 5 {
			t.Fatalf("%d columns in %q", len(row), line)
		}
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
		if err := os.WriteFile(file, []byte(page), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if written, err := os.ReadFile(file); err != nil || string(written) != page {
		t.Errorf("docs/annotations.md is not what the table says (%v): run this test with -update", err)
	}
}
