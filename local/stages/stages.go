// Package stages holds what kwok does to nodes, pods and volumes, as kwok's own
// configuration.
package stages

import _ "embed"

var (
	//go:embed node.yaml
	node string
	//go:embed pod.yaml
	pod string
	//go:embed volume.yaml
	volume string
)

// All is every stage, as one YAML stream.
func All() string {
	return node + "---\n" + pod + "---\n" + volume
}
