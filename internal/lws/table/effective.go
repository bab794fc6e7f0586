package table

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/condition"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/internal/lws/revision"
	"lockstep.dev/lockstep/internal/lws/volumes"
	"lockstep.dev/lockstep/internal/lws/workload"
)

// resumeGrace is how long a resumed rollout replaces no further group: an undo that follows the resume then
// takes back nothing.
const resumeGrace = 3 * time.Second

// claimsDiffer names both ways to make the templates of the spec and of the set equal.
const claimsDiffer = "spec.leaderWorkerTemplate.volumeClaimTemplates is not what statefulset %s was made with, " +
	"and a StatefulSet never takes other claims: groups old and new have those of the StatefulSet (%s), and any other template waits; " +
	"to put these into the spec, delete the set with --cascade=orphan, which leaves all pods running, and create it again with them; " +
	"to have those of the spec, delete the set and create it again, with whenDeleted Retain if data is to stay"

// HoldsRollout reports whether no further group is replaced: the rollout is paused, or was until now.
func (t *Table) HoldsRollout() bool { return lws.Paused(t.Set) || t.Now.Before(t.Resumes()) }

// Resumes is when a rollout that its set reports as paused replaces groups again.
func (t *Table) Resumes() time.Time {
	told, ok := condition.Of(t.Set.Status.Conditions, lws.CodePaused)
	if ok && told.Status == metav1.ConditionTrue {
		return t.Now.Add(resumeGrace)
	}
	return told.LastTransitionTime.Add(resumeGrace)
}

// effective returns the spec that the rules judge by. A new template waits while the rollout is paused, and while the
// spec has volumeClaimTemplates that the leader StatefulSet has not: what is created meanwhile has the template that
// the leaders were last given, and any number of changes become one rollout.
//
// Admission refuses other volumeClaimTemplates, but another implementation allowed them, and the
// API server refuses every later write of the StatefulSet. Alone they are no new revision.
func effective(t *Table) effectiveSpec {
	spec, sts := effectiveSpec{set: t.Set, Live: t.Set}, t.LeaderStatefulSet()
	differ := sts != nil && !workload.SameClaimTemplates(sts.Spec.VolumeClaimTemplates, volumes.Templates(t.Set))
	if !differ && !lws.Paused(t.Set) {
		return spec
	}
	stands := standing(t, sts)
	claims := volumes.Templates(stands)
	if differ && !workload.SameClaimTemplates(claims, volumes.Templates(t.Set)) {
		spec.Live = volumes.WithTemplates(t.Set, claims)
		spec.set, spec.OtherClaims = spec.Live, fmt.Sprintf(claimsDiffer, sts.Name, cmp.Or(strings.Join(volumes.TemplateNames(stands), ", "), "none"))
	} else if !lws.Paused(t.Set) {
		return spec // a webhook rewrites those of the StatefulSet
	}
	if data, err := revision.Data(stands); err != nil || !revision.Agrees(t.Set, data) {
		spec.set, spec.IsPending = stands, true
	}
	if lws.Paused(t.Set) {
		return withTopology(t, spec)
	}
	return spec
}

// standing returns the set with the template that its leaders were last given, or that is in use. Without its revision
// the spec counts, but for the volumeClaimTemplates of the StatefulSet if the spec does not hash to its key.
func standing(t *Table, sts *appsv1.StatefulSet) *lwsv1.LeaderWorkerSet {
	key := t.LeadersKey()
	current := t.revisionWithKey(key)
	if t.LeadersOwner() == nil {
		current = revision.Latest(t.counting(), func(r *appsv1.ControllerRevision) bool { return revision.InUse(r, t.Set.Name) })
	}
	if current != nil {
		if restored, err := revision.Restore(t.Set, current.Data.Raw); err == nil {
			return restored
		}
	}
	if data, err := revision.Data(t.Set); sts == nil || err == nil && revision.Key(data) == key {
		return t.Set
	}
	return volumes.WithTemplates(t.Set, sts.Spec.VolumeClaimTemplates)
}

// withTopology returns a spec with the exclusive topologies that the leader StatefulSet was written for. They are
// annotations of the set and in no revision, and a change replaces pods: it waits like a change of the template.
func withTopology(t *Table, spec effectiveSpec) effectiveSpec {
	owner := t.LeadersOwner()
	if owner == nil {
		return spec
	}
	placed := *spec.set
	placed.Annotations = labels.Merge(placed.Annotations, nil)
	for _, key := range workload.Placements {
		written := owner.GetAnnotations()[key]
		spec.IsPending = spec.IsPending || placed.Annotations[key] != written
		if delete(placed.Annotations, key); written != "" {
			placed.Annotations[key] = written
		}
	}
	spec.set = &placed
	return spec
}

// PauseText says where a paused rollout stands, or is empty when none is held up.
func (t *Table) PauseText() string {
	if !lws.Paused(t.Set) || !t.IsPending && t.TargetUpdated == t.Current {
		return ""
	}
	waits := ""
	if t.IsPending {
		waits = ", and a change of the template waits"
	}
	return fmt.Sprintf("Rollout is paused with %d of %d groups at revision %s%s; resume it with: kubectl lockstep rollout resume %s -n %s",
		t.AtTarget, workload.Replicas(t.Set), t.Target.Title(), waits, t.Set.Name, t.Set.Namespace)
}
