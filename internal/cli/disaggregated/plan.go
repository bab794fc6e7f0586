package disaggregated

import (
	"context"
	"maps"
	"reflect"
	"slices"

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

// Plan is what "plan -o json" prints for a set: all that happens until its roles are as wanted.
type Plan struct {
	about
	File     string   `json:"file,omitempty"`
	Warnings []string `json:"warnings,omitempty"`
	// NoChange reports that storing the file changes nothing.
	NoChange bool        `json:"noChange,omitempty"`
	Slices   []SlicePlan `json:"slices,omitempty"`
	// Roles and Peak are what exists at most in all slices, whatever becomes ready when.
	Roles []RolePeak          `json:"roles,omitempty"`
	Peak  *consequence.Amount `json:"peak,omitempty"`
	// Created and Deleted are objects, as KIND NAME.
	Created []string `json:"created,omitempty"`
	Deleted []string `json:"deleted,omitempty"`
	// Waits say what keeps the set from its end, and what a user may do.
	Waits []string `json:"waits,omitempty"`
}

// SlicePlan has every step of a slice, if each group is ready, or gone, at once. Steps, floors and ceilings are numbers of
// groups in the order of the roles. The first step is what is there.
type SlicePlan struct {
	Index     int              `json:"index"`
	Roles     []string         `json:"roles"`
	Floors    []int32          `json:"floors"`
	Ceilings  []int32          `json:"ceilings"`
	Revisions []string         `json:"revisions"`
	Steps     []planner.Counts `json:"steps"`
	Stuck     []string         `json:"stuck,omitempty"`
}

// RolePeak is what exists of a role at most.
type RolePeak struct {
	Role                string `json:"role"`
	*consequence.Amount `json:",inline"`
}

// PlanReport returns the plan of a set as a report.
func PlanReport(w disaggregated.Snapshot) (page.Report, error) { return planOf(w) }

// PlanFile returns what happens if a set of a file were applied. It sends dry runs only.
func PlanFile(ctx context.Context, c *cluster.Cluster, manifest *unstructured.Unstructured, file string) (page.Report, error) {
	key := client.ObjectKeyFromObject(manifest)
	after, warnings, err := lws.Apply[dsv1.DisaggregatedSet](ctx, c.Config, manifest)
	if err != nil {
		return nil, c.Explain(err, WriteSets)
	}
	live, err := client.New(c.Config, client.Options{Scheme: lws.Scheme()})
	if err != nil {
		return nil, err
	}
	w, err := read(ctx, live, key, c.Now())
	if client.IgnoreNotFound(err) != nil {
		return nil, c.Explain(err, readSets)
	}
	before := w.Set
	w.Set = after
	p, err := planOf(w)
	if err == nil {
		p.File, p.Warnings = file, warnings
		p.NoChange = p.UID != "" && (p.isEmpty() || isSame(before, after))
	}
	return p, err
}

// isSame reports whether the operator sees no difference.
func isSame(a, b *dsv1.DisaggregatedSet) bool {
	said := func(s *dsv1.DisaggregatedSet) map[string]string {
		all := maps.Clone(s.Annotations)
		delete(all, corev1.LastAppliedConfigAnnotation)
		return all
	}
	return equality.Semantic.DeepEqual(a.Spec, b.Spec) && maps.Equal(said(a), said(b))
}

func (p *Plan) isEmpty() bool { return len(p.Slices)+len(p.Created)+len(p.Deleted)+len(p.Waits) == 0 }

func planOf(w disaggregated.Snapshot) (*Plan, error) {
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
	p := &Plan{about: aboutOf("DisaggregatedSetPlan", w.Set, t.Revision), Waits: says}
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
	p.addPeaks(t)
	p.Created = created
	return p, p.addObjects(t, isHeld || slices.ContainsFunc(p.Slices, func(s SlicePlan) bool { return len(s.Stuck) > 0 }))
}

// addSlice adds the steps of a slice that has some, or cannot begin.
func (p *Plan) addSlice(t *disaggregated.Table, s *disaggregated.Slice) {
	from := t.Planned(s)
	course := planner.CourseOf(from)
	shown := SlicePlan{Index: s.Index, Roles: t.RoleNames(s), Floors: course.Floors, Ceilings: course.Ceilings, Steps: course.Steps, Stuck: course.Stuck}
	for _, revision := range from.Revisions {
		shown.Revisions = append(shown.Revisions, revision.Name)
	}
	for r, role := range from.Roles {
		if role.Target == 0 && len(from.Revisions) <= 2 { // it only shrinks
			shown.Ceilings[r] = held(from, r)
		}
	}
	if len(course.Steps) > 1 || len(course.Stuck) > 0 {
		p.Slices = append(p.Slices, shown)
	}
}

// held is how many groups of a role are wanted, or still hold nodes.
func held(s planner.Slice, role int) int32 {
	n := s.Roles[role].Leaving
	for _, counts := range s.Wanted() {
		n += counts[role]
	}
	return n
}

// addPeaks adds what exists at most: as many groups as the ceilings, each as large as the largest of its role. A slice
// that is removed ends on its own clock.
func (p *Plan) addPeaks(t *disaggregated.Table) {
	groups, all, total := map[string]int32{}, corev1.ResourceList{}, 0
	largest, names := map[string]corev1.ResourceList{}, []string{}
	add := func(role string, n int32, of *lwsv1.LeaderWorkerTemplate) {
		if largest[role] == nil {
			names, largest[role] = append(names, role), corev1.ResourceList{}
		}
		size, leader := ptr.Deref(of.Size, 1), of.LeaderTemplate
		if leader == nil {
			leader = &of.WorkerTemplate
		}
		needs := gang.Resources(leader, &of.WorkerTemplate, size)
		needs[corev1.ResourcePods] = *resource.NewQuantity(int64(size), resource.DecimalSI)
		for name, quantity := range needs {
			if most := largest[role][name]; quantity.Cmp(most) > 0 {
				largest[role][name] = quantity
			}
		}
		groups[role] += n
	}
	for _, role := range t.Roles {
		add(role.Name, 0, &role.Spec.LeaderWorkerTemplate)
	}
	for _, child := range t.Children.Owned {
		place, left := disaggregated.PlaceOf(child), int32(0)
		if place.Slice >= len(t.Slices) {
			left = max(ptr.Deref(child.Spec.Replicas, 1), child.Status.Replicas)
		}
		add(place.Role, left, &child.Spec.LeaderWorkerTemplate)
	}
	for i := range t.Slices {
		from := t.Planned(&t.Slices[i])
		at := slices.IndexFunc(p.Slices, func(s SlicePlan) bool { return s.Index == t.Slices[i].Index })
		for r, role := range from.Roles {
			if groups[role.Name] += held(from, r); at >= 0 {
				groups[role.Name] += p.Slices[at].Ceilings[r] - held(from, r)
			}
		}
	}
	for _, name := range names {
		peak := corev1.ResourceList{}
		consequence.Add(peak, largest[name], int(groups[name]))
		consequence.Add(all, peak, 1)
		total += int(groups[name])
		p.Roles = append(p.Roles, RolePeak{name, consequence.AmountOf(int(groups[name]), peak)})
	}
	if p.Peak = consequence.AmountOf(total, all); len(p.Slices) == 0 {
		p.Roles, p.Peak = nil, nil
	}
}

// addObjects adds the objects that are created and deleted until the set is as wanted, or now where a rollout is held.
func (p *Plan) addObjects(t *disaggregated.Table, isHeld bool) error {
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

func nameOf(kind identity.Kind, name string) string { return string(kind) + " " + name }

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

// equals reports whether another slice takes the same steps.
func (s SlicePlan) equals(other SlicePlan) bool {
	s.Index = other.Index
	return reflect.DeepEqual(s, other)
}
