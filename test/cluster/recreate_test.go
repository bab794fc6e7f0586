package cluster

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
)

// The size of the sets that are deleted and created again.
const (
	groups    = 10
	groupSize = 4
	allPods   = groups * groupSize
)

// wholeLife is what a life needs that takes nothing over: pods, the leaders' and
// the workers' StatefulSets, the shared Service, one revision.
var wholeLife = births{Pods: allPods, StatefulSets: 1 + groups, Services: 1, Revisions: 1}

// rolledLife is what a life needs that took over everything and then rolls it to
// another template: the leaders' StatefulSet and the Service stay.
var rolledLife = births{Pods: allPods, StatefulSets: groups, Revisions: 1}

func TestRecreateBackground(t *testing.T) {
	recreateRounds(t, metav1.DeletePropagationBackground, imageB, wholeLife)
}

func TestRecreateForeground(t *testing.T) {
	recreateRounds(t, metav1.DeletePropagationForeground, imageB, wholeLife)
}

// Orphaned, everything is adopted, and the StatefulSet rolls its pods.
func TestRecreateOrphan(t *testing.T) {
	recreateRounds(t, metav1.DeletePropagationOrphan, imageB, rolledLife)
}

func TestRecreateOrphanUnchangedCreatesNothing(t *testing.T) {
	recreateRounds(t, metav1.DeletePropagationOrphan, imageA, births{})
}

// With the same template the old revision bears the very name the new one needs.
func TestRecreateBackgroundUnchanged(t *testing.T) {
	recreateRounds(t, metav1.DeletePropagationBackground, imageA, wholeLife)
}

// pace is how long things took in one round.
type pace struct{ first, again, gone time.Duration }

// recreateRounds creates a set, deletes and creates it at once with another
// image, and deletes it; so that the second step can be told apart from what the
// first and the third cost on the same machine in the same minute.
func recreateRounds(t *testing.T, policy metav1.DeletionPropagation, image string, want births) {
	var paces []pace
	for n := range rounds(t) {
		ok := t.Run(fmt.Sprintf("round %d", n+1), func(t *testing.T) {
			paces = append(paces, recreateRound(newScene(t), policy, image, want))
		})
		if !ok {
			return
		}
	}
	reportPaces(t, paces, policy != metav1.DeletePropagationOrphan || image != imageA)
}

func recreateRound(s *scene, policy metav1.DeletionPropagation, image string, want births) pace {
	s.Helper()
	var p pace
	old, first := s.firstLife(groups, groupSize)
	p.first = first

	l := s.recreate(old, s.newSet("a", groups, groupSize, image), policy)
	now := s.awaitSettled(l.set)
	p.again = time.Since(l.began)
	s.judge(l, want)
	if policy != metav1.DeletePropagationOrphan {
		s.judgeApart(l)
	}

	end := policy
	if end == metav1.DeletePropagationOrphan {
		end = metav1.DeletePropagationBackground
	}
	p.gone = s.end(now, end)
	s.judge(l, want) // nothing more came until the very end
	return p
}

// firstLife creates set "a" where nothing is, and tells how long it took.
func (s *scene) firstLife(replicas, size int32) (*lwsv1.LeaderWorkerSet, time.Duration) {
	s.Helper()
	set := s.newSet("a", replicas, size, imageA)
	began := time.Now()
	s.create(set)
	set = s.awaitSettled(set)
	return set, time.Since(began)
}

// end deletes a set for good and tells how long its pods took to go.
func (s *scene) end(set *lwsv1.LeaderWorkerSet, policy metav1.DeletionPropagation) time.Duration {
	s.Helper()
	mark, began := s.changes(), time.Now()
	s.remove(set.DeepCopy(), propagation(policy))
	s.awaitNothing(set.UID)
	return s.lastGone(mark).Sub(began)
}

// reportPaces logs every round, and in a soak asserts what the median costs.
func reportPaces(t *testing.T, paces []pace, bounded bool) {
	t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "\n%6s %10s %10s %10s %8s\n", "round", "first", "gone", "recreate", "ratio")
	for i, p := range paces {
		fmt.Fprintf(&b, "%6d %10.2fs %10.2fs %10.2fs %8.2f\n", i+1, p.first.Seconds(), p.gone.Seconds(), p.again.Seconds(), p.ratio())
	}
	m := pace{
		first: median(paces, func(p pace) time.Duration { return p.first }),
		again: median(paces, func(p pace) time.Duration { return p.again }),
		gone:  median(paces, func(p pace) time.Duration { return p.gone }),
	}
	fmt.Fprintf(&b, "%6s %10.2fs %10.2fs %10.2fs %8.2f\n", "median", m.first.Seconds(), m.gone.Seconds(), m.again.Seconds(), m.ratio())
	t.Logf("controller manager at %d queries/s%s", controllerManagerQPS, b.String())
	const bound = 1.3
	if soak() && bounded && m.ratio() > bound {
		t.Errorf("the median delete-and-create takes %.2f times the leaving of the old pods and a first creation together: want at most %.1f", m.ratio(), bound)
	}
}

// ratio sets delete-and-create against its two halves done apart.
func (p pace) ratio() float64 { return p.again.Seconds() / (p.first + p.gone).Seconds() }

func median(paces []pace, of func(pace) time.Duration) time.Duration {
	var times []time.Duration
	for _, p := range paces {
		times = append(times, of(p))
	}
	slices.Sort(times)
	return times[len(times)/2]
}
