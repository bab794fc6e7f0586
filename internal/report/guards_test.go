package report

import (
	"errors"
	"strings"
	"testing"

	"github.com/go-logr/logr/funcr"
	dto "github.com/prometheus/client_model/go"
)

// TestMissingPoliciesAreToldOnceAndCounted: an alert goes by the number, and a log is not
// filled while they stay away.
func TestMissingPoliciesAreToldOnceAndCounted(t *testing.T) {
	var told []string
	g := NewGuards(funcr.New(func(_, args string) { told = append(told, args) }, funcr.Options{}))
	for _, tt := range []struct {
		missing []string
		err     error
		says    string
		count   float64
	}{
		{nil, nil, "", 0},
		{[]string{"refuse-delete"}, nil, `"missing"="refuse-delete"`, 1},
		{[]string{"refuse-delete"}, nil, "", 1},
		{nil, errors.New("forbidden"), "forbidden", 1},
		{nil, errors.New("forbidden"), "", 1},
		{[]string{"refuse-delete", "guard"}, nil, "refuse-delete, guard", 2},
		{nil, nil, "there again", 0},
	} {
		told = nil
		g.Looked(tt.missing, tt.err)
		if said := strings.Join(told, "\n"); (said == "") != (tt.says == "") || !strings.Contains(said, tt.says) {
			t.Errorf("%v, %v: told %q, want %q", tt.missing, tt.err, said, tt.says)
		}
		var metric dto.Metric
		if err := policiesMissing.Write(&metric); err != nil || metric.GetGauge().GetValue() != tt.count {
			t.Errorf("%v, %v: counts %v, want %v", tt.missing, tt.err, metric.GetGauge().GetValue(), tt.count)
		}
	}
}
