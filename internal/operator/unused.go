package operator

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/client-go/discovery"

	"lockstep.dev/lockstep/internal/controller/unused"
)

// saysUnusedFrom is the version from which the controller built into Kubernetes has
// claims say that they are unused, unless it is told otherwise.
var saysUnusedFrom = version.MajorMinor(1, 37)

// setupUnused adds the controller that has claims say that they are unused, where
// the one built in does not run: two would write one condition.
func (p *protection) setupUnused() error {
	if !p.settings.Alone {
		return nil
	}
	server, err := discovery.NewDiscoveryClientForConfig(p.mgr.GetConfig())
	if err != nil {
		return err
	}
	says, err := saysUnused(p.settings.UnusedCondition, server)
	if err != nil || !says {
		return err
	}
	return unused.Setup(p.mgr, unused.Options{
		Settings: p.settings.Settings, Caches: p.caches, Claims: p.claims, Pods: p.pods, Actor: p.actor, Narrator: p.narrator, Now: time.Now,
	})
}

// saysUnused is what was chosen, or else what a cluster of the API server's version
// does by itself.
func saysUnused(chosen *bool, server discovery.ServerVersionInterface) (bool, error) {
	if chosen != nil {
		return *chosen, nil
	}
	info, err := server.ServerVersion()
	if err != nil {
		return false, fmt.Errorf("ask the API server for its version: %w", err)
	}
	is, err := version.ParseGeneric(info.GitVersion)
	if err != nil {
		return false, fmt.Errorf("version of the API server: %w; write protection.unusedCondition into the configuration", err)
	}
	return is.AtLeast(saysUnusedFrom), nil
}
