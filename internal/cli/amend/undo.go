package amend

import (
	"encoding/json"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/cli/report"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/internal/lws/admission"
)

// Previous stands for the revision before the present one.
const Previous int64 = 0

// Undo decides to give a set the template of one of its revisions again.
func Undo(number int64) Decide {
	return func(l Looked) (Change, error) {
		if lws.Paused(l.Set) {
			return Change{}, pausedError("undo the rollout of", l.Set)
		}
		revision, err := chosen(l, number)
		if err != nil {
			return Change{}, err
		}
		after, err := lws.Restore(l.Set.DeepCopy(), revision.Data.Raw)
		if err != nil {
			return Change{}, fmt.Errorf("revision %d: %w", revision.Revision, err)
		}
		claims := l.Set.Spec.LeaderWorkerTemplate.VolumeClaimTemplates
		after.Spec.LeaderWorkerTemplate.VolumeClaimTemplates = claims // no rollout changes them, and nobody may
		live, err := lws.RevisionData(l.Set)
		if err != nil {
			return Change{}, err
		}
		change := Change{
			Verb: fmt.Sprintf("rolled back to revision %d", revision.Revision), After: after,
			Basis: revision.Name + " in place of " + lws.RevisionKey(live),
		}
		if lws.Agrees(l.Set, revision.Data.Raw) {
			change.Verb = fmt.Sprintf("skipped rollback (current template already matches revision %d)", revision.Revision)
			return change, nil
		}
		if faults := admission.ValidateUpdate(after, l.Set); len(faults) > 0 {
			return Change{}, fmt.Errorf("revision %d cannot be restored: %w", revision.Revision, faults.ToAggregate())
		}
		change.Patch, err = restoring(l.Set, revision)
		return change, err
	}
}

// chosen is the revision to go back to.
func chosen(l Looked, number int64) (*appsv1.ControllerRevision, error) {
	if len(l.Revisions) == 0 {
		return nil, fmt.Errorf("no rollout history found for leaderworkerset %q", l.Set.Name)
	}
	if number != Previous {
		i := slices.IndexFunc(l.Revisions, func(r *appsv1.ControllerRevision) bool { return r.Revision == number })
		if i < 0 {
			return nil, report.NoSuchRevision(l.Set.Name, l.Revisions, number)
		}
		return l.Revisions[i], nil
	}
	for _, revision := range slices.Backward(l.Revisions) {
		if !lws.Agrees(l.Set, revision.Data.Raw) {
			return revision, nil
		}
	}
	return nil, fmt.Errorf("leaderworkerset %q has nothing to go back to: its only revision is %d, and that is what the spec says",
		l.Set.Name, l.Revisions[0].Revision)
}

// restoring writes what the revision holds, as it was stored and whole but for the
// claims, which stay, and the change cause that it had.
func restoring(set *lwsv1.LeaderWorkerSet, revision *appsv1.ControllerRevision) ([]Operation, error) {
	var stored struct {
		Spec struct {
			Template map[string]json.RawMessage `json:"leaderWorkerTemplate"`
			Network  map[string]json.RawMessage `json:"networkConfig"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(revision.Data.Raw, &stored); err != nil {
		return nil, fmt.Errorf("decode revision: %w", err)
	}
	delete(stored.Spec.Template, "$patch")
	if err := keepClaims(set, stored.Spec.Template); err != nil {
		return nil, err
	}
	delete(stored.Spec.Network, "$patch")
	patch := []Operation{{"replace", "/spec/leaderWorkerTemplate", stored.Spec.Template}}
	switch {
	case len(stored.Spec.Network) > 0:
		patch = append(patch, Operation{"add", "/spec/networkConfig", stored.Spec.Network})
	case set.Spec.NetworkConfig != nil:
		patch = append(patch, Operation{Op: "remove", Path: "/spec/networkConfig"})
	}
	return append(patch, annotate("/metadata", set.Annotations, lws.ChangeCauseAnnotationKey, revision.Annotations[lws.ChangeCauseAnnotationKey])...), nil
}

// keepClaims has a template that was stored name the claims that the set's spec does.
func keepClaims(set *lwsv1.LeaderWorkerSet, stored map[string]json.RawMessage) error {
	const name = "volumeClaimTemplates"
	claims := set.Spec.LeaderWorkerTemplate.VolumeClaimTemplates
	if len(claims) == 0 {
		delete(stored, name)
		return nil
	}
	encoded, err := json.Marshal(claims)
	if err != nil {
		return fmt.Errorf("encode claims: %w", err)
	}
	stored[name] = encoded
	return nil
}
