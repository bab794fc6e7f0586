package monitoring

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"lockstep.dev/lockstep/internal/lws"

	"lockstep.dev/lockstep/test/expect"
)

const (
	root       = "../../"
	alertsFile = root + "charts/lockstep/files/alerts.yaml"
	dashboards = root + "charts/lockstep/files/dashboards/"
	pages      = root + "docs/alerts/"
)

// rules is a file of Prometheus rules, or of their tests.
type rules struct {
	Groups []struct {
		Rules []struct {
			Alert, Expr         string
			Labels, Annotations map[string]string
		}
	}
	Tests []struct {
		Cases []struct {
			Alert    string `json:"alertname"`
			Expected []any  `json:"exp_alerts"`
		} `json:"alert_rule_test"`
	}
}

func readRules(t *testing.T, path string) (r rules) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err == nil {
		err = yaml.Unmarshal(text, &r)
	}
	expect.OK(t, err)
	return r
}

// metric is a row of the table in docs/metrics.md, which a test of package report keeps true.
type metric struct {
	kind   string
	labels []string
}

var tableRow = regexp.MustCompile("(?m)^\\| `(lockstep_\\w+)` \\| (\\w+) \\| ([^|]*) \\|")

func readMetrics(t *testing.T) map[string]metric {
	t.Helper()
	text := expect.Value(os.ReadFile(root + "docs/metrics.md"))(t)
	metrics := map[string]metric{}
	for _, row := range tableRow.FindAllStringSubmatch(string(text), -1) {
		metrics[row[1]] = metric{row[2], strings.Split(strings.TrimSpace(row[3]), ", ")}
	}
	return metrics
}

// familyOf returns the metric that a series belongs to: a histogram has three series.
func familyOf(metrics map[string]metric, series string) (metric, bool) {
	if m, ok := metrics[series]; ok {
		return m, m.kind != "histogram"
	}
	for _, suffix := range []string{"_bucket", "_count", "_sum"} {
		if m, ok := metrics[strings.TrimSuffix(series, suffix)]; ok && m.kind == "histogram" {
			m.labels = append(slices.Clone(m.labels), "le")
			return m, true
		}
	}
	return metric{}, false
}

var (
	ours = regexp.MustCompile(`\blockstep_\w+`)
	// bare is an aggregation that keeps no label. grouped are the labels that one keeps, or by which series match.
	bare    = regexp.MustCompile(`\b(?:sum|min|max|avg|count|group)\s*\(`)
	grouped = regexp.MustCompile(`\b(?:by|on) \(([^)]*)\)`)
)

// losesCluster reports whether the answer to a query does not say of which cluster it is.
func losesCluster(expression string) bool {
	return bare.MatchString(expression) || slices.ContainsFunc(grouped.FindAllStringSubmatch(expression, -1),
		func(labels []string) bool { return !slices.Contains(strings.Split(labels[1], ", "), "cluster") })
}

func checkExpression(t *testing.T, where, expression string) {
	t.Helper()
	names, metrics := ours.FindAllString(expression, -1), readMetrics(t)
	expect.That(t, len(names) > 0, "%s asks for no metric of Lockstep: %s", where, expression)
	for _, name := range names {
		_, known := familyOf(metrics, name)
		expect.That(t, known, "%s asks for %s, which does not exist", where, name)
	}
	expect.That(t, !losesCluster(expression), "%s loses the label cluster: %s", where, expression)
}

func TestTheClusterOfASeriesIsLost(t *testing.T) {
	for expression, want := range map[string]bool{
		`sum(a)`: true, `max (a)`: true, `sum by (name) (a)`: true, `a and on (namespace, name) b`: true, `sum by (clusters) (a)`: true,
		`sum by (cluster, name) (a) unless on (cluster) b`: false, `topk(10, sum by (name, cluster) (a))`: false, `max_over_time(a[1m])`: false,
	} {
		expect.Equalf(t, want, losesCluster(expression), "%s loses the cluster", expression)
	}
	queries := regexp.MustCompile("`([^`\n]*lockstep_[^`\n]*)`|(?m)^    (.*lockstep_.*)$")
	found := expect.Value(filepath.Glob(pages + "*.md"))(t)
	for _, page := range append(found, root+"docs/how-to/monitor.md", root+"docs/metrics.md") {
		text := expect.Value(os.ReadFile(page))(t)
		for _, query := range queries.FindAllString(string(text), -1) {
			expect.That(t, !losesCluster(query), "%s: %s loses the label cluster", page, query)
		}
	}
}

func TestEveryAlertHasItsPage(t *testing.T) {
	var names []string
	for _, group := range readRules(t, alertsFile).Groups {
		for _, rule := range group.Rules {
			names = append(names, rule.Alert+".md")
			checkExpression(t, rule.Alert, rule.Expr)
			expect.That(t, strings.HasSuffix(rule.Annotations["runbook_url"], "/docs/alerts/"+rule.Alert+".md"),
				"%s links to %q", rule.Alert, rule.Annotations["runbook_url"])
			if rule.Annotations["summary"] == "" || rule.Annotations["description"] == "" || rule.Labels["severity"] == "" {
				t.Errorf("%s lacks a summary, a description or a severity", rule.Alert)
			}
		}
	}
	found := expect.Value(os.ReadDir(pages))(t)
	var have []string
	for _, page := range found {
		have = append(have, page.Name())
		text := expect.Value(os.ReadFile(pages + page.Name()))(t)
		for _, part := range []string{"# " + strings.TrimSuffix(page.Name(), ".md"), "**What it means.**", "**How to look**", "**What to do"} {
			if !strings.Contains(string(text), part) {
				t.Errorf("%s lacks %q", page.Name(), part)
			}
		}
	}
	slices.Sort(names)
	expect.Equalf(t, names, have, "alerts, and pages of alerts")
}

func TestEveryAlertIsTested(t *testing.T) {
	fires, rests := map[string]bool{}, map[string]bool{}
	for _, test := range readRules(t, "rules.yaml").Tests {
		for _, c := range test.Cases {
			fires[c.Alert] = fires[c.Alert] || len(c.Expected) > 0
			rests[c.Alert] = rests[c.Alert] || len(c.Expected) == 0
		}
	}
	for _, group := range readRules(t, alertsFile).Groups {
		for _, rule := range group.Rules {
			expect.That(t, fires[rule.Alert] && rests[rule.Alert],
				"rules.yaml shows that %s fires: %t, that it rests: %t", rule.Alert, fires[rule.Alert], rests[rule.Alert])
		}
	}
}

// dashboard is what a test reads of a Grafana dashboard.
type dashboard struct {
	UID, Title string
	Panels     []board
}

// board is one panel of a dashboard.
type board struct {
	Title, Type, Description string
	Targets                  []struct {
		Expr         string
		LegendFormat string `json:"legendFormat"`
	}
	Options struct {
		ColorMode string `json:"colorMode"`
	}
	FieldConfig struct {
		Defaults struct {
			Links                []struct{ URL string }
			Thresholds, Mappings json.RawMessage
		}
		Overrides []struct {
			Matcher    struct{ Options string }
			Properties []struct{ ID string }
		}
	} `json:"fieldConfig"`
}

// colours reports whether the panel has a colour for a name in its legend.
func (b board) colours(name string) bool {
	for _, o := range b.FieldConfig.Overrides {
		matches, err := regexp.MatchString("^(/ ?"+name+"\\$/|"+name+")$", o.Matcher.Options)
		if err == nil && matches && len(o.Properties) > 0 && o.Properties[0].ID == "color" {
			return true
		}
	}
	return false
}

// mayBeEmpty reports whether the panel says that it may show nothing.
func (b board) mayBeEmpty() bool { return strings.Contains(b.Description, "Empty ") }

func readDashboards(t *testing.T) map[string]dashboard {
	t.Helper()
	found, err := filepath.Glob(dashboards + "*.json")
	expect.Must(t, err == nil && len(found) == 2, "dashboards %v, %v", found, err)
	all := map[string]dashboard{}
	for _, path := range found {
		var d dashboard
		text, err := os.ReadFile(path)
		if err == nil {
			err = json.Unmarshal(text, &d)
		}
		expect.OKf(t, err, "%s", path)
		all[strings.TrimSuffix(filepath.Base(path), ".json")] = d
	}
	return all
}

func TestDashboardsAskForMetricsThatExist(t *testing.T) {
	for name, d := range readDashboards(t) {
		expect.That(t, d.UID != "" && d.Title != "" && len(d.Panels) > 0,
			"%s has uid %q, title %q and %d panels", name, d.UID, d.Title, len(d.Panels))
		for _, panel := range d.Panels {
			expect.That(t, panel.Description != "" && len(panel.Targets) > 0,
				"%s: panel %q has no description or no query", name, panel.Title)
			for _, target := range panel.Targets {
				checkExpression(t, name+": "+panel.Title, target.Expr)
			}
		}
	}
}

func TestStatesHaveNoColour(t *testing.T) {
	for name, d := range readDashboards(t) {
		for _, panel := range d.Panels {
			legend, defaults := panel.Targets[0].LegendFormat, panel.FieldConfig.Defaults
			for state := range lws.GroupStates {
				isShown := legend == "{{state}}" && strings.Contains(panel.Targets[0].Expr, "lockstep_set_groups") ||
					legend == "{{resource}} {{state}}" && state != lws.GroupReady
				expect.That(t, !isShown || panel.colours(state.String()),
					"%s: panel %q has no colour for %s", name, panel.Title, state)
			}
			if panel.Options.ColorMode == "background" && defaults.Thresholds == nil && defaults.Mappings == nil {
				t.Errorf("%s: panel %q has one colour for all values", name, panel.Title)
			}
		}
	}
	panel := readDashboards(t)["set"].Panels[0]
	expect.Equal(t, "stat", panel.Type)
	expect.Equalf(t, "background", panel.Options.ColorMode, "the colour of the state of a set: panel %q", panel.Title)
}

func TestFleetDoesNotLinkToASet(t *testing.T) {
	all := readDashboards(t)
	for _, panel := range all["fleet"].Panels {
		if !strings.Contains(panel.Targets[0].LegendFormat, "{{name}}") && panel.Title != "All sets" {
			continue
		}
		links := panel.FieldConfig.Defaults.Links
		if len(links) != 1 || !strings.HasPrefix(links[0].URL, "/d/"+all["set"].UID+"?") {
			t.Errorf("panel %q links to %v", panel.Title, links)
			continue
		}
		for _, variable := range []string{"${datasource:queryparam}", "var-cluster=${", "var-namespace=${", "var-name=${", "${__url_time_range}"} {
			expect.Says(t, links[0].URL, variable, panel.Title)
		}
	}
}
