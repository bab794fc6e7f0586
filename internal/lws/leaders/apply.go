package leaders

import (
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/internal/lws/scheduling"
	"lockstep.dev/lockstep/internal/lws/table"
	"lockstep.dev/lockstep/internal/lws/volumes"
	"lockstep.dev/lockstep/internal/lws/workload"
	"lockstep.dev/lockstep/internal/rollout"
)

// statefulSetMaker answers for Ordinal sets.
type statefulSetMaker struct{ *table.Table }

// deploymentMaker answers for Hash sets: any leader is as good as another.
type deploymentMaker struct {
	*table.Table
	// gated are the leaders that wait for room.
	gated replacements
}

// New returns the maker of a set.
func New(t *table.Table) table.Maker {
	if workload.HasHashIdentity(t.Set) {
		return &deploymentMaker{Table: t}
	}
	return &statefulSetMaker{t}
}

// replacements are the gated leaders of a set of Hash groups.
type replacements struct {
	// room counts the places of the set, and admitted are the leaders that get one.
	room               rollout.Room
	admitted, deferred []*corev1.Pod
}

// systemPrefix begins the keys of every label and annotation of the API.
const systemPrefix = "leaderworkerset.sigs.k8s.io/"

// Apply creates the StatefulSet or Deployment of the leaders, or applies it onto the version that was judged if it differs
// from the spec.
func Apply(t *table.Table) (p lws.Plan) {
	desired := Wanted(t)
	if desired == nil || scheduling.Of(t).IsAwaited() {
		return p
	}
	applied, live := lws.Fingerprint(desired), t.LeadersOwner()
	desired.GetAnnotations()[lws.AppliedAnnotationKey] = applied
	isOrphan := t.StatefulSet.Own() == nil && t.Deployment.Own() == nil
	switch {
	case live == nil && t.StatefulSet.Empty() && t.Deployment.Empty():
		return createLeaders(t, desired)
	case live == nil, !isOrphan && !t.Maker.Differs(desired, applied):
		return p
	}
	desired.GetAnnotations()[lws.AppliedAnnotationKey] = t.Maker.Record(desired, applied)
	write := action.Apply{
		Object:     desired,
		Onto:       identity.RefOf(live.Kind, live),
		FieldOwner: lws.FieldOwner,
		Applied:    !slices.ContainsFunc(live.GetManagedFields(), lws.LeftByCreate),
	}
	write.Tell.Refused = lws.Warning("FailedUpdate", "Update", "Failed to update leader "+live.Noun()+" "+t.Set.Name, nil)
	t.Maker.Explain(&write)
	if isOrphan {
		write.Adopter = new(lws.SetRef(t.Set))
		write.Because = lws.Because(lws.CodeOrphan, write.Onto.String()+" has no controller and has the labels of this set")
	}
	p.Do(write)
	return p
}

// Wanted returns the StatefulSet or Deployment as it is applied, without the record of the apply, or nil while none is wanted.
func Wanted(t *table.Table) action.Object {
	if t.Held || t.Target.Key == "" {
		return nil
	}
	desired, template := t.Maker.Desired()
	scheduling.Of(t).Mark(template)
	asFound(t, desired, template)
	delete(desired.GetAnnotations(), lws.AppliedAnnotationKey)
	return desired
}

// leadersWait reports whether the leader StatefulSet stays as it is until PVCs are safe from the garbage collector.
func leadersWait(t *table.Table, sts *appsv1.StatefulSet) bool {
	return t.PVCsPending && (volumes.AreDeletedBy(sts) || t.Rollout.Lowers(t.Course) || t.Course.Replicas < workload.PodsOf(sts))
}

// WantedLeaders returns the leader StatefulSet that a decided snapshot wants, or nil. Its Fingerprint is what
// an apply of it records.
func WantedLeaders(w lws.SetSnapshot) *appsv1.StatefulSet {
	if w.Set.DeletionTimestamp != nil || len(w.Beyond) > 0 {
		return nil
	}
	t, plan := table.Of(w, New)
	if plan.Needs != "" {
		return nil
	}
	wanted, _ := Wanted(t).(*appsv1.StatefulSet)
	return wanted
}

func createLeaders(t *table.Table, desired action.Object) (p lws.Plan) {
	kind := identity.KindStatefulSet
	if _, is := desired.(*appsv1.Deployment); is {
		kind = identity.KindDeployment
	}
	name := "leader " + strings.ToLower(string(kind)) + " " + t.Set.Name
	p.Create(kind, desired, lws.SetRef(t.Set), "the set has no "+name, "Failed to create "+name, nil,
		lws.Event("GroupsProgressing", "Create", "Created "+name, t.Target.Revision))
	return p
}

// isLabelledAs reports whether an object has the labels that the readers of a set go by.
func isLabelledAs(live, desired metav1.Object) bool {
	is, wanted := live.GetLabels(), desired.GetLabels()
	return is[lwsv1.SetNameLabelKey] == wanted[lwsv1.SetNameLabelKey] && is[lwsv1.RevisionKey] == wanted[lwsv1.RevisionKey]
}

// asFound keeps the template of a StatefulSet or Deployment that another implementation made until the next revision: a
// write of the template would restart its pods. Its revision says what the spec says. The templates may still differ,
// because another version or a webhook wrote this one. An annotation records that the template is kept.
func asFound(t *table.Table, desired metav1.Object, template *corev1.PodTemplateSpec) {
	annotations := desired.GetAnnotations()
	delete(annotations, lws.AsFoundAnnotationKey) // an annotation of the set is no record
	live, key := t.LeadersOwner(), desired.GetLabels()[lwsv1.RevisionKey]
	if live == nil || !workload.BearsName(live, t.Set.Name) || live.Key() != key || live.Template.Labels[lwsv1.RevisionKey] != key {
		return
	}
	if !t.FoundTemplate(live) || t.IsDisplaced { // a leader with another placement is replaced anyway
		return
	}
	if live.GetAnnotations()[lws.AsFoundAnnotationKey] == key || !madeAlike(live.Template, template) {
		*template = *live.Template
		annotations[lws.AsFoundAnnotationKey] = key
	}
}

// madeAlike reports whether an apply of desired leaves live as it is. Defaults of the API
// server may be present or not. Labels and annotations of the API must be equal.
func madeAlike(live, desired *corev1.PodTemplateSpec) bool {
	return lws.Contains(live, desired) &&
		equality.Semantic.DeepEqual(systemKeys(live.Labels), systemKeys(desired.Labels)) &&
		equality.Semantic.DeepEqual(systemKeys(live.Annotations), systemKeys(desired.Annotations))
}

func systemKeys(all map[string]string) map[string]string {
	system := maps.Clone(all)
	maps.DeleteFunc(system, func(key, _ string) bool { return !strings.HasPrefix(key, systemPrefix) })
	return system
}
