package cluster

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A fault strikes a set that is deleted and recreated. It begins before the deletion. What it
// returns waits until the fault is over.
type fault struct {
	name  string
	begin func(s *scene, salt uint64) (over func() error)
	// together is how many rounds share one fault: a fault that takes long strikes many sets at once.
	together int
}

var faults = []fault{
	{"operator killed", atRandomMoment(func() error {
		return errors.Join(bed.operator.Kill(), bed.operator.Start())
	}), 1},
	{"API server killed", atRandomMoment(killAPIServer), 5},
	{"controller manager killed", atRandomMoment(func() error {
		return errors.Join(bed.plane.Kill(controllerManager), bed.plane.Restart(controllerManager))
	}), 5},
	{"garbage collector held up", withoutGarbageCollector, 10},
}

// killAPIServer kills and starts the API server. The scheduler ends itself when a pod that it binds
// is bound elsewhere, so it is started too.
func killAPIServer() error {
	return errors.Join(bed.plane.Kill(apiServer), bed.plane.Restart(apiServer), bed.plane.Restart(scheduler))
}

// modes are the ways to delete a set, with what the next set creates.
var modes = []struct {
	policy metav1.DeletionPropagation
	want   births
}{
	{metav1.DeletePropagationBackground, wholeLife},
	{metav1.DeletePropagationForeground, wholeLife},
	{metav1.DeletePropagationOrphan, rolledLife},
}

func TestRecreateSurvives(t *testing.T) {
	for i, f := range faults {
		t.Run(f.name, func(t *testing.T) {
			for j, mode := range modes {
				t.Run(string(mode.policy), func(t *testing.T) {
					for begun := 0; begun < faultRounds(t); {
						share := min(f.together, faultRounds(t)-begun)
						salt := uint64(begun*100 + i*10 + j) // another one for every fault
						ok := t.Run(fmt.Sprintf("rounds %d-%d", begun+1, begun+share), func(t *testing.T) {
							recreateUnder(t, share, f, mode.policy, mode.want, salt)
						})
						if !ok {
							return
						}
						begun += share
					}
				})
			}
		})
	}
}

// recreateUnder deletes and creates sets, each in its own namespace, while a fault strikes.
func recreateUnder(t *testing.T, sets int, f fault, policy metav1.DeletionPropagation, want births, salt uint64) {
	t.Helper()
	scenes := make([]*scene, sets)
	lives := make([]life, sets)
	for i := range scenes {
		scenes[i] = newScene(t)
		lives[i].set = scenes[i].firstLife(groups, groupSize)
	}
	over := f.begin(scenes[sets-1], salt)
	for i, s := range scenes {
		lives[i] = s.endFor(lives[i].set, s.newSet("a", groups, groupSize, imageB), policy)
	}
	for i, s := range scenes {
		lives[i].set = s.beginNext(lives[i])
	}
	for i, s := range scenes {
		s.awaitSettled(lives[i].set)
	}
	scenes[0].check(f.name, over())
	for i, s := range scenes {
		now := s.awaitSettled(lives[i].set)
		s.judge(lives[i], want)
		s.end(now, metav1.DeletePropagationBackground)
		s.judge(lives[i], want)
	}
}

// moments is how many changes a random moment is chosen from. Each name has at least 4 changes: the
// old pod goes, the new one comes, is bound, is ready.
const moments = 3 * allPods

// atRandomMoment strikes after a random number of changes. A moment that never comes fails the drill.
func atRandomMoment(strike func() error) func(*scene, uint64) func() error {
	return func(s *scene, salt uint64) func() error {
		s.Helper()
		after := 1 + rand.New(rand.NewPCG(seed(), salt)).IntN(moments)
		at := s.changes() + after
		s.Logf("LOCKSTEP_SEED=%d: strikes after change %d", seed(), after)
		done := make(chan error, 1)
		go func() {
			deadline := time.After(patience)
			for s.changes() < at {
				select {
				case <-s.next():
				case <-s.Context().Done():
					done <- s.Context().Err()
					return
				case <-deadline:
					done <- fmt.Errorf("change %d was never seen: the fault did not strike", after)
					return
				}
			}
			done <- strike()
		}()
		return atLast(s, done)
	}
}

// atLast waits for the end of a fault, at the latest when the test is over.
func atLast(s *scene, done <-chan error) func() error {
	over := sync.OnceValue(func() error { return <-done })
	s.Cleanup(func() { _ = over() })
	return over
}

// holdUp is how long the garbage collector is away.
const holdUp = 20 * time.Second

// withoutGarbageCollector runs the controller manager without it for a while.
func withoutGarbageCollector(s *scene, _ uint64) func() error {
	s.Helper()
	s.check("stop the garbage collector", errors.Join(bed.plane.Kill(controllerManager),
		bed.plane.Restart(controllerManager, "--kcm-controllers", "*,-garbage-collector-controller")))
	done := make(chan error, 1)
	time.AfterFunc(holdUp, func() {
		done <- errors.Join(bed.plane.Kill(controllerManager), bed.plane.Restart(controllerManager, "--kcm-controllers", "*"))
	})
	return atLast(s, done)
}
