package disaggregated

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	dsv1 "lockstep.dev/lockstep/api/disaggregatedset/v1"
	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/cli/cluster"
	"lockstep.dev/lockstep/internal/cli/consequence"
	"lockstep.dev/lockstep/internal/cli/lws"
	"lockstep.dev/lockstep/internal/cli/page"
	"lockstep.dev/lockstep/internal/condition"
	"lockstep.dev/lockstep/internal/disaggregated"
	"lockstep.dev/lockstep/internal/disaggregated/planner"
	"lockstep.dev/lockstep/internal/disaggregated/set"
	"lockstep.dev/lockstep/internal/gang"
	"lockstep.dev/lockstep/internal/identity"
)

// SetPlan is what "plan -o json" prints for a set: all that happens until its roles are as wanted.
type SetPlan struct {
	about
	File     string   `json:"file,omitempty"`
	Warnings []string `json:"warnings,omitempty"`
	// NoChange reports that storing the file changes nothing.
	NoChange bool        `json:"noChange,omitempty"`
	Slices   []SlicePlan `json:"slices,omitempty"`
	// Peaks are what exists at most in all slices, whatever becomes ready when: of each role, and of all.
	Peaks []Peak `json:"peaks,omitempty"`
	// Created and Deleted are objects, as KIND NAME.
	Created []string `json:"created,omitempty"`
	Deleted []string `json:"deleted,omitempty"`
	// Waits say what keeps the set from its end, and what a user may do.
	Waits []string `json:"waits,omitempty"`
	// groups are by role how many exist at most.
	groups map[string]int32
}

// SlicePlan has every step of slices that take the same, if each group is ready, or gone, at once. Steps, floors and
// ceilings are numbers of groups in the order of the roles. The first step is what is there.
type SlicePlan struct {
	Index     int              `json:"index"`
	Last      int              `json:"lastIndex"`
	Roles     []string         `json:"roles"`
	Floors    []int32          `json:"floors"`
	Ceilings  []int32          `json:"ceilings"`
	Revisions []string         `json:"revisions"`
	Steps     []planner.Counts `json:"steps"`
	Stuck     []string         `json:"stuck,omitempty"`
}

// Peak is what exists of a role at most.
type Peak struct {
	Role                string `json:"role"`
	*consequence.Amount `json:",inline"`
}

// PlanFile returns what happens if a set of a file were applied. It sends dry runs only.
func PlanFile(ctx context.Context, c *cluster.Cluster, manifest *unstructured.Unstructured, file string) (page.Report, error) {
	s, err := c.Open(ctx, manifest.GetNamespace())
	if err != nil {
		return nil, err
	}
	after, warnings, err := lws.Apply[dsv1.DisaggregatedSet](ctx, c.Config, manifest)
	if err != nil {
		return nil, c.Explain(err, cluster.WriteRoles)
	}
	w, err := read(ctx, s.Live, client.ObjectKeyFromObject(after), c.Now())
	if client.IgnoreNotFound(err) != nil {
		return nil, c.Explain(err, cluster.ReadSets)
	}
	before := w.Set
	w.Set = after
	p, err := Plan(w)
	if err == nil {
		delete(before.Annotations, corev1.LastAppliedConfigAnnotation)
		delete(after.Annotations, corev1.LastAppliedConfigAnnotation)
		isSame := equality.Semantic.DeepEqual(before.Spec, after.Spec) && maps.Equal(before.Annotations, after.Annotations)
		p.File, p.Warnings, p.NoChange = file, warnings, p.UID != "" && isSame
	}
	return p, err
}

func (p *SetPlan) isEmpty() bool {
	return len(p.Slices)+len(p.Created)+len(p.Deleted)+len(p.Waits) == 0
}

// Plan returns the plan of a set.
func Plan(w disaggregated.Snapshot) (*SetPlan, error) {
	now, err := set.Decide(w)
	if err != nil {
		return nil, err
	}
	var created []string
	for _, a := range now.Actions { // its role has as many groups as the new scaler says
		if create, is := a.(action.Create); is && create.Kind == identity.KindDisaggregatedSetRoleScaler {
			w.Scalers.Owned = append(slices.Clone(w.Scalers.Owned), create.Object.(*dsv1.DisaggregatedSetRoleScaler))
			created = append(created, nameOf(create.Kind, create.Object.GetName()))
		}
	}
	t, says, err := set.Step(w)
	if err != nil {
		return nil, err
	}
	p := &SetPlan{about: aboutOf("DisaggregatedSetPlan", w.Set, t.Revision), Waits: withHindrances(w.Set, says), groups: map[string]int32{}}
	if w.Set.DeletionTimestamp != nil || condition.IsTrue(w.Set.Status.Conditions, action.CodeUnsupported) {
		p.Waits = append(p.Waits, "the set is being deleted, or the operator leaves it alone")
		return p, nil
	}
	for _, wait := range now.Waits {
		p.Waits = append(p.Waits, wait.Sentence)
	}
	isHeld := slices.ContainsFunc(t.Roles, func(r disaggregated.Role) bool { return !r.IsKnown() })
	for i := 0; i < len(t.Slices) && !isHeld; i++ {
		p.addSlice(t, &t.Slices[i])
	}
	if p.Paused && slices.ContainsFunc(p.Slices, func(s SlicePlan) bool { return len(s.Revisions) > 1 }) {
		p.Waits = append(p.Waits, "the rollout is paused: no step is taken until it is resumed")
	}
	if p.Created = created; len(p.Slices) > 0 {
		p.addPeaks(t)
	}
	return p, p.addObjects(t, isHeld || slices.ContainsFunc(p.Slices, func(s SlicePlan) bool { return len(s.Stuck) > 0 }))
}

// addSlice adds the steps of a slice that has some, or cannot begin.
func (p *SetPlan) addSlice(t *disaggregated.Table, s *disaggregated.Slice) {
	from := t.Planned(s)
	course := planner.CourseOf(from)
	shown := SlicePlan{Index: s.Index, Last: s.Index, Roles: t.RoleNames(s), Floors: course.Floors, Ceilings: course.Ceilings, Steps: course.Steps, Stuck: course.Stuck}
	for _, revision := range from.Revisions {
		shown.Revisions = append(shown.Revisions, revision.Name)
	}
	isStill := len(course.Steps) == 1 && len(course.Stuck) == 0
	for r, role := range from.Roles {
		held := role.Leaving
		for _, counts := range course.Steps[0] {
			held += counts[r]
		}
		if isStill || role.Target == 0 && len(from.Revisions) <= 2 { // it does not grow
			shown.Ceilings[r] = held
		}
		p.groups[role.Name] += shown.Ceilings[r]
	}
	if last := len(p.Slices) - 1; last >= 0 && p.Slices[last].Last == s.Index-1 {
		same := shown
		if same.Index, same.Last = p.Slices[last].Index, s.Index-1; reflect.DeepEqual(same, p.Slices[last]) {
			p.Slices[last].Last = s.Index
			return
		}
	}
	if !isStill {
		p.Slices = append(p.Slices, shown)
	}
}

// addPeaks adds what exists at most: groups that are as large as the largest of their role. A slice that is removed ends
// on its own clock.
func (p *SetPlan) addPeaks(t *disaggregated.Table) {
	total, all := int32(0), corev1.ResourceList{}
	largest, names := map[string]corev1.ResourceList{}, []string{}
	add := func(role string, of *lwsv1.LeaderWorkerTemplate) {
		if largest[role] == nil {
			names, largest[role] = append(names, role), corev1.ResourceList{}
		}
		size, leader := ptr.Deref(of.Size, 1), cmp.Or(of.LeaderTemplate, &of.WorkerTemplate)
		needs := gang.Resources(leader, &of.WorkerTemplate, size)
		needs[corev1.ResourcePods] = *resource.NewQuantity(int64(size), resource.DecimalSI)
		for name, quantity := range needs {
			if most := largest[role][name]; quantity.Cmp(most) > 0 {
				largest[role][name] = quantity
			}
		}
	}
	for _, role := range t.Roles {
		add(role.Name, &role.Spec.LeaderWorkerTemplate)
	}
	for _, child := range t.Children.Owned {
		place := disaggregated.PlaceOf(child)
		if add(place.Role, &child.Spec.LeaderWorkerTemplate); place.Slice >= len(t.Slices) {
			p.groups[place.Role] += max(ptr.Deref(child.Spec.Replicas, 1), child.Status.Replicas)
		}
	}
	for _, name := range names {
		peak := corev1.ResourceList{}
		consequence.Add(peak, largest[name], int(p.groups[name]))
		consequence.Add(all, peak, 1)
		total += p.groups[name]
		p.Peaks = append(p.Peaks, Peak{name, consequence.AmountOf(int(p.groups[name]), peak)})
	}
	p.Peaks = append(p.Peaks, Peak{"all", consequence.AmountOf(int(total), all)})
}

// addObjects adds the objects that are created and deleted until the set is as wanted, or now where a rollout is held.
func (p *SetPlan) addObjects(t *disaggregated.Table, isHeld bool) error {
	w := *t.Snapshot
	if !isHeld {
		w = finally(t)
	}
	plan, err := set.Decide(w)
	for _, a := range plan.Actions {
		switch a := a.(type) {
		case action.Create:
			p.Created = append(p.Created, nameOf(a.Kind, a.Object.GetName()))
		case action.Delete:
			p.Deleted = append(p.Deleted, nameOf(a.Object.Kind, a.Object.Name))
		}
	}
	lacks := func(from, other []*lwsv1.LeaderWorkerSet) (names []string) {
		for _, child := range from {
			if !slices.ContainsFunc(other, func(o *lwsv1.LeaderWorkerSet) bool { return o.Name == child.Name }) {
				names = append(names, nameOf(identity.KindLeaderWorkerSet, child.Name))
			}
		}
		return names
	}
	p.Created = append(p.Created, lacks(w.Children.Owned, t.Children.Owned)...)
	p.Deleted = append(p.Deleted, lacks(t.Children.Owned, w.Children.Owned)...)
	slices.Sort(p.Created)
	slices.Sort(p.Deleted)
	return err
}

// nameOf names an object. A name that ends with a part of the UID is not complete before the set is stored.
func nameOf(kind identity.Kind, name string) string {
	return string(kind) + " " + strings.TrimSuffix(name, "-")
}

// finally is a set once all steps are taken: each role has its LeaderWorkerSet with a ready group, and nothing else.
func finally(t *disaggregated.Table) disaggregated.Snapshot {
	w := *t.Snapshot
	w.Children.Owned, w.Pods = nil, nil
	for index := range t.Slices {
		for _, role := range t.Roles {
			place := disaggregated.Place{Slice: index, Revision: t.Revision, Role: role.Name}
			child := disaggregated.Child(w.Set, role.DisaggregatedRole, place, role.Target, role.Target)
			leader := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
				CreationTimestamp: w.Set.CreationTimestamp, Annotations: map[string]string{lwsv1.SizeAnnotationKey: "1"},
				Labels: map[string]string{lwsv1.SetNameLabelKey: child.Name, lwsv1.GroupIndexLabelKey: "0", lwsv1.WorkerIndexLabelKey: "0"},
			}}
			leader.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
			w.Children.Owned, w.Pods = append(w.Children.Owned, child), append(w.Pods, leader)
		}
	}
	return w
}

// Write writes the steps of each slice, the peaks, the objects and the waits. A file that changes nothing has no text.
func (p *SetPlan) Write(to *page.Page) {
	if p.NoChange {
		return
	}
	to.Gap()
	state := strings.TrimSuffix(fmt.Sprintf(", if %s were applied now", p.File), ", if  were applied now") + map[bool]string{true: " (no such set yet)"}[p.UID == ""]
	to.Linef("%s %s in namespace %s%s: revision %s", Noun, p.Name, p.Namespace, state, p.Revision)
	for _, warning := range p.Warnings {
		to.Linef("warning: %s", warning)
	}
	switch {
	case p.isEmpty() && p.File != "":
		to.Linef("no group moves now: groups that are created later have what changes")
	case p.isEmpty():
		to.Linef("in step: nothing to do")
	}
	for _, slice := range p.Slices {
		slice.write(to)
	}
	var peaks []string
	for _, r := range p.Peaks {
		peaks = append(peaks, r.Role+": "+r.Amount.String())
	}
	to.Section("at the peak, whatever becomes ready when", peaks...)
	to.Section("created", p.Created...)
	to.Section("deleted", p.Deleted...)
	to.Section("waits", p.Waits...)
}

func (s SlicePlan) write(to *page.Page) {
	name := fmt.Sprintf("slice %d", s.Index)
	if s.Last > s.Index {
		name = fmt.Sprintf("slices %d-%d, each", s.Index, s.Last)
	}
	to.Gap()
	if len(s.Stuck) > 0 {
		to.Linef("%s: the rollout cannot begin for %s", name, page.Few(s.Stuck))
	}
	to.Linef("%s: groups of %s after each step", name, strings.Join(s.Roles, "/"))
	vector := func(counts []int32) string {
		return strings.ReplaceAll(strings.Trim(fmt.Sprint(counts), "[]"), " ", "/")
	}
	columns, rows := page.Row{"STEP", "NEW " + s.Revisions[0]}, []page.Row{}
	for _, revision := range s.Revisions[1:] {
		columns = append(columns, "OLD "+revision)
	}
	for i, counts := range s.Steps {
		row := page.Row{i}
		for _, of := range counts {
			row = append(row, vector(of))
		}
		rows = append(rows, row)
	}
	to.Table(columns, rows)
	to.Linef("ready at least %s, with nodes at most %s", vector(s.Floors), vector(s.Ceilings))
}
