package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/test/drill"
	"lockstep.dev/lockstep/test/standin"
)

const appliedAnnotation = "lockstep.dev/applied"

// Lockstep takes the place of another implementation, at rest and in mid-rollout, and leaves again. Only
// the rollout replaces pods.
func TestTakeover(t *testing.T) {
	s := newScene(t)
	other, err := standin.New(bed.Rest)
	s.Check("stand in", err)
	s.Check("serve webhooks alone", errors.Join(bed.Operator.Kill(), bed.Operator.Start("--controllers=")))
	t.Cleanup(func() {
		_ = bed.Operator.Kill()
		if err := errors.Join(bed.Operator.Install(), bed.Operator.Start()); err != nil {
			t.Errorf("bring lockstep back: %v", err)
		}
	})
	var all []*standinSet
	for _, v := range otherSets {
		all = append(all, s.found(other, v))
	}
	step := s.found(other, otherSet{name: "step", replicas: 4, size: 2, edit: budget(1, 0, 0)})
	surge := s.found(other, otherSet{name: "surge", replicas: 3, size: 2, edit: budget(0, 1, 0)})
	held := s.found(other, otherSet{name: "held", replicas: 3, size: 2, edit: budget(2, 0, 1)})
	for _, e := range append([]*standinSet{step, surge, held}, all...) {
		e.tend()
		e.tell(e.replicas, false)
	}
	step.roll(3, 4)
	surge.roll(3, 4)
	held.roll(1, 3)
	all = append(all, held)

	for _, e := range all {
		e.checkPlan()
	}
	before, mark, since := s.templates(), s.Changes(), bed.Position()
	s.RestartOperator()
	s.finish(step, surge)
	for _, e := range append(all, step, surge) {
		e.taken()
	}
	outlast(t)
	t.Run("undisturbed", func(t *testing.T) { undisturbed(t, s, all, mark) })
	t.Run("few writes", func(t *testing.T) { fewWrites(t, s, all, since) })
	t.Run("rolled once", func(t *testing.T) {
		s.wantBorn(step.set.UID, mark, births{Pods: 6, StatefulSets: 3})
		s.wantBorn(surge.set.UID, mark, births{Pods: 6, StatefulSets: 3})
	})
	t.Run("templates", func(t *testing.T) { unchangedTemplates(t, s, before) })

	again := bed.Position()
	s.RestartOperator()
	outlast(t)
	s.silent(again)

	for _, e := range all {
		if e.name == changedClaims {
			t.Run("changed claims", func(t *testing.T) { keepsItsClaims(t, e) })
		}
	}
	t.Run("handed back", func(t *testing.T) { handedBack(t, s, other, held, append(all, step, surge)) })
}

// roll gives a set another template, for the groups from the partition on.
func (e *standinSet) roll(partition int, groups int) {
	e.update(imageB, 2)
	e.apply(int32(len(e.keys)), int32(groups))
	e.keys = append(e.keys[:partition:partition], slices.Repeat([]string{e.key}, groups-partition)...)
	if partition < int(e.replicas) {
		e.apply(int32(partition), int32(groups))
	}
	e.tend()
	e.tell(int32(groups-partition), true)
}

// finish waits until Lockstep has ended the rollouts, within their budgets.
func (s *scene) finish(step, surge *standinSet) {
	fewest := map[string]int{}
	s.Eventually("the rollouts are finished", func() error {
		var errs []error
		for _, e := range []*standinSet{step, surge} {
			ready := len(s.readyGroups(e.set))
			if have, seen := fewest[e.name]; !seen || ready < have {
				fewest[e.name] = ready
			}
			errs = append(errs, s.unsettled(e.set))
		}
		return errors.Join(errs...)
	})
	s.Logf("fewest groups ready: %v", fewest)
	if fewest["step"] < 3 || fewest["surge"] < 3 {
		s.Fatalf("too few groups were ready: %v", fewest)
	}
}

// checkPlan checks the plan: it applies the leaders and writes the status. Where PVCs are deleted with
// the set, it writes their owners first.
func (e *standinSet) checkPlan() {
	leaders, owners := 0, 0
	for _, part := range e.ask("", "plan", e.name).Parts {
		for _, a := range part.Actions {
			switch a.Verb + " " + a.Object.Kind {
			case "apply StatefulSet":
				leaders++
			case "status LeaderWorkerSet":
			case "tie PersistentVolumeClaim":
				owners++
			default:
				e.Errorf("set %s: the plan says %s %s %s for %s", e.name, a.Verb, a.Object.Kind, a.Object.Name, a.Reason)
			}
		}
	}
	if e.tied() != (owners > 0) || e.tied() == (leaders > 0) {
		e.Errorf("set %s: the plan applies %d StatefulSets and writes the owners of %d PVCs", e.name, leaders, owners)
	}
}

// keepsItsClaims scales a set whose spec names other PVCs than its StatefulSet. The new group has those of
// the StatefulSet, and a condition reports it.
func keepsItsClaims(t *testing.T, e *standinSet) {
	told := meta.FindStatusCondition(e.awaitSettled(e.set).Status.Conditions, lws.CodeVolumeClaimsDiffer)
	if told == nil || told.Status != metav1.ConditionTrue {
		t.Errorf("the user is told %+v", told)
	}
	if out, errOut, err := e.Plugin("", "status", e.name); err != nil || !strings.Contains(out, lws.CodeVolumeClaimsDiffer) {
		t.Errorf("status says %v\n%s%s", err, out, errOut)
	}
	before := e.podsOf(e.set)[0].UID
	e.awaitSettled(e.become(e.set, `{"spec":{"replicas":2}}`))
	for _, pod := range e.podsOf(e.set) {
		same(t, "claim of pod "+pod.Name, claimPrefix+pod.Name, pod.Spec.Volumes[0].PersistentVolumeClaim.ClaimName)
		if pod.Name == e.name+"-0" {
			same(t, "UID of pod "+pod.Name, before, pod.UID)
		}
	}
}

// tied reports whether PVCs are deleted with the set. The set then owns them.
func (e *standinSet) tied() bool {
	policy := e.set.Spec.LeaderWorkerTemplate.PersistentVolumeClaimRetentionPolicy
	return policy != nil && policy.WhenDeleted == appsv1.DeletePersistentVolumeClaimRetentionPolicyType
}

// taken waits until Lockstep has noted that it applies the leaders.
func (e *standinSet) taken() {
	e.Until("set "+e.name+" is taken over", func() bool {
		sts := e.StatefulSet(e.name)
		return sts != nil && sts.Annotations[appliedAnnotation] != ""
	})
}

// templates returns what must stay of each StatefulSet: its UID and its template.
func (s *scene) templates() map[string]string {
	all := map[string]string{}
	for _, sts := range s.StatefulSets() {
		template, _ := json.Marshal(sts.Spec.Template)
		all[sts.Name] = string(sts.UID) + " " + string(template)
	}
	return all
}

// unchangedTemplates compares the leader StatefulSets of all sets.
func unchangedTemplates(t *testing.T, s *scene, before map[string]string) {
	now := s.templates()
	for _, e := range drill.Live[*lwsv1.LeaderWorkerSet](s.Recorder) {
		same(t, "leaders of "+e.Name, before[e.Name], now[e.Name])
	}
}

func undisturbed(t *testing.T, s *scene, all []*standinSet, mark int) {
	for _, e := range all {
		same(t, "created for set "+e.name, births{}, s.bornInto(e.set.UID, mark))
		gone := s.Pick(func(r *drill.Record) bool {
			return r.Died > mark && r.Last.GetLabels()[lwsv1.SetNameLabelKey] == e.name
		})
		same(t, "gone of set "+e.name, "", names(gone))
		for _, sts := range e.leadersAndWorkers() {
			same(t, "generation of statefulset "+sts.Name, sts.Status.ObservedGeneration, sts.Generation)
		}
	}
	own := s.Pick(func(r *drill.Record) bool {
		owner := metav1.GetControllerOf(r.Last)
		return r.Kind == "ControllerRevision" && r.Born > mark && owner != nil && owner.Kind == "StatefulSet" && !strings.Contains(owner.Name, "-")
	})
	same(t, "templates that the StatefulSet controller recorded of leaders", "", names(own))
}

// fewWrites allows one write to an object, one more for a created StatefulSet, and one more after a
// conflict. Of PVCs it counts writes of owners only.
func fewWrites(t *testing.T, s *scene, all []*standinSet, since int) {
	count, refused := map[string]int{}, map[string]int{}
	for _, r := range s.LockstepWrote(since) {
		if r.Code == http.StatusConflict {
			refused[r.Resource+"/"+r.Name]++
		}
		if r.Resource != "events" && (r.Resource != "persistentvolumeclaims" || strings.Contains(r.URI, "fieldManager="+lws.TieFieldOwner)) {
			count[r.Resource+"/"+r.Name]++
		}
		if e := setNamed(all, r.Name); e != nil && (r.Resource == "pods" || r.Verb == "delete" || r.Verb == "create" && r.Resource != "events") {
			t.Errorf("at rest: %s", r)
		}
	}
	for object, writes := range count {
		_, name, _ := strings.Cut(object, "/")
		e := setNamed(all, strings.TrimPrefix(name, claimPrefix))
		if e == nil {
			continue
		}
		allowed := 1
		if e.posted {
			allowed++
		}
		if refused[object] > 0 { // the StatefulSet controller wrote in between
			allowed++
		}
		if writes > allowed {
			t.Errorf("%d writes to %s, at most %d are needed; %d were refused", writes, object, allowed, refused[object])
		}
	}
	t.Logf("writes to %d sets at rest and 2 in mid-rollout: %v", len(all), count)
}

// claimPrefix begins the names of the PVCs of these sets.
const claimPrefix = "data-"

func setNamed(all []*standinSet, name string) *standinSet {
	for _, e := range all {
		if name == e.name || strings.HasPrefix(name, e.name+"-") && strings.ContainsAny(name[len(e.name)+1:][:1], "0123456789") {
			return e
		}
	}
	return nil
}

// handedBack uninstalls Lockstep. The next apply of the other implementation changes no template, and
// removes the fields of Lockstep.
func handedBack(t *testing.T, s *scene, other *standin.Other, held *standinSet, all []*standinSet) {
	native := &standinSet{otherSet: otherSet{name: "native", replicas: 2, size: 2}, scene: s, other: other}
	native.set = s.newSet("native", 2, 2, imageA, func(set *lwsv1.LeaderWorkerSet) {
		grace := int64(7)
		set.Spec.LeaderWorkerTemplate.WorkerTemplate.Spec.TerminationGracePeriodSeconds = &grace
	})
	s.Create(native.set)
	native.set = s.awaitSettled(native.set)
	native.key = s.revision(native.set).Labels[lwsv1.RevisionKey]
	all = append(all, native)

	mark, before := s.Changes(), s.templates()
	s.Check("stop the operator", bed.Operator.Kill())
	out, err := uninstall()
	t.Logf("%s", out)
	s.Check("uninstall", err)
	for _, e := range all {
		s.Check("read", s.Client.Get(t.Context(), client.ObjectKeyFromObject(e.set), e.set))
		sts := s.StatefulSet(e.name)
		// The version that made the one knows no such field; the other was never applied.
		if e.name != "no-policy-type" && e.name != changedClaims {
			e.judged(t.Context(), e.key)
		}
		e.apply(*sts.Spec.UpdateStrategy.RollingUpdate.Partition, *sts.Spec.Replicas)
		now := &appsv1.StatefulSet{}
		s.Check("read", s.Client.Get(t.Context(), client.ObjectKeyFromObject(sts), now))
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
	gone := s.Pick(func(r *drill.Record) bool { return r.Died > mark })
	same(t, "gone", "", names(gone))
	same(t, "made", "", names(bornSince[*corev1.Pod](s, mark)))
	s.listed(t, other, all)
	s.carriedOn(t, native, held)
}

// carriedOn has the other implementation roll a set that Lockstep created, and end a rollout.
func (s *scene) carriedOn(t *testing.T, native, held *standinSet) {
	s.Check("serve webhooks alone", errors.Join(bed.Operator.Install(), bed.Operator.Start("--controllers=")))
	mark := s.Changes()
	native.keys = []string{native.key, native.key}
	native.set = native.become(native.set, `{"spec":{"leaderWorkerTemplate":{"workerTemplate":{"spec":{"terminationGracePeriodSeconds":null}}}}}`)
	native.record(2)
	native.keys = []string{native.key, native.key}
	native.apply(0, 2)
	native.tend()
	leaders := s.StatefulSet("native")
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
func (s *scene) listed(t *testing.T, other *standin.Other, all []*standinSet) {
	for _, e := range all {
		have, err := other.Revisions(t.Context(), e.set)
		s.Check("list revisions", err)
		want := map[string]int{e.key: 1 + int(e.leaked)}
		if e.name == "held" {
			want[e.keys[0]] = 1
		}
		same(t, "revisions of "+e.name, fmt.Sprint(want), fmt.Sprint(have))
	}
}
