package integrations

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"lockstep.dev/lockstep/test/expect"
)

// customResources is the part of the configuration of kube-state-metrics that ours uses.
type customResources struct {
	Kind string
	Spec struct {
		Resources []struct {
			GroupVersionKind struct{ Group, Version, Kind string }
			MetricNamePrefix string
			LabelsFromPath   map[string][]string
			Metrics          []metric
		}
	}
}

type metric struct {
	Name, Help string
	Each       struct {
		Type  string
		Gauge gauge
	}
}

type gauge struct {
	Path, ValueFrom []string
	LabelsFromPath  map[string][]string
	NilIsZero       bool
}

// at follows a path, or returns nil.
func at(value any, path []string) any {
	for _, key := range path {
		fields, _ := value.(map[string]any)
		value = fields[key]
	}
	return value
}

// number is a value as kube-state-metrics documents it: truth, time or number.
func number(value any) (float64, error) {
	switch value := value.(type) {
	case float64:
		return value, nil
	case string:
		switch strings.ToLower(value) {
		case "true", "yes":
			return 1, nil
		case "false", "no", "unknown":
			return 0, nil
		}
		when, err := time.Parse(time.RFC3339, value)
		return float64(when.Unix()), err
	}
	return 0, fmt.Errorf("no number: %v", value)
}

// samples stand for kube-state-metrics, which is no library that can be had: they are what its
// documentation says that a gauge yields for an object.
func (g gauge) samples(object map[string]any, labels map[string]string) (map[string]float64, error) {
	found := at(object, g.Path)
	all, isList := found.([]any)
	if !isList && (found != nil || g.NilIsZero) {
		all = []any{found}
	}
	samples := map[string]float64{}
	for _, one := range all {
		value, text := at(one, g.ValueFrom), name(labels, nil)
		if isList {
			own := map[string]string{}
			for label, path := range g.LabelsFromPath {
				own[label] = fmt.Sprint(at(one, path))
			}
			text = name(labels, own)
		}
		if value == nil && g.NilIsZero {
			value = float64(0)
		}
		n, err := number(value)
		if err != nil {
			return nil, fmt.Errorf("%v of %v: %w", g.ValueFrom, one, err)
		}
		if _, twice := samples[text]; twice {
			return nil, fmt.Errorf("%s is there twice", text)
		}
		samples[text] = n
	}
	return samples, nil
}

// name returns labels as Prometheus writes them.
func name(labels, more map[string]string) string {
	var pairs []string
	for _, some := range []map[string]string{labels, more} {
		for label, value := range some {
			pairs = append(pairs, fmt.Sprintf("%s=%q", label, value))
		}
	}
	slices.Sort(pairs)
	return "{" + strings.Join(pairs, ",") + "}"
}

// exported returns every sample of a set.
func exported(t *testing.T, object map[string]any) map[string]float64 {
	t.Helper()
	var config customResources
	read(t, "../../integrations/kube-state-metrics/config.yaml", &config)
	expect.Must(t, config.Kind == "CustomResourceStateMetrics" && len(config.Spec.Resources) == 1,
		"configuration %+v", config)
	resource, labels := config.Spec.Resources[0], map[string]string{}
	if kind := resource.GroupVersionKind; kind.Group+"/"+kind.Version != object["apiVersion"] || kind.Kind != object["kind"] {
		t.Fatalf("configured for %+v", kind)
	}
	for label, path := range resource.LabelsFromPath {
		labels[label] = at(object, path).(string)
	}
	all := map[string]float64{}
	for _, m := range resource.Metrics {
		samples, err := m.Each.Gauge.samples(object, labels)
		expect.Must(t, err == nil && m.Each.Type == "Gauge" && m.Help != "", "%s of type %s: %v", m.Name, m.Each.Type, err)
		for text, value := range samples {
			all[resource.MetricNamePrefix+"_"+m.Name+text] = value
		}
	}
	return all
}

func TestKubeStateMetrics(t *testing.T) {
	var want map[string]float64
	read(t, "testdata/samples.yaml", &want)
	expect.Equal(t, want, exported(t, floats(t, recorded(t, "backing-off").Object)))
	for _, name := range names(t) {
		n := len(exported(t, floats(t, recorded(t, name).Object)))
		expect.That(t, n >= 11, "%s has %d samples", name, n)
	}
	const ready = `kube_leaderworkerset_status_replicas_ready{leaderworkerset="w",namespace="ns"}`
	for _, name := range []string{"new", "not judged at all"} { // a set that no operator has seen
		paused := exported(t, floats(t, edited(t, name).Object))
		expect.Equalf(t, 0, paused[ready], "%s: %v", name, paused)
	}
}
