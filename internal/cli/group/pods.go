package group

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	clilws "lockstep.dev/lockstep/internal/cli/lws"
	"lockstep.dev/lockstep/internal/cli/page"
	"lockstep.dev/lockstep/internal/cli/render"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/internal/lws/restart"
)

// Pod is a pod of a group.
type Pod struct {
	Name      string           `json:"name"`
	UID       types.UID        `json:"uid"`
	Node      string           `json:"node,omitempty"`
	CreatedAt metav1.Time      `json:"createdAt"`
	DeletedAt *metav1.Time     `json:"deletedAt,omitempty"`
	Restarts  int32            `json:"restarts"`
	Status    corev1.PodStatus `json:"status"`
}

// PodsOf returns the pods that have the names of groups, terminating ones too: of each group the leader first.
func PodsOf(s clilws.Survey, groups ...clilws.Group) (all []*corev1.Pod) {
	for _, g := range groups {
		pods := slices.Concat(g.Pods.Owned, g.Pods.Previous)
		slices.SortStableFunc(pods, func(a, b *corev1.Pod) int { return identity.Ordinal(a.Name) - identity.Ordinal(b.Name) })
		if g.Leader != nil {
			all = append(all, g.Leader)
		}
		all = slices.Concat(all, s.Set.Leaders.Named(g.LeaderName).Previous, pods)
	}
	return all
}

func shown(pods []*corev1.Pod) []Pod {
	all := []Pod{}
	for _, pod := range pods {
		all = append(all, Pod{pod.Name, pod.UID, pod.Spec.NodeName, pod.CreationTimestamp, pod.DeletionTimestamp, int32(restart.Restarts(pod)), pod.Status})
	}
	return all
}

func (pod Pod) state() string {
	if pod.DeletedAt != nil {
		return "Terminating"
	}
	return cmp.Or(pod.Status.Reason, string(pod.Status.Phase))
}

// ready is how many containers of a pod are ready. Without any, the kubelet has not reported.
func (pod Pod) ready() page.Cell {
	ready, all := 0, pod.Status.ContainerStatuses
	for _, c := range all {
		ready += int(lws.One(c.Ready))
	}
	cell := page.Cell{Text: fmt.Sprintf("%d/%d", ready, len(all)), Tone: page.Good}
	if len(all) == 0 {
		cell.Text = "-"
	}
	if !lws.PodReady(&corev1.Pod{Status: pod.Status}) {
		cell.Tone = page.Bad
	}
	return cell
}

// writePods lists pods, and their containers that do not run or are not ready, or that ended before. Init containers
// end well.
func writePods(p *page.Page, pods []Pod) {
	var all, rows []page.Row
	for _, pod := range pods {
		all = append(all, page.Row{pod.Name, pod.ready(), pod.state(), pod.Restarts, pod.Node, p.Age(&pod.CreatedAt)})
		for i, c := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
			last, before, says := c.LastTerminationState.Terminated, "", ""
			now, message, isFine := stateOf(c, i < len(pod.Status.InitContainerStatuses))
			if isFine && last == nil {
				continue
			}
			if last != nil {
				before, says = ended(last)+", "+p.Age(&last.FinishedAt)+" ago", last.Message
			}
			rows = append(rows, page.Row{pod.Name, c.Name, now, before, cmp.Or(says, message)})
		}
	}
	p.Table(page.Row{"POD", "READY", "STATE", "RESTARTS", "NODE", "AGE"}, all)
	p.Table(page.Row{"POD", "CONTAINER", "NOW", "ENDED BEFORE", "MESSAGE"}, rows)
}

func stateOf(c corev1.ContainerStatus, isInit bool) (state, message string, isFine bool) {
	switch now := c.State; {
	case now.Terminated != nil:
		return ended(now.Terminated), now.Terminated.Message, isInit && now.Terminated.ExitCode == 0
	case now.Running == nil:
		waiting := ptr.Deref(now.Waiting, corev1.ContainerStateWaiting{})
		return cmp.Or(waiting.Reason, "Waiting"), waiting.Message, false
	case !c.Ready && !isInit:
		return "Running, not ready", "", false
	}
	return "Running", "", true
}

func ended(end *corev1.ContainerStateTerminated) string {
	return fmt.Sprintf("%s (exit code %d)", page.Dash(end.Reason), end.ExitCode)
}

// Tree is what "status NAME --tree" prints: a set, its groups, their pods, and the health of their nodes.
type Tree struct {
	metav1.TypeMeta
	Survey  clilws.Survey
	Details clilws.Details
}

// Write writes the tree.
func (t *Tree) Write(p *page.Page) {
	for _, line := range t.Details.Unread {
		p.Linef("? %s", line)
	}
	set := render.Status(t.Survey)
	rows := []page.Row{{"set " + set.Name, fmt.Sprintf("%d/%d", set.Ready, set.Desired), "", "", ""}}
	for i, status := range set.Groups {
		twig, below := twigs(i, len(set.Groups))
		ready := page.Cell{Text: fmt.Sprintf("%d/%d", status.ReadyPods, status.Pods), Tone: page.Good}
		if !status.Ready {
			ready.Tone = page.Bad
		}
		rows = append(rows, page.Row{twig + "group " + status.Name(), ready, "", "", ""})
		at := slices.IndexFunc(t.Survey.Groups, func(g clilws.Group) bool { return g.LeaderName == status.Leader })
		if at >= 0 {
			rows = append(rows, t.pods(p, below, t.Survey.Groups[at])...)
		}
	}
	p.Table(page.Row{"NAME", "READY", "STATE", "NODE", "STATE OF NODE"}, rows)
}

func (t *Tree) pods(p *page.Page, below string, g clilws.Group) (rows []page.Row) {
	pods := shown(PodsOf(t.Survey, g))
	for i, pod := range pods {
		twig, _ := twigs(i, len(pods))
		health := page.Cell{}
		if pod.Node != "" {
			health = nodeOf(pod.Node, t.Details.Nodes).health(p)
		}
		rows = append(rows, page.Row{below + twig + "pod " + pod.Name, pod.ready(), pod.state(), pod.Node, health})
	}
	return rows
}

// twigs are the lines that lead to one of several branches, and to what is below it.
func twigs(i, of int) (to, below string) {
	if i == of-1 {
		return "└─ ", "   "
	}
	return "├─ ", "│  "
}
