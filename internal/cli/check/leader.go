package check

import (
	"context"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/duration"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/lease"
)

// leader finds out whether a replica runs the controllers.
func leader(ctx context.Context, s *site, f *findings) error {
	found, err := s.lease(ctx)
	switch {
	case apierrors.IsNotFound(err) && !*s.Config.LeaderElection.LeaderElect:
		f.ok("leader election is off")
		return nil
	case apierrors.IsNotFound(err):
		f.warn("lease %s does not exist in namespace %s: no operator has run there, or with --leader-elect=false", s.Lease, s.Namespace)
		return nil
	case err != nil:
		return err
	}
	holder, isHeld := lease.HolderOf(found, s.Now)
	switch {
	case !isHeld:
		f.fail("no operator holds lease %s in namespace %s, so no controller runs; see: kubectl -n %[2]s get pods", s.Lease, s.Namespace)
	case !holder.Ours():
		f.fail("%s of another implementation holds lease %s; stop it: %s", holder.Identity, s.Lease, holder.Stop())
	default:
		f.ok("%s leads since %s, and renewed its lease %s ago", holder.Identity, age(s.Now, found.Spec.AcquireTime.Time), age(s.Now, found.Spec.RenewTime.Time))
	}
	return nil
}

// lease returns the lease of the operator.
func (s *site) lease(ctx context.Context) (*coordinationv1.Lease, error) {
	found := &coordinationv1.Lease{}
	return found, s.Client.Get(ctx, client.ObjectKey{Namespace: s.Namespace, Name: s.Lease}, found)
}

func age(now, then time.Time) string { return duration.HumanDuration(max(now.Sub(then), 0)) }

// operatorVersion compares the version of the leader, which it writes onto its lease, with ours.
func operatorVersion(ctx context.Context, s *site, f *findings) error {
	found, err := s.lease(ctx)
	if client.IgnoreNotFound(err) != nil {
		return err
	}
	ours := lease.VersionLabel(s.Version)
	switch runs := lease.VersionOf(found); runs {
	case ours:
		f.ok("operator and kubectl lockstep are %s", s.Version)
	case "":
		f.warn("the version of the operator is unknown: its lease does not name one; kubectl lockstep is %s", s.Version)
	default:
		f.warn("the operator is %s and kubectl lockstep %s; install the same version of both", runs, s.Version)
	}
	return nil
}
