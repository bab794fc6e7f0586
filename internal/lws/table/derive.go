package table

import (
	"cmp"

	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/internal/lws/volumes"
	"lockstep.dev/lockstep/internal/lws/workload"
)

// Of returns the values that the rules read, and the plan that they need first, such as a revision to create.
func Of(w lws.SetSnapshot, newMaker func(*Table) Maker) (*Table, lws.Plan) {
	var plan lws.Plan
	t := &Table{SetSnapshot: &w, Set: w.Set}
	if key := t.LeadersKey(); key != "" && !t.HistoryRead && t.revisionWithKey(key) == nil {
		plan.Needs = lws.NeedHistory
	}
	t.effectiveSpec = effective(t)
	t.Set, t.Maker = t.set, newMaker(t)
	t.ExhaustedBy = t.exhaustedLeaders()
	t.RefusalText = w.RefusedSpec()
	if len(t.Refused) > 0 {
		t.takeRefused()
	}
	if len(t.Refused) > 0 {
		refused := make([]action.Refusal, len(t.Refused))
		for i, r := range t.Refused {
			refused[i] = r.Refusal
		}
		t.Hindrance = action.RefusedMessage(refused...)
	}
	t.wait = awaitNames(t)
	t.Held = t.RefusalText != "" || t.wait.holds || len(t.StatefulSet.Foreign)+len(t.Deployment.Foreign) > 0
	t.Target = newTarget(t)
	plan.Add(t.Target.plan)
	t.tabulate()
	t.Restarted = restartStatus(t)
	t.Waiting = awaitPrevious(t)
	t.Conflict = conflicts(t)
	t.Rollout, t.Course = t.Maker.Rolling()
	t.Standing = t.count()
	if t.Evictions != nil && t.Evictions.IsAsked {
		t.Limit = limit(t)
		t.Standing.Allowance = &t.Limit.Allowance
		if t.Limit.Hold != nil { // closed before granted
			t.Course.Partition = max(t.Course.Partition, min(t.Rollout.Partition, t.Rollout.Replicas))
		}
	}
	t.Maker.Settle(&t.Restarted)
	t.Unresolved = unresolvedLeaders(t)
	t.Delay = delays(t)
	if allowed := workload.ProgressDeadline(t.Set, t.ProgressDeadline); allowed > 0 {
		late, need := deadline(t, allowed)
		t.Deadline, plan.Needs = late, cmp.Or(plan.Needs, need)
	}
	if len(volumes.Templates(t.Live)) > 0 {
		owners, pending := keepPVCs(t)
		plan.Add(owners)
		t.PVCsPending = pending
	}
	return t, plan
}
