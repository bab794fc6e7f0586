package operator

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"lockstep.dev/lockstep/api/config/v1alpha1"
	"lockstep.dev/lockstep/internal/file"
	"lockstep.dev/lockstep/internal/pvc"
	"lockstep.dev/lockstep/internal/pvc/workloads"
)

// LoadConfig reads the configuration file at path, in YAML or JSON, and sets the defaults.
// Without a path it returns the defaults. An unknown or repeated field is an error.
func LoadConfig(path string) (*v1alpha1.Configuration, error) {
	if path == "" {
		return ParseConfig(nil)
	}
	text, err := file.Read(path, MostConfig)
	if err != nil {
		return nil, fmt.Errorf("read the configuration: %w", err)
	}
	config, err := ParseConfig(text)
	if err != nil {
		return nil, fmt.Errorf("configuration %q: %w", path, err)
	}
	return config, nil
}

// MostConfig is how many MiB a ConfigMap holds.
const MostConfig = 1

// ParseConfig reads the text of a configuration and sets the defaults. Nil is the defaults alone.
func ParseConfig(text []byte) (*v1alpha1.Configuration, error) {
	config := &v1alpha1.Configuration{}
	if text != nil {
		if err := decodeConfig(text, config); err != nil {
			return nil, err
		}
	}
	v1alpha1.SetDefaults(config)
	return config, nil
}

func decodeConfig(text []byte, config *v1alpha1.Configuration) error {
	if err := file.CheckYAML(text, MostConfig); err != nil {
		return err
	}
	document, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		return err
	}
	strict, err := json.UnmarshalStrict(document, config)
	if err != nil {
		return err
	}
	read := []string{v1alpha1.GroupVersion.String(), v1alpha1.NextVersion.String()}
	if !slices.Contains(read, config.APIVersion) || config.Kind != "Configuration" {
		return fmt.Errorf("wants apiVersion: %s and kind: Configuration", strings.Join(read, " or "))
	}
	return errors.Join(strict...)
}

// ProtectionSettings are the protection of PVCs as the controllers need it.
type ProtectionSettings struct {
	pvc.Settings
	// Kinds are configured workloads, and JobSet.
	Kinds []workloads.Kind
	// Grace is how long a PVC stays held after its last holder is gone.
	Grace time.Duration
	// ReleaseTTL is how long a release token lasts.
	ReleaseTTL time.Duration
	// InitialHold reports whether a policy holds PVCs from their creation until the operator has read their holders.
	InitialHold bool
}

// SettingsOf reads a configuration that is valid and has its defaults. The operator's own
// namespace is never protected: it must be deletable without the operator.
func SettingsOf(p v1alpha1.Protection, ownNamespace string) ProtectionSettings {
	exempt := slices.Clone(p.ExemptNamespaces)
	if !slices.Contains(exempt, ownNamespace) {
		exempt = append(exempt, ownNamespace)
	}
	return ProtectionSettings{
		Settings: pvc.Settings{
			Mode:   protectionModes[p.Mode],
			Alone:  p.Alone,
			Exempt: exempt,
			Idle:   idlePolicies[p.Idle],
		},
		Kinds:       workloads.KindsOf(p.Kinds),
		Grace:       time.Duration(*p.GraceSeconds) * time.Second,
		ReleaseTTL:  time.Duration(*p.ReleaseTTLSeconds) * time.Second,
		InitialHold: initialHolds[p.InitialHold],
	}
}

var protectionModes = map[v1alpha1.ProtectionMode]pvc.Mode{
	v1alpha1.ProtectionOff:     pvc.Off,
	v1alpha1.ProtectionObserve: pvc.Observe,
	v1alpha1.ProtectionBarrier: pvc.Barrier,
	v1alpha1.ProtectionHold:    pvc.Hold,
	v1alpha1.ProtectionStrict:  pvc.Strict,
}

var idlePolicies = map[v1alpha1.IdlePolicy]pvc.IdlePolicy{
	v1alpha1.IdleHold: pvc.IdleHolds,
	v1alpha1.IdleWarn: pvc.IdleWarns,
	v1alpha1.IdleFree: pvc.IdleFrees,
}

var initialHolds = map[v1alpha1.InitialHold]bool{v1alpha1.InitialHoldNone: false, v1alpha1.InitialHoldPending: true}
