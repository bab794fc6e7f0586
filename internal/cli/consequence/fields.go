package consequence

import (
	"encoding/json"
	"maps"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"lockstep.dev/lockstep/internal/cli/diff"
)

// confidential are paths whose values may be secrets: values of env, a list of env as a whole, and references to Secrets.
var confidential = regexp.MustCompile(`(?i)\.env(\[.*\])?(\.value)?$|secret`)

// changes are the fields that differ.
func changes(before, after map[string]any, showValues bool) (found []Change) {
	for _, change := range diff.Changes(before, after) {
		c := Change{Change: change}
		isHidden := confidential.MatchString(c.Path) || strings.Contains(valueText(c.From)+valueText(c.To), "secret")
		if isHidden && !showValues {
			c.Hidden, c.From, c.To = true, nil, nil
		}
		found = append(found, c)
	}
	return found
}

// fieldsOf has the labels, annotations and spec of an object, without what kubectl apply keeps: it repeats the file.
func fieldsOf(object metav1.Object, spec any) (fields map[string]any) {
	annotations := maps.Clone(object.GetAnnotations())
	delete(annotations, corev1.LastAppliedConfigAnnotation)
	raw, _ := json.Marshal(map[string]any{"labels": object.GetLabels(), "annotations": annotations, "spec": spec})
	_ = json.Unmarshal(raw, &fields) // an object of a cluster is always encoded
	return fields
}

// valueText shows the value of a field.
func valueText(value any) string {
	var text strings.Builder
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(value) // it was decoded from JSON
	return strings.TrimSpace(text.String())
}
