package disaggregated

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	dsv1 "lockstep.dev/lockstep/api/disaggregatedset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/cli/lws"
	"lockstep.dev/lockstep/internal/condition"
	"lockstep.dev/lockstep/internal/disaggregated"
	"lockstep.dev/lockstep/internal/lws/undo"
)

// Decide decides what to change of a set, in one write, or why nothing can be changed.
type Decide = lws.DecideOf[*dsv1.DisaggregatedSet]

// Restart replaces every group of every role by one of the same template.
func Restart(now time.Time) Decide {
	moment := now.Format(time.RFC3339)
	return func(_ context.Context, _ client.Reader, set *dsv1.DisaggregatedSet) (lws.Change, error) {
		if isPaused(set) {
			return lws.Change{}, fmt.Errorf("cannot restart %s %q while its rollout is paused; "+
				"resume it first with: kubectl lockstep rollout resume dset/%[2]s -n %s", noun, set.Name, set.Namespace)
		}
		after := set.DeepCopy()
		for i := range after.Spec.Roles {
			template := &after.Spec.Roles[i].Spec.LeaderWorkerTemplate
			if template.WorkerTemplate.Annotations[lws.RestartedAtKey] == moment {
				return lws.Change{}, errors.New("a restart was triggered within the past second; wait before triggering another")
			}
			for _, pods := range []*corev1.PodTemplateSpec{template.LeaderTemplate, &template.WorkerTemplate} {
				if pods != nil {
					metav1.SetMetaDataAnnotation(&pods.ObjectMeta, lws.RestartedAtKey, moment)
				}
			}
		}
		return lws.Change{Verb: "restarted", Before: set, After: after}, nil
	}
}

// Undo restores all roles of an earlier revision in one write. Zero is the one before.
func Undo(number int64) Decide {
	return func(ctx context.Context, live client.Reader, set *dsv1.DisaggregatedSet) (lws.Change, error) {
		w, err := read(ctx, live, client.ObjectKeyFromObject(set), time.Time{})
		if err != nil {
			return lws.Change{}, err
		}
		after, to, err := restored(set, w.Records.Owned, number)
		switch {
		case err != nil:
			return lws.Change{}, err
		case after == set:
			return lws.Change{Verb: fmt.Sprintf("skipped rollback (current roles already match revision %s)", title(to)), Before: set, After: set}, nil
		}
		return lws.Change{Verb: "rolled back to revision " + title(to), Before: set, After: after}, nil
	}
}

// restored returns the set with the roles of a record. It is the same set if they are the same already. What a revision
// does not say of a role stays: its scaling, its number of groups and its strategy.
func restored(set *dsv1.DisaggregatedSet, kept []*appsv1.ControllerRevision, number int64) (*dsv1.DisaggregatedSet, *appsv1.ControllerRevision, error) {
	if condition.IsTrue(set.Status.Conditions, action.CodeUnsupported) {
		return nil, nil, fmt.Errorf("%s %q has fields that this version lacks, and its revisions may not have them; upgrade Lockstep first", noun, set.Name)
	}
	present, err := disaggregated.RevisionOf(set.Spec.Roles)
	if err != nil {
		return nil, nil, err
	}
	to, err := chosen(set, kept, number, present)
	if err != nil || keyOf(to) == present {
		return set, to, err
	}
	roles, err := disaggregated.RolesOf(to)
	if err != nil {
		return nil, nil, err
	}
	after := set.DeepCopy()
	after.Spec.Roles = nil
	for _, role := range roles {
		if i := slices.IndexFunc(set.Spec.Roles, func(r dsv1.DisaggregatedRole) bool { return r.Name == role.Name }); i >= 0 {
			template, id := role.Spec.LeaderWorkerTemplate, role.Spec.GroupIdentity
			role = *set.Spec.Roles[i].DeepCopy()
			role.Spec.LeaderWorkerTemplate, role.Spec.GroupIdentity = template, id
		}
		after.Spec.Roles = append(after.Spec.Roles, role)
	}
	if got, err := disaggregated.RevisionOf(after.Spec.Roles); err != nil || got != keyOf(to) {
		return nil, nil, fmt.Errorf("revision %s of %s %q cannot be restored: its roles are revision %s to this version", title(to), noun, set.Name, got)
	}
	return after, to, nil
}

// chosen returns the record to restore: that of a number, or the newest of another revision than the present one.
func chosen(set *dsv1.DisaggregatedSet, kept []*appsv1.ControllerRevision, number int64, present string) (*appsv1.ControllerRevision, error) {
	for _, record := range slices.Backward(kept) {
		if record.Revision == number || number == 0 && keyOf(record) != present {
			return record, nil
		}
	}
	switch {
	case len(kept) == 0:
		return nil, fmt.Errorf("no rollout history found for %s %q", noun, set.Name)
	case number != 0:
		return nil, undo.NoSuchRevision(noun, set.Name, kept, number)
	}
	return nil, fmt.Errorf("%s %q has nothing to go back to: its only revision is %s, and the spec is equal to it", noun, set.Name, title(kept[0]))
}
