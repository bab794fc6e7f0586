package render

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	clilws "lockstep.dev/lockstep/internal/cli/lws"
	"lockstep.dev/lockstep/internal/cli/page"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/internal/lws/restart"
	"lockstep.dev/lockstep/internal/lws/revision"
	"lockstep.dev/lockstep/internal/lws/workload"
	"lockstep.dev/lockstep/internal/terminal"
)

// SetStatus is what "status -o json" prints.
type SetStatus struct {
	metav1.TypeMeta `json:",inline"`

	Namespace  string      `json:"namespace"`
	Name       string      `json:"name"`
	UID        types.UID   `json:"uid"`
	Generation int64       `json:"generation"`
	CreatedAt  metav1.Time `json:"createdAt"`
	// DeletedAt is when the set was deleted; absent before.
	DeletedAt *metav1.Time `json:"deletedAt,omitempty"`

	// Desired is the wanted number of groups, and Size that of pods in a group.
	Desired int32 `json:"desired"`
	Size    int32 `json:"size"`
	// Ready and UpToDate count groups now, surge groups included. status.readyReplicas may lag behind.
	Ready    int32 `json:"ready"`
	UpToDate int32 `json:"upToDate"`
	// Revision is the key of the target revision, and RevisionNumber its number; absent while unknown.
	Revision       string `json:"revision,omitempty"`
	RevisionNumber int64  `json:"revisionNumber,omitempty"`
	// Paused reports whether the set's rollout is paused.
	Paused bool `json:"paused,omitempty"`

	// Unattended is why no operator acts on the set; absent while one does, or where you may not see it.
	Unattended *Wait `json:"unattended,omitempty"`
	// Disruption is absent for a set whose evictions are not limited, or where you may not see it.
	Disruption *workload.Allowance `json:"disruption,omitempty"`
	// Conditions are those in the set's status.
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// Waiting is what the set itself waits for.
	Waiting []Wait `json:"waiting,omitempty"`
	// Due is the number of writes that the operator has yet to make. It stays above zero only if no operator runs.
	Due int `json:"due"`
	// Groups are those that are wanted and those that have an object, by rising index. Those in a row of which
	// nothing exists are one entry.
	Groups []GroupStatus `json:"groups"`
	// Those of a set belong to no single group.
	leftovers
}

// GroupStatus is one group of a SetStatus.
type GroupStatus struct {
	// Index is the ordinal of the group, or the number of the first digits of its key, which are Key.
	Index int    `json:"index"`
	Key   string `json:"key,omitempty"`
	// LastIndex is the index of the last of several groups; absent for one group. The other fields are of the first.
	LastIndex int `json:"lastIndex,omitempty"`
	// Leader is the name that the leader has or would have.
	Leader string `json:"leader"`
	// Wanted reports whether the index is below the wanted number of groups.
	Wanted bool `json:"wanted"`
	// Exists reports whether the group has a leader.
	Exists bool `json:"exists"`
	Ready  bool `json:"ready"`
	// ReadyPods of Pods are ready, the leader included.
	ReadyPods int32 `json:"readyPods"`
	Pods      int32 `json:"pods"`
	// Revision is the leader's key, and RevisionNumber the number of that revision.
	Revision       string `json:"revision,omitempty"`
	RevisionNumber int64  `json:"revisionNumber,omitempty"`
	UpToDate       bool   `json:"upToDate"`
	// Nodes are the distinct nodes of the group's pods, in alphabetical order.
	Nodes []string `json:"nodes,omitempty"`
	// CreatedAt is when the leader was created.
	CreatedAt *metav1.Time `json:"createdAt,omitempty"`
	// Restarts is the sum over all containers of the group's pods.
	Restarts int32 `json:"restarts"`
	// Waiting is why the group is not ready.
	Waiting []Wait `json:"waiting,omitempty"`
	leftovers
	// Failed is absent when the group never failed.
	Failed *GroupFailure `json:"failed,omitempty"`
}

// leftovers are objects of previous incarnations. They are not counted.
type leftovers struct {
	Previous []Previous `json:"previous,omitempty"`
	// Ghosts is the former name of Previous, for one release.
	Ghosts []Previous `json:"ghosts,omitempty"`
}

func left(lists ...[]Previous) leftovers {
	all := slices.Concat(lists...)
	return leftovers{all, all}
}

// Previous is an object of a previous incarnation, or a terminating one. It has a name of the set.
type Previous struct {
	Kind string    `json:"kind"`
	Name string    `json:"name"`
	UID  types.UID `json:"uid"`
	// DeletedAt is when it was deleted; absent before.
	DeletedAt *metav1.Time `json:"deletedAt,omitempty"`
	// Node is the node of a pod.
	Node       string   `json:"node,omitempty"`
	Finalizers []string `json:"finalizers,omitempty"`
}

// GroupFailure describes the failures for which a group is recreated.
type GroupFailure struct {
	// Count is the number of failures in a row, the last one included.
	Count int32 `json:"count"`
	// At is when the group failed last.
	At metav1.Time `json:"at"`
	// Due is when the group is recreated, until it is.
	Due *metav1.Time `json:"due,omitempty"`
	// Pods are those that failed, the latest last.
	Pods []PodFailure `json:"pods,omitempty"`
	// Containers are those that failed with the group when it failed last, the first to end first.
	Containers []lwsv1.ContainerFailure `json:"containers,omitempty"`
}

// PodFailure is a failure that the status of the set records, and what caused it.
type PodFailure struct {
	Cause            restart.Cause `json:"cause"`
	lwsv1.PodFailure `json:",inline"`
}

// Status returns the status of a survey.
func Status(s clilws.Survey) *SetStatus {
	set := s.Set.Set
	return &SetStatus{
		TypeMeta:  page.Kind("SetStatus"),
		Namespace: set.Namespace, Name: set.Name, UID: set.UID, Generation: set.Generation,
		CreatedAt: set.CreationTimestamp, DeletedAt: deletedAt(set),
		Desired: workload.Replicas(set), Size: workload.Size(set),
		Ready: s.Standing.Ready, UpToDate: s.Standing.Updated, Revision: s.Standing.Key, RevisionNumber: numberOf(s, s.Standing.Key),
		Paused:     lws.Paused(set),
		Unattended: unattended(s),
		Disruption: s.Standing.Allowance,
		Conditions: set.Status.Conditions,
		Waiting:    append(waits(s, s.Plan), leadersRefused(s)...),
		Due:        due(s),
		Groups:     groups(s),
		leftovers: left(previous(identity.KindStatefulSet, s.Set.StatefulSet.Previous),
			previous(identity.KindService, s.Set.Service.Previous), previous(identity.KindControllerRevision, s.Set.Revisions.Previous)),
	}
}

// groups returns the groups that are wanted or have an object.
func groups(s clilws.Survey) []GroupStatus {
	all, next := []GroupStatus{}, 0
	fold := func(end int) {
		if next < end {
			if all = append(all, Group(s, s.Absent(next))); end-next > 1 {
				all[len(all)-1].LastIndex = end - 1
			}
		}
	}
	for _, g := range s.Groups {
		fold(min(g.Index, s.Indices()))
		next = max(next, g.Index+1)
		if status := Group(s, g); status.Wanted || status.Exists || len(status.Previous) > 0 {
			all = append(all, status)
		}
	}
	fold(s.Indices())
	return all
}

// Group returns the status of one group of a survey.
func Group(s clilws.Survey, g clilws.Group) GroupStatus {
	leader := func(pod *corev1.Pod) bool { return pod.Name == g.LeaderName }
	pods := g.Members()
	status := GroupStatus{
		Index: g.Index, Leader: g.LeaderName,
		Key:    g.Key,
		Wanted: g.HasKey() || int32(g.Index) < workload.Replicas(g.Set),
		Exists: g.Leader != nil,
		Ready:  g.Ready(g.Set), UpToDate: g.UpToDate(s.Standing.Key),
		Pods: g.Size(), Nodes: clilws.NodeNames(pods),
		leftovers: left(
			previous(identity.KindPod, only(s.Set.Leaders.Previous, leader)),
			previous(identity.KindStatefulSet, g.Workers.Previous),
			previous(identity.KindPod, g.Pods.Previous),
			previous(identity.KindService, g.Service.Previous),
			previous(identity.KindPodGroup, g.Gang.Previous),
			previous(identity.KindPodGroup, g.PodGroups.Previous),
		),
		Failed: failureOf(g),
	}
	for _, pod := range pods {
		status.ReadyPods += lws.One(lws.PodReady(pod))
		status.Restarts += int32(restart.Restarts(pod))
	}
	if g.Leader != nil {
		status.Revision = g.Leader.Labels[lwsv1.RevisionKey]
		status.CreatedAt = timeOf(g.Leader.CreationTimestamp.Time)
	}
	status.RevisionNumber = numberOf(s, status.Revision)
	status.Waiting = groupWaits(s, g, status)
	return status
}

// failureOf returns the failures of a group from the set's status.
func failureOf(g clilws.Group) *GroupFailure {
	r := restart.Entry(g.Set, g.Index)
	if r == nil {
		return nil
	}
	f := &GroupFailure{Count: r.Count, At: r.FailedAt, Containers: r.Containers}
	for _, failure := range r.Failures {
		f.Pods = append(f.Pods, PodFailure{restart.CauseOf(failure), failure})
	}
	if g.Leader != nil && g.Leader.UID == r.Leader {
		f.Due = &r.DueAt
	}
	return f
}

func previous[T metav1.Object](k identity.Kind, objects []T) []Previous {
	var all []Previous
	for _, object := range objects {
		p := Previous{
			Kind: string(k), Name: object.GetName(), UID: object.GetUID(), DeletedAt: deletedAt(object), Finalizers: object.GetFinalizers(),
		}
		if pod, ok := any(object).(*corev1.Pod); ok {
			p.Node = pod.Spec.NodeName
		}
		all = append(all, p)
	}
	slices.SortStableFunc(all, func(a, b Previous) int { return cmp.Or(len(a.Name)-len(b.Name), cmp.Compare(a.Name, b.Name)) }) // a-9 before a-10
	return all
}

func only[T any](all []T, fits func(T) bool) []T {
	return slices.DeleteFunc(slices.Clone(all), func(one T) bool { return !fits(one) })
}

// due counts the writes that the operator has yet to make.
func due(s clilws.Survey) int {
	count := len(s.Plan.Actions)
	for _, g := range s.Groups {
		count += len(g.Plan.Actions)
	}
	return count
}

// deletedAt is when an object was deleted, or nil. The deletion timestamp is the end of the grace period.
func deletedAt(object metav1.Object) *metav1.Time {
	ends, grace := object.GetDeletionTimestamp(), object.GetDeletionGracePeriodSeconds()
	if ends == nil || grace == nil {
		return ends
	}
	return timeOf(ends.Add(-time.Duration(*grace) * time.Second))
}

func timeOf(at time.Time) *metav1.Time {
	if at.IsZero() {
		return nil
	}
	return &metav1.Time{Time: at}
}

// Write writes the status as tables.
func (s *SetStatus) Write(p *page.Page) {
	s.header(p)
	s.conditions(p)
	s.waits(p)
	s.groups(p)
	WriteFailures(p, s.Groups...)
	s.previous(p)
}

func (s *SetStatus) header(p *page.Page) {
	p.Linef("%s in namespace %s: %d of %d groups ready, %d up to date, %s each",
		s.Name, s.Namespace, s.Ready, s.Desired, s.UpToDate, page.Counted(int(s.Size), "pod"))
	state := ""
	if s.Paused {
		state = ", rollout paused"
	}
	if s.DeletedAt != nil {
		state += ", being deleted for " + p.Age(s.DeletedAt)
	}
	p.Linef("revision %s, set created %s ago%s", page.Dash(revision.Title(s.RevisionNumber, s.Revision)), p.Age(&s.CreatedAt), state)
	if s.Disruption != nil {
		p.Linef("evictions: %s", s.Disruption.Why)
	}
	if s.Unattended != nil {
		p.Linef("%s (%s)", s.Unattended.Message, s.Unattended.Reason)
	}
	if s.Due > 0 {
		p.Linef("the operator has %s yet to make; see: kubectl lockstep plan %s -n %s", page.Counted(s.Due, "write"), s.Name, s.Namespace)
	}
}

func (s *SetStatus) conditions(p *page.Page) {
	if len(s.Conditions) == 0 {
		p.Gap()
		p.Linef("no conditions yet: no operator has reconciled this set")
	}
	var rows []page.Row
	for _, status := range []metav1.ConditionStatus{metav1.ConditionTrue, metav1.ConditionUnknown, metav1.ConditionFalse} {
		for _, c := range s.Conditions {
			message := c.Message
			if status == metav1.ConditionFalse {
				message = "" // the API keeps the one of when it was true
			}
			if c.Status == status {
				rows = append(rows, page.Row{c.Type, c.Status, p.Age(&c.LastTransitionTime), c.Reason, message})
			}
		}
	}
	p.Table(page.Row{"CONDITION", "STATUS", "SINCE", "REASON", "MESSAGE"}, rows)
}

// waits lists the waits that no condition shows.
func (s *SetStatus) waits(p *page.Page) {
	isNew := func(w Wait) bool {
		return !slices.ContainsFunc(s.Conditions, func(c metav1.Condition) bool { return c.Status == metav1.ConditionTrue && c.Message == w.Message })
	}
	for i, w := range only(s.Waiting, isNew) {
		if i == 0 {
			p.Gap()
		}
		p.Linef("waiting: %s (%s)", w.Message, w.Reason)
	}
}

// few is how many equal groups have a row each. failuresShown and groupsShown bound what a text has of failures.
const few, failuresShown, groupsShown = 3, 20, 3

// groups lists those that are not ready first, and last those that are as they should be. More than a few that follow
// each other and say the same have one row.
func (s *SetStatus) groups(p *page.Page) {
	all, rows := slices.Clone(s.Groups), []page.Row(nil)
	place := func(g GroupStatus) int32 {
		return lws.One(g.Ready) + lws.One(g.Ready && g.Wanted && !s.isOld(g) && len(g.Waiting) == 0)
	}
	slices.SortStableFunc(all, func(a, b GroupStatus) int { return int(place(a) - place(b)) })
	says := func(row page.Row) [3]any { return [3]any{row[1], row[2], row[6]} }
	for len(all) > 0 {
		n, row := 1, s.row(p, all[0])
		for n < len(all) && all[n].Wanted && (all[n].Key != "" || all[n].Index == all[n-1].Index+1) && says(s.row(p, all[n])) == says(row) {
			n++
		}
		if n > few {
			row[0], row[3], row[5] = sums(all[:n])
		} else {
			n = 1
		}
		rows, all = append(rows, row), all[n:]
	}
	p.Table(page.Row{"GROUP", "READY", "REVISION", "NODES", "AGE", "CONTAINER RESTARTS", "WAITING FOR"}, rows)
}

func (s *SetStatus) isOld(g GroupStatus) bool {
	return g.Exists && !g.UpToDate && g.Revision != s.Revision
}

func (s *SetStatus) row(p *page.Page, g GroupStatus) page.Row {
	index, runs := g.Name(), page.Cell{Text: page.Dash(revision.Title(g.RevisionNumber, g.Revision))}
	ready := page.Cell{Text: fmt.Sprintf("%d/%d", g.ReadyPods, g.Pods), Tone: page.Bad}
	if g.Ready {
		ready.Tone = page.Good
	}
	if !g.Wanted {
		index += " (surplus)"
	}
	if s.isOld(g) {
		runs = page.Cell{Text: fmt.Sprint(runs.Text, " (old)"), Tone: page.Faint}
	}
	var waiting []string
	for _, w := range g.Waiting {
		waiting = append(waiting, w.Message)
	}
	return page.Row{index, ready, runs, terminal.Few(g.Nodes, 1), p.Age(g.CreatedAt), g.Restarts, strings.Join(waiting, "; ")}
}

// sums are the cells of a row of several groups: which, on how many nodes, and with how many restarts.
func sums(groups []GroupStatus) (name, on string, restarts int32) {
	nodes := sets.Set[string]{}
	for _, g := range groups {
		restarts += g.Restarts
		nodes.Insert(g.Nodes...)
	}
	name = groups[0].Name() + "-" + groups[len(groups)-1].Name()
	if groups[0].Key != "" {
		name = fmt.Sprintf("%s and %d more", groups[0].Key, len(groups)-1)
	}
	return name, page.Counted(len(nodes), "node"), restarts
}

// Name returns the index or the key of a group, or the range of several.
func (g GroupStatus) Name() string {
	if g.LastIndex > 0 {
		return fmt.Sprintf("%d-%d", g.Index, g.LastIndex)
	}
	return cmp.Or(g.Key, strconv.Itoa(g.Index))
}

// WriteFailures lists the failures of groups by cause, and what failed containers left: the groups that failed last have
// the first rows.
func WriteFailures(p *page.Page, groups ...GroupStatus) {
	rows, failed := map[restart.Cause][]page.Row{}, only(groups, func(g GroupStatus) bool { return g.Failed != nil })
	slices.SortStableFunc(failed, func(a, b GroupStatus) int { return b.Failed.At.Compare(a.Failed.At.Time) })
	for _, g := range failed {
		pods := g.Failed.Pods
		if len(pods) == 0 {
			pods = []PodFailure{{restart.Unknown, lwsv1.PodFailure{At: g.Failed.At}}}
		}
		for _, f := range slices.Backward(pods) {
			rows[f.Cause] = append(rows[f.Cause], page.Row{f.Cause, g.Name(), f.Pod, p.Age(&f.At) + " ago", g.Failed.Count, f.Node, reasonOf(f.PodFailure)})
		}
	}
	all := slices.Concat(rows[restart.Crash], rows[restart.LostNode], rows[restart.Disruption], rows[restart.Request], rows[restart.Deletion], rows[restart.Unknown])
	p.Table(page.Row{"CAUSE", "GROUP", "FAILED POD", "WHEN", "IN A ROW", "NODE", "WHY"}, all[:min(len(all), failuresShown)])
	if more := len(all) - failuresShown; more > 0 {
		p.Linef("and %d more: -o json has them", more)
	}
	failed = only(failed, func(g GroupStatus) bool { return len(g.Failed.Containers) > 0 })
	for _, g := range failed[:min(len(failed), groupsShown)] {
		g.containers(p)
	}
	if more := len(failed) - groupsShown; more > 0 {
		p.Linef("%s more have failed containers: see status NAME GROUP", page.Counted(more, "group"))
	}
}

// containers shows what the failed containers of a group left.
func (g GroupStatus) containers(p *page.Page) {
	var lines []string
	for _, c := range g.Failed.Containers {
		lines = append(lines, fmt.Sprintf("pod %s, container %s: %s (exit code %d), %s ago", c.Pod, c.Name, page.Dash(c.Reason), c.ExitCode, p.Age(&c.At)))
		lines = append(lines, page.Quoted("", c.Message)...)
		lines = append(lines, page.Quoted("  log:", c.Log)...)
		if c.LogUnread != "" {
			lines = append(lines, "  log not read: "+c.LogUnread)
		}
	}
	p.Section(fmt.Sprintf("CONTAINERS THAT FAILED WITH GROUP %s", g.Name()), lines...)
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
func (s *SetStatus) previous(p *page.Page) {
	all := slices.Clone(s.Previous)
	for _, g := range s.Groups {
		all = append(all, g.Previous...)
	}
	var rows []page.Row
	for _, o := range all {
		rows = append(rows, page.Row{strings.ToLower(o.Kind) + " " + o.Name, p.Age(o.DeletedAt), o.Node, strings.Join(o.Finalizers, ",")})
	}
	p.Table(page.Row{"PREVIOUS (NOT COUNTED)", "DELETED", "NODE", "FINALIZERS"}, rows)
}
