package fleet

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"lockstep.dev/lockstep/internal/cli/page"
	"lockstep.dev/lockstep/test/expect"
)

var now = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// line is a set of two groups of four pods that hold eight GPUs.
func line(namespace, name string, state State, idle int64) Line {
	l := Line{
		APIGroup: "example.com", Kind: "Set", Namespace: namespace, Name: name, UID: "uid", CreatedAt: metav1.NewTime(now.Add(-time.Hour)),
		State: state, Reason: "Code", Message: "why " + name, Nodes: 8, Revision: "key",
		Accelerators: Accelerators{}.With(Accelerator{"nvidia.com/gpu", 8, idle}),
	}
	l.Groups, l.Pods = Count{2, 2, 1, 2}, Count{8, 7, 6, 4}
	if state == Ready {
		l.Groups.Ready, l.Pods.Ready = 2, 8
	}
	return l
}

// mixed are sets in no order.
func mixed() []Line {
	return []Line{
		line("b", "well", Ready, 0), line("b", "starts", Starting, 8), line("a", "stuck", Stalled, 0), line("b", "down", Stalled, 8), line("a", "waits", Waiting, 8),
	}
}

func textOf(asked Question, lines []Line) string { return page.Text(Of(asked, lines, ""), now) }

// columnsOf returns a text with single spaces between columns.
func columnsOf(text string) (lines []string) {
	for line := range strings.Lines(text) {
		lines = append(lines, strings.Join(strings.Fields(line), " "))
	}
	return lines
}

func TestTheWorstSetIsFirst(t *testing.T) {
	want := []string{
		"NAMESPACE NAME STATE GROUPS UPDATED PODS ACCELERATORS AGE REASON",
		"b down Stalled 1/2 2 6/8 8 nvidia.com/gpu, 8 idle 60m why down",
		"a stuck Stalled 1/2 2 6/8 8 nvidia.com/gpu, 0 idle 60m why stuck",
		"a waits Waiting 1/2 2 6/8 8 nvidia.com/gpu, 8 idle 60m why waits",
		"b starts Starting 1/2 2 6/8 8 nvidia.com/gpu, 8 idle 60m why starts",
		"b well Ready 2/2 2 8/8 8 nvidia.com/gpu, 0 idle 60m why well",
		"", "5 sets, 4 not ready; 40 nvidia.com/gpu held, 24 idle",
	}
	expect.Equal(t, want, columnsOf(textOf(Question{Everywhere: true}, mixed())))
	expect.Equalf(t, 12, len(slices.Compact(slices.Sorted(slices.Values(States)))), "the states, each once")
}

func TestFormatsOfAFleet(t *testing.T) {
	for name, tt := range map[string]struct {
		asked Question
		lines []Line
		want  string
	}{
		"one namespace":          {Question{}, mixed(), "NAME STATE"},
		"more columns":           {Question{Format: "wide"}, mixed(), " 6/8 7 8 key 8 nvidia.com/gpu"},
		"names":                  {Question{Format: "name"}, mixed()[:1], "set.example.com/well"},
		"ready sets are counted": {Question{NotReady: true}, mixed()[:1], "1 set, 0 not ready; 8 nvidia.com/gpu held, 0 idle"},
		"no set":                 {Question{Namespace: "ns"}, nil, "no LeaderWorkerSets or DisaggregatedSets in namespace ns; look everywhere with -A"},
		"no set anywhere":        {Question{Everywhere: true, Labels: "a=b"}, nil, "no LeaderWorkerSets or DisaggregatedSets with labels a=b in any namespace"},
		"no name":                {Question{Format: "name"}, nil, ""},
		"no accelerators":        {Question{}, []Line{{Name: "cpu", State: Ready}}, "1 set, 0 not ready"},
	} {
		text := strings.Join(columnsOf(textOf(tt.asked, tt.lines)), "\n")
		expect.That(t, strings.Contains(text, tt.want) && (tt.want != "" || text == ""), "%s: got\n%s", name, text)
	}
	expect.Equalf(t, false, strings.Contains(textOf(Question{NotReady: true}, mixed()), "well"), "a ready set is shown")
	expect.Says(t, page.Text(Of(Question{}, mixed(), "no operator"), now), "no operator\n\nNAME")
}

// A set of sets is as its worst part that stays. Nodes that parts share count once.
func TestASetCountsItsParts(t *testing.T) {
	part := func(state State, nodes ...string) Line {
		l := line("a", "part", state, 8)
		l.On = sets.New(nodes...)
		return l
	}
	whole := Line{State: Ready, Prefix: "dset/", Name: "pd"}
	leaves := part(Stalled, "n1")
	leaves.DeletedAt = &metav1.Time{Time: now}
	for _, l := range []Line{part(Ready, "n1", "n2"), part(Waiting, "n2", "n3"), part(Starting), leaves} {
		whole.Add(l)
	}
	expect.That(t, whole.State == Waiting && whole.Reason == "Code" && whole.Message == "why part", "got %+v", whole)
	expect.Equal(t, Count{8, 8, 5, 8}, whole.Groups)
	expect.Equal(t, Accelerators{{"nvidia.com/gpu", 32, 32}}, whole.Accelerators)
	expect.Equal(t, 3, whole.Nodes)
	expect.Says(t, textOf(Question{}, []Line{whole}), "dset/pd")
	expect.Equalf(t, "./pd\n", textOf(Question{Format: "name"}, []Line{whole}), "a name for programs")
}

func TestWhatIsNotReadIsSaid(t *testing.T) {
	for _, lines := range [][]Line{mixed(), nil} {
		s := Of(Question{Namespace: "ns"}, lines, "")
		s.Unread = []string{"some are not shown"}
		text := page.Text(s, now)
		expect.That(t, strings.HasPrefix(text, "some are not shown\n") && strings.Count(text, "\n") > 1, "got\n%s", text)
		expect.Says(t, string(expect.Value(json.Marshal(s))(t)), `"unread":["some are not shown"]`)
	}
}

// Programs read these names: they are never changed or removed.
func TestFieldsForPrograms(t *testing.T) {
	raw := expect.Value(json.Marshal(page.Printed{Report: Of(Question{}, mixed()[2:3], "no operator")}))(t)
	expect.Equal(t, `{"kind":"FleetStatus","apiVersion":"cli.lockstep.dev/v1","unattended":"no operator","items":[{"apiGroup":"example.com","kind":"Set",`+
		`"namespace":"a","name":"stuck","uid":"uid","createdAt":"2026-01-01T11:00:00Z","state":"Stalled","reason":"Code","message":"why stuck",`+
		`"groups":{"wanted":2,"existing":2,"ready":1,"updated":2},"pods":{"wanted":8,"existing":7,"ready":6,"updated":4},`+
		`"accelerators":[{"resource":"nvidia.com/gpu","held":8,"idle":0}],"nodes":8,"revision":"key"}],`+
		`"total":{"sets":1,"notReady":1,"accelerators":[{"resource":"nvidia.com/gpu","held":8,"idle":0}]}}`, string(raw))
	none := string(expect.Value(json.Marshal(Of(Question{}, nil, "")))(t))
	expect.Says(t, none, `"items":[]`)
}
