package operator

import (
	"maps"
	"regexp"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"lockstep.dev/lockstep/api/config/v1alpha1"
	"lockstep.dev/lockstep/internal/pvc/workloads"
)

// longest is a day in seconds, the longest time that can be configured.
const longest = 86400

func validateProtection(p v1alpha1.Protection, path *field.Path) field.ErrorList {
	return slices.Concat(
		validateWord(p.Mode, protectionModes, path.Child("mode")),
		validateWord(p.Idle, idlePolicies, path.Child("idle")),
		validateWord(p.InitialHold, initialHolds, path.Child("initialHold")),
		validateSeconds(*p.GraceSeconds, 0, path.Child("graceSeconds")),
		validateSeconds(*p.ReleaseTTLSeconds, 1, path.Child("releaseTTLSeconds")),
		validateNamespaces(p.ExemptNamespaces, path.Child("exemptNamespaces")),
		validateKinds(p.Kinds, path.Child("kinds")),
	)
}

func validateWord[W ~string, M any](word W, known map[W]M, path *field.Path) field.ErrorList {
	if _, ok := known[word]; ok {
		return nil
	}
	return field.ErrorList{field.NotSupported(path, word, slices.Sorted(maps.Keys(known)))}
}

func validateSeconds(n, least int32, path *field.Path) (faults field.ErrorList) {
	for _, message := range validation.IsInRange(int(n), int(least), longest) {
		faults = append(faults, field.Invalid(path, n, message))
	}
	return faults
}

func validateNamespaces(names []string, path *field.Path) (faults field.ErrorList) {
	for i, name := range names {
		for _, message := range validation.IsDNS1123Label(name) {
			faults = append(faults, field.Invalid(path.Index(i), name, message))
		}
		if slices.Contains(names[:i], name) {
			faults = append(faults, field.Duplicate(path.Index(i), name))
		}
	}
	return faults
}

// builtIn are the kinds whose PVCs are known by code. A description would make a second
// holder of the same workload that knows less.
var builtIn = []schema.GroupKind{
	{Kind: "Pod"},
	{Group: "apps", Kind: "StatefulSet"}, {Group: "apps", Kind: "Deployment"}, {Group: "apps", Kind: "ReplicaSet"}, {Group: "apps", Kind: "DaemonSet"},
	{Group: "batch", Kind: "Job"}, {Group: "batch", Kind: "CronJob"},
	{Group: "leaderworkerset.x-k8s.io", Kind: "LeaderWorkerSet"},
}

// replicationController is the only workload of the core group, which has Secrets as well.
const replicationController = "ReplicationController"

func validateKinds(kinds []v1alpha1.WorkloadKind, path *field.Path) (faults field.ErrorList) {
	var seen []schema.GroupKind
	for i, k := range kinds {
		described, at := workloads.KindOf(k), path.Index(i)
		group := described.GroupKind()
		switch {
		case slices.Contains(builtIn, group):
			faults = append(faults, field.Invalid(at.Child("kind"), k.Kind, "is built in; leave it out"))
		case slices.Contains(seen, group):
			faults = append(faults, field.Duplicate(at.Child("kind"), group.String()))
		}
		seen = append(seen, group)
		faults = append(faults, validateKind(k, described, at)...)
	}
	return faults
}

func validateKind(k v1alpha1.WorkloadKind, described workloads.Kind, path *field.Path) field.ErrorList {
	if k.APIVersion == "" || k.Kind == "" {
		return field.ErrorList{field.Required(path, "apiVersion and kind name the workload, as in its manifest")}
	}
	if _, err := schema.ParseGroupVersion(k.APIVersion); err != nil {
		return field.ErrorList{field.Invalid(path.Child("apiVersion"), k.APIVersion, "must be group/version")}
	}
	if described.Group == "" && described.Kind != replicationController {
		return field.ErrorList{field.Invalid(path.Child("kind"), k.Kind, "is no workload: in apiVersion "+k.APIVersion+", only "+replicationController+" is")}
	}
	if err := described.Check(); err != nil {
		return field.ErrorList{field.Invalid(path, k.Kind, err.Error())}
	}
	return slices.Concat(
		validatePaths(k.PodTemplates, path.Child("podTemplates")),
		validatePaths(k.ClaimTemplates, path.Child("claimTemplates")),
		validatePath(k.Replicas, path.Child("replicas")),
		validatePath(k.Suspend, path.Child("suspend")),
	)
}

// fieldPath matches names of fields, or "*", separated by dots.
var fieldPath = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_-]*(\.([A-Za-z_][A-Za-z0-9_-]*|\*))*$`)

func validatePaths(paths []string, at *field.Path) (faults field.ErrorList) {
	for i, p := range paths {
		if p == "" {
			faults = append(faults, field.Required(at.Index(i), "must not be empty; leave it out"))
		}
		faults = append(faults, validatePath(p, at.Index(i))...)
	}
	return faults
}

func validatePath(p string, at *field.Path) field.ErrorList {
	if p == "" || fieldPath.MatchString(p) {
		return nil
	}
	return field.ErrorList{field.Invalid(at, p, `must be names of fields separated by dots, and "*" for every element of a list, such as spec.jobs.*.template`)}
}
