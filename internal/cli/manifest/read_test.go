package manifest_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/cli/manifest"
)

var now = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

const head = "apiVersion: leaderworkerset.x-k8s.io/v1\nkind: LeaderWorkerSet\n"

// minimal is a set with these further lines of spec.
func minimal(spec string) string {
	return head + "metadata: {name: a}\nspec:\n  leaderWorkerTemplate: {workerTemplate: {spec: {containers: [{name: c, image: i}]}}}\n" + spec
}

func read(t *testing.T, text string) ([]manifest.Set, []string, error) {
	t.Helper()
	return manifest.Read(t.Context(), "-", strings.NewReader(text), "here")
}

func one(t *testing.T, text string) manifest.Set {
	t.Helper()
	sets, _, err := read(t, text)
	if err != nil || len(sets) != 1 {
		t.Fatalf("got %d sets, %v", len(sets), err)
	}
	return sets[0]
}

func TestRubbishIsRefusedWithWhatAndWhere(t *testing.T) {
	tests := []struct{ name, text, want string }{
		{"nothing", "", "holds no LeaderWorkerSet"},
		{"comments", "# one\n---\n# two\n", "holds no LeaderWorkerSet"},
		{"a word", "hello", "line 1: not an object"},
		{"a list", "- a\n- b", "line 1: not an object"},
		{"no kind", "{}", "an object without a kind"},
		{"another kind", "apiVersion: v1\nkind: Pod\nmetadata: {name: p}", `Pod "p" is not a LeaderWorkerSet`},
		{"another version", strings.Replace(minimal(""), "/v1\n", "/v1beta1\n", 1), `apiVersion "leaderworkerset.x-k8s.io/v1beta1" is not served`},
		{"broken", "# fine\n---\n\nkind: a: b", "line 4"},
		{"a key twice", minimal("  replicas: 1\n  replicas: 2\n"), `"replicas" already set`},
		{"binary", "\x00\x01\xff", "not YAML"},
		{"no name", head + "spec: {leaderWorkerTemplate: {workerTemplate: {spec: {containers: [{name: c, image: i}]}}}}", "metadata.name is missing"},
		{"an unknown field", "---\n---\n" + minimal("  replica: 3\n"), `line 3: unknown field "spec.replica"`},
		{"an unknown field of a pod", strings.Replace(minimal(""), "image: i", "imagee: i", 1), `unknown field "spec.leaderWorkerTemplate.workerTemplate.spec.containers[0].imagee"`},
		{"a word for a number", minimal("  replicas: three\n"), `spec.replicas: Invalid value: "string"`},
		{"a list for a map", head + "metadata: {name: a}\nspec: []", "spec: Invalid value"},
		{"a scalar list", "apiVersion: v1\nkind: List\nitems: [1]", "items"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, _, err := read(t, tt.text)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want it to say %q", err, tt.want)
			}
		})
	}
}

func TestFilesThatCannotBeReadAreNamed(t *testing.T) {
	dir := t.TempDir()
	for _, path := range []string{dir, filepath.Join(dir, "none.yaml")} {
		if _, _, err := manifest.Read(t.Context(), path, nil, "here"); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("got %v, want it to name %q", err, path)
		}
	}
	large := filepath.Join(dir, "large.yaml")
	if err := os.WriteFile(large, make([]byte, 17<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := manifest.Read(t.Context(), large, nil, "here"); err == nil || !strings.Contains(err.Error(), "larger than 16 MiB") {
		t.Errorf("got %v", err)
	}
}

func TestSeveralDocumentsAndLists(t *testing.T) {
	text := minimal("") + "---\napiVersion: v1\nkind: Service\nmetadata: {name: s}\n---\n" +
		`{"apiVersion": "v1", "kind": "List", "items": [{"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet",
		  "metadata": {"name": "b", "namespace": "there"}, "spec": {"leaderWorkerTemplate": {"workerTemplate": {"spec": {"containers": [{"name": "c", "image": "i"}]}}}}}]}`
	sets, skipped, err := read(t, text)
	if err != nil {
		t.Fatal(err)
	}
	if len(sets) != 2 || sets[0].Set.Namespace != "here" || sets[1].Set.Name != "b" || sets[1].Set.Namespace != "there" {
		t.Errorf("got %+v", sets)
	}
	if len(skipped) != 1 || !strings.Contains(skipped[0], `Service "s"`) {
		t.Errorf("left out %q", skipped)
	}
}

func TestSchemaAndWebhookFillInWhatIsLeftOut(t *testing.T) {
	set, _, err := one(t, minimal("")).Admitted(t.Context(), nil, now)
	if err != nil {
		t.Fatal(err)
	}
	switch spec := set.Spec; {
	case spec.Replicas == nil || *spec.Replicas != 1, spec.StartupPolicy != lwsv1.LeaderCreatedStartupPolicy,
		spec.NetworkConfig == nil, spec.RolloutStrategy.RollingUpdateConfiguration == nil,
		spec.LeaderWorkerTemplate.RestartPolicy != lwsv1.RecreateGroupOnPodRestart:
		t.Errorf("got %+v", spec)
	}
	if set.UID != "" || !set.CreationTimestamp.Time.Equal(now) {
		t.Errorf("a set that is not there is %+v", set.ObjectMeta)
	}
}

func TestWhatAdmissionRefusesIsRefusedWithItsPath(t *testing.T) {
	tests := []struct{ name, text, want string }{
		{"by the schema", minimal("  replicas: -1\n"), "spec.replicas: Invalid value: -1"},
		{"by its enumeration", minimal("  startupPolicy: Later\n"), `spec.startupPolicy: Unsupported value: "Later"`},
		{"by its rules", strings.Replace(minimal(""), "name: a", "name: 1st", 1), "metadata.name"},
		{"by the webhook", strings.Replace(minimal(""), "{workerTemplate", "{size: 0, workerTemplate", 1), "spec.leaderWorkerTemplate.size"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, _, err := one(t, tt.text).Admitted(t.Context(), nil, now)
			if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), "standard input, line 1") {
				t.Errorf("got %v, want it to say %q", err, tt.want)
			}
		})
	}
}

func TestOverALivingSet(t *testing.T) {
	live, _, err := one(t, minimal("  replicas: 2\n")).Admitted(t.Context(), nil, now)
	if err != nil {
		t.Fatal(err)
	}
	live.UID, live.ResourceVersion, live.Generation = "uid", "42", 3
	live.Labels = map[string]string{"mine": "kept"}
	live.Status.ReadyReplicas = 2
	same, _, err := one(t, minimal("  replicas: 2\n")).Admitted(t.Context(), live, now)
	if err != nil || same.Generation != 3 || same.UID != "uid" || same.ResourceVersion != "42" || same.Labels["mine"] != "kept" || same.Status.ReadyReplicas != 2 {
		t.Errorf("the same spec: %v, got %+v", err, same)
	}
	more, _, err := one(t, minimal("  replicas: 5\n")).Admitted(t.Context(), live, now)
	if err != nil || *more.Spec.Replicas != 5 || more.Generation != 4 {
		t.Errorf("more replicas: %v, got %+v", err, more)
	}
	if *live.Spec.Replicas != 2 {
		t.Error("the living set was changed")
	}
}

func TestWhatAFileDoesNotNameStaysAsKubectlAppliesIt(t *testing.T) {
	withImage := func(image, spec string) string { return strings.Replace(minimal(spec), "image: i", "image: "+image, 1) }
	for _, tt := range []struct {
		name, last, file string
		want             int32
		paused           bool
	}{
		{"a number that nobody applied", "{}", withImage("new", ""), 5, true},
		{"a number that was never applied, nothing being known of an apply", "", withImage("new", ""), 5, true},
		{"a number that was applied once, and is not any more", `{"spec":{"replicas":5}}`, withImage("new", ""), 1, true},
		{"a number that the file takes back to its default", "{}", withImage("new", "  replicas: null\n"), 1, true},
		{"a number that the file says", "{}", withImage("new", "  replicas: 2\n"), 2, true},
		{"a pause that was applied once, and is not any more", `{"metadata":{"annotations":{"lockstep.dev/paused":"true"}}}`, withImage("new", ""), 5, false},
		{"rubbish", "rubbish", withImage("new", ""), 5, true},
		{"a pause that kubectl, which always names annotations, did not apply", `{"metadata":{"annotations":{},"name":"a"},"spec":{}}`, withImage("new", ""), 5, true},
		{"a pause that was applied once, beside nothing else",
			`{"metadata":{"annotations":{"lockstep.dev/paused":"true"},"labels":{"x":"y"}}}`, withImage("new", ""), 5, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			live, _, err := one(t, withImage("old", "  replicas: 5\n")).Admitted(t.Context(), nil, now)
			if err != nil {
				t.Fatal(err)
			}
			live.UID, live.ResourceVersion, live.Generation = "uid", "42", 3
			live.Annotations = map[string]string{lwsv1.PausedAnnotationKey: "true"}
			if tt.last != "" {
				live.Annotations["kubectl.kubernetes.io/last-applied-configuration"] = tt.last
			}
			set, _, err := one(t, tt.file).Admitted(t.Context(), live, now)
			if err != nil {
				t.Fatal(err)
			}
			image := set.Spec.LeaderWorkerTemplate.WorkerTemplate.Spec.Containers[0].Image
			if *set.Spec.Replicas != tt.want || image != "new" || set.Generation != 4 || (set.Annotations[lwsv1.PausedAnnotationKey] == "true") != tt.paused {
				t.Errorf("got %d groups of image %s, generation %d, annotations %v", *set.Spec.Replicas, image, set.Generation, set.Annotations)
			}
		})
	}
}

// The subgroup size can never be changed: only the update is refused.
func TestAChangeThatIsRefused(t *testing.T) {
	grouped := func(size string) string {
		return strings.Replace(minimal(""), "{workerTemplate", "{size: 4, subGroupPolicy: {subGroupSize: "+size+"}, workerTemplate", 1)
	}
	live, _, err := one(t, grouped("2")).Admitted(t.Context(), nil, now)
	if err != nil {
		t.Fatal(err)
	}
	live.UID = "uid"
	if _, _, err := one(t, grouped("4")).Admitted(t.Context(), nil, now); err != nil {
		t.Errorf("a new set: %v", err)
	}
	if _, _, err := one(t, grouped("4")).Admitted(t.Context(), live, now); err == nil || !strings.Contains(err.Error(), "immutable") {
		t.Errorf("got %v", err)
	}
}

// withLimit is a set whose workers may take this much, as YAML.
func withLimit(cpu string) string {
	return strings.Replace(minimal(""), "image: i", "image: i, resources: {limits: {cpu: "+cpu+"}}", 1)
}

func TestCostlyQuantitiesAreRefused(t *testing.T) {
	for _, cpu := range []string{`"1e-2147483647"`, `"1e2147483647"`, `"0e-2147483648"`, `"\u0031e-2147483647"`} {
		_, _, err := read(t, withLimit(cpu))
		want := "spec.leaderWorkerTemplate.workerTemplate.spec.containers[0].resources.limits.cpu: Invalid value"
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want it to say %q", cpu, err, want)
		}
	}
}

func TestManyDocumentsNameTheirLines(t *testing.T) {
	text := strings.Repeat("# nothing\n---\n", 50_000)
	if _, _, err := read(t, text+minimal("  replicas: 1\n  replicas: 2\n")); err == nil || !strings.Contains(err.Error(), "line 100007") {
		t.Errorf("got %v", err)
	}
}

func TestBlankLinesOfATextAreReadOnce(t *testing.T) {
	text := "a: \"\n" + strings.Repeat(" \n", 1<<20) + "\""
	if _, _, err := read(t, text); err == nil || !strings.Contains(err.Error(), "line 1: an object without a kind") {
		t.Errorf("got %v", err)
	}
}

// Whatever a file holds, it is read or refused.
func FuzzRead(f *testing.F) {
	f.Add(minimal(""))
	for _, cpu := range []string{`"1e-2147483647"`, "1e-2147483647", `"1e2147483647"`, `"0e-2147483648"`, `"\u0031e-2147483647"`} {
		f.Add(withLimit(cpu))
	}
	f.Add("---\n- {}\n---\nkind: List\nitems: {}\n")
	f.Fuzz(func(t *testing.T, text string) {
		sets, _, err := manifest.Read(t.Context(), "-", strings.NewReader(text), "here")
		if err != nil {
			return
		}
		for _, set := range sets {
			_, _, _ = set.Admitted(t.Context(), nil, now)
		}
	})
}

func TestExamplesWouldBeAdmitted(t *testing.T) {
	files, err := filepath.Glob("../../../examples/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no examples: %v", err)
	}
	for _, file := range files {
		sets, _, err := manifest.Read(t.Context(), file, nil, "default")
		if err != nil {
			t.Fatal(err)
		}
		for _, set := range sets {
			if _, warnings, err := set.Admitted(t.Context(), nil, now); err != nil || len(warnings) > 0 {
				t.Errorf("%s: %v, warnings %q", file, err, warnings)
			}
		}
	}
}
