package integrations

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"lockstep.dev/lockstep/test/expect"
)

const records = "../../integrations/testdata"

// read reads a YAML file.
func read(t *testing.T, file string, into any) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err == nil {
		err = yaml.Unmarshal(data, into)
	}
	expect.OKf(t, err, "%s", file)
}

// recorded returns a recorded set.
func recorded(t *testing.T, name string) *unstructured.Unstructured {
	t.Helper()
	set := &unstructured.Unstructured{}
	read(t, filepath.Join(records, name+".yaml"), set)
	return set
}

// names are those of all recorded sets.
func names(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(records, "*.yaml"))
	expect.Must(t, err == nil && len(files) > 0, "no records in %s: %v", records, err)
	for i, file := range files {
		files[i] = strings.TrimSuffix(filepath.Base(file), ".yaml")
	}
	return files
}

// edit changes a recorded set to what no record of the operator shows.
type edit = func(set map[string]any)

// edits are of the set that is ready. None of these sets is done.
var edits = map[string]edit{
	"new":          func(set map[string]any) { set["status"] = map[string]any{"observedGeneration": int64(-1)} },
	"not observed": func(set map[string]any) { set["metadata"].(map[string]any)["generation"] = int64(7) },
	"being deleted": func(set map[string]any) {
		set["metadata"].(map[string]any)["deletionTimestamp"] = "2026-01-01T00:00:00Z"
	},
	"not judged at all": func(set map[string]any) { delete(set, "status") },
}

// edited returns the ready set with an edit.
func edited(t *testing.T, name string) *unstructured.Unstructured {
	set := recorded(t, "ready")
	edits[name](set.Object)
	return set
}

func sorted[V any](all map[string]V) []string { return slices.Sorted(maps.Keys(all)) }

func judged(t *testing.T, set *unstructured.Unstructured) status.Status {
	t.Helper()
	result := expect.Value(status.Compute(set))(t)
	return result.Status
}
