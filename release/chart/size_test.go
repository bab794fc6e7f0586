package chart

import (
	"regexp"
	"strconv"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"lockstep.dev/lockstep/test/expect"
)

// attack is what requests of strangers add to the memory of the operator at most, in MiB (docs/design/0040).
const attack = 256

// budget returns the target of a figure of the bench.
func budget(t *testing.T, figure string) float64 {
	t.Helper()
	file := struct {
		Figures map[string]struct{ Target float64 }
	}{}
	err := yaml.Unmarshal(readFile(t, "../../test/bench/budget.yaml"), &file)
	expect.Must(t, err == nil && file.Figures[figure].Target != 0, "no figure %s: %v", figure, err)
	return file.Figures[figure].Target
}

var sizeRow = regexp.MustCompile(`(?m)^\| ([\d,]+) \| ([0-9]+[GM]i) \|`)

// The memory for each size of a cluster, and so the limit of the chart, holds what the bench allows and what an attack adds.
func TestMemoryLimitHoldsTheBudget(t *testing.T) {
	const benched = 8000 // pods of restart-1000x8
	rows, isDefault := sizeRow.FindAllStringSubmatch(string(readFile(t, "../../docs/how-to/install.md")), -1), false
	expect.Must(t, len(rows) >= 3, "%d rows", len(rows))
	operator := mustRender(t, `{}`)[operatorName]
	containers, _, _ := unstructured.NestedSlice(operator.Object, "spec", "template", "spec", "containers")
	limit, _, _ := unstructured.NestedString(containers[0].(map[string]any), "resources", "limits", "memory")
	for _, row := range rows {
		pods := expect.Value(strconv.Atoi(strings.ReplaceAll(row[1], ",", "")))(t)
		memory, needed := resource.MustParse(row[2]), budget(t, "restart-1000x8.rss-mib")*float64(pods)/benched+budget(t, "release-1000.rss-mib-above-idle")+attack
		least := resource.NewQuantity(int64(needed)<<20, resource.BinarySI)
		expect.That(t, memory.Cmp(*least) >= 0, "%d pods: %s, and %s are needed", pods, row[2], least)
		isDefault = isDefault || row[2] == limit
	}
	expect.That(t, isDefault, "the limit of the chart, %q, has no row", limit)
}
