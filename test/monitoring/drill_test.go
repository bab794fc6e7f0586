package monitoring

import (
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/api"
	promv1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	dsv1 "lockstep.dev/lockstep/api/disaggregatedset/v1"
	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/test/drill"
	"lockstep.dev/lockstep/test/expect"
)

var (
	bed        *drill.Bed
	prometheus *server
)

func TestMain(m *testing.M) {
	if programs == "" {
		os.Exit(m.Run())
	}
	drill.Main(m, raise, func() error { return nil })
}

// raise starts a control plane, the operator with metrics on a loopback address, and Prometheus.
func raise(dir string, reaper *drill.Reaper) (err error) {
	ports, err := drill.FreePorts(1)
	if err != nil {
		return err
	}
	if bed, err = drill.NewBed(dir, reaper, drill.Plane{Nodes: 4, QPS: 100}); err != nil {
		return err
	}
	if err = bed.Raise("monitoring", func(drill.Request) bool { return false }, "--metrics-bind-address", "127.0.0.1:"+strconv.Itoa(ports[0])); err != nil {
		return err
	}
	prometheus, err = startPrometheus(dir, reaper, ports[0])
	return err
}

// scene is a drill that Prometheus watches.
type scene struct{ *drill.Scene }

func (s *scene) set(name string, replicas int32, edits ...func(*lwsv1.LeaderWorkerSet)) *lwsv1.LeaderWorkerSet {
	pod := corev1.PodSpec{Containers: []corev1.Container{{Name: "serve", Image: "registry.example.com/serve:1"}}}
	set := drill.NewSet(s.Namespace, name, replicas, 2, pod, edits...)
	s.Create(set)
	return set
}

// roles creates a set of two prefill groups and a decode group, and returns it once all of its pairs are complete.
func (s *scene) roles(name string) *dsv1.DisaggregatedSet {
	set := &dsv1.DisaggregatedSet{ObjectMeta: s.Meta(name)}
	for role, replicas := range map[string]int32{"prefill": 2, "decode": 1} {
		pod := corev1.PodSpec{Containers: []corev1.Container{{Name: "serve", Image: "registry.example.com/serve:1"}}}
		spec := drill.NewSet(s.Namespace, name, replicas, 1, pod).Spec
		spec.RolloutStrategy.Type = lwsv1.RollingUpdateStrategyType
		set.Spec.Roles = append(set.Spec.Roles, dsv1.DisaggregatedRole{Name: role, Spec: spec})
	}
	s.Create(set)
	s.shows(1, fmt.Sprintf(`lockstep_pairs_ready_ratio{NAMESPACE, name=%q}`, name))
	return set
}

// hungry are eight accelerators of a kind that no node has.
var hungry = corev1.ResourceList{"example.com/gpu": resource.MustParse("8")}

// onAccelerators has every pod of a set request them.
func onAccelerators(set *lwsv1.LeaderWorkerSet) {
	set.Spec.LeaderWorkerTemplate.WorkerTemplate.Spec.Containers[0].Resources.Limits = hungry
}

// crash reports that a container of a pod ran out of memory and was started again.
func (s *scene) crash(name string) {
	s.PatchStatus(&corev1.Pod{ObjectMeta: s.Meta(name)}, `{"status":{"containerStatuses":[{"name":"serve","image":"x","imageID":"","restartCount":1,
		"ready":true,"started":true,"state":{"running":{"startedAt":"2026-01-01T00:00:00Z"}},
		"lastState":{"terminated":{"exitCode":137,"reason":"OOMKilled"}}}]}}`)
}

// shows waits until a query in this namespace has a series with a value of at least least. NAMESPACE stands for a selector.
func (s *scene) shows(least float64, expression string) {
	expression = strings.ReplaceAll(expression, "NAMESPACE", fmt.Sprintf("namespace=%q", s.Namespace))
	s.Eventually(fmt.Sprintf("%s is at least %v", expression, least), func() error {
		found, err := prometheus.query(expression)
		for _, one := range found {
			if float64(one.Value) >= least {
				return nil
			}
		}
		return errors.Join(err, fmt.Errorf("found %v", found))
	})
}

func (s *scene) groups(least float64, name, state string) {
	s.shows(least, fmt.Sprintf(`lockstep_set_groups{NAMESPACE, name=%q, state=%q}`, name, state))
}

// silent checks that an alert does not fire for what has such a name.
func (s *scene) silent(alert, name string) {
	s.Helper()
	found, err := prometheus.query(fmt.Sprintf(`ALERTS{namespace=%q, alertname=%q, name=~%q}`, s.Namespace, alert, name))
	s.Check("ask for alerts", err)
	expect.Emptyf(s, found, "alerts")
}

// lasts waits until a condition has been True for a while: a dashboard shows something then.
func (s *scene) lasts(name, condition string) {
	s.shows(20, fmt.Sprintf(`lockstep_set_condition_seconds{NAMESPACE, name=%q, condition=%q}`, name, condition))
}

// TestDashboards plays what dashboards are for: a set that crashes, one that rolls, one that waits, one without
// accelerators, roles that roll, and a PVC in use that is deleted. Then every query of every panel has an answer.
func TestDashboards(t *testing.T) {
	needPrograms(t)
	began := time.Now()
	s := &scene{drill.NewScene(t, bed)}
	s.MayWrite(s.Namespace)
	s.set("steady", 4)
	s.set("crashing", 2, func(set *lwsv1.LeaderWorkerSet) {
		set.Annotations = map[string]string{"lockstep.dev/restart-backoff": "first=1h,max=1h"}
	})
	rolled := s.set("rolled", 4)
	former := s.set("former", 1)
	waiting := s.set("hungry", 3, onAccelerators)
	chat := s.roles("chat")
	for name, n := range map[string]float64{"steady": 4, "crashing": 2, "rolled": 4, "former": 1} {
		s.groups(n, name, "ready")
	}
	s.groups(3, "hungry", "starting")
	s.lasts("steady", "Available")

	s.crashTwice("crashing-1-1", "crashing")
	s.Check("roll", s.Client.Patch(t.Context(), rolled, drill.Merge(`{"spec":{"leaderWorkerTemplate":{"workerTemplate":{"spec":{"containers":[
		{"name":"serve","image":"registry.example.com/serve:2","resources":{"limits":{"example.com/gpu":"8"}}}]}}}}}`)))
	s.recreatedWithLeftover(former)
	before := chat.DeepCopy()
	for i := range chat.Spec.Roles {
		chat.Spec.Roles[i].Spec.LeaderWorkerTemplate.WorkerTemplate.Spec.Containers[0].Resources.Limits = hungry
	}
	s.Check("roll the roles", s.Client.Patch(t.Context(), chat, client.MergeFrom(before)))
	s.Check("scale", s.Client.Patch(t.Context(), waiting, drill.Merge(`{"spec":{"replicas":1}}`)))
	claim := s.deletedInUse()

	s.groups(1, "crashing", "backingOff")
	s.lasts("crashing", "RestartBackOff")
	s.groups(1, "former", "waiting")
	s.groups(1, "rolled", "starting")
	s.shows(1, `lockstep_set_rollout_groups_left{NAMESPACE, name="rolled"}`)
	s.lasts("rolled", "UpdateInProgress")
	s.shows(1, `lockstep_set_condition_seconds{NAMESPACE, name="former", reason="WaitingForPreviousIncarnation"}`)
	s.shows(4, `lockstep_set_pods_beyond_need_total{NAMESPACE, name="hungry"}`)
	s.shows(16, `lockstep_set_accelerators_idle{NAMESPACE, name="hungry", resource="example.com/gpu", state="starting"}`)
	s.shows(1, `lockstep_group_restarts_total{NAMESPACE, name="crashing", failure="PodRestarted", exit="137"}`)
	s.shows(1, `lockstep_protection_claims_held{reason="InUse"}`)
	s.shows(2, `sum by (cluster) (lockstep_set_groups{NAMESPACE, name=~"chat-0-.*", state="starting"})`)
	s.shows(1, `lockstep_pairs_ready_ratio{NAMESPACE, name="chat"}`)
	s.shows(1, `lockstep_role_groups{NAMESPACE, name="chat", role="decode", state="ready"}`)
	s.shows(1, `sum by (role) (lockstep_role_groups{NAMESPACE, name="chat", state="wanted"}) - sum by (role) (lockstep_role_groups{NAMESPACE, name="chat", state="updated"})`)
	s.shows(1, `ALERTS{NAMESPACE, alertname="LockstepSetDown", cluster="drill", name="hungry"}`)
	s.shows(1, `ALERTS{NAMESPACE, alertname="LockstepSetDegraded", alertstate="pending", name="hungry"}`)
	s.shows(1, `ALERTS{NAMESPACE, alertname="LockstepPreviousObjectStuck", alertstate="pending", name="former"}`)
	s.shows(1, `ALERTS{NAMESPACE, alertname="LockstepGroupCrashLooping", alertstate="pending", name="crashing"}`)
	s.silent("LockstepSetDown", "chat-0-.*") // the pairs of the old revision serve
	prometheus.checkScraped(t)
	prometheus.checkRules(t)
	for name, d := range readDashboards(t) {
		s.checkPanels(name, d, began)
	}

	s.Remove(chat)
	s.Remove(waiting)
	s.Remove(&lwsv1.LeaderWorkerSet{ObjectMeta: s.Meta("crashing")})
	s.Until("the series of deleted sets are gone", func() bool {
		found, err := prometheus.query(fmt.Sprintf(`{namespace=%q, name=~"hungry|crashing|chat", __name__=~"lockstep_.*"}`, s.Namespace))
		return err == nil && len(found) == 0
	})
	s.Remove(&corev1.Pod{ObjectMeta: s.Meta("user")})
	s.AwaitGone(claim)
}

// crashTwice makes a group fail twice in a row: the second restart waits for the back-off.
// The pods show that the group is ready again, and the metrics of a moment ago do not.
func (s *scene) crashTwice(pod, set string) {
	first := s.Pod(pod).UID
	s.crash(pod)
	s.Until("the pod is recreated and ready", func() bool {
		again := s.Pod(pod)
		return again != nil && again.UID != first && drill.PodReady(again)
	})
	s.groups(2, set, "ready")
	s.crash(pod)
}

// recreatedWithLeftover deletes a set, one pod of which cannot go, and creates it again.
func (s *scene) recreatedWithLeftover(set *lwsv1.LeaderWorkerSet) {
	leader := s.Pod(set.Name + "-0")
	s.Patch(leader, `{"metadata":{"finalizers":["example.com/stays"]}}`)
	s.Remove(set, client.PropagationPolicy(metav1.DeletePropagationBackground))
	s.set(set.Name, *set.Spec.Replicas)
}

// deletedInUse deletes a PVC that a pod uses.
func (s *scene) deletedInUse() *corev1.PersistentVolumeClaim {
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: s.Meta("data"), Spec: drill.ClaimSpec()}
	claim.Spec.StorageClassName = new(string)
	s.Create(claim)
	user := &corev1.Pod{ObjectMeta: s.Meta("user"), Spec: corev1.PodSpec{
		NodeName: s.Pod("steady-0").Spec.NodeName, Containers: []corev1.Container{{Name: "c", Image: "registry.example.com/serve:1"}},
		Volumes: []corev1.Volume{drill.ClaimVolume("data", "data")}, TerminationGracePeriodSeconds: new(int64(1)),
	}}
	s.Create(user)
	s.AwaitPVC("data", "is protected", func(claim *corev1.PersistentVolumeClaim) error {
		if !drill.IsProtected(claim) {
			return fmt.Errorf("it has finalizers %v", claim.Finalizers)
		}
		return nil
	})
	s.Remove(claim)
	return claim
}

// checkPanels checks that each query of a dashboard has an answer, and plots them if asked to.
func (s *scene) checkPanels(name string, d dashboard, began time.Time) {
	values := strings.NewReplacer("$__rate_interval", "10s", "$__range", "1m", "$cluster", "drill", "$namespace", s.Namespace, "$name", "rolled")
	var charts []chart
	for _, panel := range d.Panels {
		c := chart{title: panel.Title}
		for _, target := range panel.Targets {
			found, err := prometheus.history(values.Replace(target.Expr), began)
			if err != nil || len(found) == 0 && !panel.mayBeEmpty() {
				s.Errorf("%s: panel %q shows nothing: %v\n%s", name, panel.Title, err, values.Replace(target.Expr))
			}
			for _, one := range found {
				c.lines = append(c.lines, line{legend(target.LegendFormat, one.Metric), one.Values})
			}
		}
		if panel.Type == "timeseries" {
			charts = append(charts, c)
		}
	}
	if dir := os.Getenv("LOCKSTEP_PLOTS"); dir != "" {
		s.Check("plot", plot(dir+"/"+name+".svg", d.Title, charts))
	}
}

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
	if err := drill.Poll(context.Background(), func() error { _, err := s.Buildinfo(context.Background()); return err }); err != nil {
		return nil, fmt.Errorf("prometheus is not ready: %w\n%s", err, drill.LastLines(log.Name(), 20))
	}
	return s, nil
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
		out, err := exec.Command(filepath.Join(programs, "promtool"), args...).CombinedOutput()
		expect.That(t, err == nil, "promtool %v: %v\n%s", args, err, out)
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
	types := expect.Value(s.Metadata(t.Context(), "", ""))(t)
	all, err := s.query(`{__name__=~"lockstep_.*"}`)
	expect.OK(t, err)
	metrics := readMetrics(t)
	for _, one := range all {
		name := string(one.Metric[model.MetricNameLabel])
		m, known := familyOf(metrics, name)
		expect.That(t, known, "%s is served and not in docs/metrics.md", name)
		for label := range one.Metric {
			if !slices.Contains([]string{"__name__", "job", "instance", "cluster"}, string(label)) && !slices.Contains(m.labels, string(label)) {
				t.Errorf("%s has the label %s, which docs/metrics.md lacks", name, label)
			}
		}
		if told := types[name]; len(told) > 0 && string(told[0].Type) != m.kind {
			t.Errorf("%s is a %s, and by docs/metrics.md a %s", name, told[0].Type, m.kind)
		}
	}
	expect.That(t, len(all) >= 50, "only %d series of Lockstep are scraped", len(all))
}

// checkRules checks that Prometheus evaluates every alert without an error.
func (s *server) checkRules(t *testing.T) {
	t.Helper()
	found := expect.Value(s.Rules(t.Context(), nil))(t)
	for _, group := range found.Groups {
		for _, rule := range group.Rules {
			alert, ok := rule.(promv1.AlertingRule)
			expect.That(t, ok && alert.Health == promv1.RuleHealthGood, "alert %+v", rule)
		}
	}
	expect.That(t, len(found.Groups) > 0, "prometheus has no alerts")
}

// chart is one panel as it is plotted.
type chart struct {
	title string
	lines []line
}

type line struct {
	legend string
	points []model.SamplePair
}

var labelOf = regexp.MustCompile(`\{\{(\w+)\}\}`)

// legend fills the labels of a series into the text of its panel.
func legend(format string, labels model.Metric) string {
	return labelOf.ReplaceAllStringFunc(format, func(name string) string {
		return string(labels[model.LabelName(strings.Trim(name, "{}"))])
	})
}

const (
	chartWidth, chartHeight = 430, 200
	left, top, right, low   = 46, 26, 10, 60
	perRow                  = 2
	named                   = 5 // lines that the legend names
)

var colours = []string{"#3274d9", "#e0752d", "#3f9142", "#c4162a", "#8f3bb8", "#8a6d1d", "#0a8f8f", "#777777"}

// plot writes charts as an SVG picture.
func plot(path, title string, charts []chart) error {
	rows := (len(charts) + perRow - 1) / perRow
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="11">`+"\n",
		perRow*chartWidth, rows*chartHeight+24)
	b.WriteString(`<rect width="100%" height="100%" fill="#ffffff"/>` + "\n")
	text(&b, 8, 16, "#222222", title+", plotted from the same queries")
	for i, c := range charts {
		fmt.Fprintf(&b, `<g transform="translate(%d %d)">`+"\n", i%perRow*chartWidth, i/perRow*chartHeight+24)
		c.draw(&b)
		b.WriteString("</g>\n")
	}
	b.WriteString("</svg>\n")
	return os.WriteFile(path, []byte(b.String()), 0o600)
}

func text(to io.Writer, x, y int, colour, words string) {
	fmt.Fprintf(to, `<text x="%d" y="%d" fill="%s">`, x, y, colour)
	_ = xml.EscapeText(to, []byte(words))
	fmt.Fprintln(to, `</text>`)
}

// draw draws a chart with its frame, its lines and their legend.
func (c chart) draw(b *strings.Builder) {
	first, last, highest := c.extent()
	width, height := float64(chartWidth-left-right), float64(chartHeight-top-low)
	text(b, left, 16, "#222222", c.title)
	fmt.Fprintf(b, `<rect x="%d" y="%d" width="%.0f" height="%.0f" fill="none" stroke="#cccccc"/>`+"\n", left, top, width, height)
	text(b, 4, top+9, "#555555", fmt.Sprintf("%.3g", highest))
	text(b, 4, chartHeight-low, "#555555", "0")
	if len(c.lines) == 0 {
		text(b, left+8, top+40, "#777777", "no data")
	}
	for i, l := range c.seen() {
		colour := colours[i%len(colours)]
		fmt.Fprintf(b, `<polyline fill="none" stroke="%s" stroke-width="1.5" points="`, colour)
		for _, p := range l.points {
			fmt.Fprintf(b, "%.0f,%.0f ", left+width*(float64(p.Timestamp)-first)/max(1, last-first), top+height*(1-float64(p.Value)/highest))
		}
		b.WriteString(`"/>` + "\n")
		switch {
		case i < named:
			text(b, left+i%2*190, chartHeight-low+15+i/2*14, colour, l.legend)
		case i == named:
			text(b, left+i%2*190, chartHeight-low+15+i/2*14, "#555555", fmt.Sprintf("and %d more", len(c.seen())-named))
		}
	}
}

// seen returns the lines that are not 0 all the time, or all lines where none is.
func (c chart) seen() []line {
	seen := slices.DeleteFunc(slices.Clone(c.lines), func(l line) bool {
		return !slices.ContainsFunc(l.points, func(p model.SamplePair) bool { return p.Value != 0 })
	})
	if len(seen) == 0 {
		return c.lines
	}
	return seen
}

// extent is the time and the highest value that a chart shows.
func (c chart) extent() (first, last, highest float64) {
	for _, l := range c.lines {
		for _, p := range l.points {
			at := float64(p.Timestamp)
			if first == 0 || at < first {
				first = at
			}
			last, highest = max(last, at), max(highest, float64(p.Value))
		}
	}
	if highest == 0 {
		highest = 1
	}
	return first, last, highest
}
