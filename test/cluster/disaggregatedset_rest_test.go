package cluster

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	dsv1 "lockstep.dev/lockstep/api/disaggregatedset/v1"
	"lockstep.dev/lockstep/test/drill"
	"lockstep.dev/lockstep/test/expect"
)

// timeAtRest returns how long sets are watched at rest: LOCKSTEP_REST, or ten minutes in a soak.
func timeAtRest(t *testing.T) time.Duration {
	text := os.Getenv("LOCKSTEP_REST")
	switch {
	case text != "":
		d, err := time.ParseDuration(text)
		must(t, err)
		return d
	case soak():
		return 10 * time.Minute
	}
	return 30 * time.Second
}

// isRoutine reports whether the operator sends a request whatever sets exist: it renews its lease, opens a watch again, asks
// which kinds are served, and looks after its certificate and its admission policies.
func isRoutine(r drill.Request) bool {
	return r.Verb == "watch" || r.Resource == "" && strings.HasPrefix(r.URI, "/api") || slices.Contains([]string{
		"leases", "validatingadmissionpolicies", "validatingadmissionpolicybindings", "mutatingadmissionpolicies", "mutatingadmissionpolicybindings",
		"validatingwebhookconfigurations", "mutatingwebhookconfigurations",
	}, r.Resource) || r.Resource == "secrets" && r.Namespace == "lws-system"
}

// A hundred sets at rest cost no request.
func TestDisaggregatedSetsAtRestAreQuiet(t *testing.T) {
	const sets = 100
	s := newScene(t)
	var all []*dsv1.DisaggregatedSet
	for i := range sets {
		all = append(all, s.rolesSet(fmt.Sprint("a", i), s.roleOf("prefill", 1, 1, imageA), s.roleOf("decode", 1, 1, imageA)))
	}
	all[0].Annotations = map[string]string{dsv1.ServicesAnnotationKey: "true"}
	all[1].Spec.Roles[0].Scaling = &dsv1.RoleScaling{Mode: dsv1.ScalingExternal}
	all[2].Spec.Slices = new(int32(2))
	s.Check("create the sets", drill.Together(all, func(set *dsv1.DisaggregatedSet) error { return s.Client.Create(t.Context(), set) }))
	s.MayWrite(s.Namespace)
	for _, set := range all {
		s.awaitRoles(set)
	}
	outlast(t)

	began := time.Now()
	audit, err := drill.FollowAudit(bed.Plane.AuditLog(), bed.Rest, func(r drill.Request) bool { return drill.ByLockstep(r) && r.Begun.After(began) })
	s.Check("follow the audit log", err)
	sent := func(from int) []drill.Request {
		s.Check("read the audit log", audit.Sync())
		return audit.Kept(from, func(r drill.Request) bool { return !isRoutine(r) })
	}
	s.Eventually("counts that were held back are written", func() error { // for 8 s at most
		last := began
		if before := sent(0); len(before) > 0 {
			last = before[len(before)-1].Done
		}
		return drill.Lacking("at rest", true, time.Since(last) > 9*time.Second)
	})
	since, d := audit.Position(), timeAtRest(t)
	time.Sleep(d)
	for _, r := range sent(since) {
		t.Errorf("a request of the operator beside %d sets at rest: %s %s", sets, r, r.URI)
	}
	s.Check("read the audit log", audit.Sync())
	routine := map[string]int{}
	for _, r := range audit.Kept(since, isRoutine) {
		routine[r.Verb+" "+cmp.Or(r.Resource, r.URI)]++
	}
	t.Logf("in %s the operator sent %v beside %d sets at rest", d, routine, sets)
	s.changeRoles("a0", rolesRun(imageB)) // and it was not deaf
	s.Until("the rollout begins", func() bool { return len(s.uidsOf(imageB)) > 0 })
	expect.That(t, len(sent(since)) > 0, "the audit log shows no request of a rollout")
}
