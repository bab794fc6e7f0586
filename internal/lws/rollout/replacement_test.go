package rollout_test

import (
	"testing"

	"pgregory.net/rapid"

	"lockstep.dev/lockstep/internal/lws/rollout"
)

func TestAdmit(t *testing.T) {
	for name, tt := range map[string]struct {
		room            rollout.Room
		gated, admitted int
	}{
		"a new set":                               {rollout.Room{Allowed: 3}, 3, 3},
		"a group terminates":                      {rollout.Room{Allowed: 3, Active: 2, Holding: 1}, 1, 0},
		"its last pod is gone":                    {rollout.Room{Allowed: 3, Active: 2}, 1, 1},
		"the surge of a rollout":                  {rollout.Room{Allowed: 3, Active: 1, Holding: 1}, 2, 1},
		"a surge leader runs, one terminates":     {rollout.Room{Allowed: 3, Active: 2, Holding: 1}, 1, 0},
		"a larger set":                            {rollout.Room{Allowed: 5, Active: 3}, 2, 2},
		"a smaller set still has too many":        {rollout.Room{Allowed: 2, Active: 4}, 1, 0},
		"a smaller set has room":                  {rollout.Room{Allowed: 4, Active: 1, Holding: 2}, 1, 1},
		"at once":                                 {rollout.Room{Allowed: 3, Active: 2, Holding: 1, Immediate: true}, 1, 1},
		"at once, but one is stopped for good":    {rollout.Room{Allowed: 3, Active: 1, Holding: 2, Stopped: 1, Immediate: true}, 2, 1},
		"a group that is stopped keeps its place": {rollout.Room{Allowed: 3, Active: 2, Holding: 1, Stopped: 1}, 1, 0},
	} {
		if admitted := tt.room.Admit(tt.gated); admitted != tt.admitted {
			t.Errorf("%s: %d of %d", name, admitted, tt.gated)
		}
	}
}

// A stopped group goes only where those that run take its place.
func TestSurplus(t *testing.T) {
	for name, tt := range map[string]struct {
		room rollout.Room
		want int
	}{
		"it keeps its place":               {rollout.Room{Allowed: 3, Active: 2, Holding: 1, Stopped: 1}, 0},
		"all are stopped":                  {rollout.Room{Allowed: 2, Holding: 2, Stopped: 2}, 0},
		"a smaller set":                    {rollout.Room{Allowed: 2, Active: 1, Holding: 2, Stopped: 2}, 1},
		"a smaller set with too many":      {rollout.Room{Allowed: 1, Active: 3, Holding: 1, Stopped: 1}, 1},
		"what terminates takes none of it": {rollout.Room{Allowed: 3, Active: 2, Holding: 2, Stopped: 1}, 0},
	} {
		if got := tt.room.Surplus(); got != tt.want {
			t.Errorf("%s: %d, want %d", name, got, tt.want)
		}
	}
}

// The laws of replacement after the end of groups: groups that hold room never become more than are allowed, all room
// that is free is used at once, and the set is never held below its replicas.
func TestLawsOfReplacement(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		count := func(name string) int32 { return rapid.Int32Range(0, 12).Draw(t, name) }
		replicas, surge := count("replicas"), count("surge")
		room := rollout.Room{Allowed: replicas + surge, Active: count("active"), Holding: count("holding")}
		gated := count("gated")
		admitted := int32(room.Admit(int(gated)))
		deferred, now := gated-admitted, room.Active+room.Holding+admitted
		if admitted < 0 || deferred < 0 {
			t.Errorf("%d are admitted of %d", admitted, gated)
		}
		if admitted > 0 && now > room.Allowed {
			t.Errorf("%d groups hold room, and %d may", now, room.Allowed)
		}
		if deferred > 0 && now < room.Allowed {
			t.Errorf("%d groups wait, %d hold room, and %d may", deferred, now, room.Allowed)
		}
		if deferred > 0 && now < replicas {
			t.Errorf("%d groups hold room below %d replicas, and %d wait", now, replicas, deferred)
		}
	})
}
