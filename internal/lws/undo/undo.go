// Package undo decides what an undone rollout of a LeaderWorkerSet looks like.
//
// It knows which revision is restored, and when none may be. It refuses to know where
// revisions are read, and who asks: the command and the webhook do.
package undo

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/condition"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/internal/lws/revision"
)

// Previous stands for the revision before the present one.
const Previous int64 = 0

// Revisions reads the revisions of a set by rising number: those in use, and those of its history.
type Revisions func(*lwsv1.LeaderWorkerSet) ([]*appsv1.ControllerRevision, error)

// Restore returns the set with the template of an earlier revision, and the names of that revision. The
// set is the same if its template is equal already. The volumeClaimTemplates stay: they are immutable. A
// pause stays too: no group is replaced for a template that its user takes back.
func Restore(set *lwsv1.LeaderWorkerSet, read Revisions, number int64) (*lwsv1.LeaderWorkerSet, string, error) {
	if condition.IsTrue(set.Status.Conditions, lws.CodeUnsupported) {
		return nil, "", fmt.Errorf("leaderworkerset %q has fields that this version lacks, and its revisions may not have them; upgrade Lockstep first", set.Name)
	}
	to, err := chosen(set, read, number)
	if err != nil {
		return nil, "", err
	}
	if revision.Agrees(set, to.Data.Raw) {
		return set, title(to), nil
	}
	restored, err := revision.Restore(set, to.Data.Raw)
	if err != nil {
		return nil, "", fmt.Errorf("revision %s: %w", title(to), err)
	}
	after := restored.DeepCopy()
	after.Spec.LeaderWorkerTemplate.VolumeClaimTemplates = set.Spec.LeaderWorkerTemplate.VolumeClaimTemplates
	delete(after.Annotations, revision.ChangeCauseAnnotationKey)
	if cause := to.Annotations[revision.ChangeCauseAnnotationKey]; cause != "" {
		metav1.SetMetaDataAnnotation(&after.ObjectMeta, revision.ChangeCauseAnnotationKey, cause)
	}
	return after, title(to), nil
}

// Requested returns the set after the undo that an update asks for with the annotation lockstep.dev/undo-to-revision.
// The annotation does not stay. One that was stored before is no request: no webhook answered while it was new.
func Requested(is, was *lwsv1.LeaderWorkerSet, read Revisions) (*lwsv1.LeaderWorkerSet, error) {
	asked, given := is.Annotations[lwsv1.UndoAnnotationKey]
	if !given {
		return is, nil
	}
	after := is.DeepCopy()
	delete(after.Annotations, lwsv1.UndoAnnotationKey)
	if _, stored := was.Annotations[lwsv1.UndoAnnotationKey]; stored {
		return after, nil
	}
	number, err := strconv.ParseInt(asked, 10, 64)
	if err != nil || number < 0 {
		return nil, fmt.Errorf("metadata.annotations[%s]: %q: give the number of a revision, or 0 for the previous one", lwsv1.UndoAnnotationKey, asked)
	}
	after, _, err = Restore(after, read, number)
	return after, err
}

// chosen returns the revision to restore.
func chosen(set *lwsv1.LeaderWorkerSet, read Revisions, number int64) (*appsv1.ControllerRevision, error) {
	all, err := read(set)
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
		return nil, NoSuchRevision("leaderworkerset", set.Name, all, number)
	}
	return nil, fmt.Errorf("leaderworkerset %q has nothing to go back to: its only revision is %s, and the spec is equal to it",
		set.Name, title(all[0]))
}

// NoSuchRevision returns the error that no revision has a number, with the numbers that exist.
func NoSuchRevision(noun, set string, revisions []*appsv1.ControllerRevision, number int64) error {
	var numbers []string
	for _, r := range revisions {
		numbers = append(numbers, strconv.FormatInt(r.Revision, 10))
	}
	return fmt.Errorf("%s %q has no revision %d; there are: %s", noun, set, number, strings.Join(numbers, ", "))
}

// title names a revision by its number and its key.
func title(r *appsv1.ControllerRevision) string {
	return revision.Title(r.Revision, r.Labels[lwsv1.RevisionKey])
}
