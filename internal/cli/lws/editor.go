package lws

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/condition"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/internal/lws/revision"
)

// FieldOwner is the field manager of the writes.
const FieldOwner = "kubectl-lockstep"

// The values of Editor.DryRun: how much of a change is carried out.
const (
	DryRunNone   = "none"
	DryRunClient = "client"
	DryRunServer = "server"
)

// Change is one write: the set as it is to become, and the verb that describes it, as in "paused".
type Change struct {
	Verb  string
	After *lwsv1.LeaderWorkerSet
}

// Decide decides what to change, or why nothing can be changed. read reads the revisions of the set, by rising
// number.
type Decide func(set *lwsv1.LeaderWorkerSet, read revisions) (Change, error)

// Editor changes sets. It writes nothing but patches of sets.
type Editor struct {
	client.Client
	DryRun string
}

// Amend changes a set. It returns the decision, and the set as it became. After a conflict it decides
// again if the spec is the same: the operator writes the status at any time.
func (e *Editor) Amend(ctx context.Context, key types.NamespacedName, decide Decide) (Change, *lwsv1.LeaderWorkerSet, error) {
	first, change, after := (*lwsv1.LeaderWorkerSet)(nil), Change{}, (*lwsv1.LeaderWorkerSet)(nil)
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		set := &lwsv1.LeaderWorkerSet{}
		if err := e.Get(ctx, key, set); err != nil {
			return err
		}
		if first == nil {
			first = set
		}
		switch {
		case set.UID != first.UID, set.Generation != first.Generation:
			return fmt.Errorf("leaderworkerset %q was changed meanwhile; check it and try again", key.Name)
		case set.DeletionTimestamp != nil:
			return fmt.Errorf("leaderworkerset %q is being deleted", key.Name)
		}
		var err error
		change, err = decide(set, func() ([]*appsv1.ControllerRevision, error) { return Revisions(ctx, e, set) })
		if err != nil {
			return err
		}
		after = change.After
		if e.DryRun != DryRunClient && !equality.Semantic.DeepEqual(set, change.After) {
			after, err = e.write(ctx, set, change.After)
		}
		return err
	})
	return change, after, err
}

// write patches the exact resourceVersion that was read: another incarnation has another one.
func (e *Editor) write(ctx context.Context, before, after *lwsv1.LeaderWorkerSet) (*lwsv1.LeaderWorkerSet, error) {
	options := []client.PatchOption{client.FieldOwner(FieldOwner)}
	if e.DryRun == DryRunServer {
		options = append(options, client.DryRunAll)
	}
	stored := after.DeepCopy()
	err := e.Patch(ctx, stored, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), options...)
	return stored, err
}

// RestartedAtKey is the annotation by which kubectl restarts pods.
const RestartedAtKey = "kubectl.kubernetes.io/restartedAt"

// Previous stands for the revision before the present one.
const Previous int64 = 0

type revisions = func() ([]*appsv1.ControllerRevision, error)

// Pause holds the rollout of a set.
func Pause(set *lwsv1.LeaderWorkerSet, _ revisions) (Change, error) {
	if lws.Paused(set) {
		return Change{}, fmt.Errorf("leaderworkerset %q is already paused", set.Name)
	}
	after := set.DeepCopy()
	metav1.SetMetaDataAnnotation(&after.ObjectMeta, lwsv1.PausedAnnotationKey, lwsv1.PausedValue)
	return Change{Verb: "paused", After: after}, nil
}

// Resume lets a paused rollout continue.
func Resume(set *lwsv1.LeaderWorkerSet, _ revisions) (Change, error) {
	if !lws.Paused(set) {
		return Change{}, fmt.Errorf("leaderworkerset %q is not paused", set.Name)
	}
	after := set.DeepCopy()
	delete(after.Annotations, lwsv1.PausedAnnotationKey)
	return Change{Verb: "resumed", After: after}, nil
}

// Restart replaces every group by one of the same template, leaders and workers alike.
func Restart(now time.Time) Decide {
	moment := now.Format(time.RFC3339)
	return func(set *lwsv1.LeaderWorkerSet, _ revisions) (Change, error) {
		after := set.DeepCopy()
		template := &after.Spec.LeaderWorkerTemplate
		if template.WorkerTemplate.Annotations[RestartedAtKey] == moment {
			return Change{}, errors.New("a restart was triggered within the past second; wait before triggering another")
		}
		metav1.SetMetaDataAnnotation(&template.WorkerTemplate.ObjectMeta, RestartedAtKey, moment)
		if template.LeaderTemplate != nil {
			metav1.SetMetaDataAnnotation(&template.LeaderTemplate.ObjectMeta, RestartedAtKey, moment)
		}
		return Change{Verb: "restarted", After: after}, notPaused("restart", set)
	}
}

// Undo restores the template of an earlier revision. The volumeClaimTemplates stay: they are immutable.
func Undo(number int64) Decide {
	return func(set *lwsv1.LeaderWorkerSet, read revisions) (Change, error) {
		if err := notPaused("undo the rollout of", set); err != nil {
			return Change{}, err
		}
		if condition.IsTrue(set.Status.Conditions, lws.CodeUnsupported) {
			return Change{}, fmt.Errorf("leaderworkerset %q has fields that this version lacks, and its revisions may not have them; upgrade Lockstep first", set.Name)
		}
		to, err := chosen(set, read, number)
		if err != nil {
			return Change{}, err
		}
		if revision.Agrees(set, to.Data.Raw) {
			return Change{Verb: fmt.Sprintf("skipped rollback (current template already matches revision %d)", to.Revision), After: set}, nil
		}
		restored, err := revision.Restore(set, to.Data.Raw)
		if err != nil {
			return Change{}, fmt.Errorf("revision %d: %w", to.Revision, err)
		}
		after := restored.DeepCopy()
		after.Spec.LeaderWorkerTemplate.VolumeClaimTemplates = set.Spec.LeaderWorkerTemplate.VolumeClaimTemplates
		delete(after.Annotations, revision.ChangeCauseAnnotationKey)
		if cause := to.Annotations[revision.ChangeCauseAnnotationKey]; cause != "" {
			metav1.SetMetaDataAnnotation(&after.ObjectMeta, revision.ChangeCauseAnnotationKey, cause)
		}
		return Change{Verb: fmt.Sprintf("rolled back to revision %d", to.Revision), After: after}, nil
	}
}

// chosen returns the revision to restore.
func chosen(set *lwsv1.LeaderWorkerSet, read revisions, number int64) (*appsv1.ControllerRevision, error) {
	all, err := read()
	if err != nil {
		return nil, err
	}
	for _, r := range slices.Backward(all) {
		if r.Revision == number || number == Previous && !revision.Agrees(set, r.Data.Raw) {
			return r, nil
		}
	}
	switch {
	case len(all) == 0:
		return nil, fmt.Errorf("no rollout history found for leaderworkerset %q", set.Name)
	case number != Previous:
		return nil, NoSuchRevision(set.Name, all, number)
	}
	return nil, fmt.Errorf("leaderworkerset %q has nothing to go back to: its only revision is %d, and the spec is equal to it",
		set.Name, all[0].Revision)
}

func notPaused(verb string, set *lwsv1.LeaderWorkerSet) error {
	if !lws.Paused(set) {
		return nil
	}
	return fmt.Errorf("cannot %s leaderworkerset %q while its rollout is paused; resume it first with: kubectl lockstep rollout resume %s -n %s",
		verb, set.Name, set.Name, set.Namespace)
}

// Revisions returns the revisions of a set by rising number: those in use, and those of its history,
// which the cache does not hold.
func Revisions(ctx context.Context, live client.Reader, set *lwsv1.LeaderWorkerSet) ([]*appsv1.ControllerRevision, error) {
	var found []*appsv1.ControllerRevision
	for _, label := range []string{lwsv1.SetNameLabelKey, revision.HistoryLabelKey} {
		var list appsv1.ControllerRevisionList
		if err := live.List(ctx, &list, client.InNamespace(set.Namespace), client.MatchingLabels{label: set.Name}); err != nil {
			return nil, fmt.Errorf("list the revisions of %q: %w", set.Name, err)
		}
		for i := range list.Items {
			one := &list.Items[i]
			known := slices.ContainsFunc(found, func(r *appsv1.ControllerRevision) bool { return r.UID == one.UID })
			if !known && metav1.IsControlledBy(one, set) && revision.Genuine(one, set.Name) {
				found = append(found, one)
			}
		}
	}
	slices.SortFunc(found, func(a, b *appsv1.ControllerRevision) int {
		return cmp.Or(cmp.Compare(a.Revision, b.Revision), cmp.Compare(a.Name, b.Name))
	})
	return found, nil
}

// NoSuchRevision returns the error that no revision has a number, with the numbers that exist.
func NoSuchRevision(set string, revisions []*appsv1.ControllerRevision, number int64) error {
	var numbers []string
	for _, r := range revisions {
		numbers = append(numbers, strconv.FormatInt(r.Revision, 10))
	}
	return fmt.Errorf("leaderworkerset %q has no revision %d; there are: %s", set, number, strings.Join(numbers, ", "))
}
