package install

import (
	"maps"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"lockstep.dev/lockstep/internal/operator"
	"lockstep.dev/lockstep/internal/pvc"
	"lockstep.dev/lockstep/internal/pvc/workloads"
)

// The objects that protect PVCs have these labels. There is no other list of them, so
// those of an older version are found as well.
const (
	nameLabel      = "app.kubernetes.io/name"
	componentLabel = "app.kubernetes.io/component"
	// setsLabel names what is there for LeaderWorkerSets, standaloneLabel all else.
	setsLabel, standaloneLabel = "lws", "lockstep"
)

// protectionRole is deleted last. Its annotation says whether protection was alone, so that
// a removal that was cut short can be run again.
const (
	protectionRole  = "lockstep-protection-role"
	aloneAnnotation = "lockstep.dev/protects-alone"
)

func ofProtection(u *unstructured.Unstructured) bool {
	return u.GetLabels()[nameLabel] == standaloneLabel && u.GetLabels()[componentLabel] == "protection"
}

// chooseProtection writes the configuration into a manifest of protection.
func chooseProtection(u *unstructured.Unstructured, s operator.ProtectionSettings) {
	if u.GetName() == protectionRole && u.GetKind() == "ClusterRole" {
		u.SetAnnotations(map[string]string{aloneAnnotation: strconv.FormatBool(s.Alone)})
		letRead(u, s.Kinds)
		return
	}
	choose(u.Object, s)
}

// choose does so in each map of a manifest.
func choose(in any, s operator.ProtectionSettings) {
	switch in := in.(type) {
	case []any:
		for _, element := range in {
			choose(element, s)
		}
	case map[string]any:
		if in["name"] == "initialHold" {
			in["expression"] = strconv.FormatBool(s.InitialHold)
		}
		switch in["key"] {
		case corev1.LabelMetadataName:
			_ = unstructured.SetNestedStringSlice(in, s.Exempt, "values")
		case pvc.ModeKey:
			chooseModes(in, s.Mode)
		}
		for _, value := range in {
			choose(value, s)
		}
	}
}

// chooseModes keeps which modes a selector means. A namespace without a mode, or with an unknown one, has the default.
func chooseModes(e map[string]any, byDefault pvc.Mode) {
	var meant, others []string
	for mode := pvc.Off; mode <= pvc.Strict; mode++ {
		if slices.Contains(e["values"].([]any), any(mode.String())) == (e["operator"] == "In") {
			meant = append(meant, mode.String())
		} else {
			others = append(others, mode.String())
		}
	}
	e["operator"] = "In"
	if slices.Contains(meant, byDefault.String()) {
		e["operator"], meant = "NotIn", others
	}
	_ = unstructured.SetNestedStringSlice(e, meant, "values")
}

// letRead lets the operator read workloads of configured kinds. Their plural is unknown, so
// it may read all of their group, except of the core group, which has Secrets.
func letRead(role *unstructured.Unstructured, kinds []workloads.Kind) {
	groups := map[string]bool{}
	for _, kind := range kinds {
		groups[kind.Group] = true
	}
	rules := role.Object["rules"].([]any)
	for _, group := range slices.Sorted(maps.Keys(groups)) {
		resources := "*"
		if group == "" {
			resources = "replicationcontrollers"
		}
		rules = append(rules, map[string]any{"apiGroups": []any{group}, "resources": []any{resources}, "verbs": []any{"get", "list", "watch"}})
	}
	role.Object["rules"] = rules
}
