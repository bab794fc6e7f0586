package plane

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

const moment = `{"at":"2026-11-26T04:36:50Z"}`

// archived writes an archive with files, in the order of their names.
func archived(t *testing.T, files map[string]string) string {
	t.Helper()
	var text bytes.Buffer
	packed := gzip.NewWriter(&text)
	writer := tar.NewWriter(packed)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		must(t, writer.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(files[name]))}))
		if _, err := writer.Write([]byte(files[name])); err != nil {
			t.Fatal(err)
		}
	}
	must(t, writer.Close())
	must(t, packed.Close())
	path := filepath.Join(t.TempDir(), "report.tar.gz")
	must(t, os.WriteFile(path, text.Bytes(), 0o600))
	return path
}

// Objects are stored under the keys at which the API server looks for them.
func TestKeysOfARecording(t *testing.T) {
	r, err := ReadRecording(t.Context(), archived(t, map[string]string{
		"moment.json":                         moment,
		"report.md":                           "text",
		"objects/pods/ns/a-0.json":            "pod",
		"objects/nodes/n.json":                "node",
		"objects/services/ns/a.json":          "service",
		"objects/statefulsets.apps/ns/a.json": "statefulset",
		"objects/leaderworkersets.leaderworkerset.x-k8s.io/ns/a.json":                         "set",
		"objects/" + definitionsKind + "/" + "leaderworkersets.leaderworkerset.x-k8s.io.json": `{"spec":{}}`,
	}))
	must(t, err)
	want := map[string]string{
		"/registry/pods/ns/a-0":                                    "pod",
		"/registry/minions/n":                                      "node",
		"/registry/services/specs/ns/a":                            "service",
		"/registry/statefulsets/ns/a":                              "statefulset",
		"/registry/leaderworkerset.x-k8s.io/leaderworkersets/ns/a": "set",
		"/registry/apiextensions.k8s.io/customresourcedefinitions/leaderworkersets.leaderworkerset.x-k8s.io": `{"spec":{}}`,
	}
	if diff := cmp.Diff(want, r.stored); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// etcd refuses a request of more than 1.5 MiB, or of more than 128 writes.
func TestLargeObjectsAreWrittenInSmallerBatches(t *testing.T) {
	for name, tt := range map[string]struct{ objects, size, batches int }{
		"none":          {0, 0, 0},
		"small objects": {250, 10, 3},
		"large pods":    {100, 20 << 10, 2},
		"one MiB each":  {3, 1 << 20, 3},
	} {
		t.Run(name, func(t *testing.T) {
			r := &Recording{stored: map[string]string{}}
			for i := range tt.objects {
				r.stored[fmt.Sprintf("/registry/pods/ns/a-%03d", i)] = strings.Repeat("x", tt.size)
			}
			batches := r.batches()
			if len(batches) != tt.batches {
				t.Errorf("%d batches, want %d", len(batches), tt.batches)
			}
			if diff := cmp.Diff(slices.Sorted(maps.Keys(r.stored)), slices.Concat(batches...)); diff != "" {
				t.Errorf("keys (-want +got)\n%s", diff)
			}
		})
	}
}

func TestWhatIsNoRecordingIsRefused(t *testing.T) {
	for name, files := range map[string]map[string]string{
		"no moment":     {"objects/nodes/n.json": "{}"},
		"no time":       {"moment.json": "{}"},
		"a path upward": {"moment.json": moment, "objects/../../x.json": "{}"},

		// An API server with these sends requests where a stranger wants them.
		"a webhook":                 {"moment.json": moment, "objects/mutatingwebhookconfigurations.admissionregistration.k8s.io/a.json": "{}"},
		"a webhook without group":   {"moment.json": moment, "objects/validatingwebhookconfigurations/a.json": "{}"},
		"a role":                    {"moment.json": moment, "objects/clusterrolebindings.rbac.authorization.k8s.io/a.json": "{}"},
		"a secret":                  {"moment.json": moment, "objects/secrets/ns/a.json": "{}"},
		"a kind without definition": {"moment.json": moment, "objects/apples.example.com/ns/a.json": "{}"},
		"another API server": {"moment.json": moment, "objects/apiservices.apiregistration.k8s.io/v1.json": "{}",
			"objects/" + definitionsKind + "/apiservices.apiregistration.k8s.io.json": "{}"},
		"a definition with a conversion": {"moment.json": moment, "objects/" + definitionsKind + "/a.example.com.json": `{"spec":{"\u0063onversion":{}}}`},
		"a definition that is no JSON":   {"moment.json": moment, "objects/" + definitionsKind + "/a.example.com.json": "k8s\x00"},
	} {
		if _, err := ReadRecording(t.Context(), archived(t, files)); err == nil {
			t.Errorf("%s: it was read", name)
		}
	}
	plain := filepath.Join(t.TempDir(), "plain")
	must(t, os.WriteFile(plain, []byte("text"), 0o600))
	if _, err := ReadRecording(t.Context(), plain); err == nil {
		t.Error("a text was read")
	}
}

func TestTheClockStandsInTheKubeconfig(t *testing.T) {
	path, config := filepath.Join(t.TempDir(), "kubeconfig"), clientcmdapi.NewConfig()
	config.Contexts["local"], config.CurrentContext = clientcmdapi.NewContext(), "local"
	must(t, clientcmd.WriteToFile(*config, path))
	must(t, (&Recording{moment: []byte(moment)}).stopClock(path))
	read, err := clientcmd.LoadFromFile(path)
	must(t, err)
	extension, ok := read.Contexts["local"].Extensions[replayExtension].(*runtime.Unknown)
	if !ok {
		t.Fatalf("got %#v", read.Contexts["local"].Extensions)
	}
	var at struct{ At time.Time }
	if err := json.Unmarshal(extension.Raw, &at); err != nil || at.At.Second() != 50 {
		t.Errorf("got %s, %v", extension.Raw, err)
	}
}
