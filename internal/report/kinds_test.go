package report

import (
	"strings"
	"testing"

	"github.com/go-logr/logr/funcr"
	dto "github.com/prometheus/client_model/go"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"lockstep.dev/lockstep/internal/pvc"
)

func TestAKindAstrayIsToldOnceAndCounted(t *testing.T) {
	var lines []string
	tell := NewKinds(funcr.New(func(_, line string) { lines = append(lines, line) }, funcr.Options{}))
	v1 := schema.GroupVersion{Group: "example.com", Version: "v1"}
	shard := pvc.Described{Kind: pvc.Kind{GroupVersionKind: v1.WithKind("Shard"), Templates: []string{"spec.x"}}}
	for _, step := range []struct {
		edit  func()
		count float64
		line  string
	}{
		{func() {}, 1, "is not served"},
		{func() {}, 1, ""},
		{func() { shard.As = v1 }, 0, "is read as it is described"},
		{func() { shard.Workloads = 1 }, 1, `\"spec.x\" to a pod template`},
		{func() { shard.Workloads = 2 }, 1, ""},
		{func() { shard.Found = map[string]bool{`"spec.x" to a pod template`: true} }, 0, "is read as it is described"},
	} {
		lines = nil
		step.edit()
		tell.Looked([]pvc.Described{shard})
		var metric dto.Metric
		if err := kindsAstray.Write(&metric); err != nil || metric.GetGauge().GetValue() != step.count {
			t.Errorf("%q: counts %v, want %v", step.line, metric.GetGauge().GetValue(), step.count)
		}
		if said := strings.Join(lines, "\n"); (said == "") != (step.line == "") || !strings.Contains(said, step.line) {
			t.Errorf("told %q, want %q", said, step.line)
		}
	}
}
