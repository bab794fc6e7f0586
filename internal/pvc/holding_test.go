package pvc_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/pvc"
	"lockstep.dev/lockstep/internal/pvc/workloads"
)

func holdView(c *corev1.PersistentVolumeClaim, wants ...workloads.Want) pvc.HoldView {
	return pvc.HoldView{Claim: c, Mode: pvc.Hold, World: world(index(), wants...), Now: noon, Grace: pvc.Grace, Live: true}
}

// applied is the claim as it is after the verdict was carried out.
func applied(c *corev1.PersistentVolumeClaim, d pvc.HoldVerdict) *corev1.PersistentVolumeClaim {
	c = c.DeepCopy()
	for key, value := range d.Annotations {
		if value == "" {
			delete(c.Annotations, key)
			continue
		}
		c.Annotations[key] = value
	}
	return c
}

func TestDecideHold(t *testing.T) {
	db := wantOf(statefulSet("db", 1))
	scaled := wantOf(statefulSet("db", 0))
	deletes := wantOf(statefulSet("db", 0, func(s *appsv1.StatefulSet) {
		s.Spec.PersistentVolumeClaimRetentionPolicy = &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{
			WhenDeleted: appsv1.DeletePersistentVolumeClaimRetentionPolicyType, WhenScaled: appsv1.DeletePersistentVolumeClaimRetentionPolicyType,
		}
	}))
	held := annotated(pvc.HoldersAnnotation, "StatefulSet/db")
	const coolingValue = "cooling until 2026-11-21T12:05:00Z: StatefulSet/db"
	cooling := annotated(pvc.HoldersAnnotation, coolingValue)
	intent := annotated(pvc.IntentAnnotation, "uid-data-db-0")
	at := func(now time.Time) func(*pvc.HoldView) { return func(v *pvc.HoldView) { v.Now = now } }
	ownerGone := func(v *pvc.HoldView) { v.World.OwnersGone = true }
	mode := func(m pvc.Mode) func(*pvc.HoldView) { return func(v *pvc.HoldView) { v.Mode = m } }
	late := at(noon.Add(pvc.Grace + time.Second))
	edit := func(edits ...func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
		return claim("data-db-0", edits...)
	}
	type edits = []func(*pvc.HoldView)
	tests := []struct {
		name   string
		claim  *corev1.PersistentVolumeClaim
		want   workloads.Want
		edits  edits
		state  pvc.State
		says   string // HoldersAnnotation afterwards
		delete bool
	}{
		{"wanted", edit(), db, nil, pvc.Held, "StatefulSet/db", false},
		{"wanted, mode barrier", edit(), db, edits{mode(pvc.Barrier)}, pvc.Held, "", false},
		{"wanted, mode turned down", edit(held), db, edits{mode(pvc.Observe)}, pvc.Held, "", false},
		{"nobody looked yet, and wanted", edit(annotated(pvc.HoldersAnnotation, pvc.Unverified)), db, nil, pvc.Held, "StatefulSet/db", false},
		{"nobody looked yet, and not wanted", edit(annotated(pvc.HoldersAnnotation, pvc.Unverified)), workloads.Want{}, nil, pvc.Free, "", false},
		{"never wanted", edit(), workloads.Want{}, nil, pvc.Free, "", false},
		{"the last holder went", edit(held), workloads.Want{}, nil, pvc.Cooling, "cooling until 2026-11-21T12:05:01Z: StatefulSet/db", false},
		{"cooling", edit(cooling), workloads.Want{}, nil, pvc.Cooling, coolingValue, false},
		{"cooling for longer than the grace, by another clock", edit(annotated(pvc.HoldersAnnotation, "cooling until 2027-11-21T12:05:00Z: StatefulSet/db")),
			workloads.Want{}, nil, pvc.Cooling, "cooling until 2026-11-21T12:05:01Z: StatefulSet/db", false},
		{"cooled", edit(cooling), workloads.Want{}, edits{late}, pvc.Free, "", false},
		{"cooling, and wanted again", edit(cooling), db, nil, pvc.Held, "StatefulSet/db", false},
		{"scaled down, to be kept", edit(held), scaled, nil, pvc.Cooling, "cooling until 2026-11-21T12:05:01Z: StatefulSet/db", false},
		{"scaled down, to be deleted", edit(held), deletes, nil, pvc.Free, "", false},
		{"scaled down, to be deleted, its pod the last one", edit(annotated(pvc.HoldersAnnotation, "Pod/db-0")), deletes, nil, pvc.Free, "", false},
		{"scaled down, to be deleted, and others held it", edit(annotated(pvc.HoldersAnnotation, "Deployment/web, StatefulSet/db")), deletes, nil,
			pvc.Free, "", false},
		{"its owner is gone, and it is held", edit(held), workloads.Want{}, edits{ownerGone}, pvc.Free, "", true},
		{"its owner is gone, and an older workload wants it", edit(held), db, edits{ownerGone}, pvc.Held, "StatefulSet/db", false},
		{"cooled, and its owner is gone", edit(cooling), workloads.Want{}, edits{late, ownerGone}, pvc.Free, "", true},
		{"its owner is gone, and the hold is off", edit(), workloads.Want{}, edits{ownerGone}, pvc.Free, "", true},
		{"the namespace is being deleted", edit(held), workloads.Want{}, edits{func(v *pvc.HoldView) { v.NamespaceEnding = true }}, pvc.Free, "", true},
		{"the namespace is being deleted, and the hold is off", edit(), workloads.Want{}, edits{func(v *pvc.HoldView) { v.NamespaceEnding = true }}, pvc.Free, "", true},
		{"the namespace is being deleted, and it is wanted", edit(held), db, edits{func(v *pvc.HoldView) { v.NamespaceEnding = true }}, pvc.Held, "StatefulSet/db", false},
		{"to be deleted when free, and wanted", edit(intent), db, nil, pvc.Held, "StatefulSet/db", false},
		{"to be deleted when free, cooling", edit(intent, held), workloads.Want{}, nil, pvc.Cooling, "cooling until 2026-11-21T12:05:01Z: StatefulSet/db", false},
		{"to be deleted when free, and free", edit(intent), workloads.Want{}, nil, pvc.Free, "", true},
		{"another life was to be deleted", edit(annotated(pvc.IntentAnnotation, "uid-before")), workloads.Want{}, nil, pvc.Free, "", false},
		{"terminating, and wanted", edit(dying), db, nil, pvc.Doomed, "", false},
		{"terminating, and not wanted", edit(dying, intent), workloads.Want{}, nil, pvc.Draining, "", false},
		{"terminating, and held before", edit(dying, held), db, nil, pvc.Doomed, "", false},
		{"held in words", edit(annotated(pvc.HoldAnnotation, "audit 7")), workloads.Want{}, nil, pvc.Held, "Hold/data-db-0", false},
		{"being copied", edit(finalizers(p, "snapshot.storage.kubernetes.io/pvc-as-source-protection")), workloads.Want{}, nil, pvc.Held, "Finalizer/snapshot.storage.kubernetes.io/pvc-as-source-protection", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			v := holdView(tt.claim, tt.want)
			for _, e := range tt.edits {
				e(&v)
			}
			d := pvc.DecideHold(v)
			if d.State != tt.state || (d.Delete != nil) != tt.delete {
				t.Errorf("got %s and delete %t, want %s and %t", d.State, d.Delete != nil, tt.state, tt.delete)
			}
			v.Claim = applied(tt.claim, d)
			if diff := cmp.Diff(tt.says, v.Claim.Annotations[pvc.HoldersAnnotation]); diff != "" {
				t.Errorf("says (-want +got):\n%s", diff)
			}
			if again := pvc.DecideHold(v); len(again.Annotations) > 0 {
				t.Errorf("once more: %v", again.Annotations)
			}
		})
	}
}

func TestAHoldIsConfirmedNowAndThen(t *testing.T) {
	v := holdView(claim("data-db-0"), wantOf(statefulSet("db", 1)))
	first := pvc.DecideHold(v)
	v.Claim = applied(v.Claim, first)
	v.Now = first.Next.Add(-time.Second)
	if d := pvc.DecideHold(v); len(d.Annotations) > 0 || !d.Next.Equal(first.Next) {
		t.Errorf("written again too early: %v, next %s", d.Annotations, d.Next)
	}
	v.Now = noon.Add(time.Hour)
	if d := pvc.DecideHold(v); d.Annotations[pvc.VerifiedAnnotation] != "2026-11-21T13:00:00Z" {
		t.Errorf("not confirmed: %v", d.Annotations)
	}
}

// Claims that are held together are not all confirmed together.
func TestHoldsAreConfirmedApart(t *testing.T) {
	minutes := map[int]int{}
	for i := range 1000 {
		c := claim("data-db-0", func(c *corev1.PersistentVolumeClaim) { c.UID = fakeUID(i) })
		in := pvc.DecideHold(holdView(c, wantOf(statefulSet("db", 1)))).Next.Sub(noon)
		if in > time.Hour || in < 45*time.Minute {
			t.Fatalf("looks again in %s", in)
		}
		minutes[int(in.Minutes())]++
	}
	for minute, n := range minutes {
		if n > 120 {
			t.Errorf("%d of 1000 in minute %d", n, minute)
		}
	}
}

// Holders may come and go by the thousand: a hold that stands is not written for
// each of them.
func TestAHoldThatStandsIsRenamedSlowly(t *testing.T) {
	db, other := wantOf(statefulSet("db", 1)), wantOf(numberedDeployment("web", 0))
	other.Named = map[string]string{"data-db-0": "spec"}
	v := holdView(claim("data-db-0"), db)
	v.Claim = applied(v.Claim, pvc.DecideHold(v))
	v.World = world(index(), db, other)
	early := pvc.DecideHold(v)
	if len(early.Annotations) > 0 || early.Next.After(noon.Add(time.Minute)) {
		t.Errorf("at once: %v, next %s", early.Annotations, early.Next)
	}
	v.Now = early.Next
	if got := applied(v.Claim, pvc.DecideHold(v)).Annotations[pvc.HoldersAnnotation]; got != "Deployment/webaa, StatefulSet/db" {
		t.Errorf("then it says %q", got)
	}
}

// Who deletes what an idle workload would use again is warned, and not refused.
func TestIdleWorkloadsWarn(t *testing.T) {
	scaled := wantOf(statefulSet("db", 0))
	discarded := wantOf(statefulSet("db", 0, func(s *appsv1.StatefulSet) {
		s.Spec.PersistentVolumeClaimRetentionPolicy = &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{WhenScaled: appsv1.DeletePersistentVolumeClaimRetentionPolicyType}
	}))
	over := wantOf(&batchv1.Job{ObjectMeta: meta("job"), Spec: batchv1.JobSpec{Template: naming("data-db-0")}, Status: batchv1.JobStatus{
		Conditions: []batchv1.JobCondition{{Type: batchv1.JobComplete, Status: corev1.ConditionTrue}},
	}})
	for _, tt := range []struct {
		name  string
		mode  pvc.Mode
		idle  pvc.IdlePolicy
		want  workloads.Want
		state pvc.State
		says  string
	}{
		{"warned", pvc.Hold, pvc.IdleWarns, scaled, pvc.Free, "StatefulSet/db (scaled to zero)"},
		{"warned, mode observe", pvc.Observe, pvc.IdleWarns, scaled, pvc.Free, "StatefulSet/db (scaled to zero)"},
		{"mode barrier says nothing", pvc.Barrier, pvc.IdleWarns, scaled, pvc.Free, ""},
		{"let go", pvc.Hold, pvc.IdleFrees, scaled, pvc.Free, ""},
		{"held", pvc.Hold, pvc.IdleHolds, scaled, pvc.Held, ""},
		{"finished", pvc.Hold, pvc.IdleWarns, over, pvc.Free, ""},
		{"scaled down, to be deleted", pvc.Hold, pvc.IdleWarns, discarded, pvc.Free, ""},
	} {
		v := holdView(claim("data-db-0"), tt.want)
		v.Mode, v.World.Idle = tt.mode, tt.idle
		d := pvc.DecideHold(v)
		if d.State != tt.state || d.Annotations[pvc.ObservedAnnotation] != tt.says {
			t.Errorf("%s: %s, says %q", tt.name, d.State, d.Annotations[pvc.ObservedAnnotation])
		}
		v.Claim = applied(v.Claim, d)
		if again := pvc.DecideHold(v); len(again.Annotations) > 0 {
			t.Errorf("%s, once more: %v", tt.name, again.Annotations)
		}
	}
}

// A pod goes without saying as long as what made it holds the claim, too.
func TestAWorkloadIsToldForItsPods(t *testing.T) {
	v := holdView(claim("data-db-0"))
	user := pod("db-0", []string{"data-db-0"}, func(o *corev1.Pod) { controlledBy("StatefulSet", "uid-db")(o) })
	v.World = world(index(user), wantOf(statefulSet("db", 1)))
	v.World.Links = map[types.UID]workloads.Link{user.UID: {Controller: "uid-db"}}
	d := pvc.DecideHold(v)
	if len(d.Holders) != 2 || d.Annotations[pvc.HoldersAnnotation] != "StatefulSet/db" {
		t.Errorf("%d holders, and it says %q", len(d.Holders), d.Annotations[pvc.HoldersAnnotation])
	}
	v.World = world(index(user), wantOf(statefulSet("db", 0)))
	v.World.Links = map[types.UID]workloads.Link{user.UID: {Controller: "uid-db"}}
	if got := pvc.DecideHold(v).Annotations[pvc.HoldersAnnotation]; got != "Pod/db-0" {
		t.Errorf("scaled down, it says %q", got)
	}
}

// Anybody can make a pod that no node will ever take.
func TestAPodThatWasNeverBoundRefusesNobody(t *testing.T) {
	waiting := pod("waiting", []string{"data-db-0"}, func(o *corev1.Pod) { o.Spec.NodeName = "" })
	v := holdView(claim("data-db-0"))
	v.World = world(index(waiting))
	d := pvc.DecideHold(v)
	if d.State != pvc.Free || len(d.Annotations) > 0 || len(d.Holders) != 1 {
		t.Errorf("%s, %d holders, says %v", d.State, len(d.Holders), d.Annotations)
	}
	v.Claim = claim("data-db-0", annotated(pvc.IntentAnnotation, "uid-data-db-0"))
	if pvc.DecideHold(v).Delete != nil {
		t.Error("asked for politely, it is deleted under a pod that waits for it")
	}
}

// A cache may add a hold; only a live read ends one.
func TestACacheEndsNoHold(t *testing.T) {
	intent := annotated(pvc.IntentAnnotation, "uid-data-db-0")
	for _, edits := range [][]func(*corev1.PersistentVolumeClaim){
		{intent}, {intent, annotated(pvc.HoldersAnnotation, "StatefulSet/db")}, {annotated(pvc.HoldersAnnotation, pvc.Unverified)},
		{annotated(pvc.HoldersAnnotation, "cooling until 2026-11-21T11:05:00Z: StatefulSet/db")},
	} {
		v := holdView(claim("data-db-0", edits...))
		v.Live = false
		if d := pvc.DecideHold(v); len(d.Annotations) > 0 || d.Delete != nil || !d.NeedsLive {
			t.Errorf("%v: %+v", v.Claim.Annotations, d)
		}
	}
	v := holdView(claim("data-db-0"), wantOf(statefulSet("db", 1)))
	v.Live = false
	if d := pvc.DecideHold(v); d.State != pvc.Held || d.Annotations[pvc.HoldersAnnotation] == "" || d.NeedsLive {
		t.Errorf("a holder in the cache adds no hold: %+v", d)
	}
}

// An ownerReference is the user's word: a PVC without a living owner is held by bound pods,
// and by workloads that are older than the PVC.
func TestAPVCWithoutLivingOwnersIsHeldByOlderWorkloadsOnly(t *testing.T) {
	for name, tt := range map[string]struct {
		workload time.Time
		pods     []*corev1.Pod
		want     pvc.State
	}{
		"an older workload":                {noon.Add(-time.Hour), nil, pvc.Held},
		"a younger workload":               {noon.Add(time.Hour), nil, pvc.Free},
		"a younger workload, and its pod":  {noon.Add(time.Hour), []*corev1.Pod{pod("db-0", []string{"data-db-0"})}, pvc.Held},
		"created in the same second as it": {noon, nil, pvc.Held},
	} {
		set := statefulSet("db", 1)
		set.CreationTimestamp = metav1.Time{Time: tt.workload}
		c := claim("data-db-0", annotated(pvc.HoldersAnnotation, "StatefulSet/db"))
		c.CreationTimestamp = metav1.Time{Time: noon}
		v := holdView(c)
		v.World = world(index(tt.pods...), wantOf(set))
		v.World.OwnersGone = true
		if d := pvc.DecideHold(v); d.State != tt.want || (d.Delete != nil) != (tt.want == pvc.Free) {
			t.Errorf("%s: %s, delete %v", name, d.State, d.Delete)
		}
	}
}

func TestOwnersGone(t *testing.T) {
	c := claim("data")
	gone := func(owner identity.Ref) bool { return owner.UID == "gone" }
	if pvc.OwnersGone(c, gone) {
		t.Error("a PVC without owners has lost them")
	}
	controlledBy("StatefulSet", "gone")(c)
	if !pvc.OwnersGone(c, gone) {
		t.Error("its only owner is gone")
	}
	controlledBy("StatefulSet", "there")(c)
	if pvc.OwnersGone(c, gone) {
		t.Error("one of its owners is there")
	}
}

// A namespace that goes with the word of somebody who may say so takes its claims
// along, whoever says otherwise on them.
func TestAReleasedNamespaceTakesItsClaims(t *testing.T) {
	for ending, want := range map[bool]bool{false: false, true: true} {
		v := holdView(claim("data-db-0", annotated(pvc.HoldersAnnotation, "Hold/data-db-0"), annotated(pvc.HoldAnnotation, "mine")))
		v.NamespaceEnding, v.NamespaceReleased = ending, true
		if d := pvc.DecideHold(v); (d.Delete != nil) != want {
			t.Errorf("ending %t: delete %v", ending, d.Delete)
		}
	}
}

func TestModeObserveNamesTheHoldersElsewhere(t *testing.T) {
	v := holdView(claim("data-db-0", annotated(pvc.HoldersAnnotation, "StatefulSet/db")), wantOf(statefulSet("db", 1)))
	v.Mode = pvc.Observe
	v.Claim = applied(v.Claim, pvc.DecideHold(v))
	if diff := cmp.Diff(map[string]string{pvc.ObservedAnnotation: "StatefulSet/db"}, v.Claim.Annotations); diff != "" {
		t.Errorf("says (-want +got):\n%s", diff)
	}
	if d := pvc.DecideHold(v); len(d.Annotations) > 0 {
		t.Errorf("once more: %v", d.Annotations)
	}
	v.World = world(index())
	if got := applied(v.Claim, pvc.DecideHold(v)).Annotations; len(got) > 0 {
		t.Errorf("nobody holds it, and it says %v", got)
	}
	v.World, v.Mode = world(index(), wantOf(statefulSet("db", 1))), pvc.Hold
	if got := applied(v.Claim, pvc.DecideHold(v)).Annotations; got[pvc.ObservedAnnotation] != "" || got[pvc.HoldersAnnotation] != "StatefulSet/db" {
		t.Errorf("mode hold says %v", got)
	}
}

func TestTheWordsAreBounded(t *testing.T) {
	var wants []workloads.Want
	long := strings.Repeat("n", 200)
	for i := range 100 {
		w := wantOf(numberedDeployment(long, i))
		wants = append(wants, w)
	}
	d := pvc.DecideHold(holdView(claim("data"), wants...))
	words := d.Annotations[pvc.HoldersAnnotation]
	if len(words) == 0 || len(words) >= 1024 {
		t.Errorf("%d bytes: %s", len(words), words)
	}
	if !strings.HasSuffix(words, ", +96") {
		t.Errorf("does not count the rest: %s", words[len(words)-20:])
	}
}

// The last names stand behind a moment while a claim cools.
func TestTheWordsOfAClaimThatCoolsAreBounded(t *testing.T) {
	for length := 200; length < 250; length++ {
		var wants []workloads.Want
		for i := range 5 {
			wants = append(wants, wantOf(numberedDeployment(strings.Repeat("n", length), i)))
		}
		held := applied(claim("data"), pvc.DecideHold(holdView(claim("data"), wants...)))
		words := pvc.DecideHold(holdView(held)).Annotations[pvc.HoldersAnnotation]
		if !strings.HasPrefix(words, "cooling until ") || len(words) >= 1024 {
			t.Fatalf("%d bytes: %s", len(words), words)
		}
	}
}

func numberedDeployment(name string, i int) *appsv1.Deployment {
	m := meta(name + string(rune('a'+i%26)) + string(rune('a'+i/26)))
	m.UID = fakeUID(i)
	return &appsv1.Deployment{ObjectMeta: m, Spec: appsv1.DeploymentSpec{Template: naming("data")}}
}

func TestParseWords(t *testing.T) {
	for value, want := range map[string]pvc.Words{
		"StatefulSet/db, +3":                           {Names: "StatefulSet/db, +3"},
		"cooling until 2026-11-21T12:00:00Z: Pod/a":    {Names: "Pod/a", Until: noon},
		"cooling until tomorrow: Pod/a":                {Names: "cooling until tomorrow: Pod/a"},
		"cooling until 2026-11-21T12:00:00Z for Pod/a": {Names: "cooling until 2026-11-21T12:00:00Z for Pod/a"},
	} {
		got := pvc.ParseWords(value)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%q (-want +got):\n%s", value, diff)
		}
		if got.String() != value {
			t.Errorf("%q becomes %q", value, got)
		}
	}
}

func TestReleased(t *testing.T) {
	if pvc.Released(claim("data", annotated(pvc.ReleaseAnnotation, "true"))) {
		t.Error("a word that is no UID releases")
	}
	if !pvc.Released(claim("data", annotated(pvc.ReleaseAnnotation, "uid-data"))) {
		t.Error("the claim's own UID does not release")
	}
	nobody := claim("data", annotated(pvc.ReleaseAnnotation, ""))
	nobody.UID = types.UID("")
	if pvc.Released(nobody) {
		t.Error("nothing releases what has no UID")
	}
}
