package table

import (
	"cmp"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/condition"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/internal/lws/workload"
)

// delayTexts says what groups wait for. The first code that applies to a set is reported.
var delayTexts = []struct{ code, text string }{
	{lws.CodeFailedCreate, "pods that cannot be created"},
	{lws.CodeGangUnschedulable, "room for all pods of a gang"},
	{lws.CodeUnschedulable, "a node that their pods fit on"},
	{lws.CodeSchedulingGated, "the scheduling gates of their pods"},
	{lws.CodeImagePullFailed, "an image that cannot be pulled"},
}

// delays counts the groups that wait for what the operator cannot do, and names one object. The message has no words
// of others: they change, and each change would be a write.
func delays(t *Table) (found Delay) {
	groups, first := map[string]int32{}, map[string]string{}
	note := func(code, object string, n int32) {
		groups[code], first[code] = groups[code]+n, cmp.Or(first[code], object)
	}
	note(t.Maker.Missing())
	for i := range t.Rows {
		g, mine := &t.Rows[i], map[string]string{}
		if g.IsReady {
			continue
		}
		if sts := g.Workers.Own(); sts != nil && t.Stalls(sts, g.Stalled) && len(g.Conflicts(t.Set)) == 0 && g.IsFirstFree(sts) {
			mine[lws.CodeFailedCreate] = "statefulset " + sts.Name
		}
		for _, pod := range g.AllPods() {
			switch code, from := lws.PodDelay(pod); {
			case t.Now.Before(from):
				found.IsNear = true
			case code != "":
				mine[code], found.IsGated = cmp.Or(mine[code], "pod "+pod.Name), found.IsGated || code == lws.CodeSchedulingGated
			}
		}
		for code, object := range mine {
			note(code, object, 1)
		}
	}
	for _, text := range delayTexts {
		if n := groups[text.code]; n > 0 {
			found.Code, found.Message = text.code, fmt.Sprintf("Groups that wait for %s: %d, such as the one of %s; see: kubectl lockstep status %s -n %s",
				text.text, n, first[text.code], t.Set.Name, t.Set.Namespace)
			return found
		}
	}
	return found
}

// Stalls reports whether a StatefulSet lacks pods that it cannot create: a touch did not help. One that is reported
// stays so until it lacks none: another process of the operator has not seen for how long it stalls.
func (t *Table) Stalls(sts *appsv1.StatefulSet, since time.Time) bool {
	told, _ := condition.Of(t.SetSnapshot.Set.Status.Conditions, string(lwsv1.LeaderWorkerSetProgressing))
	touched, err := time.Parse(time.RFC3339, sts.Annotations[lws.NudgeAnnotationKey])
	return err == nil && workload.LacksPods(sts) && (told.Reason == lws.CodeFailedCreate ||
		!since.IsZero() && touched.After(since) && !t.Now.Before(touched.Add(lws.DelayAfter)))
}
