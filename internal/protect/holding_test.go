package protect_test

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
	"lockstep.dev/lockstep/internal/protect"
)

func holdView(c *corev1.PersistentVolumeClaim, wants ...protect.Want) protect.HoldView {
	return protect.HoldView{Claim: c, Mode: protect.Hold, World: world(index(), wants...), Now: noon, Grace: protect.Grace, NamespaceLive: true}
}

// applied is the claim as it is after the verdict was carried out.
func applied(c *corev1.PersistentVolumeClaim, d protect.HoldVerdict) *corev1.PersistentVolumeClaim {
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

func ownedByTwo(c *corev1.PersistentVolumeClaim) {
	c.OwnerReferences = []metav1.OwnerReference{
		{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "db", UID: "uid-db", Controller: new(true)},
		{APIVersion: "example.com/v1", Kind: "Archive", Name: "a", UID: "uid-a"},
	}
}

func TestDecideHold(t *testing.T) {
	db := protect.OfStatefulSet(statefulSet("db", 1))
	scaled := protect.OfStatefulSet(statefulSet("db", 0))
	deletes := protect.OfStatefulSet(statefulSet("db", 0, func(s *appsv1.StatefulSet) {
		s.Spec.PersistentVolumeClaimRetentionPolicy = &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{
			WhenDeleted: appsv1.DeletePersistentVolumeClaimRetentionPolicyType, WhenScaled: appsv1.DeletePersistentVolumeClaimRetentionPolicyType,
		}
	}))
	held := annotated(protect.HoldersAnnotation, "StatefulSet/db")
	const coolingValue = "cooling until 2026-11-21T12:05:00Z: StatefulSet/db"
	cooling := annotated(protect.HoldersAnnotation, coolingValue)
	intent := annotated(protect.IntentAnnotation, "uid-data-db-0")
	at := func(now time.Time) func(*protect.HoldView) { return func(v *protect.HoldView) { v.Now = now } }
	ownerGone := func(v *protect.HoldView) { v.World.GoneOwner = &identity.Ref{Kind: "StatefulSet", Name: "db"} }
	ownerWaits := func(v *protect.HoldView) { v.WaitingOwner = &identity.Ref{Kind: "StatefulSet", Name: "db"} }
	mode := func(m protect.Mode) func(*protect.HoldView) { return func(v *protect.HoldView) { v.Mode = m } }
	late := at(noon.Add(protect.Grace + time.Second))
	edit := func(edits ...func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
		return claim("data-db-0", edits...)
	}
	type edits = []func(*protect.HoldView)
	tests := []struct {
		name   string
		claim  *corev1.PersistentVolumeClaim
		want   protect.Want
		edits  edits
		state  protect.State
		says   string // HoldersAnnotation afterwards
		delete bool
	}{
		{"wanted", edit(), db, nil, protect.Held, "StatefulSet/db", false},
		{"wanted, mode barrier", edit(), db, edits{mode(protect.Barrier)}, protect.Held, "", false},
		{"wanted, mode turned down", edit(held), db, edits{mode(protect.Observe)}, protect.Held, "", false},
		{"nobody looked yet, and wanted", edit(annotated(protect.HoldersAnnotation, protect.Unverified)), db, nil, protect.Held, "StatefulSet/db", false},
		{"nobody looked yet, and not wanted", edit(annotated(protect.HoldersAnnotation, protect.Unverified)), protect.Want{}, nil, protect.Free, "", false},
		{"never wanted", edit(), protect.Want{}, nil, protect.Free, "", false},
		{"the last holder went", edit(held), protect.Want{}, nil, protect.Cooling, "cooling until 2026-11-21T12:05:01Z: StatefulSet/db", false},
		{"cooling", edit(cooling), protect.Want{}, nil, protect.Cooling, coolingValue, false},
		{"cooling for longer than the grace, by another clock", edit(annotated(protect.HoldersAnnotation, "cooling until 2027-11-21T12:05:00Z: StatefulSet/db")),
			protect.Want{}, nil, protect.Cooling, "cooling until 2026-11-21T12:05:01Z: StatefulSet/db", false},
		{"cooled", edit(cooling), protect.Want{}, edits{late}, protect.Free, "", false},
		{"cooling, and wanted again", edit(cooling), db, nil, protect.Held, "StatefulSet/db", false},
		{"scaled down, to be kept", edit(held), scaled, nil, protect.Cooling, "cooling until 2026-11-21T12:05:01Z: StatefulSet/db", false},
		{"scaled down, to be deleted", edit(held), deletes, nil, protect.Free, "", false},
		{"scaled down, to be deleted, its pod the last one", edit(annotated(protect.HoldersAnnotation, "Pod/db-0")), deletes, nil, protect.Free, "", false},
		{"scaled down, to be deleted, and others held it", edit(annotated(protect.HoldersAnnotation, "Deployment/web, StatefulSet/db")), deletes, nil,
			protect.Cooling, "cooling until 2026-11-21T12:05:01Z: Deployment/web, StatefulSet/db", false},
		{"cooled, and its owner is gone", edit(cooling), protect.Want{}, edits{late, ownerGone}, protect.Free, "", true},
		{"cooled, and its owner waits for it", edit(cooling), protect.Want{}, edits{late, ownerWaits}, protect.Free, "", true},
		{"cooling, and its owner waits for it", edit(cooling), protect.Want{}, edits{ownerWaits}, protect.Cooling, coolingValue, false},
		{"its owner waits for it, and the hold is off", edit(), protect.Want{}, edits{ownerWaits}, protect.Free, "", true},
		{"its owner is gone, and the hold is off", edit(), protect.Want{}, edits{ownerGone}, protect.Free, "", true},
		{"cooled, its owner is gone, and it has another", edit(cooling, ownedByTwo), protect.Want{}, edits{late, ownerGone}, protect.Free, "", false},
		{"cooled, its owner waits for it, and it has another", edit(cooling, ownedByTwo), protect.Want{}, edits{late, ownerWaits}, protect.Free, "", false},
		{"the namespace is being deleted", edit(held), protect.Want{}, edits{func(v *protect.HoldView) { v.NamespaceEnding = true }}, protect.Free, "", true},
		{"the namespace is being deleted, and the hold is off", edit(), protect.Want{}, edits{func(v *protect.HoldView) { v.NamespaceEnding = true }}, protect.Free, "", true},
		{"the namespace is being deleted, and it is wanted", edit(held), db, edits{func(v *protect.HoldView) { v.NamespaceEnding = true }}, protect.Held, "StatefulSet/db", false},
		{"to be deleted when free, and wanted", edit(intent), db, nil, protect.Held, "StatefulSet/db", false},
		{"to be deleted when free, cooling", edit(intent, held), protect.Want{}, nil, protect.Cooling, "cooling until 2026-11-21T12:05:01Z: StatefulSet/db", false},
		{"to be deleted when free, and free", edit(intent), protect.Want{}, nil, protect.Free, "", true},
		{"another life was to be deleted", edit(annotated(protect.IntentAnnotation, "uid-before")), protect.Want{}, nil, protect.Free, "", false},
		{"terminating, and wanted", edit(dying), db, nil, protect.Doomed, "", false},
		{"terminating, and not wanted", edit(dying, intent), protect.Want{}, nil, protect.Draining, "", false},
		{"terminating, and held before", edit(dying, held), db, nil, protect.Doomed, "", false},
		{"held in words", edit(annotated(protect.HoldAnnotation, "audit 7")), protect.Want{}, nil, protect.Held, "Hold/data-db-0", false},
		{"being copied", edit(finalizers(p, "snapshot.storage.kubernetes.io/pvc-as-source-protection")), protect.Want{}, nil, protect.Held, "Finalizer/snapshot.storage.kubernetes.io/pvc-as-source-protection", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			v := holdView(tt.claim, tt.want)
			for _, e := range tt.edits {
				e(&v)
			}
			d := protect.DecideHold(v)
			if d.State != tt.state || (d.Delete != nil) != tt.delete {
				t.Errorf("got %s and delete %t, want %s and %t", d.State, d.Delete != nil, tt.state, tt.delete)
			}
			v.Claim = applied(tt.claim, d)
			if diff := cmp.Diff(tt.says, v.Claim.Annotations[protect.HoldersAnnotation]); diff != "" {
				t.Errorf("says (-want +got):\n%s", diff)
			}
			if again := protect.DecideHold(v); len(again.Annotations) > 0 {
				t.Errorf("once more: %v", again.Annotations)
			}
		})
	}
}

func TestAHoldIsConfirmedNowAndThen(t *testing.T) {
	v := holdView(claim("data-db-0"), protect.OfStatefulSet(statefulSet("db", 1)))
	first := protect.DecideHold(v)
	v.Claim = applied(v.Claim, first)
	v.Now = first.Next.Add(-time.Second)
	if d := protect.DecideHold(v); len(d.Annotations) > 0 || !d.Next.Equal(first.Next) {
		t.Errorf("written again too early: %v, next %s", d.Annotations, d.Next)
	}
	v.Now = noon.Add(time.Hour)
	if d := protect.DecideHold(v); d.Annotations[protect.VerifiedAnnotation] != "2026-11-21T13:00:00Z" {
		t.Errorf("not confirmed: %v", d.Annotations)
	}
}

// Claims that are held together are not all confirmed together.
func TestHoldsAreConfirmedApart(t *testing.T) {
	minutes := map[int]int{}
	for i := range 1000 {
		c := claim("data-db-0", func(c *corev1.PersistentVolumeClaim) { c.UID = fakeUID(i) })
		in := protect.DecideHold(holdView(c, protect.OfStatefulSet(statefulSet("db", 1)))).Next.Sub(noon)
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
	db, other := protect.OfStatefulSet(statefulSet("db", 1)), protect.OfDeployment(numberedDeployment("web", 0))
	other.Named = map[string]string{"data-db-0": "spec"}
	v := holdView(claim("data-db-0"), db)
	v.Claim = applied(v.Claim, protect.DecideHold(v))
	v.World = world(index(), db, other)
	early := protect.DecideHold(v)
	if len(early.Annotations) > 0 || early.Next.After(noon.Add(time.Minute)) {
		t.Errorf("at once: %v, next %s", early.Annotations, early.Next)
	}
	v.Now = early.Next
	if got := applied(v.Claim, protect.DecideHold(v)).Annotations[protect.HoldersAnnotation]; got != "Deployment/webaa, StatefulSet/db" {
		t.Errorf("then it says %q", got)
	}
}

// Who deletes what an idle workload would use again is warned, and not refused.
func TestIdleWorkloadsWarn(t *testing.T) {
	scaled := protect.OfStatefulSet(statefulSet("db", 0))
	discarded := protect.OfStatefulSet(statefulSet("db", 0, func(s *appsv1.StatefulSet) {
		s.Spec.PersistentVolumeClaimRetentionPolicy = &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{WhenScaled: appsv1.DeletePersistentVolumeClaimRetentionPolicyType}
	}))
	over := protect.OfJob(&batchv1.Job{ObjectMeta: meta("job"), Spec: batchv1.JobSpec{Template: naming("data-db-0")}, Status: batchv1.JobStatus{
		Conditions: []batchv1.JobCondition{{Type: batchv1.JobComplete, Status: corev1.ConditionTrue}},
	}})
	for _, tt := range []struct {
		name  string
		mode  protect.Mode
		idle  protect.IdlePolicy
		want  protect.Want
		state protect.State
		says  string
	}{
		{"warned", protect.Hold, protect.IdleWarns, scaled, protect.Free, "StatefulSet/db (scaled to zero)"},
		{"warned, mode observe", protect.Observe, protect.IdleWarns, scaled, protect.Free, "StatefulSet/db (scaled to zero)"},
		{"mode barrier says nothing", protect.Barrier, protect.IdleWarns, scaled, protect.Free, ""},
		{"let go", protect.Hold, protect.IdleFrees, scaled, protect.Free, ""},
		{"held", protect.Hold, protect.IdleHolds, scaled, protect.Held, ""},
		{"finished", protect.Hold, protect.IdleWarns, over, protect.Free, ""},
		{"scaled down, to be deleted", protect.Hold, protect.IdleWarns, discarded, protect.Free, ""},
	} {
		v := holdView(claim("data-db-0"), tt.want)
		v.Mode, v.World.Idle = tt.mode, tt.idle
		d := protect.DecideHold(v)
		if d.State != tt.state || d.Annotations[protect.ObservedAnnotation] != tt.says {
			t.Errorf("%s: %s, says %q", tt.name, d.State, d.Annotations[protect.ObservedAnnotation])
		}
		v.Claim = applied(v.Claim, d)
		if again := protect.DecideHold(v); len(again.Annotations) > 0 {
			t.Errorf("%s, once more: %v", tt.name, again.Annotations)
		}
	}
}

// A pod goes without saying as long as what made it holds the claim, too.
func TestAWorkloadIsToldForItsPods(t *testing.T) {
	v := holdView(claim("data-db-0"))
	user := pod("db-0", []string{"data-db-0"}, func(o *corev1.Pod) { controlledBy("StatefulSet", "uid-db")(o) })
	v.World = world(index(user), protect.OfStatefulSet(statefulSet("db", 1)))
	v.World.Links = map[types.UID]protect.Link{user.UID: {Controller: "uid-db"}}
	d := protect.DecideHold(v)
	if len(d.Holders) != 2 || d.Annotations[protect.HoldersAnnotation] != "StatefulSet/db" {
		t.Errorf("%d holders, and it says %q", len(d.Holders), d.Annotations[protect.HoldersAnnotation])
	}
	v.World = world(index(user), protect.OfStatefulSet(statefulSet("db", 0)))
	v.World.Links = map[types.UID]protect.Link{user.UID: {Controller: "uid-db"}}
	if got := protect.DecideHold(v).Annotations[protect.HoldersAnnotation]; got != "Pod/db-0" {
		t.Errorf("scaled down, it says %q", got)
	}
}

// Anybody can make a pod that no node will ever take.
func TestAPodThatWasNeverBoundRefusesNobody(t *testing.T) {
	waiting := pod("waiting", []string{"data-db-0"}, func(o *corev1.Pod) { o.Spec.NodeName = "" })
	v := holdView(claim("data-db-0"))
	v.World = world(index(waiting))
	d := protect.DecideHold(v)
	if d.State != protect.Free || len(d.Annotations) > 0 || len(d.Holders) != 1 {
		t.Errorf("%s, %d holders, says %v", d.State, len(d.Holders), d.Annotations)
	}
	v.Claim = claim("data-db-0", annotated(protect.IntentAnnotation, "uid-data-db-0"))
	if protect.DecideHold(v).Delete != nil {
		t.Error("asked for politely, it is deleted under a pod that waits for it")
	}
}

// What could not be read may hold the claim: no hold ends, and nothing is deleted.
func TestWhatWasNotReadEndsNoHold(t *testing.T) {
	intent := annotated(protect.IntentAnnotation, "uid-data-db-0")
	for _, edits := range [][]func(*corev1.PersistentVolumeClaim){
		nil, {intent}, {intent, annotated(protect.HoldersAnnotation, "StatefulSet/db")},
		{annotated(protect.HoldersAnnotation, "cooling until 2026-11-21T11:05:00Z: StatefulSet/db")},
	} {
		v := holdView(claim("data-db-0", edits...))
		v.Unread = "jobsets"
		d := protect.DecideHold(v)
		if len(d.Annotations) > 0 || d.Delete != nil || !d.Next.After(noon) {
			t.Errorf("%v: %+v", v.Claim.Annotations, d)
		}
	}
	v := holdView(claim("data-db-0"), protect.OfStatefulSet(statefulSet("db", 1)))
	v.Unread = "jobsets"
	if d := protect.DecideHold(v); d.State != protect.Held || d.Annotations[protect.HoldersAnnotation] == "" {
		t.Errorf("what is known to hold does not: %+v", d)
	}
}

// A namespace that goes with the word of somebody who may say so takes its claims
// along, whoever says otherwise on them.
func TestAReleasedNamespaceTakesItsClaims(t *testing.T) {
	for ending, want := range map[bool]bool{false: false, true: true} {
		v := holdView(claim("data-db-0", annotated(protect.HoldersAnnotation, "Hold/data-db-0"), annotated(protect.HoldAnnotation, "mine")))
		v.NamespaceEnding, v.NamespaceReleased = ending, true
		if d := protect.DecideHold(v); (d.Delete != nil) != want {
			t.Errorf("ending %t: delete %v", ending, d.Delete)
		}
	}
}

func TestModeObserveNamesTheHoldersElsewhere(t *testing.T) {
	v := holdView(claim("data-db-0", annotated(protect.HoldersAnnotation, "StatefulSet/db")), protect.OfStatefulSet(statefulSet("db", 1)))
	v.Mode = protect.Observe
	v.Claim = applied(v.Claim, protect.DecideHold(v))
	if diff := cmp.Diff(map[string]string{protect.ObservedAnnotation: "StatefulSet/db"}, v.Claim.Annotations); diff != "" {
		t.Errorf("says (-want +got):\n%s", diff)
	}
	if d := protect.DecideHold(v); len(d.Annotations) > 0 {
		t.Errorf("once more: %v", d.Annotations)
	}
	v.World = world(index())
	if got := applied(v.Claim, protect.DecideHold(v)).Annotations; len(got) > 0 {
		t.Errorf("nobody holds it, and it says %v", got)
	}
	v.World, v.Mode = world(index(), protect.OfStatefulSet(statefulSet("db", 1))), protect.Hold
	if got := applied(v.Claim, protect.DecideHold(v)).Annotations; got[protect.ObservedAnnotation] != "" || got[protect.HoldersAnnotation] != "StatefulSet/db" {
		t.Errorf("mode hold says %v", got)
	}
}

func TestTheWordsAreBounded(t *testing.T) {
	var wants []protect.Want
	long := strings.Repeat("n", 200)
	for i := range 100 {
		w := protect.OfDeployment(numberedDeployment(long, i))
		wants = append(wants, w)
	}
	d := protect.DecideHold(holdView(claim("data"), wants...))
	words := d.Annotations[protect.HoldersAnnotation]
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
		var wants []protect.Want
		for i := range 5 {
			wants = append(wants, protect.OfDeployment(numberedDeployment(strings.Repeat("n", length), i)))
		}
		held := applied(claim("data"), protect.DecideHold(holdView(claim("data"), wants...)))
		words := protect.DecideHold(holdView(held)).Annotations[protect.HoldersAnnotation]
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
	for value, want := range map[string]protect.Words{
		"StatefulSet/db, +3":                           {Names: "StatefulSet/db, +3"},
		"cooling until 2026-11-21T12:00:00Z: Pod/a":    {Names: "Pod/a", Until: noon},
		"cooling until tomorrow: Pod/a":                {Names: "cooling until tomorrow: Pod/a"},
		"cooling until 2026-11-21T12:00:00Z for Pod/a": {Names: "cooling until 2026-11-21T12:00:00Z for Pod/a"},
	} {
		got := protect.ParseWords(value)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%q (-want +got):\n%s", value, diff)
		}
		if got.String() != value {
			t.Errorf("%q becomes %q", value, got)
		}
	}
}

func TestReleased(t *testing.T) {
	if protect.Released(claim("data", annotated(protect.ReleaseAnnotation, "true"))) {
		t.Error("a word that is no UID releases")
	}
	if !protect.Released(claim("data", annotated(protect.ReleaseAnnotation, "uid-data"))) {
		t.Error("the claim's own UID does not release")
	}
	nobody := claim("data", annotated(protect.ReleaseAnnotation, ""))
	nobody.UID = types.UID("")
	if protect.Released(nobody) {
		t.Error("nothing releases what has no UID")
	}
}
