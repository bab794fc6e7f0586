package lws

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
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
// number of changes become one rollout when it is resumed. Without that revision the spec counts.
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
	if current != nil && !revision.Same(spec.set, current.Data.Raw, data) {
		if restored, err := revision.Restore(spec.set, current.Data.Raw); err == nil {
			spec.set, spec.pending = restored, true
		}
	}
	return d.withTopology(spec)
}

// withTopology returns a spec with the exclusive topologies that the leader StatefulSet was written
// for. They are annotations of the set and in no revision, and a change replaces pods: it waits
// like a change of the template.
func (d *setDecision) withTopology(spec effectiveSpec) effectiveSpec {
	sts := d.leaderStatefulSet()
	if sts == nil {
		return spec
	}
	placed := *spec.set
	placed.Annotations = labels.Merge(placed.Annotations, nil)
	for _, key := range workload.Placements {
		written := sts.Annotations[key]
		spec.pending = spec.pending || placed.Annotations[key] != written
		if delete(placed.Annotations, key); written != "" {
			placed.Annotations[key] = written
		}
	}
	spec.set = &placed
	return spec
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
