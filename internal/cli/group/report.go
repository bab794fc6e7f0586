// Package group shows the groups of a set with their pods and nodes: one group with its containers, last failure and
// events, or all groups as a tree. It is a fold over a survey and what was read beside it, and reads nothing itself.
package group

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	clilws "lockstep.dev/lockstep/internal/cli/lws"
	"lockstep.dev/lockstep/internal/cli/page"
	"lockstep.dev/lockstep/internal/cli/render"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws/revision"
)

// Report is what "status NAME GROUP -o json" prints.
type Report struct {
	metav1.TypeMeta `json:",inline"`

	Namespace string `json:"namespace"`
	Set       string `json:"set"`
	// Unattended is why no operator acts on the set; absent while one does, or where you may not see it.
	Unattended *render.Wait `json:"unattended,omitempty"`
	// Revision is the key of the target revision; absent while unknown.
	Revision string `json:"revision,omitempty"`
	// Group is the entry of the group in a SetStatus.
	Group render.GroupStatus `json:"group"`
	// Pods have the names of the group, terminating ones too: the leader first.
	Pods  []Pod  `json:"pods"`
	Nodes []Node `json:"nodes"`
	// Events are the last ones about the group or what it consists of, the newest last. EarlierEvents counts the others.
	Events        []corev1.Event `json:"events"`
	EarlierEvents int            `json:"earlierEvents,omitempty"`
	// Unread says what could not be read, and why.
	Unread []string `json:"unread,omitempty"`

	kin kin
}

// Events are what "events NAME [GROUP] -o json" prints.
type Events struct {
	metav1.TypeMeta `json:",inline"`

	// Items are about groups or what they consist of, the newest last.
	Items []corev1.Event `json:"items"`
	// Unread says what could not be read, and why.
	Unread []string `json:"unread,omitempty"`

	kin kin
}

// Find returns the group that an index, a key or the name of a leader names.
func Find(s clilws.Survey, name string) (clilws.Group, error) {
	var known []string
	for _, g := range s.Groups {
		if known = append(known, g.Name()); name == g.Name() || name == g.LeaderName {
			return g, nil
		}
	}
	set, groups := s.Set.Set.Name, page.Few(known)
	index, _ := strconv.Atoi(strings.TrimPrefix(name, set+"-"))
	if g := s.Absent(index); index >= 0 && index < s.Indices() && (name == g.Name() || name == g.LeaderName) {
		return g, nil
	}
	if s.Indices() > 1 {
		groups = fmt.Sprintf("0-%d", s.Indices()-1)
	}
	return clilws.Group{}, fmt.Errorf("there is no group %q: %s has groups %s; give an index or key, or the name of a leader", name, set, page.Dash(groups))
}

// New returns the report on a group of a survey.
func New(s clilws.Survey, g clilws.Group, d clilws.Details) *Report {
	pods, set := PodsOf(s, g), render.Status(s)
	r := &Report{
		TypeMeta: page.Kind("GroupReport"), Namespace: g.Set.Namespace, Set: g.Set.Name, Unattended: set.Unattended, Revision: set.Revision,
		Group: render.Group(s, g), Pods: shown(pods), Nodes: nodesOf(pods, d.Nodes), Unread: d.Unread, kin: kinOf(s, g),
	}
	r.Events = r.kin.events(d.Events)
	r.EarlierEvents = max(0, len(r.Events)-eventsShown)
	r.Events = r.Events[r.EarlierEvents:]
	return r
}

// EventsOf returns the events of groups, and all of their set if they are all that it has.
func EventsOf(s clilws.Survey, d clilws.Details, areAll bool, groups ...clilws.Group) *Events {
	k := kinOf(s, groups...)
	if areAll {
		maps.Copy(k.own, k.above)
	}
	return &Events{page.Kind("GroupEventList"), k.events(d.Events), d.Unread, k}
}

// Write writes the report as tables.
func (r *Report) Write(p *page.Page) {
	g, state := r.Group, ""
	p.Linef("group %s of %s in namespace %s: %d of %s ready", g.Name(), r.Set, r.Namespace, g.ReadyPods, page.Counted(int(g.Pods), "pod"))
	if g.CreatedAt != nil {
		state = ", leader created " + p.Age(g.CreatedAt) + " ago"
	}
	switch {
	case !g.Wanted:
		state += ", surplus"
	case g.Exists && !g.UpToDate && g.Revision != r.Revision:
		state += ", old"
	}
	p.Linef("revision %s%s", page.Dash(revision.Title(g.RevisionNumber, g.Revision)), state)
	if r.Unattended != nil {
		p.Linef("%s (%s)", r.Unattended.Message, r.Unattended.Reason)
	}
	for _, w := range g.Waiting {
		p.Linef("waiting: %s (%s)", w.Message, w.Reason)
	}
	for _, line := range r.Unread {
		p.Linef("? %s", line)
	}
	writePods(p, r.Pods)
	writeNodes(p, r.Nodes)
	render.WriteFailures(p, g)
	r.kin.write(p, r.Events)
	if r.EarlierEvents > 0 {
		p.Linef("and %s before", page.Counted(r.EarlierEvents, "event"))
	}
}

// Write writes the events as a table.
func (e *Events) Write(p *page.Page) {
	for _, line := range e.Unread {
		p.Linef("? %s", line)
	}
	if len(e.Items)+len(e.Unread) == 0 {
		p.Linef("no events; the API server keeps them for an hour, unless it is configured otherwise")
	}
	e.kin.write(p, e.Items)
}

// eventsShown bounds the events of a report.
const eventsShown = 20

// kin is what belongs to groups of a set.
type kin struct {
	set    *lwsv1.LeaderWorkerSet
	groups []clilws.Group
	// own are the UIDs of their objects, and above those of the set and of what makes its leaders.
	own, above map[types.UID]bool
}

func kinOf(s clilws.Survey, groups ...clilws.Group) kin {
	k := kin{s.Set.Set, groups, map[types.UID]bool{}, map[types.UID]bool{s.Set.Set.UID: true}}
	pods := PodsOf(s, groups...)
	note(k.own, pods...)
	for _, g := range groups {
		note(k.own, g.Workers.Owned...)
		note(k.own, g.Service.Owned...)
		note(k.own, slices.Concat(g.Gang.Owned, g.PodGroups.Owned)...)
		note(k.own, g.Volumes.Owned...)
	}
	for _, pvc := range s.Set.PVCs.Owned {
		isOf := func(pod *corev1.Pod) bool { return strings.HasSuffix(pvc.Name, "-"+pod.Name) }
		k.own[pvc.UID] = k.own[pvc.UID] || slices.ContainsFunc(pods, isOf)
	}
	note(k.above, s.Set.StatefulSet.Owned...)
	note(k.above, s.Set.Deployment.Owned...)
	for _, uid := range s.Set.ReplicaSets {
		k.above[uid] = true
	}
	return k
}

// events returns those about the groups, the newest last.
func (k kin) events(all []corev1.Event) []corev1.Event {
	found := slices.DeleteFunc(append([]corev1.Event{}, all...), func(e corev1.Event) bool { return !k.isAbout(&e) })
	slices.SortStableFunc(found, func(a, b corev1.Event) int { return momentOf(&a).Compare(momentOf(&b).Time) })
	return found
}

func note[T metav1.Object](uids map[types.UID]bool, objects ...T) {
	for _, object := range objects {
		uids[object.GetUID()] = true
	}
}

// isNamed reports whether a pod has a name of a group.
func (k kin) isNamed(pod string) bool {
	parent, worker := identity.ParentAndOrdinal(pod)
	return slices.ContainsFunc(k.groups, func(g clilws.Group) bool { return pod == g.LeaderName || parent == g.WorkersName() && worker > 0 })
}

// isAbout reports whether an event is about a group. A group's former pods count since the set exists. An event of
// the set, or of what makes leaders, counts if it names a pod of the group.
func (k kin) isAbout(e *corev1.Event) bool {
	object := e.InvolvedObject
	isBetweenNames := func(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-' }
	switch {
	case k.own[object.UID]:
		return true
	case k.above[object.UID]:
		return e.Related != nil && k.isNamed(e.Related.Name) || slices.ContainsFunc(strings.FieldsFunc(e.Message, isBetweenNames), k.isNamed)
	case momentOf(e).Before(&k.set.CreationTimestamp):
		return false
	}
	return object.Kind == "Pod" && k.isNamed(object.Name) ||
		object.Kind == "StatefulSet" && slices.ContainsFunc(k.groups, func(g clilws.Group) bool { return object.Name == g.WorkersName() })
}

// momentOf is when an event happened last.
func momentOf(e *corev1.Event) *metav1.Time {
	if e.Series != nil {
		return &metav1.Time{Time: e.Series.LastObservedTime.Time}
	}
	return &metav1.Time{Time: cmp.Or(e.LastTimestamp.Time, e.EventTime.Time, e.CreationTimestamp.Time)}
}

func (k kin) write(p *page.Page, events []corev1.Event) {
	var rows []page.Row
	for _, e := range events {
		kind, object, count := page.Cell{Text: e.Type}, strings.ToLower(e.InvolvedObject.Kind)+" "+e.InvolvedObject.Name, max(1, e.Count)
		if !k.own[e.InvolvedObject.UID] && !k.above[e.InvolvedObject.UID] {
			object += " (former)"
		}
		if e.Type == corev1.EventTypeWarning {
			kind.Tone = page.Caution
		}
		if e.Series != nil {
			count = max(count, e.Series.Count)
		}
		rows = append(rows, page.Row{p.Age(momentOf(&e)), count, kind, e.Reason, object, e.Message})
	}
	p.Table(page.Row{"LAST SEEN", "COUNT", "TYPE", "REASON", "OBJECT", "MESSAGE"}, rows)
}
