package check

import (
	"context"

	"lockstep.dev/lockstep/api/config/v1alpha1"
)

// configuration says what kind of installation was found, and what of it could not be read.
func configuration(_ context.Context, s *site, f *findings) error {
	for _, err := range s.Unread {
		f.take(err)
	}
	what := "LeaderWorkerSets"
	switch {
	case s.ProtectOnly:
		what = "the protection of PVCs alone"
	case *s.Config.Protection.Enabled:
		what = "LeaderWorkerSets and the protection of PVCs"
	}
	from := "there is no ConfigMap " + v1alpha1.InstalledName + ", as for an operator outside of the cluster"
	switch {
	case s.ConfigRead:
		from = "configured by ConfigMap " + v1alpha1.InstalledName
	case len(s.Unread) > 0:
		from = "as far as you may read"
	}
	f.ok("%s, in namespace %s (%s)", what, s.Namespace, from)
	return nil
}
