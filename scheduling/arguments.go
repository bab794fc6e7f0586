package scheduling

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	kjson "sigs.k8s.io/json"

	"lockstep.dev/lockstep/internal/pvc"
)

// Arguments are what stands under pluginConfig in a KubeSchedulerConfiguration.
// They say of the cluster what the operator's own configuration says. Where the two
// differ, a use record is written that nobody asked for, or one is missing: then
// the claim's finalizers have to do without it.
type Arguments struct {
	// Mode is that of namespaces and claims that choose none: off, observe,
	// barrier, hold or strict. The default is barrier.
	Mode string `json:"mode,omitempty"`
	// ExemptNamespaces are never protected. The default is kube-system and
	// lws-system; an empty list exempts none.
	ExemptNamespaces []string `json:"exemptNamespaces,omitempty"`
}

// defaultArguments are those of a profile that gives none.
func defaultArguments() Arguments {
	return Arguments{Mode: pvc.Barrier.String(), ExemptNamespaces: []string{"kube-system", "lws-system"}}
}

// settingsFrom reads a plugin's arguments. What is not known is refused: a slip of the
// pen must not choose another mode.
func settingsFrom(object runtime.Object) (pvc.Settings, error) {
	arguments := defaultArguments()
	raw, err := document(object)
	if err != nil {
		return pvc.Settings{}, err
	}
	if len(raw) > 0 {
		strict, err := kjson.UnmarshalStrict(raw, &arguments)
		if err := errors.Join(append(strict, err)...); err != nil {
			return pvc.Settings{}, err
		}
	}
	return arguments.check()
}

// document is the arguments as they were written. A scheduler hands on as they are
// those of a plugin that it was not built with.
func document(object runtime.Object) ([]byte, error) {
	switch o := object.(type) {
	case nil:
		return nil, nil
	case *runtime.Unknown:
		if o.ContentType != "" && o.ContentType != runtime.ContentTypeJSON {
			return nil, fmt.Errorf("arguments are %s: want %s", o.ContentType, runtime.ContentTypeJSON)
		}
		return o.Raw, nil
	default:
		return json.Marshal(o)
	}
}

func (a Arguments) check() (pvc.Settings, error) {
	mode, known := pvc.ParseMode(a.Mode)
	var problems []error
	if !known {
		problems = append(problems, fmt.Errorf("mode %q: give off, observe, barrier, hold or strict", a.Mode))
	}
	for _, namespace := range a.ExemptNamespaces {
		if wrong := validation.IsDNS1123Label(namespace); len(wrong) > 0 {
			problems = append(problems, fmt.Errorf("exemptNamespaces: %q is no name of a namespace: %s", namespace, wrong[0]))
		}
	}
	return pvc.Settings{Mode: mode, Exempt: slices.Clone(a.ExemptNamespaces)}, errors.Join(problems...)
}
