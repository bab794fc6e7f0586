package lws

import (
	"cmp"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/lws/volumes"
	"lockstep.dev/lockstep/internal/lws/workload"
)

// keepClaims replaces volumeClaimTemplates that the leader StatefulSet does not have. Admission
// refuses such a change, but another implementation allowed it, and the API server refuses
// every later write of the StatefulSet. The templates are part of the revision's data: with
// those of the revision that stands, they alone are no new revision.
func (d *setDecision) keepClaims() effectiveSpec {
	sts := d.leaderStatefulSet()
	if sts == nil || workload.SameClaimTemplates(d.Set.Namespace, sts.Spec.VolumeClaimTemplates, volumes.Templates(d.Set)) {
		return effectiveSpec{set: d.Set, live: d.Set}
	}
	stands := d.standingTemplate(sts)
	if workload.SameClaimTemplates(d.Set.Namespace, volumes.Templates(stands), volumes.Templates(d.Set)) {
		return effectiveSpec{set: d.Set, live: d.Set} // a webhook rewrites those of the StatefulSet
	}
	live := volumes.WithTemplates(d.Set, volumes.Templates(stands))
	kept := effectiveSpec{set: live, live: live}
	waits := "nothing else waits for that"
	if lacks := volumes.LackingMount(d.Set, volumes.Templates(stands)); lacks != "" {
		kept.set, kept.pending = stands, true
		waits = fmt.Sprintf("the template waits, since it mounts %q, which is in none of them", lacks)
	}
	kept.otherClaims = fmt.Sprintf("spec.leaderWorkerTemplate.volumeClaimTemplates is not what statefulset %s was made with, "+
		"and a StatefulSet never takes other claims: groups old and new have those of the StatefulSet (%s); %s; %s",
		sts.Name, cmp.Or(strings.Join(volumes.TemplateNames(stands), ", "), "none"), waits, remedyClaims)
	return kept
}

// remedyClaims names both ways to make the templates of the spec and of the set equal.
const remedyClaims = "to put these into the spec, delete the set with --cascade=orphan, which leaves all pods running, and create it again with them; " +
	"to have those of the spec, delete the set and create it again, with whenDeleted Retain if data is to stay"

// standingTemplate is the set with the template that its leaders were last given. Without
// its revision only the volumeClaimTemplates are known, from the StatefulSet, unless the spec
// hashes to its key.
func (d *setDecision) standingTemplate(sts *appsv1.StatefulSet) *lwsv1.LeaderWorkerSet {
	key := leadersKey(sts)
	if restored, err := restoredAt(d.Set, d.Revisions, key); err == nil {
		return restored
	}
	if data, err := RevisionData(d.Set); err == nil && RevisionKey(data) == key {
		return d.Set
	}
	return volumes.WithTemplates(d.Set, sts.Spec.VolumeClaimTemplates)
}
