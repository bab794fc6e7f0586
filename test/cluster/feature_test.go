package cluster

import (
	"errors"
	"strings"
	"testing"
)

// laterAPIs came after Kubernetes 1.34.
const laterAPIs = "admissionregistration.k8s.io/v1/mutatingadmissionpolicies=false," +
	"admissionregistration.k8s.io/v1/mutatingadmissionpolicybindings=false"

// withoutLaterFeatures switches off, until the test ends, what Kubernetes 1.34 lacks, and installs again.
func withoutLaterFeatures(t *testing.T) {
	t.Helper()
	become := func(apis, plugins, gate string) error {
		gates := []string{"--feature-gates", "MaxUnavailableStatefulSet=" + gate}
		return errors.Join(
			bed.Operator.Kill(),
			bed.Plane.Restart(apiServer, append(gates, "--runtime-config", apis, "--disable-admission", plugins)...),
			bed.Plane.Restart(controllerManager, gates...),
			bed.Plane.Restart(scheduler),
			bed.Operator.Install(), bed.Operator.Start())
	}
	t.Cleanup(func() { must(t, become("", "", "true")) })
	must(t, become(laterAPIs, "MutatingAdmissionPolicy", "false"))
}

// TestWithoutLaterFeatures runs, rolls and protects a set on an API server that serves what Kubernetes
// 1.34 does. The operator adds the barrier to PVCs itself, and check names what is missing.
func TestWithoutLaterFeatures(t *testing.T) {
	withoutLaterFeatures(t)
	s := newScene(t)
	set := s.settled(s.newSet("a", 2, 2, imageA, volumes(keepClaims, keepClaims)))
	s.awaitProtected("data-a-0", "data-a-1")
	s.awaitSettled(s.become(set, pull(imageB)))

	claim := s.claim("used")
	s.awaitProtected(claim.Name)
	user := s.user("user", []string{claim.Name})
	s.Remove(claim)
	s.stays(claim)
	s.Remove(user)
	s.AwaitGone(claim)

	found, _, _ := s.Plugin("", "check") // without leader election there is no leader
	for _, missing := range []string{"MutatingAdmissionPolicy", "maxUnavailable"} {
		if !strings.Contains(found, missing) {
			t.Errorf("check does not name %s:\n%s", missing, found)
		}
	}
}
