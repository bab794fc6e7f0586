package lws

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/condition"
	"lockstep.dev/lockstep/internal/lws/revision"
	"lockstep.dev/lockstep/internal/lws/volumes"
	"lockstep.dev/lockstep/internal/lws/workload"
)

// Paused reports whether the user holds a set's rollout.
func Paused(set *lwsv1.LeaderWorkerSet) bool {
	return set.Annotations[lwsv1.PausedAnnotationKey] == lwsv1.PausedValue
}

// resumeGrace is how long a resumed rollout replaces no further group: an undo that follows the resume then
// takes back nothing.
const resumeGrace = 3 * time.Second

// holdsRollout reports whether no further group is replaced: the rollout is paused, or was until now.
func (d *setDecision) holdsRollout() bool { return Paused(d.Set) || d.Now.Before(d.resumes()) }

// resumes is when a rollout that its set reports as paused replaces groups again.
func (d *setDecision) resumes() time.Time {
	told, ok := condition.Of(d.Set.Status.Conditions, CodePaused)
	if ok && told.Status == metav1.ConditionTrue {
		return d.Now.Add(resumeGrace)
	}
	return told.LastTransitionTime.Add(resumeGrace)
}

// effective returns the spec that the rules judge by. A new template waits while the rollout is paused, and while the
// spec has volumeClaimTemplates that the leader StatefulSet has not: what is created meanwhile has the template that
// the leaders were last given, and any number of changes become one rollout.
//
// Admission refuses other volumeClaimTemplates, but another implementation allowed them, and the
// API server refuses every later write of the StatefulSet. Alone they are no new revision.
func (d *setDecision) effective() effectiveSpec {
	spec, sts := effectiveSpec{set: d.Set, live: d.Set}, d.leaderStatefulSet()
	differ := sts != nil && !workload.SameClaimTemplates(d.Set.Namespace, sts.Spec.VolumeClaimTemplates, volumes.Templates(d.Set))
	if !differ && !Paused(d.Set) {
		return spec
	}
	stands := d.standing(sts)
	claims := volumes.Templates(stands)
	if differ && !workload.SameClaimTemplates(d.Set.Namespace, claims, volumes.Templates(d.Set)) {
		spec.live = volumes.WithTemplates(d.Set, claims)
		spec.set, spec.otherClaims = spec.live, fmt.Sprintf(claimsDiffer, sts.Name, cmp.Or(strings.Join(volumes.TemplateNames(stands), ", "), "none"))
	} else if !Paused(d.Set) {
		return spec // a webhook rewrites those of the StatefulSet
	}
	if data, err := revision.Data(stands); err != nil || !revision.Agrees(d.Set, data) {
		spec.set, spec.pending = stands, true
	}
	if Paused(d.Set) {
		return d.withTopology(spec)
	}
	return spec
}

// claimsDiffer names both ways to make the templates of the spec and of the set equal.
const claimsDiffer = "spec.leaderWorkerTemplate.volumeClaimTemplates is not what statefulset %s was made with, " +
	"and a StatefulSet never takes other claims: groups old and new have those of the StatefulSet (%s), and any other template waits; " +
	"to put these into the spec, delete the set with --cascade=orphan, which leaves all pods running, and create it again with them; " +
	"to have those of the spec, delete the set and create it again, with whenDeleted Retain if data is to stay"

// standing returns the set with the template that its leaders were last given, or that is in use. Without its revision
// the spec counts, but for the volumeClaimTemplates of the StatefulSet if the spec does not hash to its key.
func (d *setDecision) standing(sts *appsv1.StatefulSet) *lwsv1.LeaderWorkerSet {
	key := d.leadersKey()
	current := d.revisionWithKey(key)
	if d.leadersOwner() == nil {
		current = revision.Latest(d.counting(), func(r *appsv1.ControllerRevision) bool { return revision.InUse(r, d.Set.Name) })
	}
	if current != nil {
		if restored, err := revision.Restore(d.Set, current.Data.Raw); err == nil {
			return restored
		}
	}
	if data, err := revision.Data(d.Set); sts == nil || err == nil && revision.Key(data) == key {
		return d.Set
	}
	return volumes.WithTemplates(d.Set, sts.Spec.VolumeClaimTemplates)
}

// withTopology returns a spec with the exclusive topologies that the leader StatefulSet was written for. They are
// annotations of the set and in no revision, and a change replaces pods: it waits like a change of the template.
func (d *setDecision) withTopology(spec effectiveSpec) effectiveSpec {
	owner := d.leadersOwner()
	if owner == nil {
		return spec
	}
	placed := *spec.set
	placed.Annotations = labels.Merge(placed.Annotations, nil)
	for _, key := range workload.Placements {
		written := owner.GetAnnotations()[key]
		spec.pending = spec.pending || placed.Annotations[key] != written
		if delete(placed.Annotations, key); written != "" {
			placed.Annotations[key] = written
		}
	}
	spec.set = &placed
	return spec
}

// pauseText says where a paused rollout stands, or is empty when none is held up.
func (d *setDecision) pauseText() string {
	if !Paused(d.Set) {
		return ""
	}
	if !d.pending && d.TargetUpdated == d.current {
		return ""
	}
	waits := ""
	if d.pending {
		waits = ", and a change of the template waits"
	}
	return fmt.Sprintf("Rollout is paused with %d of %d groups at revision %s%s; resume it with: kubectl lockstep rollout resume %s -n %s",
		d.atTarget, workload.Replicas(d.Set), d.target.title(), waits, d.Set.Name, d.Set.Namespace)
}

// targetKey is the revision key that the spec asks for, or empty while that is
// unknown because no revision is made of it yet.
func (d *setDecision) targetKey() string {
	if d.pending {
		return ""
	}
	return d.target.key
}

// AsLed is a set as the group of a leader is to see it. While the rollout is paused, a group has the subdomain policy
// of its leader: what waits is not for it. A group that has a key always has that of its leader.
func AsLed(set *lwsv1.LeaderWorkerSet, leader *corev1.Pod) *lwsv1.LeaderWorkerSet {
	if leader == nil || !Paused(set) && !workload.IsHashLeader(leader) {
		return set
	}
	led, policy := *set, lwsv1.SubdomainShared
	if leader.Annotations[lwsv1.SubdomainPolicyAnnotationKey] == string(lwsv1.SubdomainUniquePerReplica) {
		policy = lwsv1.SubdomainUniquePerReplica
	}
	led.Spec.NetworkConfig = &lwsv1.NetworkConfig{SubdomainPolicy: &policy}
	return &led
}
