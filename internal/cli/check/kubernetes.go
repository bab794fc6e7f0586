package check

import (
	"context"

	"k8s.io/apimachinery/pkg/util/version"

	"lockstep.dev/lockstep/internal/operator"
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

// without says what is missing without a kind of policy.
var without = map[string]string{
	operator.MutatingPolicy:   "the operator adds the barrier after a PVC is created, and mode strict works as hold",
	operator.ValidatingPolicy: "nothing refuses the deletion of a PVC in use or protects labels; mode barrier works",
}

// features probes what the API server serves.
func features(_ context.Context, s *site, f *findings) error {
	for _, kind := range s.lacks {
		f.warn("the API server has no %s: %s", kind, without[kind])
	}
	if len(s.lacks) == 0 {
		f.ok("the API server has every feature that Lockstep uses")
	}
	return nil
}
