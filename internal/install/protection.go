package install

import (
	"fmt"
	"slices"
	"strconv"

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

// givesFinalizers reports whether an object adds finalizers to new PVCs.
func givesFinalizers(u *unstructured.Unstructured) bool {
	switch u.GetKind() {
	case "MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding", "MutatingWebhookConfiguration":
		return ofProtection(u)
	}
	return false
}

// chooseProtection writes the configuration into a manifest of protection.
func chooseProtection(u *unstructured.Unstructured, s operator.ProtectionSettings) error {
	if u.GetName() == protectionRole && u.GetKind() == "ClusterRole" {
		u.SetAnnotations(map[string]string{aloneAnnotation: strconv.FormatBool(s.Alone)})
		return letRead(u, s.Kinds)
	}
	return eachMap(u.Object, func(m map[string]any) error {
		if m["name"] == "initialHold" {
			m["expression"] = strconv.FormatBool(s.InitialHold)
		}
		switch m["key"] {
		case namespaceNameLabel:
			m["values"] = anys(s.Exempt)
		case pvc.ModeKey:
			return chooseModes(m, s.Mode)
		}
		return nil
	})
}

const namespaceNameLabel = "kubernetes.io/metadata.name"

// eachMap visits all maps of a manifest.
func eachMap(in any, visit func(map[string]any) error) error {
	switch in := in.(type) {
	case []any:
		for _, v := range in {
			if err := eachMap(v, visit); err != nil {
				return err
			}
		}
	case map[string]any:
		if err := visit(in); err != nil {
			return err
		}
		for _, v := range in {
			if err := eachMap(v, visit); err != nil {
				return err
			}
		}
	}
	return nil
}

// chooseModes keeps which modes a selector means. A namespace without a mode, or with an
// unknown one, has the default.
func chooseModes(e map[string]any, byDefault pvc.Mode) error {
	values, ok := e["values"].([]any)
	in := e["operator"] == "In"
	if !ok || (!in && e["operator"] != "NotIn") {
		return fmt.Errorf("a selector by mode has operator %v, and neither In nor NotIn", e["operator"])
	}
	var meant, others []string
	for mode := pvc.Off; mode <= pvc.Strict; mode++ {
		if slices.Contains(values, any(mode.String())) == in {
			meant = append(meant, mode.String())
		} else {
			others = append(others, mode.String())
		}
	}
	e["operator"], e["values"] = "In", anys(meant)
	if slices.Contains(meant, byDefault.String()) {
		e["operator"], e["values"] = "NotIn", anys(others)
	}
	return nil
}

// letRead lets the operator read workloads of configured kinds. Their plural is unknown, so
// it may read all of their group, except of the core group, which has Secrets.
func letRead(role *unstructured.Unstructured, kinds []workloads.Kind) error {
	var groups []string
	for _, kind := range kinds {
		groups = append(groups, kind.Group)
	}
	slices.Sort(groups)
	rules, _, err := unstructured.NestedSlice(role.Object, "rules")
	if err != nil {
		return err
	}
	for _, group := range slices.Compact(groups) {
		resources := "*"
		if group == "" {
			resources = "replicationcontrollers"
		}
		rules = append(rules, map[string]any{"apiGroups": []any{group}, "resources": []any{resources}, "verbs": []any{"get", "list", "watch"}})
	}
	return unstructured.SetNestedSlice(role.Object, rules, "rules")
}

func anys(texts []string) []any {
	values := make([]any, len(texts))
	for i, text := range texts {
		values[i] = text
	}
	return values
}
