package cluster

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A fault befalls a set that is being deleted and created again. It begins before
// the deletion; what it returns waits until it has struck and is over.
type fault struct {
	name  string
	begin func(s *scene, salt uint64) (over func() error)
	// together is how many rounds may share one fault: what takes long to break and
	// mend befalls many sets at once, each in another moment of its life.
	together int
}

var faults = []fault{
	{"operator killed", atRandomMoment(func() error {
		return errors.Join(bed.operator.kill(), bed.operator.start())
	}), 1},
	{"API server killed", atRandomMoment(killAPIServer), 5},
	{"controller manager killed", atRandomMoment(func() error {
		return errors.Join(bed.plane.kill(controllerManager), bed.plane.restart(controllerManager))
	}), 5},
	{"garbage collector held up", withoutGarbageCollector, 10},
}

// killAPIServer kills the API server and starts it again. The scheduler ends itself
// when a pod that it was just binding turns out to be bound elsewhere, and counts
// on being started again.
func killAPIServer() error {
	return errors.Join(bed.plane.kill(apiServer), bed.plane.restart(apiServer), bed.plane.restart(scheduler))
}

// modes are the ways to delete a set, each with what the next life then needs.
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

// recreateUnder deletes and creates sets, each in a namespace of its own, while a
// fault befalls them.
func recreateUnder(t *testing.T, sets int, f fault, policy metav1.DeletionPropagation, want births, salt uint64) {
	t.Helper()
	scenes := make([]*scene, sets)
	lives := make([]life, sets)
	for i := range scenes {
		scenes[i] = newScene(t)
		lives[i].set, _ = scenes[i].firstLife(groups, groupSize)
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
		s.Logf("settled after %.2fs", time.Since(lives[i].began).Seconds())
	}
	scenes[0].check(f.name, over())
	for i, s := range scenes {
		now := s.awaitSettled(lives[i].set)
		s.judge(lives[i], want)
		if policy != metav1.DeletePropagationOrphan {
			s.judgeApart(lives[i])
		}
		s.end(now, metav1.DeletePropagationBackground)
		s.judge(lives[i], want)
	}
}

// moments is how many changes a random moment is chosen from. A life of 40 pods
// that follows one of 40 pods shows at least 4 changes to each name: the old pod
// goes, the new one comes, is bound to a node, gets ready.
const moments = 3 * allPods

// atRandomMoment strikes after a random number of changes seen from now on. A
// moment that never comes would make the drill worthless, and fails it.
func atRandomMoment(strike func() error) func(*scene, uint64) func() error {
	return func(s *scene, salt uint64) func() error {
		s.Helper()
		after := 1 + chance(s.T, salt).IntN(moments)
		at := s.changes() + after
		s.Logf("strikes after change %d", after)
		done := make(chan error, 1)
		go func() {
			deadline := time.After(patience)
			for s.changes() < at {
				select {
				case <-s.change():
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

// holdUp is how long the garbage collector stays away.
const holdUp = 20 * time.Second

// withoutGarbageCollector runs the controller manager without it for a while.
func withoutGarbageCollector(s *scene, _ uint64) func() error {
	s.Helper()
	s.check("stop the garbage collector", errors.Join(bed.plane.kill(controllerManager),
		bed.plane.restart(controllerManager, "--kcm-controllers", "*,-garbage-collector-controller")))
	done := make(chan error, 1)
	time.AfterFunc(holdUp, func() {
		done <- errors.Join(bed.plane.kill(controllerManager), bed.plane.restart(controllerManager, "--kcm-controllers", "*"))
	})
	return atLast(s, done)
}
