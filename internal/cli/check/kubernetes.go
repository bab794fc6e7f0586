package check

import (
	"context"

	"k8s.io/apimachinery/pkg/util/version"
)

// oldest is the first version of Kubernetes that Lockstep serves.
var oldest = version.MajorMinor(1, 34)

// kubernetesVersion finds an API server that is too old.
func kubernetesVersion(_ context.Context, s *site, f *findings) error {
	info, err := s.Discovery.ServerVersion()
	if err != nil {
		return err
	}
	served, err := version.ParseGeneric(info.GitVersion)
	if err != nil {
		return err
	}
	if served.LessThan(oldest) {
		f.fail("Kubernetes %s is served; Lockstep needs %s or later", info.GitVersion, oldest)
		return nil
	}
	f.ok("Kubernetes %s", info.GitVersion)
	return nil
}
