package report

import (
	"strings"
	"testing"

	"github.com/go-logr/logr/funcr"
	dto "github.com/prometheus/client_model/go"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"lockstep.dev/lockstep/api/config/v1alpha1"
	"lockstep.dev/lockstep/internal/pvc/workloads"
)

func TestAKindAstrayIsToldOnceAndCounted(t *testing.T) {
	var lines []string
	tell := NewKinds(funcr.New(func(_, line string) { lines = append(lines, line) }, funcr.Options{}))
	v1 := schema.GroupVersion{Group: "example.com", Version: "v1"}
	shard := workloads.Described{Kind: workloads.KindOf(v1alpha1.WorkloadKind{APIVersion: "example.com/v1", Kind: "Shard", PodTemplates: []string{"spec.x"}})}
	for _, step := range []struct {
		edit  func()
		count float64
		line  string
	}{
		{func() {}, 1, "is not served"},
		{func() {}, 1, ""},
		{func() { shard.As = v1 }, 0, "is read as it is described"},
		{func() { shard.Workloads = 1 }, 1, "spec.x.spec.containers"},
		{func() { shard.Workloads = 2 }, 1, ""},
		{func() { shard.Found = map[string]bool{"spec.x.spec.containers.*": true} }, 0, "is read as it is described"},
	} {
		lines = nil
		step.edit()
		tell.Looked([]workloads.Described{shard})
		var metric dto.Metric
		if err := kindsAstray.Write(&metric); err != nil || metric.GetGauge().GetValue() != step.count {
			t.Errorf("%q: counts %v, want %v", step.line, metric.GetGauge().GetValue(), step.count)
		}
		if said := strings.Join(lines, "\n"); (said == "") != (step.line == "") || !strings.Contains(said, step.line) {
			t.Errorf("told %q, want %q", said, step.line)
		}
	}
}
