package operator

import (
	"slices"
	"time"

	"lockstep.dev/lockstep/api/config/v1alpha1"
	"lockstep.dev/lockstep/internal/pvc"
	"lockstep.dev/lockstep/internal/pvc/workloads"
)

// ProtectionSettings are the protection of PVCs as the controllers need it.
type ProtectionSettings struct {
	pvc.Settings

	// Kinds are configured workloads, and JobSet.
	Kinds []workloads.Kind

	// Grace is how long a PVC stays held after its last holder is gone.
	Grace time.Duration

	// ReleaseTTL is how long a release token lasts.
	ReleaseTTL time.Duration

	// InitialHold reports whether a policy holds PVCs from their creation until the operator
	// has read their holders.
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
		Kinds:      workloads.KindsOf(p.Kinds),
		Grace:      time.Duration(*p.GraceSeconds) * time.Second,
		ReleaseTTL: time.Duration(*p.ReleaseTTLSeconds) * time.Second,

		InitialHold: initialHolds[p.InitialHold],
	}
}

// protectionSettings returns the settings of this operator.
func (o *Options) protectionSettings() ProtectionSettings {
	return SettingsOf(o.Config.Protection, o.Namespace)
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
