package demo

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
)

// Simulated pods take the times of real ones only if they are told to.
const (
	readyKey, readyAfter   = "local.lockstep.dev/ready-after", "2s"
	vanishKey, vanishAfter = "local.lockstep.dev/vanish-after", "4s"
)

// example is what the demo runs: one set, and what stands beside it.
type example struct {
	set    *unstructured.Unstructured
	others []*unstructured.Unstructured
}

func readExample(path string) (example, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return example{}, err
	}
	var e example
	for decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), 4096); ; {
		u := &unstructured.Unstructured{}
		err := decoder.Decode(u)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return e, fmt.Errorf("%s: %w", path, err)
		}
		if u.GroupVersionKind() == lwsv1.GroupVersion.WithKind("LeaderWorkerSet") {
			e.set = u
		} else if u.Object != nil {
			e.others = append(e.others, u)
		}
	}
	if e.set == nil {
		return e, fmt.Errorf("%s holds no LeaderWorkerSet", path)
	}
	return e, e.eachTemplate(slowDown)
}

// eachTemplate changes every pod template of the set.
func (e example) eachTemplate(change func(template map[string]any) error) error {
	for _, name := range []string{"leaderTemplate", "workerTemplate"} {
		path := []string{"spec", "leaderWorkerTemplate", name}
		template, found, err := unstructured.NestedMap(e.set.Object, path...)
		if err != nil {
			return err
		}
		if !found {
			continue
		}
		if err := change(template); err != nil {
			return err
		}
		if err := unstructured.SetNestedMap(e.set.Object, template, path...); err != nil {
			return err
		}
	}
	return nil
}

// slowDown makes simulated pods take a while to get ready and to end.
func slowDown(template map[string]any) error {
	for key, value := range map[string]string{readyKey: readyAfter, vanishKey: vanishAfter} {
		if err := unstructured.SetNestedField(template, value, "metadata", "annotations", key); err != nil {
			return err
		}
	}
	return nil
}

// withImage returns the same set with another image in every container.
func (e example) withImage(image string) (example, error) {
	other := example{set: e.set.DeepCopy(), others: e.others}
	return other, other.eachTemplate(func(template map[string]any) error {
		containers, _, err := unstructured.NestedSlice(template, "spec", "containers")
		if err != nil {
			return err
		}
		for i := range containers {
			if container, ok := containers[i].(map[string]any); ok {
				container["image"] = image
			}
		}
		return unstructured.SetNestedSlice(template, containers, "spec", "containers")
	})
}
