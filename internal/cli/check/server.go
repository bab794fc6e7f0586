package check

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/component-helpers/auth/rbac/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/api/config/v1alpha1"
	dsv1 "lockstep.dev/lockstep/api/disaggregatedset/v1"
	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/cli/probe"
	"lockstep.dev/lockstep/internal/definition"
	"lockstep.dev/lockstep/internal/install"
	"lockstep.dev/lockstep/internal/lease"
	"lockstep.dev/lockstep/internal/operator"
)

// expect reads what install would write.
func expect(of func(context.Context, client.Client, []string) (install.Expected, error)) read {
	return func(ctx context.Context, r *reader) (err error) {
		if r.lacks, err = operator.Lacks(r.Discovery); err == nil {
			r.Expected, err = of(ctx, r.Client, r.lacks)
		}
		for _, unread := range r.Unread {
			r.note(unread)
		}
		return err
	}
}

// configuration says what kind of installation was found.
func configuration(s *site, f *findings) {
	what, from := "LeaderWorkerSets and the protection of PVCs", "configured by ConfigMap "+v1alpha1.InstalledName
	switch {
	case s.ProtectOnly:
		what = "the protection of PVCs alone"
	case !*s.Config.Protection.Enabled:
		what = "LeaderWorkerSets"
	}
	if !s.ConfigRead {
		from = "there is no ConfigMap " + v1alpha1.InstalledName + ", as for an operator outside of the cluster"
	}
	f.otherwise("%s, in namespace %s (%s)", what, s.Namespace, from)
}

func serverVersion(_ context.Context, r *reader) error {
	info, err := r.Discovery.ServerVersion()
	if err == nil {
		r.served, err = version.ParseGeneric(info.GitVersion)
	}
	return err
}

// kubernetes finds an API server that is older than the first that Lockstep serves.
func kubernetes(s *site, f *findings) {
	if oldest := version.MajorMinor(1, 34); s.served.LessThan(oldest) {
		f.fail("Kubernetes %s is served; Lockstep needs %s or later", s.served, oldest)
	}
	f.otherwise("Kubernetes %s", s.served)
}

func maxUnavailable(ctx context.Context, r *reader) error {
	r.found["StatefulSet"] = nil // discovery tells what else is missing
	keeps, err := probe.MaxUnavailable(ctx, r.Client, r.TestNamespace)
	if !keeps {
		r.lacks = append(r.lacks, operator.MaxUnavailable)
	}
	if apierrors.IsNotFound(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) { // the namespace, or a policy of it
		r.unread = append(r.unread, fmt.Sprintf("create a StatefulSet in namespace %s: %v", r.TestNamespace, err))
		return nil
	}
	return err
}

// features finds what the API server does not serve. A feature that is missing has another behaviour,
// and no defect.
func features(s *site, f *findings) {
	for _, feature := range s.lacks {
		f.warn("the API server has no %s: %s", feature, operator.Without[feature])
	}
	f.otherwise("the API server has every feature that Lockstep uses")
}

const crd = "CustomResourceDefinition"

// setLists read the objects of the definitions that have templates of pods.
var setLists = []read{
	list(lwsv1.GroupVersion.WithKind("LeaderWorkerSet")), list(dsv1.GroupVersion.WithKind("DisaggregatedSet")),
}

// fields compares the fields of a definition with ours, in both directions.
func fields(s *site, f *findings, want, live *object) {
	if !apihelpers.IsCRDConditionTrue(new(as[apiextensionsv1.CustomResourceDefinition](f, live)), apiextensionsv1.Established) {
		f.fail("%s is not established; see: kubectl get crd %[1]s -o yaml", want.GetName())
	}
	if fields := f.lost(want, live, nil); fields != "" {
		f.fail("%s lacks fields of this version: %s; run: %s", want.GetName(), fields, s.Command)
	}
	if fields := f.lost(live, want, s.found[definition.StoredKind(live).Kind]); fields != "" {
		f.warn("%s has fields that this version lacks: %s; sets that use them are left alone", want.GetName(), fields)
	}
}

// replacement finds a definition that install refuses to replace.
func replacement(s *site, f *findings, want, live *object) {
	if fields := f.lost(live, want, s.found[definition.StoredKind(live).Kind]); fields != "" {
		f.fail("%s has fields that this version lacks: %s; install refuses to remove them; run: lockstep install --keep-fields",
			want.GetName(), fields)
	}
}

// lost names the fields of one definition, or of stored sets, that another lacks.
func (f *findings) lost(from, to *object, sets []object) string {
	fields, err := definition.Lost(from, to, sets)
	if err != nil {
		f.fail("%s: %v", title(to), err)
	}
	return few(fields)
}

// policy finds a policy that does not refuse what it should.
func policy(s *site, f *findings, want, live *object) {
	if s.ConfigRead { // parts of the configuration are in the policies
		unlike(Warning)(s, f, want, live)
	}
}

// role finds rights that a role lacks.
func role(s *site, f *findings, want, live *object) {
	_, missing := validation.Covers(as[rbacv1.ClusterRole](f, live).Rules, as[rbacv1.ClusterRole](f, want).Rules)
	var lacks []string
	for _, rule := range missing { // each has one verb
		what := slices.Concat(rule.Resources, rule.NonResourceURLs)
		lacks = append(lacks, right(rule.Verbs[0], what[0], strings.Join(rule.APIGroups, ""), rule.ResourceNames...))
	}
	if len(lacks) > 0 {
		f.fail("%s lacks rights: %s; run: %s", title(want), few(lacks), s.Command)
	}
}

// right names a right as kubectl auth can-i takes it.
func right(verb, resource, group string, more ...string) string {
	text := strings.TrimSuffix(verb+" "+resource+"."+group, ".")
	return strings.TrimSpace(text + " " + strings.Join(more, " "))
}

// rightsOfInstall asks for the rights to write the objects, and to read what install reads besides.
func rightsOfInstall(ctx context.Context, r *reader) error {
	lacks, err := probe.Rights(ctx, r.Client, r.Objects,
		probe.Right{Verb: "escalate", Group: rbacv1.GroupName, Resource: "clusterroles"},
		probe.Right{Verb: "list", Group: coordinationv1.GroupName, Resource: "leases"},
		probe.Right{Verb: "list", Group: lwsv1.GroupVersion.Group, Resource: "leaderworkersets"},
		probe.Right{Verb: "list", Group: dsv1.GroupVersion.Group, Resource: "disaggregatedsets"})
	for _, want := range lacks {
		r.denied = append(r.denied, right(want.Verb, want.Resource, want.Group))
	}
	return err
}

// rights finds what the user may not do, and install does.
func rights(s *site, f *findings) {
	lacks := slices.DeleteFunc(slices.Clone(s.denied), func(right string) bool { return strings.HasPrefix(right, "escalate ") })
	if len(lacks) > 0 {
		f.fail("install needs rights that you lack: %s", few(lacks))
	}
	if len(lacks) < len(s.denied) {
		f.warn("you may not escalate clusterroles: install succeeds only if you have every right that the operator gets")
	}
	f.otherwise("you have the rights that install needs")
}

var operatorLease = one(coordinationv1.SchemeGroupVersion.String(), "Lease", func(s *site) string { return s.Lease })

// leader finds out whether a replica runs the controllers.
func leader(s *site, f *findings) {
	leases := found[coordinationv1.Lease](s, f, "Lease")
	held := append(leases, coordinationv1.Lease{})[0] // an empty lease has no holder
	holder, isHeld := lease.HolderOf(&held, s.now)
	switch {
	case !isHeld && !*s.Config.LeaderElection.LeaderElect:
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

// operatorVersion compares the version of the leader, which it writes onto its lease, with ours.
func operatorVersion(s *site, f *findings) {
	held := append(found[coordinationv1.Lease](s, f, "Lease"), coordinationv1.Lease{})[0]
	runs := lease.VersionOf(&held)
	switch {
	case runs == "" && !*s.Config.LeaderElection.LeaderElect:
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
		return slices.Contains(r.APIGroups, lwsv1.GroupVersion.Group) || slices.Contains(r.APIGroups, dsv1.GroupVersion.Group)
	})
}
