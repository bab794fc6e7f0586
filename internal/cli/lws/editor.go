package lws

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/internal/lws/undo"
	"lockstep.dev/lockstep/internal/lwscache"
)

// FieldOwner is the field manager of the writes.
const FieldOwner = "kubectl-lockstep"

// The values of Editor.DryRun: how much of a change is carried out.
const (
	DryRunNone   = "none"
	DryRunClient = "client"
	DryRunServer = "server"
)

// Change is one write: the set or a leader as it is to become, and the verb that describes it, as in "paused".
type Change struct {
	Verb          string
	Before, After client.Object
}

// DecideOf decides what to change, or why nothing can be changed.
type DecideOf[Set client.Object] func(ctx context.Context, live client.Reader, set Set) (Change, error)

// Decide is a decision about a LeaderWorkerSet.
type Decide = DecideOf[*lwsv1.LeaderWorkerSet]

// Editor changes sets, and asks for groups. It writes nothing but patches of sets and of leaders.
type Editor struct {
	client.Client
	DryRun string
}

// Amend changes a set of any kind, or one of its pods. It returns the decision, with the object as it became. After a
// conflict it decides again if the spec and the pod are the same: the operator and the kubelet write statuses at any time.
func Amend[Set client.Object](ctx context.Context, e *Editor, key types.NamespacedName, decide DecideOf[Set]) (change Change, err error) {
	var first client.Object
	var about types.UID
	err = retry.RetryOnConflict(retry.DefaultRetry, func() error {
		set := reflect.New(reflect.TypeFor[Set]().Elem()).Interface().(Set)
		if err := e.Get(ctx, key, set); err != nil {
			return err
		}
		if first == nil {
			first = set
		}
		switch {
		case set.GetUID() != first.GetUID(), set.GetGeneration() != first.GetGeneration():
			return fmt.Errorf("%s %q was changed meanwhile; check it and try again", NounOf[Set](), key.Name)
		case set.GetDeletionTimestamp() != nil:
			return fmt.Errorf("%s %q is being deleted", NounOf[Set](), key.Name)
		}
		if change, err = decide(ctx, e, set); err != nil {
			return err
		}
		if about = cmp.Or(about, change.Before.GetUID()); about != change.Before.GetUID() {
			return fmt.Errorf("%s was replaced meanwhile", change.Before.GetName())
		}
		if e.DryRun != DryRunClient && !equality.Semantic.DeepEqual(change.Before, change.After) {
			change.After, err = e.write(ctx, change.Before, change.After)
		}
		return err
	})
	return change, err
}

// write patches the exact resourceVersion that was read: another incarnation has another one.
func (e *Editor) write(ctx context.Context, before, after client.Object) (client.Object, error) {
	options := []client.PatchOption{client.FieldOwner(FieldOwner)}
	if e.DryRun == DryRunServer {
		options = append(options, client.DryRunAll)
	}
	stored := after.DeepCopyObject().(client.Object)
	err := e.Patch(ctx, stored, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), options...)
	if apierrors.IsNotFound(err) {
		err = fmt.Errorf("%s was deleted meanwhile", before.GetName())
	}
	return stored, err
}

// RestartedAtKey is the annotation by which kubectl restarts pods.
const RestartedAtKey = "kubectl.kubernetes.io/restartedAt"

// NounOf returns the kind of a set as errors name it.
func NounOf[Set client.Object]() string { return strings.ToLower(reflect.TypeFor[Set]().Elem().Name()) }

// Pause holds the rollout of a set.
func Pause[Set client.Object](_ context.Context, _ client.Reader, set Set) (Change, error) {
	return hold(set, "paused", lwsv1.PausedValue, "%s %q is already paused")
}

// Resume lets a paused rollout continue.
func Resume[Set client.Object](_ context.Context, _ client.Reader, set Set) (Change, error) {
	return hold(set, "resumed", "", "%s %q is not paused")
}

// hold writes the annotation of a pause, or removes it, unless it is so already.
func hold[Set client.Object](set Set, verb, value, already string) (Change, error) {
	if is := set.GetAnnotations()[lwsv1.PausedAnnotationKey]; (is == lwsv1.PausedValue) == (value != "") {
		return Change{}, fmt.Errorf(already, NounOf[Set](), set.GetName())
	}
	after := set.DeepCopyObject().(Set)
	annotations := after.GetAnnotations()
	if delete(annotations, lwsv1.PausedAnnotationKey); value != "" {
		annotations = labels.Merge(annotations, labels.Set{lwsv1.PausedAnnotationKey: value})
	}
	after.SetAnnotations(annotations)
	return Change{verb, set, after}, nil
}

// Restart replaces every group by one of the same template, leaders and workers alike.
func Restart(now time.Time) Decide {
	moment := now.Format(time.RFC3339)
	return func(_ context.Context, _ client.Reader, set *lwsv1.LeaderWorkerSet) (Change, error) {
		after := set.DeepCopy()
		template := &after.Spec.LeaderWorkerTemplate
		if template.WorkerTemplate.Annotations[RestartedAtKey] == moment {
			return Change{}, errors.New("a restart was triggered within the past second; wait before triggering another")
		}
		metav1.SetMetaDataAnnotation(&template.WorkerTemplate.ObjectMeta, RestartedAtKey, moment)
		if template.LeaderTemplate != nil {
			metav1.SetMetaDataAnnotation(&template.LeaderTemplate.ObjectMeta, RestartedAtKey, moment)
		}
		if lws.Paused(set) {
			return Change{}, fmt.Errorf("cannot restart leaderworkerset %q while its rollout is paused; "+
				"resume it first with: kubectl lockstep rollout resume %[1]s -n %s", set.Name, set.Namespace)
		}
		return Change{"restarted", set, after}, nil
	}
}

// Undo restores the template of an earlier revision.
func Undo(number int64) Decide {
	return func(ctx context.Context, live client.Reader, set *lwsv1.LeaderWorkerSet) (Change, error) {
		after, to, err := undo.Restore(set, func(of *lwsv1.LeaderWorkerSet) ([]*appsv1.ControllerRevision, error) {
			return lwscache.Revisions(ctx, live, of)
		}, number)
		switch {
		case err != nil:
			return Change{}, err
		case after == set:
			return Change{fmt.Sprintf("skipped rollback (current template already matches revision %s)", to), set, set}, nil
		}
		return Change{fmt.Sprintf("rolled back to revision %s", to), set, after}, nil
	}
}
