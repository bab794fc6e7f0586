package monitoring

import (
	"context"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/prometheus/client_golang/api"
	promv1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"

	"lockstep.dev/lockstep/test/drill"
)

// programs is the directory of prometheus and promtool, or empty.
var programs = os.Getenv("LOCKSTEP_MONITORING")

// settings scrape the operator every second. The interval of rules is that of scrapes: pending alerts are seen soon.
const settings = `
global: {scrape_interval: 1s, evaluation_interval: 1s}
rule_files: [%q]
scrape_configs:
- job_name: lockstep
  honor_labels: true
  static_configs: [{targets: ["127.0.0.1:%d"], labels: {cluster: drill}}]
`

// server is a Prometheus on a loopback address.
type server struct{ promv1.API }

// startPrometheus starts a Prometheus that scrapes a port, and returns when it is ready.
func startPrometheus(dir string, reaper *drill.Reaper, scraped int) (*server, error) {
	ports, err := drill.FreePorts(1)
	if err != nil {
		return nil, err
	}
	alerts, err := filepath.Abs(alertsFile)
	if err != nil {
		return nil, err
	}
	config := filepath.Join(dir, "prometheus.yaml")
	if err := os.WriteFile(config, fmt.Appendf(nil, settings, alerts, scraped), 0o600); err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(dir, "prometheus.log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	address := "127.0.0.1:" + strconv.Itoa(ports[0])
	cmd := exec.Command(filepath.Join(programs, "prometheus"), "--config.file="+config,
		"--storage.tsdb.path="+filepath.Join(dir, "tsdb"), "--web.listen-address="+address)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	if err := reaper.Note("operator", log.Name(), strconv.Itoa(cmd.Process.Pid)); err != nil {
		return nil, err
	}
	client, err := api.NewClient(api.Config{Address: "http://" + address})
	if err != nil {
		return nil, err
	}
	s := &server{promv1.NewAPI(client)}
	for deadline := time.Now().Add(drill.Patience); ; time.Sleep(50 * time.Millisecond) {
		if _, err = s.Buildinfo(context.Background()); err == nil {
			return s, nil
		}
		if time.Now().After(deadline) {
			return nil, fmt.Errorf("prometheus is not ready: %w\n%s", err, drill.LastLines(log.Name(), 20))
		}
	}
}

// query returns the series of an instant query that have a value now.
func (s *server) query(expression string) (model.Vector, error) {
	found, _, err := s.Query(context.Background(), expression, time.Now())
	series, _ := found.(model.Vector)
	return series, err
}

// history returns the series of a query since a time, at some 60 points.
func (s *server) history(expression string, since time.Time) (model.Matrix, error) {
	now := time.Now()
	span := promv1.Range{Start: since, End: now, Step: max(time.Second, now.Sub(since)/60)}
	found, _, err := s.QueryRange(context.Background(), expression, span)
	series, _ := found.(model.Matrix)
	for _, one := range series { // such as the quantile of a time without observations
		one.Values = slices.DeleteFunc(one.Values, func(p model.SamplePair) bool { return math.IsNaN(float64(p.Value)) })
	}
	return slices.DeleteFunc(series, func(s *model.SampleStream) bool { return len(s.Values) == 0 }), err
}

// TestRules runs the tests of the alerts.
func TestRules(t *testing.T) {
	needPrograms(t)
	for _, args := range [][]string{{"check", "rules", alertsFile}, {"test", "rules", "rules.yaml"}} {
		if out, err := exec.Command(filepath.Join(programs, "promtool"), args...).CombinedOutput(); err != nil {
			t.Errorf("promtool %v: %v\n%s", args, err, out)
		}
	}
}

func needPrograms(t *testing.T) {
	t.Helper()
	if programs == "" {
		t.Skip("make monitoring runs this test: it needs prometheus, promtool and a local control plane")
	}
}

// checkScraped checks that every metric of Lockstep in Prometheus is in the table, with its type and labels.
func (s *server) checkScraped(t *testing.T) {
	t.Helper()
	types, err := s.Metadata(t.Context(), "", "")
	must(t, err)
	all, err := s.query(`{__name__=~"lockstep_.*"}`)
	must(t, err)
	metrics := readMetrics(t)
	for _, one := range all {
		name := string(one.Metric[model.MetricNameLabel])
		m, known := familyOf(metrics, name)
		if !known {
			t.Errorf("%s is served and not in docs/metrics.md", name)
		}
		for label := range one.Metric {
			if !slices.Contains([]string{"__name__", "job", "instance", "cluster"}, string(label)) && !slices.Contains(m.labels, string(label)) {
				t.Errorf("%s has the label %s, which docs/metrics.md lacks", name, label)
			}
		}
		if told := types[name]; len(told) > 0 && string(told[0].Type) != m.kind {
			t.Errorf("%s is a %s, and by docs/metrics.md a %s", name, told[0].Type, m.kind)
		}
	}
	if len(all) < 50 {
		t.Errorf("only %d series of Lockstep are scraped", len(all))
	}
}

// checkRules checks that Prometheus evaluates every alert without an error.
func (s *server) checkRules(t *testing.T) {
	t.Helper()
	found, err := s.Rules(t.Context(), nil)
	must(t, err)
	for _, group := range found.Groups {
		for _, rule := range group.Rules {
			if alert, ok := rule.(promv1.AlertingRule); !ok || alert.Health != promv1.RuleHealthGood {
				t.Errorf("alert %+v", rule)
			}
		}
	}
	if len(found.Groups) == 0 {
		t.Error("prometheus has no alerts")
	}
}
