// Package disaggregated is what kubectl lockstep does with DisaggregatedSets: show one with its plan, and change one.
//
// It reads live, with the user's rights, and decides with the operator's functions. It writes nothing but the set. It
// refuses to know flags, and how far a step may go: package planner says that.
package disaggregated

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	dsv1 "lockstep.dev/lockstep/api/disaggregatedset/v1"
	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/cli/argument"
	"lockstep.dev/lockstep/internal/cli/cluster"
	"lockstep.dev/lockstep/internal/cli/lws"
	"lockstep.dev/lockstep/internal/cli/page"
	"lockstep.dev/lockstep/internal/disaggregated"
	"lockstep.dev/lockstep/internal/disaggregatedcache"
)

// noun is the kind in errors.
const noun = "disaggregatedset"

// What commands must be allowed to do.
const (
	readSets  = "get disaggregatedsets, list disaggregatedsetrolescalers, and " + cluster.ReadSets
	WriteSets = "get, create and patch disaggregatedsets, and for undo read what status reads"
)

// read reads a set and all that bears its name.
func read(ctx context.Context, live client.Reader, key types.NamespacedName, now time.Time) (disaggregated.Snapshot, error) {
	observer := &disaggregatedcache.Observer{Sets: live, Beside: live, Live: live, IsLive: true}
	w, err := observer.Set(ctx, key, now)
	slices.SortFunc(w.Records.Owned, func(a, b *appsv1.ControllerRevision) int {
		return cmp.Or(cmp.Compare(a.Revision, b.Revision), cmp.Compare(a.Name, b.Name))
	})
	return w, err
}

func explain(c *cluster.Cluster, err error, key types.NamespacedName, needs string) error {
	if apierrors.IsNotFound(err) {
		return cluster.NoSuch(noun, key)
	}
	return c.Explain(err, needs)
}

// Show shows a report on one set, or with watch every change of it.
func Show(ctx context.Context, flags *cluster.Flags, args []string, watch bool, report func(disaggregated.Snapshot) (page.Report, error),
	show func(ctx context.Context, s *lws.Session, watch bool, gone string, see func() (page.Report, error)) error,
) error {
	names, err := argument.DisaggregatedSets.Names(args)
	if err == nil && len(names) != 1 {
		err = errors.New("give one DisaggregatedSet, as dset/NAME; show a group with the LeaderWorkerSet of its role")
	}
	if err != nil {
		return err
	}
	s, err := flags.Session(ctx)
	if err != nil {
		return err
	}
	key, isSeen := s.Key(names[0]), false
	gone := fmt.Sprintf("%s %s in namespace %s is gone; waiting for a new one\n", noun, key.Name, key.Namespace)
	return show(ctx, s.Session, watch, gone, func() (page.Report, error) {
		w, err := read(ctx, s.Live, key, s.Now())
		switch {
		case apierrors.IsNotFound(err) && isSeen:
			return nil, nil
		case err != nil:
			return nil, explain(s.Cluster, err, key, readSets)
		}
		isSeen = true
		return report(w)
	})
}

// about says which set a report is about, and what its roles are to run.
type about struct {
	metav1.TypeMeta `json:",inline"`
	Namespace       string    `json:"namespace"`
	Name            string    `json:"name"`
	UID             types.UID `json:"uid,omitempty"`
	Revision        string    `json:"revision"`
	Paused          bool      `json:"paused,omitempty"`
}

func aboutOf(kind string, set *dsv1.DisaggregatedSet, revision string) about {
	return about{page.Kind(kind), set.Namespace, set.Name, set.UID, revision, isPaused(set)}
}

func isPaused(set *dsv1.DisaggregatedSet) bool {
	return set.Annotations[lwsv1.PausedAnnotationKey] == lwsv1.PausedValue
}

// keyOf returns the revision that a record keeps, and title names it with its number.
func keyOf(record *appsv1.ControllerRevision) string { return record.Labels[dsv1.RevisionLabelKey] }

func title(record *appsv1.ControllerRevision) string {
	return fmt.Sprintf("%d (%s)", record.Revision, keyOf(record))
}
