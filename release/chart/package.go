// Package chart packages the Helm chart.
//
// It knows what a release writes into the chart. It refuses to know what a value does: that is in the templates. Its tests
// make schema and table of values from the comments of values.yaml, so that the three cannot differ.
package chart

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"time"

	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/chart/v2/util"
)

// Release is what a packaged chart says of itself.
type Release struct {
	// Version of Lockstep, as v1.2.3.
	Version string
	// Image is the default image, HOST/NAME[:TAG][@DIGEST]. If empty, the user must name one.
	Image string
	// Created is the time of every file.
	Created time.Time
}

// Package writes the archive of a chart as "helm package" does, and returns its path. The same files and release give
// the same bytes.
func (r Release) Package(dir, out string) (string, error) {
	chart, err := loader.Load(dir)
	if err != nil {
		return "", err
	}
	chart.Metadata.Version, chart.Metadata.AppVersion = strings.TrimPrefix(r.Version, "v"), r.Version
	chart.ModTime, chart.SchemaModTime = r.Created, r.Created
	for _, file := range slices.Concat(chart.Raw, chart.Templates, chart.Files) {
		file.ModTime = r.Created
		if file.Name != util.ValuesfileName {
			continue
		}
		if file.Data, err = r.withImage(file.Data); err != nil {
			return "", err
		}
	}
	return util.Save(chart, out)
}

// withImage writes the image into values.yaml, which names none.
func (r Release) withImage(values []byte) ([]byte, error) {
	repository, digest, _ := strings.Cut(r.Image, "@")
	tag := ""
	if i := strings.LastIndex(repository, ":"); i > strings.LastIndex(repository, "/") {
		repository, tag = repository[:i], repository[i+1:]
	}
	for key, value := range map[string]string{"repository": repository, "tag": tag, "digest": digest} {
		none := fmt.Appendf(nil, "\n  %s: \"\"\n", key)
		if n := bytes.Count(values, none); n != 1 {
			return nil, fmt.Errorf("%s: want one line with an empty %s, not %d", util.ValuesfileName, key, n)
		}
		values = bytes.Replace(values, none, fmt.Appendf(nil, "\n  %s: %q\n", key, value), 1)
	}
	return values, nil
}
