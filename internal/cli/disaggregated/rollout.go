package disaggregated

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	dsv1 "lockstep.dev/lockstep/api/disaggregatedset/v1"
	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/cli/cluster"
	"lockstep.dev/lockstep/internal/cli/diff"
	"lockstep.dev/lockstep/internal/cli/follow"
	"lockstep.dev/lockstep/internal/cli/lws"
	"lockstep.dev/lockstep/internal/cli/page"
	"lockstep.dev/lockstep/internal/cli/render"
	"lockstep.dev/lockstep/internal/condition"
	"lockstep.dev/lockstep/internal/disaggregated"
	"lockstep.dev/lockstep/internal/lws/undo"
)

// Rollouts returns the rollouts of sets, for a command that follows them.
func Rollouts(flags *cluster.Flags) func(context.Context) (*follow.Rollouts, error) {
	return func(ctx context.Context) (*follow.Rollouts, error) {
		s, err := flags.Session(ctx)
		if err != nil {
			return nil, err
		}
		read := func(key types.NamespacedName) (follow.Standing, error) {
			w, err := read(ctx, s.Live, key, s.Now())
			if err != nil {
				return follow.Standing{}, s.Explain(err, cluster.ReadSets)
			}
			return standingOf(w)
		}
		return &follow.Rollouts{Noun: Noun, Key: s.Key, Read: read, Await: s.Await}, nil
	}
}

// standingOf returns how far a rollout has come.
func standingOf(w disaggregated.Snapshot) (r follow.Standing, err error) {
	s, err := Status(w)
	if err != nil {
		return r, err
	}
	for _, record := range w.Records.Owned {
		if keyOf(record) == s.Revision && w.Set.Status.ObservedGeneration >= w.Set.Generation {
			r.Number = record.Revision
		}
	}
	r.UID, r.IsDeleting = w.Set.UID, w.Set.DeletionTimestamp != nil
	r.IsFailed = w.Set.Status.ObservedGeneration == w.Set.Generation && condition.IsTrue(w.Set.Status.Conditions, "Stalled")
	var wanted, updated, ready int32
	for _, role := range s.Roles {
		wanted, updated = wanted+role.Wanted, updated+role.Updated
	}
	for _, row := range s.Rows {
		ready += row.Ready * map[bool]int32{true: 1}[row.Revision == s.Revision]
	}
	r.Message = fmt.Sprintf("waiting: %d of %s are updated, %d of them ready; %d others must end", updated, page.Counted(int(wanted), "group"), ready, s.old)
	switch {
	case len(s.Waiting) == 0 && updated >= wanted && ready >= wanted && s.old == 0:
		r.IsDone = true
		r.Message = fmt.Sprintf("%s %q successfully rolled out: %s at revision %d (%s)", Noun, s.Name, page.Counted(int(wanted), "group"), r.Number, s.Revision)
	case len(s.Waiting) > 0:
		r.Message += "; " + page.Plain(s.Waiting[0])
	}
	return r, nil
}

// History returns the history of a set.
func History(w disaggregated.Snapshot) (*render.SetHistory, error) {
	h := &render.SetHistory{TypeMeta: page.Kind("SetHistory"), Noun: Noun, Namespace: w.Set.Namespace, Name: w.Set.Name, Paused: isPaused(w.Set), Revisions: []render.Revision{}}
	t, err := disaggregated.Of(w)
	if err != nil {
		return nil, err
	}
	for _, record := range w.Records.Owned {
		r := render.Revision{Number: record.Revision, Key: keyOf(record), Name: record.Name, CreatedAt: record.CreationTimestamp, Current: keyOf(record) == t.Revision}
		for _, slice := range t.Slices {
			for _, revision := range slice.Revisions {
				for _, row := range revision.Rows {
					r.Groups += len(row.Groups) * map[bool]int{true: 1}[revision.Name == r.Key]
				}
			}
		}
		h.Revisions = append(h.Revisions, r)
	}
	return h, nil
}

// Diff returns what differs between two revisions of a set, and what to say if nothing does.
func Diff(ctx context.Context, s *cluster.Session, key types.NamespacedName, of render.Comparison) (text, same string, err error) {
	w, err := read(ctx, s.Live, key, s.Now())
	switch {
	case apierrors.IsNotFound(err):
		return "", "", cluster.NoSuch(Noun, key)
	case err != nil:
		return "", "", s.Explain(err, cluster.ReadSets)
	}
	text, err = compared(w.Set, w.Records.Owned, of)
	return text, "no difference", err
}

// compared returns the difference of two revisions in the format of diff -u. Without numbers, they are those of the change
// that is not rolled out yet, or else of the last rollout.
func compared(set *dsv1.DisaggregatedSet, records []*appsv1.ControllerRevision, of render.Comparison) (string, error) {
	if of == (render.Comparison{}) {
		if len(records) == 0 {
			return "", fmt.Errorf("%s %q has no revision yet", Noun, set.Name)
		}
		last := records[len(records)-1]
		present, err := disaggregated.RevisionOf(set.Spec.Roles)
		if of.From = last.Revision; err == nil && len(records) > 1 && keyOf(last) == present {
			of = render.Comparison{From: records[len(records)-2].Revision, To: last.Revision}
		}
	}
	return diff.Unified(of.From, of.To, func(number int64) (name string, content any, err error) {
		if number == render.Live {
			return set.Name + " spec", disaggregated.Content(set.Spec.Roles), nil
		}
		at := slices.IndexFunc(records, func(r *appsv1.ControllerRevision) bool { return r.Revision == number })
		if at < 0 {
			return "", nil, undo.NoSuchRevision(Noun, set.Name, records, number)
		}
		roles, err := disaggregated.RolesOf(records[at])
		return set.Name + " revision " + title(records[at]), disaggregated.Content(roles), err
	})
}

// Decide decides what to change of a set, in one write, or why nothing can be changed.
type Decide = lws.DecideOf[*dsv1.DisaggregatedSet]

// Restart replaces every group of every role by one of the same template.
func Restart(now time.Time) Decide {
	moment := now.Format(time.RFC3339)
	return func(ctx context.Context, live client.Reader, set *dsv1.DisaggregatedSet) (lws.Change, error) {
		if err := leftAlone(set); err != nil {
			return lws.Change{}, err
		}
		if isPaused(set) {
			return lws.Change{}, fmt.Errorf("cannot restart %s %q while its rollout is paused; "+
				"resume it first with: kubectl lockstep rollout resume dset/%[2]s -n %s", Noun, set.Name, set.Namespace)
		}
		if roles := set.Spec.Roles; len(roles) > 0 && roles[0].Spec.LeaderWorkerTemplate.WorkerTemplate.Annotations[lws.RestartedAtKey] == moment {
			return lws.Change{}, errors.New("a restart was triggered within the past second; wait before triggering another")
		}
		stored := &unstructured.Unstructured{} // a patch replaces all roles, and this version may lack fields of them
		stored.SetGroupVersionKind(dsv1.GroupVersion.WithKind("DisaggregatedSet"))
		err := live.Get(ctx, client.ObjectKeyFromObject(set), stored)
		after := stored.DeepCopy()
		found, _, _ := unstructured.NestedFieldNoCopy(after.Object, "spec", "roles")
		roles, _ := found.([]any)
		for _, role := range roles {
			for _, pods := range []string{"leaderTemplate", "workerTemplate"} {
				path := []string{"spec", "leaderWorkerTemplate", pods}
				if _, has, _ := unstructured.NestedFieldNoCopy(role.(map[string]any), path...); has {
					err = errors.Join(err, unstructured.SetNestedField(role.(map[string]any), moment, append(path, "metadata", "annotations", lws.RestartedAtKey)...))
				}
			}
		}
		return lws.Change{Verb: "restarted", Before: stored, After: after}, err
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
		if err != nil {
			return lws.Change{}, err
		}
		verb := map[bool]string{true: "skipped rollback (current roles already match revision %s)", false: "rolled back to revision %s"}[after == set]
		return lws.Change{Verb: fmt.Sprintf(verb, title(to)), Before: set, After: after}, nil
	}
}

// leftAlone refuses to write the roles of a set that has more than this version knows: the write would drop it.
func leftAlone(set *dsv1.DisaggregatedSet) error {
	if condition.IsTrue(set.Status.Conditions, action.CodeUnsupported) {
		return fmt.Errorf("%s %q has fields that this version lacks, and a write of its roles would drop them; upgrade Lockstep first", Noun, set.Name)
	}
	return nil
}

// restored returns the set with the roles of a record. It is the same set if they are the same already. What a revision
// does not say of a role stays: its scaling, its number of groups and its strategy. A role that returns has groups where
// other Static roles have some.
func restored(set *dsv1.DisaggregatedSet, kept []*appsv1.ControllerRevision, number int64) (*dsv1.DisaggregatedSet, *appsv1.ControllerRevision, error) {
	if err := leftAlone(set); err != nil {
		return nil, nil, err
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
		for _, other := range set.Spec.Roles { // Static roles have groups, or none has
			if wants := ptr.Deref(other.Spec.Replicas, 1) > 0; !disaggregated.IsExternal(&other) && wants != (ptr.Deref(role.Spec.Replicas, 1) > 0) {
				role.Spec.Replicas = new(map[bool]int32{true: 1}[wants])
			}
		}
		if i := slices.IndexFunc(set.Spec.Roles, func(r dsv1.DisaggregatedRole) bool { return r.Name == role.Name }); i >= 0 {
			template, id := role.Spec.LeaderWorkerTemplate, role.Spec.GroupIdentity
			role = *set.Spec.Roles[i].DeepCopy()
			if role.Spec.GroupIdentity != id { // its policy is of the other identity
				role.Spec.GroupReplacementPolicy = ""
			}
			if role.Spec.LeaderWorkerTemplate, role.Spec.GroupIdentity = template, id; template.SubGroupPolicy == nil {
				delete(role.Metadata.Annotations, lwsv1.SubGroupExclusiveKeyAnnotationKey) // nothing is left to place
			}
		}
		after.Spec.Roles = append(after.Spec.Roles, role)
	}
	keepPartners(after)
	if got, err := disaggregated.RevisionOf(after.Spec.Roles); err != nil || got != keyOf(to) {
		return nil, nil, fmt.Errorf("revision %s of %s %q cannot be restored: its roles are revision %s to this version", title(to), Noun, set.Name, got)
	}
	return after, to, nil
}

// keepPartners takes roles that the set lacks off the partners of a failure. Without any, all roles are partners.
func keepPartners(set *dsv1.DisaggregatedSet) {
	left := slices.DeleteFunc(strings.Split(set.Annotations[dsv1.RestartPartnersAnnotationKey], ","), func(name string) bool {
		return !slices.ContainsFunc(set.Spec.Roles, func(r dsv1.DisaggregatedRole) bool { return r.Name == name })
	})
	if delete(set.Annotations, dsv1.RestartPartnersAnnotationKey); len(left) > 0 {
		set.Annotations[dsv1.RestartPartnersAnnotationKey] = strings.Join(left, ",")
	}
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
		return nil, fmt.Errorf("no rollout history found for %s %q", Noun, set.Name)
	case number != 0:
		return nil, undo.NoSuchRevision(Noun, set.Name, kept, number)
	}
	return nil, fmt.Errorf("%s %q has nothing to go back to: its only revision is %s, and the spec is equal to it", Noun, set.Name, title(kept[0]))
}
