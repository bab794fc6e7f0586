package pvc_test

import (
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"lockstep.dev/lockstep/api/config/v1alpha1"
	dsv1 "lockstep.dev/lockstep/api/disaggregatedset/v1"
	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/pvc"
	"lockstep.dev/lockstep/internal/pvc/workloads"
	"lockstep.dev/lockstep/test/expect"
	"lockstep.dev/lockstep/test/fakeapi"
)

func holdView(c *corev1.PersistentVolumeClaim, wants ...workloads.Want) pvc.HoldView {
	return pvc.HoldView{Claim: c, Mode: pvc.Hold, World: world(index(), wants...), Now: noon, Grace: pvc.Grace, Live: true}
}

// applied is the PVC after the verdict was carried out.
func applied(c *corev1.PersistentVolumeClaim, d pvc.HoldVerdict) *corev1.PersistentVolumeClaim {
	c = c.DeepCopy()
	for key, value := range d.Annotations {
		if c.Annotations[key] = value; value == "" {
			delete(c.Annotations, key)
		}
	}
	return c
}

// TestDecideHold checks the annotations of holds after the verdict. It is stable: deciding
// again changes nothing.
func TestDecideHold(t *testing.T) {
	const snapshot, until = "snapshot.storage.kubernetes.io/pvc-as-source-protection", "cooling until 2026-11-21T12:05:01Z: StatefulSet/db"
	const coolingValue = "cooling until 2026-11-21T12:05:00Z: StatefulSet/db"
	discards := func(s *appsv1.StatefulSet) {
		s.Spec.PersistentVolumeClaimRetentionPolicy = &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{WhenScaled: appsv1.DeletePersistentVolumeClaimRetentionPolicyType}
	}
	born := func(at time.Time) func(*appsv1.StatefulSet) {
		return func(s *appsv1.StatefulSet) { s.CreationTimestamp = metav1.NewTime(at) }
	}
	db, scaled, discarded := wantOf(statefulSet("db", 1)), wantOf(statefulSet("db", 0)), wantOf(statefulSet("db", 0, discards))
	none, older, younger := workloads.Want{}, wantOf(statefulSet("db", 1, born(noon.Add(-time.Hour)))), wantOf(statefulSet("db", 1, born(noon.Add(time.Hour))))
	finished := wantOf(&batchv1.Job{ObjectMeta: meta("job"), Spec: batchv1.JobSpec{Template: naming("data-db-0")}, Status: batchv1.JobStatus{
		Conditions: []batchv1.JobCondition{{Type: batchv1.JobComplete, Status: corev1.ConditionTrue}},
	}})
	bears := func(holders string) *corev1.PersistentVolumeClaim {
		return claim("data-db-0", annotated(pvc.HoldersAnnotation, holders))
	}
	held, cooling, plain := bears("StatefulSet/db"), bears(coolingValue), claim("data-db-0")
	intent := annotated(pvc.IntentAnnotation, "uid-data-db-0")
	at := func(now time.Time) func(*pvc.HoldView) { return func(v *pvc.HoldView) { v.Now = now } }
	mode := func(m pvc.Mode) func(*pvc.HoldView) { return func(v *pvc.HoldView) { v.Mode = m } }
	idle := func(i v1alpha1.IdlePolicy) func(*pvc.HoldView) { return func(v *pvc.HoldView) { v.World.Idle = i } }
	late := at(noon.Add(pvc.Grace + time.Second))
	ownerGone := func(v *pvc.HoldView) { v.World.OwnersGone = true; v.Claim.CreationTimestamp = metav1.NewTime(noon) }
	ending := func(v *pvc.HoldView) { v.NamespaceEnding = true }
	released := func(v *pvc.HoldView) { v.NamespaceReleased = true }
	user := func(v *pvc.HoldView) { v.World.Pods = index(pod("db-0", []string{"data-db-0"})) }
	waiting := func(v *pvc.HoldView) { v.World.Pods = index(pod("waiting", []string{"data-db-0"}, unbound)) }
	type edits = []func(*pvc.HoldView)
	for _, tt := range []struct {
		name     string
		claim    *corev1.PersistentVolumeClaim
		want     workloads.Want
		edits    edits
		state    pvc.State
		holders  string // HoldersAnnotation afterwards
		observed string // ObservedAnnotation afterwards
		delete   string // the reason of the deletion
	}{
		{"wanted", plain, db, nil, pvc.Held, "StatefulSet/db", "", ""},
		{"wanted, mode barrier", plain, db, edits{mode(pvc.Barrier)}, pvc.Held, "", "", ""},
		{"wanted, mode observe", plain, db, edits{mode(pvc.Observe)}, pvc.Held, "", "StatefulSet/db", ""},
		{"held, mode observe since", held, db, edits{mode(pvc.Observe)}, pvc.Held, "", "StatefulSet/db", ""},
		{"observed, mode hold since", claim("data-db-0", annotated(pvc.ObservedAnnotation, "StatefulSet/db")), db, nil, pvc.Held, "StatefulSet/db", "", ""},
		{"observed, not wanted since", claim("data-db-0", annotated(pvc.ObservedAnnotation, "StatefulSet/db")), none, edits{mode(pvc.Observe)}, pvc.Free, "", "", ""},
		{"unverified, and wanted", bears(pvc.Unverified), db, nil, pvc.Held, "StatefulSet/db", "", ""},
		{"unverified, and not wanted", bears(pvc.Unverified), none, nil, pvc.Free, "", "", ""},
		{"not wanted", plain, none, nil, pvc.Free, "", "", ""},
		{"an unscheduled pod", plain, none, edits{waiting}, pvc.Free, "", "", ""},
		{"the last holder is gone", held, none, nil, pvc.Cooling, until, "", ""},
		{"cooling", cooling, none, nil, pvc.Cooling, coolingValue, "", ""},
		{"cooling longer than the grace, by another clock", bears("cooling until 2027-11-21T12:05:00Z: StatefulSet/db"), none, nil, pvc.Cooling, until, "", ""},
		{"cooled", cooling, none, edits{late}, pvc.Free, "", "", ""},
		{"cooling, and wanted again", cooling, db, nil, pvc.Held, "StatefulSet/db", "", ""},
		{"scaled down", held, scaled, nil, pvc.Cooling, until, "", ""},
		{"scaled down, and discarded", held, discarded, nil, pvc.Free, "", "", ""},
		{"scaled down, and discarded, a pod was last", bears("Pod/db-0"), discarded, nil, pvc.Free, "", "", ""},
		{"scaled down, and discarded, others held it", bears("Deployment/web, StatefulSet/db"), discarded, nil, pvc.Free, "", "", ""},
		{"idle", plain, scaled, nil, pvc.Free, "", "StatefulSet/db (scaled to zero)", ""},
		{"idle, mode observe", plain, scaled, edits{mode(pvc.Observe)}, pvc.Free, "", "StatefulSet/db (scaled to zero)", ""},
		{"idle, mode barrier", plain, scaled, edits{mode(pvc.Barrier)}, pvc.Free, "", "", ""},
		{"idle frees", plain, scaled, edits{idle(v1alpha1.IdleFree)}, pvc.Free, "", "", ""},
		{"idle holds", plain, scaled, edits{idle(v1alpha1.IdleHold)}, pvc.Held, "StatefulSet/db", "", ""},
		{"idle holds, but not a finished job", plain, finished, edits{idle(v1alpha1.IdleHold)}, pvc.Free, "", "", ""},
		{"a finished job", plain, finished, nil, pvc.Free, "", "", ""},
		{"owner gone", held, none, edits{ownerGone}, pvc.Free, "", "", "OwnerGone"},
		{"owner gone, mode hold since", plain, none, edits{ownerGone}, pvc.Free, "", "", "OwnerGone"},
		{"owner gone, cooled", cooling, none, edits{late, ownerGone}, pvc.Free, "", "", "OwnerGone"},
		{"owner gone, an older workload", held, older, edits{ownerGone}, pvc.Held, "StatefulSet/db", "", ""},
		{"owner gone, a workload of the same second", held, wantOf(statefulSet("db", 1, born(noon))), edits{ownerGone}, pvc.Held, "StatefulSet/db", "", ""},
		{"owner gone, a younger workload", held, younger, edits{ownerGone}, pvc.Free, "", "", "OwnerGone"},
		{"owner gone, a younger workload and its pod", held, younger, edits{ownerGone, user}, pvc.Held, "Pod/db-0", "", ""},
		{"namespace ending", held, none, edits{ending}, pvc.Free, "", "", "NamespaceEnding"},
		{"namespace ending, mode hold since", plain, none, edits{ending}, pvc.Free, "", "", "NamespaceEnding"},
		{"namespace ending, and wanted", held, db, edits{ending}, pvc.Held, "StatefulSet/db", "", ""},
		{"namespace ending and released, and wanted", held, db, edits{ending, released}, pvc.Free, "", "", "NamespaceReleased"},
		{"namespace released, and wanted", held, db, edits{released}, pvc.Held, "StatefulSet/db", "", ""},
		{"delete-when-free, and wanted", claim("data-db-0", intent), db, nil, pvc.Held, "StatefulSet/db", "", ""},
		{"delete-when-free, cooling", applied(held, pvc.HoldVerdict{Annotations: map[string]string{pvc.IntentAnnotation: "uid-data-db-0"}}), none, nil, pvc.Cooling, until, "", ""},
		{"delete-when-free, and free", claim("data-db-0", intent), none, nil, pvc.Free, "", "", "DeleteWhenFree"},
		{"delete-when-free, and free, mode barrier", claim("data-db-0", intent), none, edits{mode(pvc.Barrier)}, pvc.Free, "", "", "DeleteWhenFree"},
		{"delete-when-free, an unscheduled pod", claim("data-db-0", intent), none, edits{waiting}, pvc.Free, "", "", ""},
		{"delete-when-free of another UID", claim("data-db-0", annotated(pvc.IntentAnnotation, "uid-before")), none, nil, pvc.Free, "", "", ""},
		{"terminating, and wanted", claim("data-db-0", dying), db, nil, pvc.Doomed, "", "", ""},
		{"terminating, and not wanted", claim("data-db-0", dying, intent), none, nil, pvc.Draining, "", "", ""},
		{"terminating, and held before", claim("data-db-0", dying, annotated(pvc.HoldersAnnotation, "StatefulSet/db")), db, nil, pvc.Doomed, "", "", ""},
		{"held by a user", claim("data-db-0", annotated(pvc.HoldAnnotation, "audit 7")), none, nil, pvc.Held, "Hold/data-db-0", "", ""},
		{"being copied", claim("data-db-0", finalizers(p, snapshot)), none, nil, pvc.Held, "Finalizer/" + snapshot, "", ""},
	} {
		v := holdView(tt.claim.DeepCopy(), tt.want)
		for _, edit := range tt.edits {
			edit(&v)
		}
		d := pvc.DecideHold(v)
		deletion := ""
		if d.Delete != nil {
			deletion = d.Delete.Code
		}
		after := applied(v.Claim, d)
		if d.State != tt.state || deletion != tt.delete || after.Annotations[pvc.HoldersAnnotation] != tt.holders || after.Annotations[pvc.ObservedAnnotation] != tt.observed {
			t.Errorf("%s: got %s, delete %q, annotations %v", tt.name, d.State, deletion, after.Annotations)
		}
		before := v.Claim
		v.Claim = after
		expect.Equalf(t, 0, len(pvc.DecideHold(v).Annotations), "%s: again", tt.name)
		// A cache may add a hold; only a live read ends one.
		v.Claim, v.Live = before, false
		cached := pvc.DecideHold(v)
		bore := before.Annotations[pvc.HoldersAnnotation] != "" && before.DeletionTimestamp == nil
		if ends := bore && tt.state != pvc.Held || tt.delete != ""; ends && (len(cached.Annotations) > 0 || cached.Delete != nil) && tt.holders != coolingValue {
			t.Errorf("%s: a cache ends the hold: %+v", tt.name, cached)
		}
		if tt.state == pvc.Held && v.Mode == pvc.Hold && (cached.NeedsLive || applied(before, cached).Annotations[pvc.HoldersAnnotation] != tt.holders) {
			t.Errorf("%s: a cache adds no hold: %+v", tt.name, cached)
		}
	}
}

func TestHoldsAreConfirmedHourly(t *testing.T) {
	v := holdView(claim("data-db-0"), wantOf(statefulSet("db", 1)))
	first := pvc.DecideHold(v)
	v.Claim = applied(v.Claim, first)
	v.Now = first.Next.Add(-time.Second)
	d := pvc.DecideHold(v)
	expect.That(t, len(d.Annotations) == 0 && d.Next.Equal(first.Next), "too early: %v, next %s", d.Annotations, d.Next)
	v.Now = noon.Add(time.Hour)
	expect.Equal(t, "2026-11-21T13:00:00Z", pvc.DecideHold(v).Annotations[pvc.VerifiedAnnotation])
	// PVCs that are held together are confirmed apart.
	minutes := map[int]int{}
	for i := range 1000 {
		c := claim("data-db-0", func(c *corev1.PersistentVolumeClaim) { c.UID = fakeUID(i) })
		in := pvc.DecideHold(holdView(c, wantOf(statefulSet("db", 1)))).Next.Sub(noon)
		minutes[int(in.Minutes())]++
		expect.Must(t, in <= time.Hour && in >= 45*time.Minute && minutes[int(in.Minutes())] <= 120,
			"confirmed in %s, with %d others", in, minutes[int(in.Minutes())])
	}
}

// Holders may come and go by the thousand: the names of a hold change slowly.
func TestAHoldIsRenamedSlowly(t *testing.T) {
	db, other := wantOf(statefulSet("db", 1)), wantOf(numberedDeployment("web", 0))
	other.Named = map[string]string{"data-db-0": "spec"}
	v := holdView(claim("data-db-0"), db)
	v.Claim = applied(v.Claim, pvc.DecideHold(v))
	v.World = world(index(), db, other)
	early := pvc.DecideHold(v)
	expect.That(t, len(early.Annotations) == 0 && !early.Next.After(noon.Add(time.Minute)),
		"at once: %v, next %s", early.Annotations, early.Next)
	v.Now = early.Next
	expect.Equalf(t, "Deployment/webaa, StatefulSet/db", applied(v.Claim, pvc.DecideHold(v)).Annotations[pvc.HoldersAnnotation], "its holders")
}

func TestOwnersGone(t *testing.T) {
	c := claim("data")
	for _, step := range []struct {
		add  string
		gone bool
	}{{"", false}, {"gone", true}, {"there", false}} {
		if step.add != "" {
			controlledBy("StatefulSet", fakeUID(len(step.add)))(c)
		}
		expect.Equalf(t, step.gone, pvc.OwnersGone(c, func(owner identity.Ref) bool { return owner.UID == fakeUID(len("gone")) }), "with %v", c.OwnerReferences)
	}
}

// The value stays below 1 KiB, also while the PVC cools, and counts the holders that it leaves out.
func TestHoldersAnnotationIsBounded(t *testing.T) {
	for length := 200; length < 250; length++ {
		var wants []workloads.Want
		for i := range 100 {
			wants = append(wants, wantOf(numberedDeployment(strings.Repeat("n", length), i)))
		}
		held := applied(claim("data"), pvc.DecideHold(holdView(claim("data"), wants...)))
		value := held.Annotations[pvc.HoldersAnnotation]
		expect.Must(t, strings.Contains(value, ", +9"), "it does not count the rest: %s", value)
		if value := pvc.DecideHold(holdView(held)).Annotations[pvc.HoldersAnnotation]; !strings.HasPrefix(value, "cooling until ") || len(value) >= 1024 {
			t.Fatalf("%d bytes: %s", len(value), value)
		}
	}
}

func numberedDeployment(name string, i int) *appsv1.Deployment {
	m := meta(name + string(rune('a'+i%26)) + string(rune('a'+i/26)))
	m.UID = fakeUID(i)
	return &appsv1.Deployment{ObjectMeta: m, Spec: appsv1.DeploymentSpec{Template: naming("data")}}
}

func TestParseHolders(t *testing.T) {
	for value, want := range map[string]pvc.HoldersValue{
		"StatefulSet/db, +3":                           {Names: "StatefulSet/db, +3"},
		"cooling until 2026-11-21T12:00:00Z: Pod/a":    {Names: "Pod/a", Until: noon},
		"cooling until tomorrow: Pod/a":                {Names: "cooling until tomorrow: Pod/a"},
		"cooling until 2026-11-21T12:00:00Z for Pod/a": {Names: "cooling until 2026-11-21T12:00:00Z for Pod/a"},
	} {
		got := pvc.ParseHolders(value)
		expect.Equalf(t, want, got, "%q", value)
		expect.Equal(t, value, got.String())
	}
}

func ending(w workloads.Want) workloads.Want {
	w.Ending = true
	return w
}

func owned(kind string, uid types.UID) func(*appsv1.StatefulSet) {
	return func(s *appsv1.StatefulSet) { controlledBy(kind, uid)(s) }
}

// A workload at the top of a chain of controllers holds; a chain that is being deleted does not.
func TestTheTopOfAChainHolds(t *testing.T) {
	set := &lwsv1.LeaderWorkerSet{ObjectMeta: meta("llama")}
	set.UID, set.Spec.Replicas, set.Spec.LeaderWorkerTemplate.Size = "uid-set", new(int32(2)), new(int32(3))
	set.Spec.LeaderWorkerTemplate.VolumeClaimTemplates = []corev1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: "data"}}}
	lws := workloads.GroupSize(func(*lwsv1.LeaderWorkerSet) int { return 0 }).OfLeaderWorkerSet(fakeapi.Untyped(set))
	leaders := wantOf(statefulSet("llama", 3, owned("LeaderWorkerSet", "uid-set")))
	workers := wantOf(statefulSet("llama-0", 2, owned("Pod", "uid-leader")))
	a, b := wantOf(statefulSet("a", 1, owned("StatefulSet", "uid-b"))), wantOf(statefulSet("b", 1, owned("StatefulSet", "uid-a")))
	const llama = "LeaderWorkerSet/llama"
	for _, tt := range []struct {
		name, claim       string
		wants             []workloads.Want
		held, idle, proof string
	}{
		{"a leader", "data-llama-1", []workloads.Want{lws, leaders}, llama, "", "spec.leaderWorkerTemplate.volumeClaimTemplates[data]"},
		{"a group of a surge", "data-llama-2", []workloads.Want{lws, leaders}, llama, llama, "spec.volumeClaimTemplates[data] of statefulset llama"},
		{"a worker, behind its leader pod", "data-llama-0-0", []workloads.Want{lws, leaders, workers}, llama, llama, "spec.volumeClaimTemplates[data] of statefulset llama-0"},
		{"the set is being deleted", "data-llama-0", []workloads.Want{ending(lws), leaders}, "", "", ""},
		{"the workload is being deleted", "data-llama-0", []workloads.Want{ending(leaders)}, "", "", ""},
		{"a ring", "data-a-0", []workloads.Want{a, b}, "StatefulSet/a", "", "spec.volumeClaimTemplates[data] of statefulset a"},
	} {
		w := world(index(), tt.wants...)
		w.Links = map[types.UID]types.UID{"uid-leader": "uid-llama"}
		held, idle := w.Holders(claim(tt.claim))
		expect.Equalf(t, tt.held, theNames(held), "%s: held by", tt.name)
		expect.Equalf(t, tt.idle, theNames(idle), "%s: idle", tt.name)
		if len(held) > 0 && held[0].Proof != tt.proof && tt.name != "a ring" {
			t.Errorf("%s: proof %q", tt.name, held[0].Proof)
		}
	}
}

// A PVC that a role names is held by the set of roles: before the role has a LeaderWorkerSet, and while that one has an
// older revision. Numbered PVCs are those of a LeaderWorkerSet.
func TestAClaimOfARoleIsHeldAtEveryMoment(t *testing.T) {
	none := workloads.GroupSize(func(*lwsv1.LeaderWorkerSet) int { return 0 })
	roles := func(replicas int32, claims ...string) workloads.Want {
		set := &dsv1.DisaggregatedSet{ObjectMeta: meta("chat")}
		for _, name := range claims {
			role := dsv1.DisaggregatedRole{Name: name, Spec: lwsv1.LeaderWorkerSetSpec{Replicas: &replicas}}
			role.Spec.LeaderWorkerTemplate.WorkerTemplate = naming(name)
			role.Spec.LeaderWorkerTemplate.LeaderTemplate = new(naming(name + "-of-leaders"))
			set.Spec.Roles = append(set.Spec.Roles, role)
		}
		return workloads.DisaggregatedSet.Of(fakeapi.Untyped(set))
	}
	child := func(replicas int32, claim string, owner types.UID) workloads.Want {
		set := &lwsv1.LeaderWorkerSet{ObjectMeta: meta("chat-0-1-prefill"), Spec: lwsv1.LeaderWorkerSetSpec{Replicas: &replicas}}
		set.Spec.LeaderWorkerTemplate.WorkerTemplate = naming(claim)
		set.Spec.LeaderWorkerTemplate.VolumeClaimTemplates = []corev1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: "data"}}}
		if owner != "" {
			controlledBy("DisaggregatedSet", owner)(set)
		}
		return none.OfLeaderWorkerSet(fakeapi.Untyped(set))
	}
	const chat, prefill, set = "DisaggregatedSet/chat", "LeaderWorkerSet/chat-0-1-prefill", types.UID("uid-chat")
	for _, tt := range []struct {
		name, claim string
		wants       []workloads.Want
		held, idle  string
	}{
		{"no role has a LeaderWorkerSet yet", "models", []workloads.Want{roles(2, "models", "cache")}, chat, ""},
		{"the second role", "cache-of-leaders", []workloads.Want{roles(2, "models", "cache")}, chat, ""},
		{"at rest", "models", []workloads.Want{roles(2, "models"), child(2, "models", set)}, chat, ""},
		{"a rollout that is paused names another: the next", "next", []workloads.Want{roles(2, "next"), child(2, "models", set)}, chat, ""},
		{"a rollout that is paused names another: the last", "models", []workloads.Want{roles(2, "next"), child(2, "models", set)}, chat, ""},
		{"a role at zero, another not", "models", []workloads.Want{roles(2, "models"), child(0, "models", set)}, chat, chat},
		{"all roles at zero", "models", []workloads.Want{roles(0, "models"), child(0, "models", set)}, "", chat},
		{"the set was deleted, its LeaderWorkerSet was not", "models", []workloads.Want{child(2, "models", set)}, prefill, ""},
		{"its LeaderWorkerSet was left behind", "models", []workloads.Want{child(2, "models", "")}, prefill, ""},
		{"the set is being deleted", "models", []workloads.Want{ending(roles(2, "models")), child(2, "models", set)}, "", ""},
		{"a numbered one", "data-chat-0-1-prefill-1", []workloads.Want{roles(2, "models"), child(2, "models", set)}, chat, ""},
		{"of another application", "others", []workloads.Want{roles(2, "models"), child(2, "models", set)}, "", ""},
	} {
		held, idle := world(index(), tt.wants...).Holders(claim(tt.claim))
		expect.Equalf(t, tt.held, theNames(held), "%s: held by", tt.name)
		expect.Equalf(t, tt.idle, theNames(idle), "%s: idle", tt.name)
	}
}

// A pod is not named beside its workload, nor a Job beside its CronJob. A CronJob that is
// suspended holds nothing; its Jobs and their pods do.
func TestTheAnnotationNamesTheHighestHolders(t *testing.T) {
	cron := func(name, by string, suspended bool) workloads.Want {
		c := &batchv1.CronJob{ObjectMeta: meta(name), Spec: batchv1.CronJobSpec{Suspend: &suspended}}
		c.Spec.JobTemplate.Spec.Template = naming("data")
		if by != "" {
			controlledBy("CronJob", types.UID("uid-"+by))(c)
		}
		return wantOf(c)
	}
	job := func(done corev1.ConditionStatus) workloads.Want {
		j := &batchv1.Job{ObjectMeta: meta("run"), Spec: batchv1.JobSpec{Template: naming("data")}}
		j.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobComplete, Status: done}}
		controlledBy("CronJob", "uid-nightly")(j)
		return wantOf(j)
	}
	db := func(replicas int32) workloads.Want {
		want := wantOf(statefulSet("run", replicas))
		want.Named = map[string]string{"data": "spec"}
		return want
	}
	run := pod("run-a", []string{"data"})
	const running, done = corev1.ConditionFalse, corev1.ConditionTrue
	for _, tt := range []struct {
		name  string
		wants []workloads.Want
		want  string
	}{
		{"a StatefulSet and its pod", []workloads.Want{db(1)}, "StatefulSet/run"},
		{"a StatefulSet at zero and its pod", []workloads.Want{db(0)}, "Pod/run-a"},
		{"a CronJob and its Job", []workloads.Want{cron("nightly", "", false), job(running)}, "CronJob/nightly"},
		{"a CronJob and its finished Job", []workloads.Want{cron("nightly", "", false), job(done)}, "CronJob/nightly"},
		{"a suspended CronJob and its Job", []workloads.Want{cron("nightly", "", true), job(running)}, "Job/run"},
		{"a suspended CronJob and its finished Job", []workloads.Want{cron("nightly", "", true), job(done)}, "Pod/run-a"},
		{"CronJobs in a ring, and a pod", []workloads.Want{cron("a", "b", false), cron("b", "a", false)}, "Pod/run-a"},
	} {
		v := holdView(claim("data"), tt.wants...)
		v.World.Pods = index(run)
		v.World.Links = map[types.UID]types.UID{run.UID: "uid-run"}
		expect.Equalf(t, tt.want, pvc.DecideHold(v).Annotations[pvc.HoldersAnnotation], "%s", tt.name)
	}
	ring := holdView(claim("data"), cron("a", "b", false), cron("b", "a", false))
	expect.Equalf(t, "CronJob/a, CronJob/b", pvc.DecideHold(ring).Annotations[pvc.HoldersAnnotation], "a ring of CronJobs")
}

// TestCarry checks the verb, the version, the reason and the events of each write, in order.
func TestCarry(t *testing.T) {
	db := wantOf(statefulSet("db", 1))
	stands := annotated(pvc.HoldersAnnotation, "StatefulSet/db")
	cooled := annotated(pvc.HoldersAnnotation, "cooling until 2026-11-21T11:00:00Z: StatefulSet/db")
	gone := holdView(claim("data-db-0", cooled))
	gone.World.OwnersGone = true
	none := pvc.TokenVerdict{}
	token := pvc.TokenVerdict{Annotations: map[string]string{pvc.ReleaseUntilAnnotation: "x"}, Until: noon, Granted: true}
	for _, tt := range []struct {
		name  string
		view  pvc.HoldView
		token pvc.TokenVerdict
		want  []string
	}{
		{"nothing", holdView(claim("data-db-0")), none, nil},
		{"held", holdView(claim("data-db-0"), db), none, []string{"annotate @7 InUse, Held"}},
		{"still held", holdView(claim("data-db-0", stands), db), none, []string{"annotate @7 InUse"}},
		{"cooling", holdView(claim("data-db-0", stands)), none, []string{"annotate @7 Cooling"}},
		{"cooled", holdView(claim("data-db-0", cooled)), none, []string{"annotate @7 Free, HoldEnded"}},
		{"cooled, and its owner is gone", gone, none, []string{"annotate @7 Free, HoldEnded", "delete @7 OwnerGone, OwnerGone"}},
		{"to be deleted", holdView(claim("data-db-0", annotated(pvc.IntentAnnotation, "uid-data-db-0"))), none, []string{"delete @7 DeleteWhenFree, DeleteWhenFree"}},
		{"terminating", holdView(claim("data-db-0", stands, dying), db), none, []string{"annotate @7 Draining"}},
		{"a token", holdView(claim("data-db-0")), token, []string{"annotate @7 ReleaseDated, ReleaseGranted"}},
		{"held, with a token", holdView(claim("data-db-0"), db), token, []string{"annotate @7 InUse, Held, ReleaseGranted"}},
	} {
		var got []string
		for _, a := range pvc.Carry(tt.view.Claim, pvc.DecideHold(tt.view), tt.token) {
			write := a.About().Verb + " @" + a.Target().ResourceVersion + " " + a.About().Because.Code
			for _, event := range a.About().Tell.Done {
				write += ", " + event.Reason
			}
			got = append(got, write)
		}
		expect.Equalf(t, tt.want, got, "%s", tt.name)
	}
}

func TestTellDoomed(t *testing.T) {
	d := pvc.DecideHold(holdView(claim("data-db-0", dying), wantOf(statefulSet("db", 1))))
	if event := pvc.TellDoomed(d); d.State != pvc.Doomed || !event.Warning || !strings.Contains(event.Note, "StatefulSet/db") || !strings.Contains(event.Note, "Retain") {
		t.Errorf("%s: %+v", d.State, event)
	}
}

// The annotations of a deleted PVC say how it was deleted, also when no operator ran at the time.
func TestTellLeft(t *testing.T) {
	held, cools := annotated(pvc.HoldersAnnotation, "StatefulSet/db"), annotated(pvc.HoldersAnnotation, "cooling until 2026-11-21T12:05:00Z: StatefulSet/db")
	released := annotated(pvc.ReleaseAnnotation, "uid-data-db-0")
	type edits = []func(*corev1.PersistentVolumeClaim)
	for _, tt := range []struct {
		name  string
		edits edits
		want  string
	}{
		{"no annotations", nil, ""},
		{"held, and released", edits{held, released}, "Released"},
		{"held, and another UID released", edits{held, annotated(pvc.ReleaseAnnotation, "other")}, ""},
		{"released, and not held", edits{released}, ""},
		{"cooling, and released", edits{cools, released}, "Released"},
		{"observed", edits{annotated(pvc.ObservedAnnotation, "StatefulSet/db (scaled to zero)")}, "DeletedInUse"},
	} {
		event, ok := pvc.TellLeft(claim("data-db-0", tt.edits...))
		if event.Reason != tt.want || ok != (tt.want != "") || ok && (!event.Warning || !strings.Contains(event.Note, "StatefulSet/db")) {
			t.Errorf("%s: %t, %+v", tt.name, ok, event)
		}
	}
}
