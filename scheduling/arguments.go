package scheduling

import (
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	kjson "sigs.k8s.io/json"

	"lockstep.dev/lockstep/internal/pvc"
)

// Arguments are the args of pluginConfig in a KubeSchedulerConfiguration. They repeat the
// operator's configuration. Where the two differ, a use record is written without need, or one
// is missing: then the PVC is released without it.
type Arguments struct {
	// Mode is that of namespaces and PVCs that choose none: off, observe,
	// barrier, hold or strict. The default is barrier.
	Mode string `json:"mode,omitempty"`
	// ExemptNamespaces are never protected. The default is kube-system and
	// lws-system; an empty list exempts none.
	ExemptNamespaces []string `json:"exemptNamespaces,omitempty"`
}

// defaultArguments are those of a profile without args.
func defaultArguments() Arguments {
	return Arguments{Mode: pvc.Barrier.String(), ExemptNamespaces: []string{"kube-system", "lws-system"}}
}

// settingsFrom reads a plugin's arguments. Unknown fields are refused: a misspelt one must not
// choose another mode.
func settingsFrom(object runtime.Object) (pvc.Settings, error) {
	arguments := defaultArguments()
	raw, ok := object.(*runtime.Unknown) // a scheduler passes on args of a plugin that it does not know
	switch {
	case object == nil, ok && len(raw.Raw) == 0:
		return arguments.check()
	case !ok, raw.ContentType != "" && raw.ContentType != runtime.ContentTypeJSON:
		return pvc.Settings{}, fmt.Errorf("%T is not JSON", object)
	}
	strict, err := kjson.UnmarshalStrict(raw.Raw, &arguments)
	if err := errors.Join(append(strict, err)...); err != nil {
		return pvc.Settings{}, err
	}
	return arguments.check()
}

func (a Arguments) check() (pvc.Settings, error) {
	mode, known := pvc.ParseMode(a.Mode)
	var problems []error
	if !known {
		problems = append(problems, fmt.Errorf("mode %q: give off, observe, barrier, hold or strict", a.Mode))
	}
	for _, namespace := range a.ExemptNamespaces {
		if wrong := validation.IsDNS1123Label(namespace); len(wrong) > 0 {
			problems = append(problems, fmt.Errorf("exemptNamespaces: %q is not the name of a namespace: %s", namespace, wrong[0]))
		}
	}
	return pvc.Settings{Mode: mode, Exempt: slices.Clone(a.ExemptNamespaces)}, errors.Join(problems...)
}
