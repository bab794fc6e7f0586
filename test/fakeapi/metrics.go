package fakeapi

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics returns the values of collectors, by name and labels.
func Metrics(t testing.TB, all ...prometheus.Collector) map[string]float64 {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(all...)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]float64{}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			name := strings.TrimPrefix(family.GetName(), "lockstep_")
			for _, label := range m.GetLabel() {
				name += " " + label.GetValue()
			}
			if value := m.GetGauge().GetValue() + m.GetCounter().GetValue(); value != 0 {
				values[name] = value
			}
		}
	}
	return values
}
