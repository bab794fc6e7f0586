// Package node shows which groups live on nodes, and what a drain of these nodes does to each.
//
// It knows drains and what limits them, from the surveys of the sets. It refuses to know how a set is read, and it drains
// nothing.
package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/cli/group"
	clilws "lockstep.dev/lockstep/internal/cli/lws"
	"lockstep.dev/lockstep/internal/cli/page"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/internal/lws/restart"
	"lockstep.dev/lockstep/internal/lws/workload"
)

// Drain is what "node -o json" prints: what a drain of nodes does.
type Drain struct {
	metav1.TypeMeta `json:",inline"`
	Groups          []Group `json:"groups"`
	// Missing are the rights without which something is unknown.
	Missing []string `json:"missing,omitempty"`
}

// Group is a group with pods on these nodes. Effect and Start are "?" where the set may not be read.
type Group struct {
	Namespace string   `json:"namespace"`
	Set       string   `json:"set"`
	Group     string   `json:"group"`
	Pods      []string `json:"pods"`
	// Effect is what the drain does to the group. Start is "yes" if it can evict a pod of the group now, or why not.
	Effect string `json:"effect"`
	Start  string `json:"start"`
}

// Right is what a user needs to see who lives on nodes.
const Right = "get nodes, and list pods in all namespaces: bind ClusterRole lws-node-reader-role"

// Read reads who lives on nodes. Without the right to list pods of all namespaces it is an error; what else is missing is
// unknown.
func Read(ctx context.Context, live client.Reader, nodes []string, survey func(types.NamespacedName) (clilws.Survey, error)) (*Drain, error) {
	if len(nodes) == 0 {
		return nil, errors.New("name a node; list nodes with: kubectl get nodes")
	}
	d, here := &Drain{TypeMeta: page.Kind("NodeDrain"), Groups: []Group{}}, map[types.NamespacedName][]string{}
	for _, name := range nodes {
		err := live.Get(ctx, types.NamespacedName{Name: name}, &corev1.Node{})
		switch {
		case apierrors.IsNotFound(err):
			return nil, fmt.Errorf("no node %q; list nodes with: kubectl get nodes", name)
		case apierrors.IsForbidden(err):
			d.Missing = append(d.Missing, fmt.Sprintf("get node %s: bind ClusterRole lws-node-reader-role", name))
		case err != nil:
			return nil, err
		}
		var pods corev1.PodList
		if err := live.List(ctx, &pods, client.MatchingFields{"spec.nodeName": name}, client.HasLabels{lwsv1.SetNameLabelKey}); err != nil {
			return nil, err
		}
		for i := range pods.Items {
			set := types.NamespacedName{Namespace: pods.Items[i].Namespace, Name: pods.Items[i].Labels[lwsv1.SetNameLabelKey]}
			here[set] = append(here[set], pods.Items[i].Name)
		}
	}
	for set, pods := range here {
		found, err := survey(set)
		switch {
		case apierrors.IsForbidden(err):
			d.Missing = append(d.Missing, fmt.Sprintf("read set %s: bind ClusterRole lws-leaderworkerset-viewer-role in its namespace", set))
		case apierrors.IsNotFound(err):
			continue // its pods end with it
		case err != nil:
			return nil, err
		}
		if found.Set.Set != nil && found.Set.Evictions == nil {
			d.Missing = append(d.Missing, fmt.Sprintf("list poddisruptionbudgets in namespace %s", set.Namespace))
		}
		d.Groups = append(d.Groups, groupsOf(found, set, pods)...)
	}
	d.Missing = slices.Compact(slices.Sorted(slices.Values(d.Missing)))
	slices.SortFunc(d.Groups, func(a, b Group) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Set, b.Set), cmp.Compare(len(a.Group), len(b.Group)), cmp.Compare(a.Group, b.Group))
	})
	return d, nil
}

// groupsOf returns the groups of a set with pods on the nodes. A set that may not be read has one entry.
func groupsOf(s clilws.Survey, set types.NamespacedName, here []string) (all []Group) {
	if s.Set.Set == nil {
		return []Group{{set.Namespace, set.Name, "?", here, "?", "?"}}
	}
	for _, g := range s.Groups {
		pods := slices.DeleteFunc(group.PodsOf(s, g), func(pod *corev1.Pod) bool { return !slices.Contains(here, pod.Name) })
		if len(pods) == 0 {
			continue
		}
		one := Group{Namespace: set.Namespace, Set: set.Name, Group: g.Name()}
		for _, pod := range pods {
			one.Pods = append(one.Pods, pod.Name)
		}
		one.Effect, one.Start = effect(s, pods)
		all = append(all, one)
	}
	return all
}

// effect says what a drain does to a group with pods on the nodes, and whether it can start. Pods that are not ready may
// always be evicted: their group is down.
func effect(s clilws.Survey, here []*corev1.Pod) (does, start string) {
	isLeader := func(pod *corev1.Pod) bool { return workload.IsLeader(pod, s.Set.Set.Name) }
	if s.Set.Evictions == nil { // budgets may not be read
		return "?", "?"
	}
	does, start = "recreated; several groups may be down at once", "yes"
	if others := s.Set.Evictions.Others; len(others) > 0 {
		start = "?: PodDisruptionBudget " + page.Few(others) + " decides"
	}
	if allowance := s.Standing.Allowance; allowance != nil {
		why, isBlocked := strings.CutPrefix(allowance.Why, workload.Blocked)
		if isBlocked || allowance.Allowed > 0 {
			does = "recreated once, one group at a time"
		}
		if isBlocked && slices.ContainsFunc(here, lws.PodReady) {
			start = "no: " + why
		}
	}
	switch {
	case slices.ContainsFunc(here, lws.IsExhausted):
		return "stays: it was stopped, and its pods are evidence", "no: recover it first"
	case !restart.Recreates(s.Set.Set) && !slices.ContainsFunc(here, isLeader):
		does = "keeps its leader; its workers here are replaced"
	}
	return does, start
}

// Write implements page.Report.
func (d *Drain) Write(p *page.Page) {
	var rows []page.Row
	for _, g := range d.Groups {
		start := page.Cell{Text: g.Start, Tone: page.Good}
		if g.Start != "yes" {
			start.Tone = page.Caution
		}
		rows = append(rows, page.Row{g.Namespace, g.Set, g.Group, page.Few(g.Pods), g.Effect, start})
	}
	p.Table(page.Row{"NAMESPACE", "SET", "GROUP", "PODS HERE", "IN A DRAIN OF THESE NODES", "CAN START NOW"}, rows)
	if len(rows) == 0 {
		p.Linef("no group of a LeaderWorkerSet has a pod there")
	}
	p.Section("not known without the right to:", d.Missing...)
}
