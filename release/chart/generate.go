package chart

import (
	"os"
	"path/filepath"

	"helm.sh/helm/v4/pkg/chart/v2/util"
)

const readmeFile = "README.md"

// Generate returns the files of the chart in a directory that are made from values.yaml, by name.
func Generate(dir string) (map[string][]byte, error) {
	text, err := os.ReadFile(filepath.Join(dir, util.ValuesfileName))
	if err != nil {
		return nil, err
	}
	readme, err := os.ReadFile(filepath.Join(dir, readmeFile))
	if err != nil {
		return nil, err
	}
	all, err := Parse(text)
	if err != nil {
		return nil, err
	}
	schema, err := Schema(all)
	if err != nil {
		return nil, err
	}
	readme, err = WithTable(readme, all)
	return map[string][]byte{util.SchemafileName: schema, readmeFile: readme}, err
}
