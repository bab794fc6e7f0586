package cluster

import (
	"errors"
	"fmt"
	"os/exec"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/test/standin"
)

// handedBack uninstalls Lockstep. The next apply of the other implementation changes no template, and
// removes the fields of Lockstep.
func handedBack(t *testing.T, s *scene, other *standin.Other, held *estate, all []*estate) {
	native := &estate{inherited: inherited{name: "native", replicas: 2, size: 2}, scene: s, other: other}
	native.set = s.newSet("native", 2, 2, imageA, func(set *lwsv1.LeaderWorkerSet) {
		grace := int64(7)
		set.Spec.LeaderWorkerTemplate.WorkerTemplate.Spec.TerminationGracePeriodSeconds = &grace
	})
	s.create(native.set)
	native.set = s.awaitSettled(native.set)
	native.key = s.revision(native.set).Labels[lwsv1.RevisionKey]
	all = append(all, native)

	mark, before := s.changes(), s.templates()
	s.check("stop the operator", bed.operator.Kill())
	out, err := exec.Command(bed.operator.Program, "uninstall", "--keep-sets", "--kubeconfig", bed.operator.Kubeconfig).CombinedOutput()
	t.Logf("%s", out)
	s.check("uninstall", err)
	for _, e := range all {
		s.check("read", s.client.Get(t.Context(), keyOf(e.set), e.set))
		sts, _ := find[*appsv1.StatefulSet](s.recorder, e.name)
		// The version that made the one knows no such field; the other was never applied.
		if e.name != "no-policy-type" && e.name != changedClaims {
			e.judged(t.Context(), e.key)
		}
		e.apply(*sts.Spec.UpdateStrategy.RollingUpdate.Partition, *sts.Spec.Replicas)
		now := &appsv1.StatefulSet{}
		s.check("read", s.client.Get(t.Context(), keyOf(sts), now))
		generation := sts.Generation
		if e.tied() {
			generation++ // Lockstep had turned it to Retain
		}
		same(t, "generation of the leaders of "+e.name, generation, now.Generation)
		if _, left := now.Annotations[appliedAnnotation]; left {
			t.Errorf("set %s: %s stays", e.name, appliedAnnotation)
		}
	}
	unchangedTemplates(t, s, before)
	gone := s.pick(func(r *record) bool { return r.died > mark })
	same(t, "gone", "", names(gone))
	same(t, "made", "", names(bornSince[*corev1.Pod](s.recorder, mark)))
	s.listed(t, other, all)
	s.carriedOn(t, native, held)
}

// carriedOn has the other implementation roll a set that Lockstep created, and end a rollout.
func (s *scene) carriedOn(t *testing.T, native, held *estate) {
	s.check("serve webhooks alone", errors.Join(bed.operator.Install(), bed.operator.Start("--controllers=")))
	mark := s.changes()
	native.keys = []string{native.key, native.key}
	native.set = native.become(native.set, `{"spec":{"leaderWorkerTemplate":{"workerTemplate":{"spec":{"terminationGracePeriodSeconds":null}}}}}`)
	native.record(2)
	native.keys = []string{native.key, native.key}
	native.apply(0, 2)
	native.tend()
	leaders, _ := find[*appsv1.StatefulSet](s.recorder, "native")
	same(t, "what Lockstep had set and the other leaves out", int64(30), *leaders.Spec.Template.Spec.TerminationGracePeriodSeconds)

	held.set = held.become(held.set, `{"spec":{"rolloutStrategy":{"rollingUpdateConfiguration":{"partition":0}}}}`)
	held.judged(t.Context(), held.key)
	held.keys[0] = held.key
	held.apply(0, 3)
	held.tend()
	s.wantBorn(held.set.UID, mark, births{Pods: 2, StatefulSets: 1})
	s.wantBorn(native.set.UID, mark, births{Pods: 4, StatefulSets: 2, Revisions: 1})
}

// listed checks the revisions that a client finds by a set's name: the current one, and former ones
// that groups run.
func (s *scene) listed(t *testing.T, other *standin.Other, all []*estate) {
	for _, e := range all {
		have, err := other.Revisions(t.Context(), e.set)
		s.check("list revisions", err)
		want := map[string]int{e.key: 1 + int(e.leaked)}
		if e.name == "held" {
			want[e.keys[0]] = 1
		}
		same(t, "revisions of "+e.name, fmt.Sprint(want), fmt.Sprint(have))
	}
}
