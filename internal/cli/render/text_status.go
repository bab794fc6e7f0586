package render

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
)

// previousAtMost bounds how many objects of previous incarnations a text lists one by one.
const previousAtMost = 10

// write writes the status as tables.
func (s *SetStatus) write(p *page) {
	s.header(p)
	s.conditions(p)
	s.waits(p)
	s.groups(p)
	s.failures(p)
	s.previous(p)
}

func (s *SetStatus) header(p *page) {
	p.linef("%s in namespace %s: %d of %d groups ready, %d up to date, %s each",
		s.Name, s.Namespace, s.Ready, s.Desired, s.UpToDate, counted(int(s.Size), "pod"))
	state := ""
	if s.Paused {
		state = ", rollout paused"
	}
	if s.DeletedAt != nil {
		state += ", being deleted for " + p.age(s.DeletedAt)
	}
	p.linef("revision %s, set created %s ago%s", dash(s.Revision), p.age(&s.CreatedAt), state)
	if s.Due > 0 {
		p.linef("the operator has %s yet to make; see: kubectl lockstep plan %s -n %s", counted(s.Due, "write"), s.Name, s.Namespace)
	}
}

func (s *SetStatus) conditions(p *page) {
	if len(s.Conditions) == 0 {
		p.gap()
		p.linef("no conditions yet: no operator has reconciled this set")
	}
	var rows []row
	for _, status := range []metav1.ConditionStatus{metav1.ConditionTrue, metav1.ConditionUnknown, metav1.ConditionFalse} {
		for _, c := range s.Conditions {
			message := c.Message
			if status == metav1.ConditionFalse {
				message = "" // the API keeps the one of when it was true
			}
			if c.Status == status {
				rows = append(rows, row{c.Type, c.Status, p.age(&c.LastTransitionTime), c.Reason, message})
			}
		}
	}
	p.table(row{"CONDITION", "STATUS", "SINCE", "REASON", "MESSAGE"}, rows)
}

// waits lists the waits that no condition shows.
func (s *SetStatus) waits(p *page) {
	first := true
	for _, w := range s.Waiting {
		shown := slices.ContainsFunc(s.Conditions, func(c metav1.Condition) bool {
			return c.Status == metav1.ConditionTrue && c.Message == w.Message
		})
		if shown {
			continue
		}
		if first {
			p.gap()
		}
		first = false
		p.linef("waiting: %s (%s)", w.Message, w.Reason)
	}
}

func (s *SetStatus) groups(p *page) {
	var rows []row
	for i := 0; i < len(s.Groups); i++ {
		g := s.Groups[i]
		index, revision := fmt.Sprint(g.Index), dash(g.Revision)
		for g.blank() && i+1 < len(s.Groups) && s.Groups[i+1].blank() {
			i++
			index = fmt.Sprintf("%d-%d", g.Index, s.Groups[i].Index)
		}
		if !g.Wanted {
			index += " (surplus)"
		}
		if g.Exists && !g.UpToDate && g.Revision != s.Revision {
			revision += " (old)"
		}
		var waiting []string
		for _, w := range g.Waiting {
			waiting = append(waiting, w.Message)
		}
		rows = append(rows, row{index, fmt.Sprintf("%d/%d", g.ReadyPods, g.Pods), revision, firstOf(g.Nodes, 1), p.age(g.CreatedAt),
			g.Restarts, strings.Join(waiting, "; ")})
	}
	if s.GroupsOmitted > 0 {
		rows = append(rows, row{fmt.Sprintf("and %d more", s.GroupsOmitted)})
	}
	p.table(row{"GROUP", "READY", "REVISION", "NODES", "AGE", "RESTARTS", "WAITING FOR"}, rows)
}

// blank reports whether a group has no object. Such groups in a row share one row.
func (g GroupStatus) blank() bool { return !g.Exists && len(g.Previous) == 0 }

// failures lists the failed pods of each group, the latest first.
func (s *SetStatus) failures(p *page) {
	var rows []row
	for _, g := range s.Groups {
		if g.Failed == nil {
			continue
		}
		pods := g.Failed.Pods
		if len(pods) == 0 {
			pods = []lwsv1.PodFailure{{At: g.Failed.At}}
		}
		for _, f := range slices.Backward(pods) {
			rows = append(rows, row{g.Index, f.Pod, p.age(&f.At) + " ago", g.Failed.Count, f.Node, reasonOf(f)})
		}
	}
	p.table(row{"GROUP", "FAILED POD", "WHEN", "IN A ROW", "NODE", "WHY"}, rows)
}

func reasonOf(f lwsv1.PodFailure) string {
	reason := f.Reason
	if f.ExitCode != nil {
		reason += fmt.Sprintf(" (exit code %d)", *f.ExitCode)
	}
	if f.Container != "" {
		reason = f.Container + ": " + reason
	}
	if f.Message != "" {
		reason += ": " + f.Message
	}
	return reason
}

// previous lists objects of previous incarnations, which no count includes.
func (s *SetStatus) previous(p *page) {
	all := slices.Clone(s.Previous)
	for _, g := range s.Groups {
		all = append(all, g.Previous...)
	}
	var rows []row
	for _, o := range all[:min(len(all), previousAtMost)] {
		rows = append(rows, row{strings.ToLower(o.Kind) + " " + o.Name, p.age(o.DeletedAt), o.Node, strings.Join(o.Finalizers, ",")})
	}
	p.table(row{"PREVIOUS (NOT COUNTED)", "DELETED", "NODE", "FINALIZERS"}, rows)
	if more := len(all) - previousAtMost; more > 0 {
		p.linef("and %d more", more)
	}
}

func dash(text string) string { return cmp.Or(text, "-") }
