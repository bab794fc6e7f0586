package check

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/version"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/api/config/v1alpha1"
	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/install"
	"lockstep.dev/lockstep/internal/operator"
)

// installation reads what install would write in place of what is there.
func installation(ctx context.Context, r *reader) (err error) {
	if r.lacks, err = operator.Lacks(r.Discovery); err == nil {
		r.Expected, err = install.Expect(ctx, r.Client, r.lacks)
	}
	for _, unread := range r.Unread {
		r.note(unread)
	}
	return err
}

// plan reads what install would write into an empty cluster.
func plan(_ context.Context, r *reader) (err error) {
	if r.lacks, err = operator.Lacks(r.Discovery); err == nil {
		r.Expected, err = install.Plan(r.lacks)
	}
	return err
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

// maxUnavailable creates a StatefulSet as a dry run. The schema has the field, whether it is switched
// on or not.
func maxUnavailable(ctx context.Context, r *reader) error {
	r.found["StatefulSet"] = nil // discovery tells what else is missing
	probe := install.Bare("apps/v1", "StatefulSet", r.TestNamespace, "lockstep-check")
	probe.Object["spec"] = map[string]any{
		"selector":       map[string]any{"matchLabels": map[string]any{"app": "lockstep-check"}},
		"updateStrategy": map[string]any{"type": "RollingUpdate", "rollingUpdate": map[string]any{"maxUnavailable": int64(2)}},
		"template":       podTemplate(),
	}
	err := r.Client.Create(ctx, probe, client.DryRunAll)
	_, keeps, _ := unstructured.NestedInt64(probe.Object, "spec", "updateStrategy", "rollingUpdate", "maxUnavailable")
	if !keeps {
		r.lacks = append(r.lacks, operator.MaxUnavailable)
	}
	if apierrors.IsNotFound(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) { // the namespace, or a policy of it
		r.unread = append(r.unread, fmt.Sprintf("create a StatefulSet in namespace %s: %v", r.TestNamespace, err))
		return nil
	}
	return err
}

// podTemplate returns a small template that is valid, without what a typed one would state.
func podTemplate() map[string]any {
	return map[string]any{
		"metadata": map[string]any{"labels": map[string]any{"app": "lockstep-check"}},
		"spec":     map[string]any{"containers": []any{map[string]any{"name": "check", "image": "check"}}},
	}
}

// features finds what the API server does not serve. A feature that is missing has another behaviour,
// and no defect.
func features(s *site, f *findings) {
	for _, feature := range s.lacks {
		f.warn("the API server has no %s: %s", feature, operator.Without[feature])
	}
	f.otherwise("the API server has every feature that Lockstep uses")
}

var (
	definitions = rules{Failure, "definitions of this version", map[string]rule{"CustomResourceDefinition": definition}}
	replaced    = rules{OK, "definitions that lose no field by install", map[string]rule{"CustomResourceDefinition": replacement}}
	setKind     = lwsv1.GroupVersion.WithKind("LeaderWorkerSet")
)

// definition compares a definition with ours, in both directions.
func definition(s *site, f *findings, want, live *object) {
	if !isEstablished(live) {
		f.fail("%s is not established; see: kubectl get crd %[1]s -o yaml", want.GetName())
	}
	if fields := f.lost(want, live, nil); fields != "" {
		f.fail("%s lacks fields of this version: %s; run: %s", want.GetName(), fields, s.Command)
	}
	if fields := f.lost(live, want, s.found[setKind.Kind]); fields != "" {
		f.warn("%s has fields that this version lacks: %s; sets that use them are left alone", want.GetName(), fields)
	}
}

func isEstablished(definition *object) bool {
	conditions, _, _ := unstructured.NestedSlice(definition.Object, "status", "conditions")
	return slices.ContainsFunc(conditions, func(c any) bool {
		condition, _ := c.(map[string]any)
		return condition["type"] == "Established" && condition["status"] == "True"
	})
}

// replacement finds a definition that install refuses to replace.
func replacement(s *site, f *findings, want, live *object) {
	if fields := f.lost(live, want, s.found[setKind.Kind]); fields != "" {
		f.fail("%s has fields that this version lacks: %s; install refuses to remove them; run: lockstep install --keep-fields",
			want.GetName(), fields)
	}
}

// lost names the fields of one definition, or of stored sets, that another lacks.
func (f *findings) lost(from, to *object, sets []object) string {
	fields, err := install.LostFields(from, to, sets)
	if err != nil {
		f.fail("%s: %v", title(to), err)
	}
	return install.Few(fields)
}
