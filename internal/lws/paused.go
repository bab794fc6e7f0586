package lws

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/lws/revision"
	"lockstep.dev/lockstep/internal/lws/workload"
)

// Paused reports whether the user holds a set's rollout.
func Paused(set *lwsv1.LeaderWorkerSet) bool {
	return set.Annotations[lwsv1.PausedAnnotationKey] == lwsv1.PausedValue
}

// pause returns a spec with the template and network that the leaders of a paused set were last
// given. Objects that are created meanwhile belong to a revision that runs already, and any
// number of changes become one rollout when it is resumed.
func (d *setDecision) pause(spec effectiveSpec) effectiveSpec {
	data, err := revision.Data(spec.set)
	if !Paused(spec.set) || err != nil {
		return spec
	}
	key := d.statefulSetKey()
	current := d.revisionWithKey(key)
	if key == "" {
		current = revision.Latest(d.counting(), func(r *appsv1.ControllerRevision) bool { return revision.InUse(r, d.Set.Name) })
	}
	switch {
	case current == nil && (key == "" || revision.Key(data) == key):
		return spec // no rollout has begun, or the revision is created again from the spec
	case current == nil:
		return spec.standStill(fmt.Sprintf("the rollout is paused and revision %s, which the groups run, is not there", key))
	case revision.Same(spec.set, current.Data.Raw, data):
		placed, pending := d.withTopology(*spec.set)
		spec.set, spec.pending = placed, spec.pending || pending
		return spec
	}
	restored, err := revision.Restore(spec.set, current.Data.Raw)
	if err != nil {
		return spec.standStill(fmt.Sprintf("the rollout is paused and revision %s, which the groups run, cannot be read: %v", current.Name, err))
	}
	spec.set, _ = d.withTopology(*restored)
	spec.pending = true
	return spec
}

// standStill creates nothing while the template of the leaders is unknown.
func (e effectiveSpec) standStill(why string) effectiveSpec {
	e.pending, e.unknown = true, why+"; resume it to go on with the spec"
	return e
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
		d.groupsAt(d.target.key), workload.Replicas(d.Set), d.target.key, waits, d.Set.Name, d.Set.Namespace)
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
	return d.target.key
}
