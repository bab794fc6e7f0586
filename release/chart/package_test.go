package chart

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	helm3 "helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v4/pkg/chart/v2/loader"

	"lockstep.dev/lockstep/test/expect"
)

// The archive of the same files, written at another time, has the same bytes. Both versions of Helm read it.
func TestPackage(t *testing.T) {
	again := filepath.Join(t.TempDir(), "lockstep")
	expect.OK(t, os.CopyFS(again, os.DirFS(chartDir)))
	release := Release{Version: "v1.2.3-4-gabc", Image: "registry.example:5000/lockstep:v1@sha256:00", Created: time.Unix(1700000000, 0)}
	first, second := pack(t, release, chartDir), pack(t, release, again)
	expect.Must(t, bytes.Equal(first, second), "the archives differ")
	chart := expect.Value(loader.LoadArchive(bytes.NewReader(first)))(t)
	expect.Equal(t, "1.2.3-4-gabc", chart.Metadata.Version)
	expect.Equal(t, "v1.2.3-4-gabc", chart.Metadata.AppVersion)
	image := chart.Values["image"].(map[string]any)
	if image["repository"] != "registry.example:5000/lockstep" || image["tag"] != "v1" || image["digest"] != "sha256:00" {
		t.Errorf("the image is %v", image)
	}
	former, err := helm3.LoadArchive(bytes.NewReader(first))
	expect.That(t, err == nil && len(former.Templates) == len(chart.Templates) && len(former.Files) == len(chart.Files),
		"Helm 3 reads another chart: %v", err)
}

func pack(t *testing.T, release Release, dir string) []byte {
	t.Helper()
	path := expect.Value(release.Package(dir, t.TempDir()))(t)
	return readFile(t, path)
}
