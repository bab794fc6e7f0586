package pvc

import (
	"fmt"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/identity"
)

// OfLeaderWorkerSet is what the set wants of every group, from the set's own spec:
// the workers' StatefulSets are gone while a group restarts, and their claims must
// not go with them.
//
// Groups that are there beyond those, of a surge or a scale-down, count until they are
// gone: the set's status tells. So do workers beyond a size that was made smaller, until
// no group is left that ran with them: started is how many pods the largest of those
// has. One that restarts before it is rolled comes again as large as it was.
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
