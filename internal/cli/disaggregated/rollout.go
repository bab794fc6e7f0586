package disaggregated

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	dsv1 "lockstep.dev/lockstep/api/disaggregatedset/v1"
	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/cli/argument"
	"lockstep.dev/lockstep/internal/cli/cluster"
	"lockstep.dev/lockstep/internal/cli/diff"
	"lockstep.dev/lockstep/internal/cli/follow"
	"lockstep.dev/lockstep/internal/cli/lws"
	"lockstep.dev/lockstep/internal/cli/page"
	"lockstep.dev/lockstep/internal/cli/render"
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
				return follow.Standing{}, s.Explain(err, readSets)
			}
			return standingOf(w)
		}
		return &follow.Rollouts{Noun: noun, Key: s.Key, Read: read, Await: s.Await}, nil
	}
}

// standingOf returns how far a rollout has come.
func standingOf(w disaggregated.Snapshot) (r follow.Standing, err error) {
	s, err := statusOf(w)
	if err != nil {
		return r, err
	}
	for _, record := range w.Records.Owned {
		if keyOf(record) == s.Revision && w.Set.Status.ObservedGeneration >= w.Set.Generation {
			r.Number = record.Revision
		}
	}
	var wanted, updated, ready, old int32
	for i, role := range s.Roles {
		updated += role.Updated
		if role.Wanted != nil {
			wanted += *role.Wanted
		}
		for _, slice := range s.Slices {
			ready += slice.Revisions[0].Roles[i].Ready
		}
	}
	for _, slice := range s.Slices {
		for _, n := range slice.Leaving {
			old += n
		}
		for _, revision := range slice.Revisions[1:] {
			for _, row := range revision.Roles {
				old += row.Wanted
			}
		}
	}
	r.UID, r.IsDeleting = w.Set.UID, w.Set.DeletionTimestamp != nil
	r.Message = fmt.Sprintf("waiting: %d of %s are updated, %d of them ready; %d others must end", updated, page.Counted(int(wanted), "group"), ready, old)
	switch {
	case len(s.Waiting) == 0 && updated >= wanted && ready >= wanted && old == 0:
		r.IsDone = true
		r.Message = fmt.Sprintf("%s %q successfully rolled out: %s at revision %d (%s)", noun, s.Name, page.Counted(int(wanted), "group"), r.Number, s.Revision)
	case s.Paused && old > 0:
		r.Message += "; the rollout is paused, resume it with: kubectl lockstep rollout resume dset/" + s.Name + " -n " + s.Namespace
	case len(s.Waiting) > 0:
		r.Message += "; " + page.Plain(s.Waiting[0])
	}
	return r, nil
}

// Histories prints the histories of sets.
func Histories(ctx context.Context, flags *cluster.Flags, args []string, print func(...page.Report) error) error {
	names, err := argument.DisaggregatedSets.Names(args)
	if err != nil {
		return err
	}
	s, err := flags.Session(ctx)
	if err != nil {
		return err
	}
	var all []page.Report
	err = s.Each(names, func(key types.NamespacedName) error {
		w, err := read(ctx, s.Live, key, s.Now())
		if err != nil {
			return explain(s.Cluster, err, key, readSets)
		}
		h, err := historyOf(w)
		all = append(all, h)
		return err
	})
	return errors.Join(print(all...), err)
}

func historyOf(w disaggregated.Snapshot) (*render.SetHistory, error) {
	h := &render.SetHistory{TypeMeta: page.Kind("SetHistory"), Noun: noun, Namespace: w.Set.Namespace, Name: w.Set.Name, Paused: isPaused(w.Set), Revisions: []render.Revision{}}
	t, err := disaggregated.Of(w)
	if err != nil {
		return h, err
	}
	var before map[string]any
	for _, record := range w.Records.Owned {
		r := render.Revision{Number: record.Revision, Key: keyOf(record), Name: record.Name, CreatedAt: record.CreationTimestamp, Current: keyOf(record) == t.Revision}
		for _, slice := range t.Slices {
			for _, revision := range slice.Revisions {
				for _, row := range revision.Rows {
					r.Groups += len(row.Groups) * map[bool]int{true: 1}[revision.Name == r.Key]
				}
			}
		}
		roles, err := disaggregated.RolesOf(record)
		content := contentOf(roles)
		if err != nil {
			r.Unreadable = err.Error()
		} else if before != nil {
			r.Changes = diff.Changes(before, content)
		}
		before = content
		h.Revisions = append(h.Revisions, r)
	}
	return h, nil
}

// hashed is what a revision says of a role.
type hashed struct {
	Name                 string                     `json:"name"`
	GroupIdentity        lwsv1.GroupIdentityType    `json:"groupIdentity,omitempty"`
	LeaderWorkerTemplate lwsv1.LeaderWorkerTemplate `json:"leaderWorkerTemplate"`
}

func contentOf(roles []dsv1.DisaggregatedRole) map[string]any {
	var of struct {
		Roles []hashed `json:"roles"`
	}
	for _, role := range roles {
		of.Roles = append(of.Roles, hashed{role.Name, role.Spec.GroupIdentity, role.Spec.LeaderWorkerTemplate})
	}
	content, _ := runtime.DefaultUnstructuredConverter.ToUnstructured(&of) // it was decoded from JSON
	return content
}

// Diff prints what differs between two revisions of a set, or to said that nothing does.
func Diff(ctx context.Context, flags *cluster.Flags, args []string, of render.Comparison, out, said io.Writer) error {
	show := func(w disaggregated.Snapshot) (page.Report, error) {
		text, err := compared(w.Set, w.Records.Owned, of)
		if err == nil && text == "" {
			fmt.Fprintf(said, "no difference between these revisions of %s\n", w.Set.Name)
		}
		fmt.Fprint(out, text)
		return nil, err
	}
	return Show(ctx, flags, args, false, show, func(_ context.Context, _ *lws.Session, _ bool, _ string, see func() (page.Report, error)) error {
		_, err := see()
		return err
	})
}

// compared returns the difference of two revisions in the format of diff -u. Without numbers, they are those of the change
// that is not rolled out yet, or else of the last rollout.
func compared(set *dsv1.DisaggregatedSet, kept []*appsv1.ControllerRevision, of render.Comparison) (string, error) {
	if of == (render.Comparison{}) {
		if len(kept) == 0 {
			return "", fmt.Errorf("%s %q has no revision yet", noun, set.Name)
		}
		last := kept[len(kept)-1]
		present, err := disaggregated.RevisionOf(set.Spec.Roles)
		if of.From = last.Revision; len(kept) > 1 && keyOf(last) == present {
			of = render.Comparison{From: kept[len(kept)-2].Revision, To: last.Revision}
		}
		if err != nil {
			return "", err
		}
	}
	return diff.Unified(of.From, of.To, func(number int64) (name string, content map[string]any, err error) {
		if number == render.Live {
			return set.Name + " spec", contentOf(set.Spec.Roles), nil
		}
		at := slices.IndexFunc(kept, func(r *appsv1.ControllerRevision) bool { return r.Revision == number })
		if at < 0 {
			return "", nil, undo.NoSuchRevision(noun, set.Name, kept, number)
		}
		roles, err := disaggregated.RolesOf(kept[at])
		return set.Name + " revision " + title(kept[at]), contentOf(roles), err
	})
}
