package install

import (
	"strings"
	"testing"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/webhook/certs"
)

// The way back names the sets that the other implementation refuses, and no others.
func TestSetsThatWorkOnlyHere(t *testing.T) {
	c, live := clusterOf(t)
	for name, spec := range map[string]map[string]any{
		"a": {"groupIdentity": "Hash", "leaderWorkerTemplate": map[string]any{"maxGroupRestarts": int64(0)}},
		"b": {"groupIdentity": "Hash", "leaderWorkerTemplate": map[string]any{}},
		"c": {"groupIdentity": "Ordinal", "leaderWorkerTemplate": map[string]any{"maxGroupRestarts": int64(3)}},
		"d": {"leaderWorkerTemplate": map[string]any{"maxGroupRestarts": int64(3)}},
		"e": {"groupIdentity": "Hash", "leaderWorkerTemplate": map[string]any{"maxGroupRestarts": int64(3)}},
	} {
		u := Bare(lwsv1.GroupVersion.String(), "LeaderWorkerSet", "ns", name)
		u.Object["spec"] = spec
		if err := live.Create(t.Context(), u); err != nil {
			t.Fatal(err)
		}
	}
	var out strings.Builder
	c.Out = &out
	if err := c.sayOnlyHere(t.Context()); err != nil || strings.Count(out.String(), "\n") != 2 || !strings.Contains(out.String(), "ns/a,") || !strings.Contains(out.String(), "ns/e,") {
		t.Errorf("got %v, said %q", err, out.String())
	}
}

// An authority is an installation's if an installer labelled it. Uninstall leaves that of a user.
func TestAnAuthorityOfAUserIsNotInstalled(t *testing.T) {
	for _, isOurs := range []bool{true, false} {
		c, live := clusterOf(t)
		secret := (&shape{}).secret(certs.AuthoritySecret, nil)
		if !isOurs {
			secret.SetLabels(nil)
		}
		if err := live.Create(t.Context(), secret); err != nil {
			t.Fatal(err)
		}
		if found := must(c.installed(t.Context())); isIn(secret, found) != isOurs {
			t.Errorf("ours %t: found %q", isOurs, titles(found))
		}
	}
}
