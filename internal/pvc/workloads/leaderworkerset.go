package workloads

import (
	"fmt"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/identity"
)

// OfLeaderWorkerSet is the PVCs of all groups, by the set's own spec: workers' StatefulSets are
// gone while a group restarts, and the PVCs must stay.
//
// Groups beyond the replicas, of a surge or a scale-down, count until they are gone. Workers
// beyond the size count while a group has them: started is the size of the largest group.
func OfLeaderWorkerSet(set *lwsv1.LeaderWorkerSet, started int) Want {
	w := newWant(identity.KindLeaderWorkerSet, lwsv1.GroupVersion.String(), set)
	template := &set.Spec.LeaderWorkerTemplate
	groups, size := replicas(set.Spec.Replicas), replicas(template.Size)
	w.idleAt(groups)
	groups = max(groups, int(set.Status.Replicas))
	const path = "spec.leaderWorkerTemplate"
	if template.LeaderTemplate != nil {
		w.template(path+".leaderTemplate", template.LeaderTemplate.Spec.Volumes)
	}
	if template.LeaderTemplate == nil || max(size, started) > 1 {
		w.template(path+".workerTemplate", template.WorkerTemplate.Spec.Volumes)
	}
	for i := range template.VolumeClaimTemplates {
		name := template.VolumeClaimTemplates[i].Name
		prefix, from := name+"-"+set.Name, fmt.Sprintf("%s.volumeClaimTemplates[%s]", path, name)
		w.Series = append(w.Series,
			Series{Prefix: prefix, Spans: []Span{{0, groups}}, Path: from},
			Series{Prefix: prefix, Spans: []Span{{0, groups}, {1, max(size, started)}}, Path: from},
		)
	}
	w.DeleteWhenScaled = deletesWhenScaled(template.PersistentVolumeClaimRetentionPolicy)
	w.Released = "scale it below the group, or delete it"
	return w
}
