package check

import (
	"cmp"
	"slices"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/api/config/v1alpha1"
	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/install"
	"lockstep.dev/lockstep/internal/lease"
)

var operatorLease = one(coordinationv1.SchemeGroupVersion.String(), "Lease", func(s *site) string { return s.Lease })

// leader finds out whether a replica runs the controllers.
func leader(s *site, f *findings) {
	leases := found[coordinationv1.Lease](s, f, "Lease")
	held := append(leases, coordinationv1.Lease{})[0] // an empty lease has no holder
	holder, isHeld := lease.HolderOf(&held, s.now)
	switch {
	case !isHeld && !s.elects():
		f.ok("leader election is off")
	case len(leases) == 0:
		f.warn("lease %s does not exist in namespace %s: no operator has run there", s.Lease, s.Namespace)
	case !isHeld:
		f.fail("no operator holds lease %s in namespace %s, so no controller runs; see: kubectl -n %[2]s get pods",
			s.Lease, s.Namespace)
	case !holder.Ours():
		f.fail("%s of another implementation holds lease %s; stop it: %s", holder.Identity, s.Lease, holder.Stop())
	default:
		f.ok("%s holds lease %s", holder.Identity, s.Lease)
	}
}

// elects reports whether the replicas of the operator elect a leader.
func (s *site) elects() bool { return ptr.Deref(s.Config.LeaderElection.LeaderElect, true) }

// operatorVersion compares the version of the leader, which it writes onto its lease, with ours.
func operatorVersion(s *site, f *findings) {
	runs := ""
	for _, held := range found[coordinationv1.Lease](s, f, "Lease") {
		runs = lease.VersionOf(&held)
	}
	switch {
	case runs == "" && !s.elects():
		f.ok("without leader election no lease has the version of the operator")
	case runs != lease.VersionLabel(s.version):
		f.warn("the operator is %s and kubectl lockstep %s; install the same version of both",
			cmp.Or(runs, "of no known version"), s.version)
	}
	f.otherwise("operator and kubectl lockstep are %s", s.version)
}

// others reads what may be another implementation's.
var others = []read{
	list(coordinationv1.SchemeGroupVersion.WithKind("Lease"),
		client.MatchingFields{metav1.ObjectNameField: v1alpha1.DefaultResourceName}),
	list(appsv1.SchemeGroupVersion.WithKind("Deployment"),
		client.MatchingLabels{"control-plane": "controller-manager", "app.kubernetes.io/name": "lws"}),
	list(mutatingKind), list(validatingKind),
	one("v1", "ConfigMap", func(*site) string { return install.OthersConfigMap }),
}

// leftovers finds what another implementation left, or has beside an installation of Lockstep.
func leftovers(s *site, f *findings) {
	if s.ProtectOnly {
		f.ok("another implementation may run beside the protection of PVCs")
		return
	}
	for _, held := range found[coordinationv1.Lease](s, f, "Lease") {
		holder, isHeld := lease.HolderOf(&held, s.now)
		switch {
		case !isHeld || holder.Ours():
		case install.IsReplaced(holder):
			f.warn("another implementation runs in namespace %q as %s; install --image replaces it, any other install refuses",
				holder.Namespace, holder.Identity)
		default:
			f.fail("another implementation runs in namespace %q: %s holds the lease, and install refuses; stop it: %s",
				holder.Namespace, holder.Identity, holder.Stop())
		}
	}
	for _, u := range s.found["Deployment"] {
		if install.ImageOf(&u) == "" {
			f.warn("deployment %s in namespace %s is another implementation's; delete it unless it is to be replaced",
				u.GetName(), u.GetNamespace())
		}
	}
	for _, u := range slices.Concat(s.found[mutatingKind.Kind], s.found[validatingKind.Kind]) {
		isOurs := slices.ContainsFunc(s.Objects, func(want *object) bool { return title(want) == title(&u) })
		if !isOurs && slices.ContainsFunc(as[webhookConfiguration](f, &u).Webhooks, isAboutSets) {
			f.warn("%s is called for sets, and is not of this installation; delete it unless you know why it is there", title(&u))
		}
	}
	for _, u := range s.found["ConfigMap"] {
		f.warn("configmap %s in namespace %s is of another implementation; install --image takes it over, nothing else reads it",
			u.GetName(), u.GetNamespace())
	}
	f.otherwise("nothing of another implementation is left")
}

func isAboutSets(hook admissionv1.ValidatingWebhook) bool {
	return slices.ContainsFunc(hook.Rules, func(r admissionv1.RuleWithOperations) bool {
		return slices.Contains(r.APIGroups, lwsv1.GroupVersion.Group)
	})
}
