package operator

import (
	"slices"
	"time"

	"lockstep.dev/lockstep/api/config/v1alpha1"
	"lockstep.dev/lockstep/internal/pvc"
)

// ProtectionSettings are what the configuration says of claims in use, in the
// terms of those who act on it.
type ProtectionSettings struct {
	pvc.Settings

	// Kinds are workloads that are known by description alone, JobSet among them.
	Kinds []pvc.Kind

	// Grace is how long a claim stays held after its last holder has gone.
	Grace time.Duration

	// ReleaseTTL is how long a release token lasts.
	ReleaseTTL time.Duration

	// InitialHold reports whether PVCs are held from their creation until the operator has
	// read their holders. A policy sees to it.
	InitialHold bool
}

// SettingsOf reads a configuration that is valid and whose defaults are filled
// in. The operator's own namespace is never protected: it has to come and go
// without its own consent.
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
		Kinds:      pvc.KindsOf(p.Kinds),
		Grace:      time.Duration(*p.GraceSeconds) * time.Second,
		ReleaseTTL: time.Duration(*p.ReleaseTTLSeconds) * time.Second,

		InitialHold: initialHolds[p.InitialHold],
	}
}

// protectionSettings are those of this operator.
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
