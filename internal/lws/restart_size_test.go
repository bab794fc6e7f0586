package lws_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/test/lwstest"
)

// An API server stores no object of more than 1.5 MiB, and one that holds the set
// back from writing down that groups failed would hold back every restart: also
// when the largest of sets loses all of its groups at once, each with as much to
// say as there can be, the status leaves more than 300 KiB for everything else.
func TestAStatusThatTellsOfEveryGroupFitsIntoStorage(t *testing.T) {
	const many, most = 5000, 1200 << 10
	set := lwstest.Set("w", many, 8, onRestart)
	set.UID = "set"
	since := metav1.NewTime(lwstest.Epoch)
	set.Status.RestartsSince = &since
	world := lws.SetSnapshot{Now: lwstest.Epoch.Add(time.Hour), Set: set, Findings: map[types.UID]lws.Finding{}}
	uid := func(i int, of string) types.UID {
		return types.UID(identity.LeaderName(of, i) + strings.Repeat("x", 30))
	}
	for i := range many {
		leader := lwstest.Pod(identity.LeaderName("w", i), "w", 0)
		leader.UID = uid(i, "a")
		world.Groups = append(world.Groups, lws.Group{Index: i, LeaderName: leader.Name, Leader: leader})
		world.Leaders.Members = append(world.Leaders.Members, leader)
		world.Findings[leader.UID] = lws.Finding{Index: i, Leader: identity.RefOf(identity.KindPod, leader), Started: strings.Repeat("A", 56)}
	}
	for round := range 4 {
		status := of[action.WriteStatus](lws.DecideSet(world))[0].Status
		written, err := json.Marshal(status)
		if err != nil {
			t.Fatal(err)
		}
		if len(written) > most {
			t.Errorf("round %d: %d bytes, %d started, %d restarts", round, len(written), len(status.Started), len(status.Restarts))
		}
		if round > 0 && len(status.Restarts) < 4000 {
			t.Errorf("invalid run: round %d tells of %d restarts", round, len(status.Restarts))
		}
		set.Status, world.Findings = status, map[types.UID]lws.Finding{}
		for i := range world.Groups {
			leader := world.Groups[i].Leader
			if lws.Failed(set, i, leader.UID) != nil {
				leader = leader.DeepCopy()
				leader.UID = uid(i, string('b'+rune(round)))
				world.Groups[i].Leader, world.Leaders.Members[i] = leader, leader
			}
			zero := int32(137)
			world.Findings[leader.UID] = lws.Finding{
				Index: i, Leader: identity.RefOf(identity.KindPod, leader),
				Failure: &lws.Failure{Code: lws.CodePodEnded, PodFailure: lwsv1.PodFailure{
					Pod: strings.Repeat("p", 63), Container: strings.Repeat("c", 63), ExitCode: &zero, Reason: "OOMKilled",
					Message: strings.Repeat("\"", 256), Node: strings.Repeat("n", 253), At: since,
				}},
			}
		}
	}
}

// How many groups of eight pods there is a record of stands in docs/failure-modes.md.
func TestTheRecordHasRoomForAboutAsManyGroupsAsIsSaid(t *testing.T) {
	const many, said = 4500, 3800
	set := lwstest.Set("w", many, 8, onRestart)
	world := lws.SetSnapshot{Now: lwstest.Epoch.Add(time.Hour), Set: set, Findings: map[types.UID]lws.Finding{}}
	for i := range many {
		leader := lwstest.Pod(identity.LeaderName("w", i), "w", 0)
		leader.UID = types.UID(leader.Name)
		world.Groups = append(world.Groups, lws.Group{Index: i, LeaderName: leader.Name, Leader: leader})
		world.Leaders.Members = append(world.Leaders.Members, leader)
		world.Findings[leader.UID] = lws.Finding{Index: i, Leader: identity.RefOf(identity.KindPod, leader), Started: strings.Repeat("A", 48)}
	}
	if got := len(of[action.WriteStatus](lws.DecideSet(world))[0].Status.Started); got < said-50 || got > said+50 {
		t.Errorf("there is room for %d groups", got)
	}
}

// A record takes the place of that of the leader before. Those of leaders that are gone
// kept their room, and sets that fill it had none left once they were rolled.
func TestTheRecordOfAFullSetFollowsItsLeaders(t *testing.T) {
	const many = 4500
	set := lwstest.Set("w", many, 8, onRestart)
	recorded := 0
	for life := range 3 {
		world := lws.SetSnapshot{Now: lwstest.Epoch.Add(time.Hour), Set: set, Findings: map[types.UID]lws.Finding{}}
		for i := range many {
			leader := lwstest.Pod(identity.LeaderName("w", i), "w", 0)
			leader.UID = types.UID(leader.Name + strings.Repeat("x", life))
			world.Groups = append(world.Groups, lws.Group{Index: i, LeaderName: leader.Name, Leader: leader})
			world.Leaders.Members = append(world.Leaders.Members, leader)
			world.Findings[leader.UID] = lws.Finding{Index: i, Leader: identity.RefOf(identity.KindPod, leader), Started: strings.Repeat("A", 48)}
		}
		set.Status.Started = of[action.WriteStatus](lws.DecideSet(world))[0].Status.Started
		present := 0
		for _, s := range set.Status.Started {
			if s.Leader == world.Groups[s.Index].Leader.UID {
				present++
			}
		}
		if life == 0 {
			recorded = present
		}
		if present == 0 || present != recorded || len(set.Status.Started) != recorded {
			t.Errorf("life %d: of %d entries, %d are of leaders that are there; there is room for %d", life, len(set.Status.Started), present, recorded)
		}
	}
}
