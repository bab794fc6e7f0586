package disaggregated_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	dsv1 "lockstep.dev/lockstep/api/disaggregatedset/v1"
	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/disaggregated"
	"lockstep.dev/lockstep/test/expect"
)

func role(name, image string, edits ...func(*dsv1.DisaggregatedRole)) dsv1.DisaggregatedRole {
	r := dsv1.DisaggregatedRole{Name: name, Spec: lwsv1.LeaderWorkerSetSpec{LeaderWorkerTemplate: lwsv1.LeaderWorkerTemplate{
		Size: new(int32(1)), WorkerTemplate: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: image}}}},
	}}}
	for _, edit := range edits {
		edit(&r)
	}
	return r
}

func identity(id lwsv1.GroupIdentityType) func(*dsv1.DisaggregatedRole) {
	return func(r *dsv1.DisaggregatedRole) { r.Spec.GroupIdentity = id }
}

// Other implementations compute the same revisions.
func TestRevisionOf(t *testing.T) {
	for _, tt := range []struct {
		name  string
		roles []dsv1.DisaggregatedRole
		want  string
	}{
		{"prefill and decode", []dsv1.DisaggregatedRole{role("prefill", "img:1"), role("decode", "img:1")}, "4852664f"},
		{"in the other order", []dsv1.DisaggregatedRole{role("decode", "img:1"), role("prefill", "img:1")}, "1a2d5a10"},
		{"other names", []dsv1.DisaggregatedRole{role("a", "img:1"), role("b", "img:1")}, "2d36dbf7"},
		{"another image of one role", []dsv1.DisaggregatedRole{role("a", "img:2"), role("b", "img:1")}, "1cee4d62"},
		{"the default identity", []dsv1.DisaggregatedRole{role("a", "img:1", identity(lwsv1.OrdinalGroupIdentity)), role("b", "img:1")}, "2d36dbf7"},
	} {
		got, err := disaggregated.RevisionOf(tt.roles)
		expect.OK(t, err)
		expect.Equalf(t, tt.want, got, "%s", tt.name)
	}
	keyed, err := disaggregated.RevisionOf([]dsv1.DisaggregatedRole{role("a", "img:1", identity(lwsv1.HashGroupIdentity)), role("b", "img:1")})
	expect.OK(t, err)
	expect.That(t, keyed != "2d36dbf7", "another identity is no other revision")
}

// What a record keeps makes the same revision again.
func TestARecordKeepsTheRevision(t *testing.T) {
	set := &dsv1.DisaggregatedSet{Spec: dsv1.DisaggregatedSetSpec{Roles: []dsv1.DisaggregatedRole{role("prefill", "img:1"), role("decode", "img:<2>")}}}
	set.Name, set.UID = "a", "0123456789"
	revision, err := disaggregated.RevisionOf(set.Spec.Roles)
	expect.OK(t, err)
	roles, err := disaggregated.RolesOf(disaggregated.Record(set, revision, 1))
	expect.OK(t, err)
	again, err := disaggregated.RevisionOf(roles)
	expect.OK(t, err)
	expect.Equal(t, revision, again)
}
