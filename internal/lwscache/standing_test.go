package lwscache_test

import (
	"testing"

	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lwscache"
	"lockstep.dev/lockstep/test/fakeapi"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
)

func TestStandingIsReadLive(t *testing.T) {
	store := fakeapi.New()
	lagging := store.Lagging()
	fakeapi.Add(store, fakeapi.Pod("w-0", "w", 0))
	fakeapi.Add(store, fakeapi.Pod("v-0", "v", 0))
	o := lwscache.New(lagging, store.Live(), lwscache.NewMemory())
	now, err := o.Standing(t.Context(), action.Standing{
		Kind: identity.KindPod, Namespace: fakeapi.Namespace, Labels: map[string]string{lwsv1.SetNameLabelKey: "w"},
	})
	if err != nil || len(now) != 1 || now[0].Name != "w-0" {
		t.Errorf("got %v, %v", now, err)
	}
}
