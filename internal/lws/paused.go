package lws

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/lws/workload"
)

// Paused reports whether the user holds a set's rollout.
func Paused(set *lwsv1.LeaderWorkerSet) bool {
	return set.Annotations[lwsv1.PausedAnnotationKey] == lwsv1.PausedValue
}

// pausedSpec is the spec that a set is judged by while its rollout is paused.
type pausedSpec struct {
	set *lwsv1.LeaderWorkerSet
	// pending is set while the spec asks for another template or placement.
	pending bool
	// unknown says why nothing can be created meanwhile, or is empty.
	unknown string
}

// pause returns the template and network that the leaders of a paused set were last given.
// Objects that are created meanwhile belong to a revision that runs already, and any number
// of changes become one rollout when it is resumed.
func (d *setDecision) pause() pausedSpec {
	if !Paused(d.Set) {
		return pausedSpec{set: d.Set}
	}
	data, err := RevisionData(d.Set)
	if err != nil {
		return pausedSpec{set: d.Set} // the revisions rule leaves such a spec alone
	}
	key := d.statefulSetKey()
	current := d.revisionWithKey(key)
	switch {
	case key == "":
		if current = latest(d.counting(), func(r *appsv1.ControllerRevision) bool { return inUse(r, d.Set.Name) }); current == nil {
			return pausedSpec{set: d.Set} // no rollout has begun
		}
	case current == nil && RevisionKey(data) == key:
		return pausedSpec{set: d.Set} // it is created again from the spec, which says the same
	case current == nil:
		return d.standStill(fmt.Sprintf("the rollout is paused and revision %s, which the groups run, is not there", key))
	}
	if sameRevision(d.Set, current.Data.Raw, data) {
		set, pending := d.withTopology(*d.Set)
		return pausedSpec{set: set, pending: pending}
	}
	restored, err := Restore(d.Set, current.Data.Raw)
	if err != nil {
		return d.standStill(fmt.Sprintf("the rollout is paused and revision %s, which the groups run, cannot be read: %v", current.Name, err))
	}
	set, _ := d.withTopology(*restored)
	return pausedSpec{set: set, pending: true}
}

// standStill creates nothing while the template of the leaders is unknown.
func (d *setDecision) standStill(why string) pausedSpec {
	return pausedSpec{set: d.Set, pending: true, unknown: why + "; resume it to go on with the spec"}
}

// withTopology returns the set with the exclusive topologies of the leaders' template, and
// reports whether the set asks for others. They are annotations of the set and in no
// revision, and a change replaces pods: it waits like a change of the template.
func (d *setDecision) withTopology(set lwsv1.LeaderWorkerSet) (placedSet *lwsv1.LeaderWorkerSet, pending bool) {
	sts := d.leaderStatefulSet()
	if sts == nil {
		return &set, false
	}
	placed := labels.Merge(sts.Spec.Template.Annotations, nil)
	if d.foundTemplate(sts) {
		placed = labels.Merge(sts.Annotations, nil)
	}
	for _, key := range workload.Placements {
		if d.misplaced(sts, &set, key) {
			pending = true
			continue
		}
		placed[key] = set.Annotations[key]
	}
	placeAs(&set, placed)
	return &set, pending
}

// placeAs gives a set the exclusive topologies that annotations of its pods say.
func placeAs(set *lwsv1.LeaderWorkerSet, pods map[string]string) {
	set.Annotations = labels.Merge(set.Annotations, nil)
	for _, key := range workload.Placements {
		delete(set.Annotations, key)
		if topology := pods[key]; topology != "" {
			set.Annotations[key] = topology
		}
	}
}

// AsLed is a set as the group of a leader is to see it. While the rollout is
// paused, a group is named as its leader is: what waits is not for it. Template and
// placement are its leader's anyway.
func AsLed(set *lwsv1.LeaderWorkerSet, leader *corev1.Pod) *lwsv1.LeaderWorkerSet {
	if leader == nil || !Paused(set) {
		return set
	}
	led, policy := *set, lwsv1.SubdomainShared
	if leader.Annotations[lwsv1.SubdomainPolicyAnnotationKey] == string(lwsv1.SubdomainUniquePerReplica) {
		policy = lwsv1.SubdomainUniquePerReplica
	}
	led.Spec.NetworkConfig = &lwsv1.NetworkConfig{SubdomainPolicy: &policy}
	return &led
}

// pause holds a rollout where it stands: what the partition has granted is
// granted, and nothing more is. No surge group is lent to what does not move.
func (r rollout) pause(c course) course {
	c.partition = max(c.partition, min(r.partition, r.replicas))
	c.replicas = max(r.replicas, min(c.replicas, r.running))
	return c
}

// tellPause has the plan say what waits for the user.
func (d *setDecision) tellPause() (p Plan) {
	if text := d.pauseText(d.count()); text != "" {
		p.wait(Wait{Reason: because(CodePaused, text)})
	}
	return p
}

// pauseText says where a paused rollout stands, or is empty when none is held up.
func (d *setDecision) pauseText(counts groupCounts) string {
	if !Paused(d.Set) || !d.pending && counts.currentUpdated == counts.current {
		return ""
	}
	waits := ""
	if d.pending {
		waits = ", and a change of the template waits"
	}
	return fmt.Sprintf("Rollout is paused with %d of %d groups at revision %s%s; resume it with: kubectl lockstep rollout resume %s -n %s",
		d.groupsAt(d.key), workload.Replicas(d.Set), d.key, waits, d.Set.Name, d.Set.Namespace)
}

// groupsAt counts the wanted groups that are at a revision.
func (d *setDecision) groupsAt(key string) int32 {
	var at int32
	for i := range d.Groups {
		g := &d.Groups[i]
		at += one(int32(g.Index) < workload.Replicas(d.Set) && g.complete(d.Set) && g.updated(key))
	}
	return at
}

// targetKey is the revision key that the spec asks for, or empty while that is
// unknown because no revision is made of it yet.
func (d *setDecision) targetKey() string {
	if d.pending {
		return ""
	}
	return d.key
}
