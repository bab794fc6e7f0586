package monitoring

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

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
type server struct{ url string }

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
	s := &server{url: "http://" + address}
	if err := reaper.Note("operator", log.Name(), strconv.Itoa(cmd.Process.Pid)); err != nil {
		return nil, err
	}
	for deadline := time.Now().Add(drill.Patience); ; time.Sleep(50 * time.Millisecond) {
		answer, err := http.Get(s.url + "/-/ready")
		if err == nil {
			answer.Body.Close()
			if answer.StatusCode == http.StatusOK {
				return s, nil
			}
		}
		if time.Now().After(deadline) {
			return nil, fmt.Errorf("prometheus is not ready: %w\n%s", err, drill.LastLines(log.Name(), 20))
		}
	}
}

// series is one series of an answer. An instant query has one point.
type series struct {
	Labels map[string]string `json:"metric"`
	Value  point
	Values []point
}

// point is a time and a value, as Prometheus encodes them.
type point struct{ at, value float64 }

// UnmarshalJSON implements json.Unmarshaler.
func (p *point) UnmarshalJSON(text []byte) error {
	var value string
	if err := json.Unmarshal(text, &[]any{&p.at, &value}); err != nil {
		return err
	}
	var err error
	p.value, err = strconv.ParseFloat(value, 64)
	return err
}

// get reads a path of the API into data.
func (s *server) get(path string, values url.Values, data any) error {
	answer, err := http.Get(s.url + "/api/v1/" + path + "?" + values.Encode())
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	var body struct {
		Status, Error string
		Data          json.RawMessage
	}
	if err := json.NewDecoder(answer.Body).Decode(&body); err != nil {
		return err
	}
	if body.Status != "success" {
		return errors.New(body.Error)
	}
	return json.Unmarshal(body.Data, data)
}

// query returns the series of an instant query that have a value now.
func (s *server) query(expression string) ([]series, error) {
	var data struct{ Result []series }
	err := s.get("query", url.Values{"query": {expression}}, &data)
	return data.Result, err
}

// history returns the series of a query since a time, at some 60 points.
func (s *server) history(expression string, since time.Time) ([]series, error) {
	now := time.Now()
	step := max(1, int(now.Sub(since).Seconds())/60)
	var data struct{ Result []series }
	err := s.get("query_range", url.Values{
		"query": {expression}, "start": {fmt.Sprint(since.Unix())}, "end": {fmt.Sprint(now.Unix())}, "step": {fmt.Sprint(step)},
	}, &data)
	for i := range data.Result { // such as the quantile of a time without observations
		data.Result[i].Values = slices.DeleteFunc(data.Result[i].Values, func(p point) bool { return math.IsNaN(p.value) })
	}
	return slices.DeleteFunc(data.Result, func(s series) bool { return len(s.Values) == 0 }), err
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
	var types map[string][]struct{ Type string }
	if err := s.get("metadata", nil, &types); err != nil {
		t.Fatal(err)
	}
	all, err := s.query(`{__name__=~"lockstep_.*"}`)
	if err != nil {
		t.Fatal(err)
	}
	metrics := readMetrics(t)
	for _, one := range all {
		name := one.Labels["__name__"]
		m, known := familyOf(metrics, name)
		if !known {
			t.Errorf("%s is served and not in docs/metrics.md", name)
		}
		for label := range one.Labels {
			if !slices.Contains([]string{"__name__", "job", "instance", "cluster"}, label) && !slices.Contains(m.labels, label) {
				t.Errorf("%s has the label %s, which docs/metrics.md lacks", name, label)
			}
		}
		if told := types[name]; len(told) > 0 && told[0].Type != m.kind {
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
	var data struct {
		Groups []struct {
			Rules []struct{ Name, Health, LastError string }
		}
	}
	if err := s.get("rules", nil, &data); err != nil {
		t.Fatal(err)
	}
	for _, group := range data.Groups {
		for _, rule := range group.Rules {
			if rule.Health != "ok" {
				t.Errorf("alert %s is %s: %s", rule.Name, rule.Health, rule.LastError)
			}
		}
	}
	if len(data.Groups) == 0 {
		t.Error("prometheus has no alerts")
	}
}
