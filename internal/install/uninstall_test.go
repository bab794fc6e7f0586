package install

import (
	"slices"
	"strings"
	"testing"
)

// The definition and the namespace go last, and with --keep-sets they stay.
func TestOrderOfRemoval(t *testing.T) {
	all, err := everything(whole)
	if err != nil {
		t.Fatal(err)
	}
	ranks := map[int][]string{}
	for _, u := range all {
		ranks[rank(u)] = append(ranks[rank(u)], title(u))
	}
	for r, want := range map[int]string{1: "webhookconfiguration", 2: "customresourcedefinition", 3: "namespace/lws-system"} {
		if len(ranks[r]) == 0 || slices.ContainsFunc(ranks[r], func(name string) bool { return !strings.Contains(name, want) }) {
			t.Errorf("rank %d: %q", r, ranks[r])
		}
	}
	for _, want := range []string{"deployment.apps/lws-controller-manager", "secret/lws-webhook-server-cert", "configmap/lockstep-configuration"} {
		if !slices.Contains(ranks[0], want) {
			t.Errorf("%s is not removed: %q", want, ranks[0])
		}
	}
}
