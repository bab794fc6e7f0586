//go:build linux

package node

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/test/drill"
	"lockstep.dev/lockstep/test/expect"
)

const (
	// incarnationsEnv is how often groups are replaced in all. Without it, once for each cause and policy.
	incarnationsEnv = "LOCKSTEP_INCARNATIONS"
	// rayGrace is the grace period of Kubernetes. Ray's workers dial until it ends.
	rayGrace = 30 * time.Second
	// raySize is the pods of a group: a leader and two workers.
	raySize = 3
)

// causes is what ends a group, in turn.
var causes = []string{"failure", "roll", "recreation"}

// policies is when the workers of a group end whose leader ends, in turn.
var policies = []lwsv1.PodTerminationPolicyType{lwsv1.DefaultPodTermination, lwsv1.ParallelPodTermination}

// Workers dial the name of their leader ten times a second, also through a grace period of 30 s, as Ray's do. Groups
// fail, are rolled, and are deleted and created again, side by side. No worker ever reaches a leader of another
// incarnation of its group, and each reaches its own.
func TestNoContactBetweenIncarnations(t *testing.T) {
	s := newScene(t)
	perRound := len(causes) * len(policies)
	replicas, rounds := int32(1), 1
	if text := os.Getenv(incarnationsEnv); text != "" {
		wanted, err := strconv.Atoi(text)
		s.Check(incarnationsEnv, err)
		replicas = 3
		perRound *= int(replicas)
		rounds = (wanted + perRound - 1) / perRound
	}
	r := &rays{scene: s, dir: bed.node.disk("diaries-" + s.Namespace)}
	s.Check("make the directory of the diaries", os.MkdirAll(r.dir, 0o777))
	for i := range len(causes) * len(policies) {
		r.sets = append(r.sets, r.newRay(i, replicas))
		s.Create(r.sets[i])
	}
	r.awaitContact(nil)
	for round := range rounds {
		before := s.UIDs()
		r.replace(round)
		r.awaitContact(before)
		s.tell("round %d of %d: %d groups were replaced", round+1, rounds, perRound)
	}
	r.check(rounds * perRound)
}

// rays is sets whose workers dial their leaders, and the directory of what they saw.
type rays struct {
	*scene
	dir  string
	sets []*lwsv1.LeaderWorkerSet
}

// newRay returns a set whose groups are all replaced at once.
func (r *rays) newRay(i int, replicas int32) *lwsv1.LeaderWorkerSet {
	return r.newSet(fmt.Sprintf("ray-%d", i), replicas, raySize, args("--calls", "/calls"), func(set *lwsv1.LeaderWorkerSet) {
		set.Annotations = map[string]string{"lockstep.dev/restart-backoff": "off"}
		set.Spec.PodTerminationPolicy = policies[i%len(policies)]
		set.Spec.RolloutStrategy = lwsv1.RolloutStrategy{Type: lwsv1.RollingUpdateStrategyType,
			RollingUpdateConfiguration: &lwsv1.RollingUpdateConfiguration{MaxUnavailable: intstr.FromString("100%")}}
		pod := &set.Spec.LeaderWorkerTemplate.WorkerTemplate.Spec
		pod.TerminationGracePeriodSeconds = new(int64(rayGrace.Seconds()))
		pod.Volumes = []corev1.Volume{{Name: "calls", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: r.dir}}}}
		pod.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "calls", MountPath: "/calls"}}
	})
}

// replace replaces the groups of all sets: a third of the sets for each cause.
func (r *rays) replace(round int) {
	var again []int
	for i, set := range r.sets {
		switch causes[(i+round)%len(causes)] {
		case "failure":
			for group := range *set.Spec.Replicas {
				r.killContainerOf(fmt.Sprintf("%s-%d-%d", set.Name, group, raySize-1))
			}
		case "roll":
			r.Patch(set, fmt.Sprintf(`{"spec":{"leaderWorkerTemplate":{"workerTemplate":{"metadata":{"annotations":{"drill":"round %d"}}}}}}`, round))
		case "recreation":
			r.Remove(set, client.PropagationPolicy(metav1.DeletePropagationBackground))
			r.sets[i] = r.newRay(i, *set.Spec.Replicas)
			again = append(again, i)
		}
	}
	for _, i := range again {
		r.Eventually("the set is created again", func() error {
			err := r.Client.Create(r.Context(), r.sets[i])
			expect.Must(r, err == nil || apierrors.IsAlreadyExists(err), "create the set again: %v", err)
			return err
		})
	}
}

// awaitContact waits until no pod is one of before, all sets are Available, and all workers have reached a leader.
func (r *rays) awaitContact(before map[string]types.UID) {
	r.Within(2*drill.Patience, "the groups are replaced, and their workers reach a leader", func() error {
		want := 0
		for _, set := range r.sets {
			if err := r.available(set); err != nil {
				return fmt.Errorf("set %s: %w", set.Name, err)
			}
			want += int(*set.Spec.Replicas) * raySize
		}
		now := r.UIDs()
		if len(now) != want {
			return fmt.Errorf("got %d pods, want %d", len(now), want)
		}
		for name, uid := range now {
			if uid == before[name] {
				return fmt.Errorf("pod %s was not replaced", name)
			}
			if text, err := os.ReadFile(filepath.Join(r.dir, string(uid))); err != nil || !bytes.Contains(text, []byte("met ")) {
				return errors.Join(fmt.Errorf("pod %s reached no pod", name), err)
			}
		}
		return nil
	})
}

// entry is a line of a diary; see test/node/container.
type entry struct {
	what  string
	at    time.Time
	about string
}

// read reads the diary of a pod, except a line that is being written.
func (r *rays) read(pod types.UID) (entries []entry) {
	text, err := os.ReadFile(filepath.Join(r.dir, string(pod)))
	r.Check("read a diary", err)
	for line := range strings.Lines(string(text)) {
		line, complete := strings.CutSuffix(line, "\n")
		if !complete {
			break
		}
		what, rest, _ := strings.Cut(line, " ")
		at, about, _ := strings.Cut(rest, " ")
		ms, err := strconv.ParseInt(at, 10, 64)
		r.Check("read a diary", err)
		entries = append(entries, entry{what, time.UnixMilli(ms), about})
	}
	return entries
}

// incarnation is one leader of a group, and its workers.
type incarnation struct {
	leader  drill.Record
	workers []types.UID
}

// incarnations returns those of each group in their order, and the one of each pod. A pod belongs to the leader that
// its ownerReferences lead to.
func (r *rays) incarnations() (groups map[string][]*incarnation, of map[types.UID]*incarnation) {
	groups, of = map[string][]*incarnation{}, map[types.UID]*incarnation{}
	var workers []drill.Record
	for _, rec := range r.Pick(func(rec *drill.Record) bool { return rec.Kind == "Pod" }) {
		if rec.Last.GetLabels()[lwsv1.WorkerIndexLabelKey] != "0" {
			workers = append(workers, rec)
			continue
		}
		one := &incarnation{leader: rec}
		groups[rec.Last.GetName()] = append(groups[rec.Last.GetName()], one)
		of[rec.Last.GetUID()] = one
	}
	for _, rec := range workers {
		one := of[r.Of(rec.Owners[0]).Owners[0]]
		expect.Must(r, one != nil, "no leader of worker %s was seen", rec.Last.GetName())
		one.workers = append(one.workers, rec.Last.GetUID())
		of[rec.Last.GetUID()] = one
	}
	for _, one := range groups {
		slices.SortFunc(one, func(a, b *incarnation) int { return a.leader.Born - b.leader.Born })
	}
	return groups, of
}

// check checks all diaries, and logs what was measured.
func (r *rays) check(wanted int) {
	groups, of := r.incarnations()
	diaries, contacts, strangers := map[types.UID][]entry{}, 0, 0
	for uid, own := range of {
		diaries[uid] = r.read(uid)
		for _, e := range diaries[uid] {
			switch other := of[types.UID(e.about)]; {
			case e.what != "met" || other == own:
			case other == nil:
				r.Errorf("pod %s met unknown pod %q", r.Of(uid).Last.GetName(), e.about)
			case other.leader.Last.GetName() != own.leader.Last.GetName():
				strangers++
			default:
				contacts++
			}
		}
	}
	var changes, ending, beside, overlap int
	var delays []time.Duration
	for name, all := range groups {
		for i, old := range all[:len(all)-1] {
			c := change{old: old, next: all[i+1], diaries: diaries}
			late, there, running := c.dials()
			expect.That(r, late >= 100,
				"workers of incarnation %d of group %s dialled only %d times after SIGTERM", i, name, late)
			changes, ending, beside, overlap, delays = changes+1, ending+late, beside+there, overlap+running, append(delays, c.delay())
		}
	}
	slices.Sort(delays)
	r.tell("%d incarnation changes: workers dialled %d times after SIGTERM, %d times while the next leader existed, %d times while it ran",
		changes, ending, beside, overlap)
	r.tell("%d contacts between incarnations of a group were noted, %d between groups", contacts, strangers)
	r.tell("replacement beyond the grace period: median %s, at most %s", delays[len(delays)/2], delays[len(delays)-1])
	expect.Equal(r, wanted, changes)
	expect.That(r, contacts == 0 && overlap == 0,
		"%d contacts between incarnations, %d dials while the next leader ran", contacts, overlap)
	expect.That(r, beside != 0, "no worker dialled while the next leader existed")
}

// change is one incarnation and the next.
type change struct {
	old, next *incarnation
	diaries   map[types.UID][]entry
}

// first returns when the first entry of a kind was written in diaries of pods.
func (c change) first(what string, pods []types.UID) (at time.Time) {
	for _, uid := range pods {
		for _, e := range c.diaries[uid] {
			if e.what == what && (at.IsZero() || e.at.Before(at)) {
				at = e.at
			}
		}
	}
	return at
}

// dials returns how often old workers dialled after SIGTERM, while the next leader existed, and while it ran: a
// connection that ends early names no leader. The time of its creation has no fractions of a second, so the first one is
// left out.
func (c change) dials() (late, beside, overlap int) {
	exists := c.next.leader.Last.GetCreationTimestamp().Add(time.Second)
	runs := c.first("born", []types.UID{c.next.leader.Last.GetUID()})
	for _, uid := range c.old.workers {
		told := c.first("told", []types.UID{uid})
		for _, e := range c.diaries[uid] {
			if e.what != "met" && e.what != "missed" {
				continue
			}
			late += boolean(!told.IsZero() && e.at.After(told))
			beside += boolean(e.at.After(exists))
			overlap += boolean(e.at.After(runs))
		}
	}
	return late, beside, overlap
}

// delay returns the time from SIGTERM until the last new worker reached its leader, less the grace period.
func (c change) delay() (longest time.Duration) {
	for _, uid := range c.next.workers {
		longest = max(longest, c.first("met", []types.UID{uid}).Sub(c.first("told", c.old.workers))-rayGrace)
	}
	return longest
}
