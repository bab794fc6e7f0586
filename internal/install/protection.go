package install

import (
	"fmt"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"lockstep.dev/lockstep/api/config/v1alpha1"
	"lockstep.dev/lockstep/internal/operator"
	"lockstep.dev/lockstep/internal/pvc"
)

// The protection of claims is a part of an installation that comes and goes by
// itself. What belongs to it bears these labels; there is no other list of it, so
// that what an older version brought is found as well.
const (
	nameLabel      = "app.kubernetes.io/name"
	componentLabel = "app.kubernetes.io/component"
	protection     = "protection"
)

// protectionRole is the last of protection to go, and remembers until then
// whether it was alone: without that a removal that was cut short could not be
// taken up again.
const (
	protectionRole  = "lockstep-protection-role"
	aloneAnnotation = "lockstep.dev/protects-alone"
)

func ofProtection(u *unstructured.Unstructured) bool {
	return u.GetLabels()[nameLabel] == "lockstep" && u.GetLabels()[componentLabel] == protection
}

// takesPlaceOfBuiltIn names what is wanted only where the admission plugin built
// into Kubernetes is off.
func takesPlaceOfBuiltIn(name string) bool {
	return slices.Contains([]string{"pod-protection.protection.lockstep.dev", "volume-protection.protection.lockstep.dev"}, name)
}

// givesFinalizers is what claims get their finalizers from.
func givesFinalizers(u *unstructured.Unstructured) bool {
	switch u.GetKind() {
	case "MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding", "MutatingWebhookConfiguration":
		return ofProtection(u)
	}
	return false
}

// chooseProtection writes into a manifest of protection what was configured.
func chooseProtection(u *unstructured.Unstructured, s operator.ProtectionSettings) error {
	if u.GetName() == protectionRole && u.GetKind() == "ClusterRole" {
		u.SetAnnotations(map[string]string{aloneAnnotation: strconv.FormatBool(s.Alone)})
		return letRead(u, s.Kinds)
	}
	if err := chooseVariables(u, map[string]bool{"initialHold": s.InitialHold}); err != nil {
		return err
	}
	return eachExpression(u.Object, func(e map[string]any) error { return chooseNamespaces(e, s.Settings) })
}

// letRead lets the operator read workloads that are known by description. Their
// plural is not, so it is all of their group; of the one without a name, where Secrets
// are as well, it is the one workload there is.
func letRead(role *unstructured.Unstructured, kinds []pvc.Kind) error {
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
		rules = append(rules, map[string]any{
			"apiGroups": []any{group}, "resources": []any{resources}, "verbs": []any{"get", "list", "watch"},
		})
	}
	return unstructured.SetNestedSlice(role.Object, rules, "rules")
}

// chooseVariables writes into a policy what of its variables was chosen.
func chooseVariables(u *unstructured.Unstructured, chosen map[string]bool) error {
	variables, found, err := unstructured.NestedSlice(u.Object, "spec", "variables")
	if err != nil || !found {
		return err
	}
	for _, v := range variables {
		if variable, ok := v.(map[string]any); ok {
			name, _ := variable["name"].(string)
			if is, ours := chosen[name]; ours {
				variable["expression"] = strconv.FormatBool(is)
			}
		}
	}
	return unstructured.SetNestedSlice(u.Object, variables, "spec", "variables")
}

// eachExpression visits every expression of every label selector.
func eachExpression(in any, visit func(map[string]any) error) error {
	switch in := in.(type) {
	case []any:
		for _, v := range in {
			if err := eachExpression(v, visit); err != nil {
				return err
			}
		}
	case map[string]any:
		expressions, _ := in["matchExpressions"].([]any)
		for _, e := range expressions {
			if e, ok := e.(map[string]any); ok {
				if err := visit(e); err != nil {
					return err
				}
			}
		}
		for _, v := range in {
			if err := eachExpression(v, visit); err != nil {
				return err
			}
		}
	}
	return nil
}

const namespaceNameLabel = "kubernetes.io/metadata.name"

// chooseNamespaces rewrites what selects namespaces. Manifests are written for the
// default mode barrier, and exempt the usual namespaces.
func chooseNamespaces(e map[string]any, s pvc.Settings) error {
	switch e["key"] {
	case namespaceNameLabel:
		e["values"] = anys(s.Exempt)
		return nil
	case pvc.ModeKey:
		return chooseModes(e, s.Mode)
	}
	return nil
}

// chooseModes keeps which modes are meant, and has namespaces without a mode of
// their own, or with a word that is none, counted as of the default.
func chooseModes(e map[string]any, byDefault pvc.Mode) error {
	values, ok := e["values"].([]any)
	in := e["operator"] == "In"
	if !ok || (!in && e["operator"] != "NotIn") {
		return fmt.Errorf("a selector by mode says %v, and neither In nor NotIn", e["operator"])
	}
	var meant, others []string
	for mode := pvc.Off; mode <= pvc.Strict; mode++ {
		if slices.Contains(values, any(mode.String())) == in {
			meant = append(meant, mode.String())
		} else {
			others = append(others, mode.String())
		}
	}
	if slices.Contains(meant, byDefault.String()) {
		e["operator"], e["values"] = "NotIn", anys(others)
		return nil
	}
	e["operator"], e["values"] = "In", anys(meant)
	return nil
}

func anys(words []string) []any {
	values := make([]any, len(words))
	for i, word := range words {
		values[i] = word
	}
	return values
}

// settings are what the operator will read of the configuration.
func (o Options) settings() (operator.ProtectionSettings, *v1alpha1.Configuration, error) {
	config, err := operator.ParseConfig(o.Config)
	if err != nil {
		return operator.ProtectionSettings{}, nil, fmt.Errorf("configuration: %w", err)
	}
	if faults := operator.ValidateConfig(config); len(faults) > 0 {
		return operator.ProtectionSettings{}, nil, fmt.Errorf("configuration: %w", faults.ToAggregate())
	}
	return operator.SettingsOf(config.Protection, o.namespace()), config, nil
}
