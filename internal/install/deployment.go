package install

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// setOperator writes image, arguments and configuration into the Deployment.
func (s shape) setOperator(u *unstructured.Unstructured) error {
	template, found, err := unstructured.NestedMap(u.Object, "spec", "template")
	if err != nil || !found {
		return fmt.Errorf("%s has no pod template: %w", title(u), err)
	}
	containers, _, err := unstructured.NestedSlice(template, "spec", "containers")
	if err != nil {
		return err
	}
	for _, c := range containers {
		if c, ok := c.(map[string]any); ok && c["name"] == containerName {
			s.setContainer(c)
		}
	}
	if err := unstructured.SetNestedSlice(template, containers, "spec", "containers"); err != nil {
		return err
	}
	if len(s.arguments()) > 0 {
		if err := unstructured.SetNestedField(template, s.mark(), "metadata", "labels", configLabel); err != nil {
			return err
		}
	}
	if len(s.Config) > 0 {
		volumes := []any{map[string]any{"name": configMapName, "configMap": map[string]any{"name": configMapName}}}
		if err := unstructured.SetNestedSlice(template, volumes, "spec", "volumes"); err != nil {
			return err
		}
	}
	return unstructured.SetNestedMap(u.Object, template, "spec", "template")
}

func (s shape) setContainer(c map[string]any) {
	c["image"] = s.Image
	args, _ := c["args"].([]any)
	c["args"] = append(args, anys(s.arguments())...)
	if len(s.Config) > 0 {
		c["volumeMounts"] = []any{map[string]any{"name": configMapName, "mountPath": configDir, "readOnly": true}}
	}
}
