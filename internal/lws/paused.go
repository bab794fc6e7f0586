package lws

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
)

// Paused tells whether the user holds a set's rollout.
func Paused(set *lwsv1.LeaderWorkerSet) bool {
	return set.Annotations[lwsv1.PausedAnnotationKey] == lwsv1.PausedValue
}

// paused has a set whose rollout is held judged by what its leaders were last
// given, not by what the spec has come to say since: all rules after it see that
// template and network. So whatever is made or mended meanwhile is of a revision
// that runs already, and any number of changes become one rollout once it goes on.
func (d *setDecision) paused() {
	if !Paused(d.Set) {
		return
	}
	data, err := RevisionData(d.Set)
	if err != nil {
		return // the revisions rule leaves such a spec alone
	}
	key := d.statefulSetKey()
	current := d.revisionWithKey(key)
	switch {
	case key == "":
		if current = latest(d.counting(), func(r *appsv1.ControllerRevision) bool { return inUse(r, d.Set.Name) }); current == nil {
			return // nothing was ever rolled: there is nothing to hold
		}
	case current == nil && RevisionKey(data) == key:
		return // it is created again from the spec, which says the same
	case current == nil:
		d.standStill(fmt.Sprintf("the rollout is paused and revision %s, which the groups run, is not there", key))
		return
	}
	if sameRevision(d.Set, current.Data.Raw, data) {
		d.Set = d.withTopology(*d.Set)
		return
	}
	restored, err := Restore(d.Set, current.Data.Raw)
	if err != nil {
		d.standStill(fmt.Sprintf("the rollout is paused and revision %s, which the groups run, cannot be read: %v", current.Name, err))
		return
	}
	d.pending = true
	d.Set = d.withTopology(*restored)
}

// standStill makes nothing while it is not known of what template.
func (d *setDecision) standStill(why string) {
	d.held, d.pending = true, true
	d.plan.wait(Wait{Reason: because(CodeRevisionNotVisible, why+"; resume it to go on with the spec")})
}

// withTopology gives the set the exclusive topologies of the leaders' template.
// They are annotations of the set and in no revision, and yet replace pods: other
// ones wait as a template does. Of a template that was found it is what it was written
// for: taken from the metadata, that would be an edit of its own.
func (d *setDecision) withTopology(set lwsv1.LeaderWorkerSet) *lwsv1.LeaderWorkerSet {
	sts := d.leaderStatefulSet()
	if sts == nil {
		return &set
	}
	placed := merged(sts.Spec.Template.Annotations, nil)
	if d.foundTemplate(sts) {
		placed = merged(sts.Annotations, nil)
	}
	for _, key := range placements {
		if d.misplaced(sts, &set, key) {
			d.pending = true
			continue
		}
		placed[key] = set.Annotations[key]
	}
	placeAs(&set, placed)
	return &set
}

// placeAs gives a set the exclusive topologies that annotations of its pods say.
func placeAs(set *lwsv1.LeaderWorkerSet, pods map[string]string) {
	set.Annotations = merged(set.Annotations, nil)
	for _, key := range placements {
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
		d.groupsAt(d.key), Replicas(d.Set), d.key, waits, d.Set.Name, d.Set.Namespace)
}

// groupsAt counts the wanted groups that are at a revision.
func (d *setDecision) groupsAt(key string) int32 {
	var at int32
	for i := range d.Groups {
		g := &d.Groups[i]
		at += one(int32(g.Index) < Replicas(d.Set) && g.complete(d.Set) && g.updated(key))
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
