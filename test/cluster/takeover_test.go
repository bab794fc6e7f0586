package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/test/drill"
	"lockstep.dev/lockstep/test/expect"
	"lockstep.dev/lockstep/test/standin"
)

const appliedAnnotation = "lockstep.dev/applied"

// Lockstep takes the place of another implementation, at rest and in mid-rollout, and leaves again. Only
// the rollout replaces pods.
func TestTakeover(t *testing.T) {
	s := newScene(t)
	other := s.other(t)
	var all []*standinSet
	for _, v := range otherSets {
		all = append(all, s.found(other, v))
	}
	step := s.found(other, otherSet{name: "step", replicas: 4, size: 2, edit: budget(1, 0, 0)})
	surge := s.found(other, otherSet{name: "surge", replicas: 3, size: 2, edit: budget(0, 1, 0), spoil: standin.AsOf011, workers: standin.AsOf011})
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
	for _, e := range all {
		if e.unplaced { // else the delay is reported later, and that is one more write
			s.Until("the delay of set "+e.name+" is due", func() bool { return e.delayed() })
		}
	}
	same(t, "policy of the other", deleteClaims, s.StatefulSet(tiedClaims+"-0").Spec.PersistentVolumeClaimRetentionPolicy.WhenDeleted)
	before, mark, since := s.templates(), s.Changes(), bed.Position()
	s.RestartOperator()
	fewest := groups
	s.Eventually("the rollouts are finished", func() error {
		fewest = min(fewest, len(s.readyGroups(step.set)), len(s.readyGroups(surge.set)))
		return errors.Join(s.unsettled(step.set), s.unsettled(surge.set))
	})
	s.Check("groups ready at any time", drill.Lacking("at least 3", true, fewest >= 3))
	for _, e := range append(all, step, surge) {
		s.Until("Lockstep has noted that it applies the leaders of "+e.name, func() bool {
			sts := e.StatefulSet(e.name)
			return sts != nil && sts.Annotations[appliedAnnotation] != ""
		})
		if e.unplaced {
			s.Until("Lockstep reports that no node fits the pods of "+e.name, func() bool { return e.progress() == lws.CodeUnschedulable })
		}
	}
	outlast(t)
	t.Run("undisturbed", func(t *testing.T) { undisturbed(t, s, all, mark) })
	t.Run("few writes", func(t *testing.T) { fewWrites(t, s, all, since) })
	t.Run("rolled once", func(t *testing.T) {
		s.wantBorn(step.set.UID, mark, births{Pods: 6, StatefulSets: 3})
		s.wantBorn(surge.set.UID, mark, births{Pods: 6, StatefulSets: 3})
	})
	t.Run("templates", func(t *testing.T) { unchangedTemplates(t, s, before) })

	s.silentAfterARestart()

	for _, e := range all {
		switch e.name {
		case changedClaims:
			t.Run("changed claims", func(t *testing.T) { keepsItsClaims(t, e) })
		case tiedClaims:
			t.Run("restarts", func(t *testing.T) { restartsKeepClaims(t, e) })
		}
	}
	t.Run("handed back", func(t *testing.T) { handedBack(t, s, other, held, append(all, step, surge)) })
}

// other returns what stands in for another implementation. Lockstep serves its webhooks alone until it is restarted, and
// is whole again when the test ends.
func (s *scene) other(t *testing.T) *standin.Other {
	other, err := standin.New(bed.Rest)
	s.Check("stand in", err)
	s.Check("serve webhooks alone", errors.Join(bed.Operator.Kill(), bed.Operator.Start("--controllers=")))
	t.Cleanup(func() {
		_ = bed.Operator.Kill()
		must(t, errors.Join(bed.Operator.Install(), bed.Operator.Start()))
	})
	return other
}

// roll gives a set another template, for the groups from the partition on.
func (e *standinSet) roll(partition int, groups int) {
	e.set = e.become(e.set, pull(imageB))
	e.record(2)
	e.apply(int32(len(e.keys)), int32(groups))
	e.keys = append(e.keys[:partition:partition], slices.Repeat([]string{e.key}, groups-partition)...)
	if partition < int(e.replicas) {
		e.apply(int32(partition), int32(groups))
	}
	e.tend()
	e.tell(int32(groups-partition), true)
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
			case "set-owner PersistentVolumeClaim":
				owners++
			default:
				e.Errorf("set %s: the plan says %s %s %s for %s", e.name, a.Verb, a.Object.Kind, a.Object.Name, a.Reason)
			}
		}
	}
	expect.That(e, e.tied() == (owners > 0) && e.tied() != (leaders > 0),
		"set %s: the plan applies %d StatefulSets and writes the owners of %d PVCs", e.name, leaders, owners)
}

// keepsItsClaims scales a set whose spec names other PVCs than its StatefulSet. The new group has those of
// the StatefulSet, and a condition reports it.
func keepsItsClaims(t *testing.T, e *standinSet) {
	told := meta.FindStatusCondition(e.awaitSettled(e.set).Status.Conditions, lws.CodeVolumeClaimsDiffer)
	expect.That(t, told != nil && told.Status == metav1.ConditionTrue, "the user is told %+v", told)
	e.prints(lws.CodeVolumeClaimsDiffer, "status", e.name)
	before := e.podsOf(e.set)[0].UID
	e.awaitSettled(e.become(e.set, `{"spec":{"replicas":2}}`))
	for _, pod := range e.podsOf(e.set) {
		same(t, "claim of pod "+pod.Name, claimPrefix+pod.Name, pod.Spec.Volumes[0].PersistentVolumeClaim.ClaimName)
		if pod.Name == e.name+"-0" {
			same(t, "UID of pod "+pod.Name, before, pod.UID)
		}
	}
}

// restartsKeepClaims restarts the groups of a set whose worker StatefulSets deleted their PVCs with them.
func restartsKeepClaims(t *testing.T, e *standinSet) {
	before := e.Claims()
	for index := range e.replicas {
		workers := e.StatefulSet(fmt.Sprintf("%s-%d", e.name, index))
		same(t, "policy of "+workers.Name, keepClaims, workers.Spec.PersistentVolumeClaimRetentionPolicy.WhenDeleted)
		e.restartGroup(e.set, workers.Name)
	}
	now := e.Claims()
	for _, pod := range e.podsOf(e.set) {
		name := claimPrefix + pod.Name
		same(t, "UID of PVC "+name, before[name].UID, now[name].UID)
	}
}

// tied reports whether PVCs are deleted with the set. The set then owns them.
func (e *standinSet) tied() bool {
	policy := e.set.Spec.LeaderWorkerTemplate.PersistentVolumeClaimRetentionPolicy
	return policy != nil && policy.WhenDeleted == appsv1.DeletePersistentVolumeClaimRetentionPolicyType
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
		expect.That(t, writes <= allowed,
			"%d writes to %s, at most %d are needed; %d were refused", writes, object, allowed, refused[object])
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
	native.set = s.settled(s.newSet("native", 2, 2, imageA, func(set *lwsv1.LeaderWorkerSet) {
		set.Spec.LeaderWorkerTemplate.WorkerTemplate.Spec.TerminationGracePeriodSeconds = new(int64(7))
	}))
	native.key = s.revision(native.set).Labels[lwsv1.RevisionKey]
	all = append(all, native)

	mark, before := s.Changes(), s.templates()
	s.uninstalled()
	for _, e := range all {
		s.Check("read", s.Client.Get(t.Context(), client.ObjectKeyFromObject(e.set), e.set))
		sts := s.StatefulSet(e.name)
		// The version that made the one knows no such field; the other was never applied.
		if e.name != "no-policy-type" && e.name != changedClaims {
			e.judged()
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
	// A client finds by a set's name the current revision, and former ones that groups run.
	for _, e := range all {
		have, err := other.Revisions(t.Context(), e.set)
		s.Check("list revisions", err)
		want := map[string]int{e.key: 1 + int(e.leaked)}
		if e.name == "held" {
			want[e.keys[0]] = 1
		}
		same(t, "revisions of "+e.name, want, have)
	}
	s.carriedOn(t, native, held)
}

// carriedOn has the other implementation roll a set that Lockstep created, and end a rollout.
func (s *scene) carriedOn(t *testing.T, native, held *standinSet) {
	s.Check("serve webhooks alone", errors.Join(bed.Operator.Install(), bed.Operator.Start("--controllers=")))
	mark := s.Changes()
	native.set = native.become(native.set, `{"spec":{"leaderWorkerTemplate":{"workerTemplate":{"spec":{"terminationGracePeriodSeconds":null}}}}}`)
	native.record(2)
	native.keys = []string{native.key, native.key}
	native.apply(0, 2)
	native.tend()
	leaders := s.StatefulSet("native")
	same(t, "what Lockstep had set and the other leaves out", int64(30), *leaders.Spec.Template.Spec.TerminationGracePeriodSeconds)

	held.set = held.become(held.set, unpartitioned)
	held.judged()
	held.keys[0] = held.key
	held.apply(0, 3)
	held.tend()
	s.wantBorn(held.set.UID, mark, births{Pods: 2, StatefulSets: 1})
	s.wantBorn(native.set.UID, mark, births{Pods: 4, StatefulSets: 2, Revisions: 1})
}

// otherSet is a set that another implementation has created, at rest.
type otherSet struct {
	name     string
	replicas int32
	size     int32
	edit     edit
	// data is how an earlier version encodes the data of a revision.
	data func(string) string
	// key is the key of the revision, if it is not the hash of its data.
	key string
	// spoil changes the leader StatefulSet as an earlier version or a webhook does.
	spoil standin.Change
	// workers changes the worker StatefulSets likewise.
	workers standin.Change
	// posted is set if the leader StatefulSet was created, not applied.
	posted bool
	// leaked is how many copies of the revision exist.
	leaked int64
	// unplaced is set if no node fits the pods.
	unplaced bool
}

const (
	hostname      = "kubernetes.io/hostname"
	changedClaims = "changed-claims"
	tiedClaims    = "claims" // whose worker StatefulSets delete their PVCs
)

var otherSets = []otherSet{
	{name: "plain", replicas: 2, size: 2, edit: func(set *lwsv1.LeaderWorkerSet) {
		set.Labels, set.Annotations = map[string]string{"team": "blue"}, map[string]string{"note": "mine"}
	}},
	{name: "leader-template", replicas: 2, size: 3, edit: func(set *lwsv1.LeaderWorkerSet) {
		leader := template(imageA)
		leader.Labels = map[string]string{"role": "leader"}
		leader.Spec.Containers[0].Args = []string{"a<b>&c"}
		leader.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 8080}}
		leader.Spec.Volumes = []corev1.Volume{{Name: "shm", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory}}}}
		set.Spec.LeaderWorkerTemplate.LeaderTemplate = &leader
		set.Spec.LeaderWorkerTemplate.RestartPolicy = lwsv1.RecreateGroupAfterStart
	}},
	{name: "alone", replicas: 2, size: 1},
	{name: "subgroups", replicas: 1, size: 4, edit: partsOf(2, lwsv1.SubGroupPolicyTypeLeaderWorker)},
	{name: "leader-excluded", replicas: 1, size: 3, edit: partsOf(2, lwsv1.SubGroupPolicyTypeLeaderExcluded)},
	{name: "exclusive", replicas: 2, size: 2, edit: annotated(lwsv1.ExclusiveKeyAnnotationKey, hostname)},
	{name: "exclusive-subgroups", replicas: 1, size: 2, edit: together(
		partsOf(1, lwsv1.SubGroupPolicyTypeLeaderWorker), annotated(lwsv1.SubGroupExclusiveKeyAnnotationKey, hostname))},
	{name: "placed-by-template", replicas: 1, size: 2, edit: func(set *lwsv1.LeaderWorkerSet) { // its leader alone is
		set.Spec.LeaderWorkerTemplate.WorkerTemplate.Annotations = map[string]string{lwsv1.ExclusiveKeyAnnotationKey: hostname}
	}},
	{name: "per-replica", replicas: 2, size: 2, edit: uniquePerReplica},
	{name: tiedClaims, replicas: 2, size: 3, edit: volumes(deleteClaims, keepClaims)},
	{name: "tpu", replicas: 1, size: 2, unplaced: true, edit: func(set *lwsv1.LeaderWorkerSet) {
		set.Spec.LeaderWorkerTemplate.WorkerTemplate.Spec.Containers[0].Resources.Limits = corev1.ResourceList{"google.com/tpu": resource.MustParse("4")}
	}},
	{name: "leader-ready", replicas: 2, size: 2, edit: func(set *lwsv1.LeaderWorkerSet) { set.Spec.StartupPolicy = lwsv1.LeaderReadyStartupPolicy }},
	{name: "leaked", replicas: 1, size: 2, leaked: 3},

	// What earlier versions left.
	{name: "null-times", replicas: 1, size: 2, data: func(data string) string {
		return strings.ReplaceAll(data, `"metadata":{}`, `"metadata":{"creationTimestamp":null}`)
	}},
	{name: "no-policy-type", replicas: 1, size: 4, edit: partsOf(2, lwsv1.SubGroupPolicyTypeLeaderWorker),
		data: func(data string) string { return strings.ReplaceAll(data, `"subGroupPolicyType":"LeaderWorker",`, "") },
		spoil: func(sts *appsv1.StatefulSet) {
			delete(sts.Spec.Template.Annotations, lwsv1.SubGroupPolicyTypeAnnotationKey)
		}},
	{name: "no-network", replicas: 1, size: 2, data: func(data string) string {
		head, _, _ := strings.Cut(data, `,"networkConfig"`)
		return head + "}}"
	}},
	{name: "other-key", replicas: 1, size: 2, key: "0d1e2f"},
	{name: "posted", replicas: 1, size: 2, posted: true},
	{name: "other-claims", replicas: 1, size: 1, edit: volumes(deleteClaims, keepClaims), spoil: func(sts *appsv1.StatefulSet) {
		claim := &sts.Spec.VolumeClaimTemplates[0]
		claim.TypeMeta, claim.Namespace = metav1.TypeMeta{}, ""
	}},
	// The other took a change of the claims, and no StatefulSet did.
	{name: changedClaims, replicas: 1, size: 1,
		edit: func(set *lwsv1.LeaderWorkerSet) {
			volumes(deleteClaims, keepClaims)(set)
			set.Spec.LeaderWorkerTemplate.VolumeClaimTemplates[0].Name = "cache"
		},
		data:  func(data string) string { return strings.ReplaceAll(data, `"name":"cache"`, `"name":"data"`) },
		spoil: func(sts *appsv1.StatefulSet) { sts.Spec.VolumeClaimTemplates[0].Name = "data" }},
	{name: "mirrored", replicas: 1, size: 2, spoil: func(sts *appsv1.StatefulSet) {
		sts.Spec.Template.Spec.Containers[0].Image = "mirror.example/serve:a"
		sts.Spec.Template.Spec.Containers = append(sts.Spec.Template.Spec.Containers, corev1.Container{Name: "sidecar", Image: imageA})
	}},
	{name: "later", replicas: 1, size: 2, spoil: func(sts *appsv1.StatefulSet) {
		sts.Spec.Template.Annotations["leaderworkerset.sigs.k8s.io/of-a-later-version"] = "x"
	}},
	{name: "v11", replicas: 2, size: 2, spoil: standin.AsOf011, workers: standin.AsOf011},
	{name: "v11-per-replica", replicas: 2, size: 2, edit: uniquePerReplica, spoil: standin.AsOf011, workers: standin.AsOf011},
}

// standinSet is such a set in a scene, with its objects.
type standinSet struct {
	otherSet
	*scene
	other *standin.Other
	set   *lwsv1.LeaderWorkerSet
	key   string
	// keys are what the groups run, by index.
	keys []string
}

// found creates a set and its objects.
func (s *scene) found(other *standin.Other, v otherSet) *standinSet {
	e := &standinSet{otherSet: v, scene: s, other: other}
	e.set = s.newSet(v.name, v.replicas, v.size, imageA, v.edit)
	s.Create(e.set)
	e.record(1)
	e.keys = slices.Repeat([]string{e.key}, int(v.replicas))
	if e.posted {
		e.Check("create the leaders of set "+e.name, other.PostLeaders(s.Context(), e.set, e.key, v.replicas, e.spoil))
	} else {
		e.apply(0, v.replicas)
	}
	if *e.set.Spec.NetworkConfig.SubdomainPolicy == lwsv1.SubdomainShared {
		e.Check("create the service of set "+e.name, other.Serve(s.Context(), e.set))
	}
	return e
}

// record creates the revision of the set as it is now.
func (e *standinSet) record(number int64) {
	data := string(standin.Data(e.set))
	if e.data != nil {
		data = e.data(data)
	}
	if e.key = e.otherSet.key; e.key == "" {
		e.key = standin.Key([]byte(data))
	}
	for n := range e.leaked + 1 {
		e.Check("record the revision of set "+e.name, e.other.Record(e.Context(), e.set, []byte(data), e.key, number+n))
	}
}

func (e *standinSet) apply(partition, replicas int32) {
	if e.set.Spec.GroupIdentity == lwsv1.HashGroupIdentity {
		e.Check("apply the leaders of set "+e.name, e.other.ApplyLeaderDeployment(e.Context(), e.set, e.key))
		return
	}
	e.Check("apply the leaders of set "+e.name, e.other.ApplyLeaders(e.Context(), e.set, e.key, partition, replicas, e.spoil))
}

// tend creates the workers and the Service of every group whose leader has its revision.
func (e *standinSet) tend() {
	e.Eventually("the groups of set "+e.name+" stand", func() error {
		for i, key := range e.keys {
			if err := e.tendGroup(i, key); err != nil {
				return fmt.Errorf("group %d: %w", i, err)
			}
		}
		return e.standing()
	})
}

func (e *standinSet) tendGroup(index int, key string) error {
	name := fmt.Sprintf("%s-%d", e.name, index)
	leader := e.Pod(name)
	if leader == nil || leader.DeletionTimestamp != nil || leader.Labels[lwsv1.RevisionKey] != key {
		return fmt.Errorf("no leader at %s yet", key)
	}
	if e.set.Spec.StartupPolicy == lwsv1.LeaderReadyStartupPolicy && !drill.PodReady(leader) {
		return fmt.Errorf("the leader is not ready")
	}
	if there := e.Service(name); there == nil && leader.Annotations[lwsv1.SubdomainPolicyAnnotationKey] != "" {
		return errors.Join(e.other.ServeGroup(e.Context(), e.set, leader), drill.ErrStill)
	}
	if e.size == 1 {
		return nil
	}
	if sts := e.StatefulSet(name); sts != nil {
		return drill.Lacking("owner of the workers", leader.UID, metav1.GetControllerOf(sts).UID)
	}
	domain := ""
	if e.set.Annotations[lwsv1.ExclusiveKeyAnnotationKey] != "" {
		if domain = leader.Spec.NodeName; domain == "" { // a node's hostname label is its name
			return fmt.Errorf("the leader is not scheduled")
		}
	}
	return errors.Join(e.other.MakeWorkers(e.Context(), e.set, leader, domain, e.workers), drill.ErrStill)
}

// standing returns what the pods and StatefulSets of the set lack.
func (e *standinSet) standing() error {
	pods := e.podsOf(e.set)
	if err := drill.Lacking("pods", len(e.keys)*int(e.size), len(pods)); err != nil {
		return err
	}
	for _, pod := range pods {
		if !e.unplaced && !drill.PodReady(pod) || pod.DeletionTimestamp != nil {
			return fmt.Errorf("pod %s is not ready", pod.Name)
		}
	}
	for _, sts := range e.leadersAndWorkers() {
		if sts.Status.ObservedGeneration != sts.Generation || sts.Status.Replicas != *sts.Spec.Replicas ||
			!e.unplaced && sts.Status.AvailableReplicas != *sts.Spec.Replicas {
			return fmt.Errorf("statefulset %s has status %+v", sts.Name, sts.Status)
		}
	}
	return nil
}

func (e *standinSet) leadersAndWorkers() []*appsv1.StatefulSet {
	return slices.DeleteFunc(e.StatefulSets(), func(sts *appsv1.StatefulSet) bool {
		return sts.Labels[lwsv1.SetNameLabelKey] != e.name
	})
}

// tell writes the status as the other implementation does.
func (e *standinSet) tell(updated int32, updating bool) {
	e.Check("read of set "+e.name, e.Client.Get(e.Context(), client.ObjectKeyFromObject(e.set), e.set))
	ready := int32(len(e.keys))
	if e.unplaced {
		ready = 0
	}
	var conditions []metav1.Condition
	tell := func(kind lwsv1.LeaderWorkerSetConditionType, holds bool, reason, message string) {
		status := map[bool]metav1.ConditionStatus{true: metav1.ConditionTrue, false: metav1.ConditionFalse}[holds]
		meta.SetStatusCondition(&conditions, metav1.Condition{Type: string(kind), Status: status, Reason: reason, Message: message, ObservedGeneration: e.set.Generation})
	}
	tell(lwsv1.LeaderWorkerSetProgressing, updating || e.unplaced, "GroupsProgressing", "Replicas are progressing")
	if !e.unplaced {
		tell(lwsv1.LeaderWorkerSetAvailable, !updating, "AllGroupsReady", "All replicas are ready")
	}
	if updating {
		tell(lwsv1.LeaderWorkerSetUpdateInProgress, true, "GroupsUpdating", "Rolling Upgrade is in progress")
	}
	e.Check("tell the status of set "+e.name, e.other.Tell(e.Context(), e.set, lwsv1.LeaderWorkerSetStatus{
		Conditions: conditions, ReadyReplicas: ready, UpdatedReplicas: updated, Replicas: int32(len(e.keys)), ObservedGeneration: e.set.Generation,
		HPAPodSelector: fmt.Sprintf("%s=%s,%s=0", lwsv1.SetNameLabelKey, e.name, lwsv1.WorkerIndexLabelKey),
	}))
}

// delayed reports whether each pod of the set has lacked a node for long enough to be reported.
func (e *standinSet) delayed() bool {
	return !slices.ContainsFunc(e.podsOf(e.set), func(pod *corev1.Pod) bool {
		code, from := lws.PodDelay(pod)
		return code == "" || time.Now().Before(from)
	})
}

// progress returns the reason of the condition Progressing.
func (e *standinSet) progress() string {
	e.Check("read of set "+e.name, e.Client.Get(e.Context(), client.ObjectKeyFromObject(e.set), e.set))
	if told := meta.FindStatusCondition(e.set.Status.Conditions, string(lwsv1.LeaderWorkerSetProgressing)); told != nil {
		return told.Reason
	}
	return ""
}

// judged checks that the other implementation finds the revision of the set current.
func (e *standinSet) judged() {
	have, err := e.other.Judge(e.Context(), e.set)
	e.Check("judge the revision of set "+e.name, err)
	e.Check("set "+e.name, drill.Lacking("current revision", e.key, have))
}

// Leaders wait for the gate of another implementation to be lifted. Lockstep lifts it from the same pods; and
// "uninstall" lifts the gate that Lockstep itself has set, since no other program may do it.
func TestTakeoverOfGatedLeaders(t *testing.T) {
	s := newScene(t)
	other := s.other(t)
	webhook := s.gateCreated(lwsv1.WorkerIndexLabelKey, "0", lwsv1.GroupReplacementGate)
	e := s.found(other, otherSet{name: "a", replicas: 2, size: 2, spoil: standin.AsOf011, workers: standin.AsOf011})
	s.Eventually("both leaders wait", func() error {
		return errors.Join(s.waitsForGroup("a-0"), s.waitsForGroup("a-1"))
	})
	before := s.UIDs()
	s.Remove(webhook)

	s.RestartOperator()
	s.awaitSettled(e.set)
	for _, leader := range []string{"a-0", "a-1"} {
		same(t, "UID of leader "+leader, before[leader], s.UIDs()[leader])
	}

	old, kept := s.Pod("a-0"), s.keep("a-0-1")
	s.Remove(old)
	s.Eventually("the next leader waits for a worker of the former one", func() error {
		if now := s.Pod("a-0"); now == nil || now.UID == old.UID {
			return drill.ErrStill
		}
		return s.waitsForGroup("a-0")
	})
	keyed := s.newSet("k", 2, 2, imageA, withKeys, slowly("60s"))
	s.Create(keyed)
	s.Remove(s.awaitKeyed(keyed)[0])
	s.Until("a leader with a key waits for the group that ends", func() bool { return slices.ContainsFunc(s.leadersOf(keyed), isGated) })
	next := s.UIDs()
	s.uninstalled()
	s.Eventually("the next leader is scheduled", func() error {
		return drill.Lacking("scheduled", true, s.Pod("a-0").Spec.NodeName != "")
	})
	s.Until("no leader with a key waits", func() bool { return !slices.ContainsFunc(s.leadersOf(keyed), isGated) })
	for _, pod := range []string{"a-0", "a-1", "a-1-1"} {
		same(t, "UID of pod "+pod, next[pod], s.UIDs()[pod])
	}
	s.Patch(kept, `{"metadata":{"finalizers":null}}`)
}

func isGated(pod *corev1.Pod) bool { return hasGate(pod, lwsv1.GroupReplacementGate) }

// waitsForGroup returns an error unless a leader has the gate of its group, and no node.
func (s *scene) waitsForGroup(leader string) error {
	pod := s.Pod(leader)
	if pod == nil {
		return drill.ErrStill
	}
	return errors.Join(drill.Lacking("gate of "+leader, true, hasGate(pod, lwsv1.GroupReplacementGate)), drill.Lacking("node of "+leader, "", pod.Spec.NodeName))
}
