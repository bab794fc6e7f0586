// Package stages holds what kwok does to nodes, pods and volumes, as kwok's own configuration.
package stages

import (
	_ "embed"
	"fmt"
	"strings"

	"sigs.k8s.io/kwok/kustomize/stage/pod/fast"
)

var (
	//go:embed node.yaml
	node string
	//go:embed pod.yaml
	pod string
	//go:embed volume.yaml
	volume string
)

// The sets of pod stages that a user can choose.
const (
	// Guarded deletes the pod that was deleted, as a kubelet does. It understands the annotations of the drills.
	Guarded = "guarded"
	// Stock is what kwok ships. It deletes a pod by name, and so may delete the successor of the pod that was deleted.
	Stock = "stock"
)

// Names lists the sets that Config takes.
var Names = []string{Guarded, Stock}

// Config returns every stage as one YAML stream, with the named pod stages.
func Config(name string) (string, error) {
	pods, known := map[string]string{
		Guarded: pod,
		Stock:   join(fast.DefaultPodReady, fast.DefaultPodComplete, fast.DefaultPodDelete),
	}[name]
	if !known {
		return "", fmt.Errorf("unknown stages %q: known are %s", name, strings.Join(Names, ", "))
	}
	return join(node, pods, volume), nil
}

func join(documents ...string) string { return strings.Join(documents, "\n---\n") }
