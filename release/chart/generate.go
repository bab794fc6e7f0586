package chart

import (
	"os"
	"path/filepath"
)

// Files of a chart that are generated from values.yaml.
const (
	valuesFile = "values.yaml"
	schemaFile = "values.schema.json"
	readmeFile = "README.md"
)

// Generate returns the generated files of the chart in a directory, by name.
func Generate(dir string) (map[string][]byte, error) {
	text, err := os.ReadFile(filepath.Join(dir, valuesFile))
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
	return map[string][]byte{schemaFile: schema, readmeFile: readme}, err
}
