package pvc_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/pvc"
)

// given notes of a claim that was made long ago when it was given to an owner.
func given(c *corev1.PersistentVolumeClaim, owner types.UID, at time.Time) {
	c.CreationTimestamp = metav1.NewTime(at.Add(-time.Hour))
	c.ManagedFields = append(c.ManagedFields, metav1.ManagedFieldsEntry{
		Manager: "kube-controller-manager", Time: new(metav1.NewTime(at)),
		FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:ownerReferences":{".":{},"k:{\"uid\":\"` + string(owner) + `\"}":{}}}}`),
	})
}

// Whose name comes back waits for the claims that were to go, and does not hold them: else
// both wait for ever. What it uses again is held.
func TestWhatWasLeftBehindIsNotHeldForWhoWaitsForItsEnd(t *testing.T) {
	deletes := &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{WhenScaled: appsv1.DeletePersistentVolumeClaimRetentionPolicyType}
	keeping := pvc.OfLeaderWorkerSet(set("llama", 2, 2), 0)
	deleting := pvc.OfLeaderWorkerSet(set("llama", 2, 2, func(s *lwsv1.LeaderWorkerSet) {
		s.Spec.LeaderWorkerTemplate.PersistentVolumeClaimRetentionPolicy = deletes
	}), 0)
	bare := pvc.OfStatefulSet(statefulSet("llama", 2, func(s *appsv1.StatefulSet) { s.Spec.PersistentVolumeClaimRetentionPolicy = deletes }))
	retaining := pvc.OfStatefulSet(statefulSet("llama", 2)) // and so the claim is used again
	gone := func(kind identity.Kind) *identity.Ref { return &identity.Ref{Kind: kind, Name: "llama", UID: "before"} }
	for _, tt := range []struct {
		name, claim, last string
		// older is by how much longer than the workload is there the claim was given to its owner.
		older time.Duration
		want  pvc.Want
		owner *identity.Ref
		state pvc.State
	}{
		{"its own", "data-llama-1", "LeaderWorkerSet/llama", 0, deleting, nil, pvc.Held},
		{"a leader's, of a former set", "data-llama-1", "LeaderWorkerSet/llama", time.Hour, keeping, gone("StatefulSet"), pvc.Cooling},
		{"a leader's, of a set that lives, whose StatefulSet somebody deleted", "data-llama-1", "LeaderWorkerSet/llama", -time.Second, keeping, gone("StatefulSet"), pvc.Held},
		{"a leader's, of a former set perhaps, by clocks that may differ", "data-llama-1", "LeaderWorkerSet/llama", 30 * time.Second, keeping, gone("StatefulSet"), pvc.Held},
		{"a leader's, scaled away", "data-llama-1", "LeaderWorkerSet/llama", 0, deleting, gone("Pod"), pvc.Free},
		{"a leader's, scaled away, kept by now", "data-llama-1", "LeaderWorkerSet/llama", 0, keeping, gone("Pod"), pvc.Cooling},
		{"a leader's, scaled away, a stranger its last holder", "data-llama-1", "Deployment/shell", 0, deleting, gone("Pod"), pvc.Cooling},
		{"a worker's, of a former set", "data-llama-1-1", "LeaderWorkerSet/llama", 0, keeping, gone("LeaderWorkerSet"), pvc.Cooling},
		{"a worker's, scaled away", "data-llama-1-1", "LeaderWorkerSet/llama, Pod/llama-1-1", 0, deleting, gone("Pod"), pvc.Free},
		{"a worker's, scaled away, its StatefulSet the last to go", "data-llama-1-1", "LeaderWorkerSet/llama, StatefulSet/llama-1", 0, deleting, &identity.Ref{Kind: identity.KindPod, Name: "llama-1", UID: "before"}, pvc.Free},
		{"a worker's, scaled away, another StatefulSet its last holder", "data-llama-1-1", "StatefulSet/llama-x", 0, deleting, gone("Pod"), pvc.Cooling},
		{"a worker's, whose StatefulSet is gone in a restart", "data-llama-1-1", "LeaderWorkerSet/llama", 0, deleting, gone("StatefulSet"), pvc.Held},
		{"given to a StatefulSet of another group", "data-llama-1", "LeaderWorkerSet/llama", time.Hour, deleting, &identity.Ref{Kind: "StatefulSet", APIVersion: "apps.kruise.io/v1beta1", Name: "llama", UID: "before"}, pvc.Held},
		{"given to something else", "data-llama-1", "LeaderWorkerSet/llama", 0, deleting, gone("Deployment"), pvc.Held},
		{"a StatefulSet's, scaled away", "data-llama-1", "StatefulSet/llama", 0, bare, gone("Pod"), pvc.Free},
		{"a StatefulSet's, of a former one", "data-llama-1", "StatefulSet/llama", 0, bare, gone("StatefulSet"), pvc.Held},
		{"a StatefulSet's, scaled away, kept by now", "data-llama-1", "StatefulSet/llama", 0, retaining, gone("Pod"), pvc.Held},
	} {
		t.Run(tt.name, func(t *testing.T) {
			v := holdView(claim(tt.claim, annotated(pvc.HoldersAnnotation, tt.last)), tt.want)
			v.World.GoneOwner = tt.owner
			given(v.Claim, "before", tt.want.Since.Add(-tt.older))
			d := pvc.DecideHold(v)
			if d.State != tt.state {
				t.Errorf("got %s, want %s", d.State, tt.state)
			}
			if left := tt.state != pvc.Held; d.Look != left {
				t.Errorf("it is looked at once more: %t, want %t", d.Look, left)
			}
			if deleted := d.Delete != nil; deleted != (tt.state == pvc.Free) {
				t.Errorf("it is deleted: %t", deleted)
			}
		})
	}
}

// What a StatefulSet of somebody else held outlives that by its grace, though it bears the
// name of a group's workers and of claims that a set would have deleted.
func TestAStrangersStatefulSetIsNoGroupsWorkers(t *testing.T) {
	llama := pvc.OfLeaderWorkerSet(set("llama", 1, 2, func(s *lwsv1.LeaderWorkerSet) {
		s.Spec.LeaderWorkerTemplate.PersistentVolumeClaimRetentionPolicy = &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{WhenScaled: appsv1.DeletePersistentVolumeClaimRetentionPolicyType}
	}), 0)
	for name, tt := range map[string]struct {
		owner *identity.Ref
		want  pvc.State
	}{
		"nobody's":                    {nil, pvc.Cooling},
		"given to the group's leader": {&identity.Ref{Kind: identity.KindPod, Name: "llama-1", UID: "before"}, pvc.Free},
		"given to another pod":        {&identity.Ref{Kind: identity.KindPod, Name: "llama-2", UID: "before"}, pvc.Cooling},
	} {
		v := holdView(claim("data-llama-1-1", annotated(pvc.HoldersAnnotation, "StatefulSet/llama-1")), llama)
		v.World.GoneOwner = tt.owner
		if d := pvc.DecideHold(v); d.State != tt.want {
			t.Errorf("%s: %s, want %s", name, d.State, tt.want)
		}
	}
}

// A claim that cools is let go at its time, and until then nothing is written: whatever
// happens to it, nothing is read for that.
func TestALeftoverThatCoolsIsLookedAtWhenItsTimeIsOver(t *testing.T) {
	v := holdView(claim("data-llama-1"), pvc.OfLeaderWorkerSet(set("llama", 2, 2), 0))
	v.World.GoneOwner = &identity.Ref{Kind: identity.KindLeaderWorkerSet, Name: "llama", UID: "before"}
	v.Claim.Annotations = map[string]string{pvc.HoldersAnnotation: "LeaderWorkerSet/llama"}
	for _, want := range []struct {
		state pvc.State
		look  bool
	}{{pvc.Cooling, true}, {pvc.Cooling, false}, {pvc.Free, true}} {
		d := pvc.DecideHold(v)
		if d.State != want.state || d.Look != want.look {
			t.Fatalf("%s, looks %t, want %v", d.State, d.Look, want)
		}
		v.Claim = applied(v.Claim, d)
		if !want.look {
			v.Now = d.Next
		}
	}
}

// A set waits for a claim of a leader that was scaled away only while its StatefulSet does,
// which goes on with the claim once those of groups scaled away are kept.
func TestAClaimThatTheLeadersGoOnWithIsHeld(t *testing.T) {
	llama := set("llama", 2, 2)
	leaders := pvc.OfStatefulSet(statefulSet("llama", 2))
	leaders.Workload.UID, leaders.Controller = "uid-leaders", llama.UID
	v := holdView(claim("data-llama-1"), pvc.OfLeaderWorkerSet(llama, 0), leaders)
	v.World.GoneOwner = &identity.Ref{Kind: identity.KindPod, Name: "llama-1", UID: "before"}
	if d := pvc.DecideHold(v); d.State != pvc.Held || d.Annotations[pvc.HoldersAnnotation] != "LeaderWorkerSet/llama" {
		t.Errorf("%s: %q", d.State, d.Annotations[pvc.HoldersAnnotation])
	}
}

// Who asks why is told who waits, and that a new claim follows.
func TestWhoWaitsForTheEndOfAClaimIsTold(t *testing.T) {
	v := holdView(claim("data-llama-1"), pvc.OfLeaderWorkerSet(set("llama", 2, 2), 0))
	v.World.GoneOwner = &identity.Ref{Kind: identity.KindPod, Name: "llama-1", UID: "before"}
	told := pvc.Why(pvc.Case{Claim: v.Claim, World: v.World, Mode: pvc.Hold, Now: v.Now})
	if len(told.Idle) != 1 || !told.Idle[0].AwaitsEnd() {
		t.Errorf("idle: %v", told.Idle)
	}
	if !slices.ContainsFunc(told.Then, func(s string) bool { return strings.HasPrefix(s, "LeaderWorkerSet/llama will create an empty claim") }) {
		t.Errorf("then: %q", told.Then)
	}
}

// What others hold as well tells by the time that it was confirmed: there is one set of a
// name at a time.
func TestAClaimThatWasHeldForThisLifeAndForOthersIsHeldOn(t *testing.T) {
	llama := pvc.OfLeaderWorkerSet(set("llama", 2, 2), 0)
	llama.Since = noon
	shell := pod("shell", []string{"data-llama-1"})
	beside := holdView(claim("data-llama-1"), llama)
	beside.World.Pods = index(shell)
	standing := pvc.DecideHold(beside).Annotations
	if standing[pvc.HoldersAnnotation] != "LeaderWorkerSet/llama, Pod/shell" {
		t.Fatalf("invalid run: %v", standing)
	}
	for name, tt := range map[string]struct {
		words    string
		verified time.Time
		want     pvc.State
	}{
		"since it was made":      {standing[pvc.HoldersAnnotation], noon.Add(time.Second), pvc.Held},
		"before it was made":     {standing[pvc.HoldersAnnotation], noon.Add(-time.Second), pvc.Cooling},
		"for others, since":      {"LeaderWorkerSet/llama-2, Pod/shell", noon.Add(time.Second), pvc.Cooling},
		"since, and cooling":     {"cooling until " + noon.Add(time.Minute).Format(time.RFC3339) + ": LeaderWorkerSet/llama, Pod/shell", noon.Add(time.Second), pvc.Cooling},
		"at a time that is none": {standing[pvc.HoldersAnnotation], time.Time{}, pvc.Cooling},
	} {
		v := holdView(claim("data-llama-1", annotated(pvc.HoldersAnnotation, tt.words), annotated(pvc.DigestAnnotation, standing[pvc.DigestAnnotation])), llama)
		if !tt.verified.IsZero() {
			v.Claim.Annotations[pvc.VerifiedAnnotation] = tt.verified.Format(time.RFC3339)
		}
		v.Now = noon.Add(30 * time.Second)
		v.World.GoneOwner = &identity.Ref{Kind: identity.KindStatefulSet, Name: "llama", UID: "before"}
		given(v.Claim, "before", noon.Add(-time.Hour))
		if d := pvc.DecideHold(v); d.State != tt.want {
			t.Errorf("%s: %s, want %s", name, d.State, tt.want)
		}
	}
}

// Nobody is told to delete a set that lives for a claim that it does not hold.
func TestWhoWaitsForTheEndOfAClaimIsNotToBeDeleted(t *testing.T) {
	for _, words := range []string{"", "LeaderWorkerSet/llama"} {
		v := holdView(claim("data-llama-1", annotated(pvc.HoldersAnnotation, words)), pvc.OfLeaderWorkerSet(set("llama", 2, 2), 0))
		v.World.GoneOwner = &identity.Ref{Kind: identity.KindPod, Name: "llama-1", UID: "before"}
		told := pvc.Why(pvc.Case{Claim: v.Claim, World: v.World, Mode: pvc.Hold, Now: v.Now})
		for _, h := range told.Idle {
			if h.Released != "" {
				t.Errorf("%q: %s: %s", words, h.Name, h.Released)
			}
		}
		for _, a := range told.Actions {
			if strings.Contains(a.Do, "delete it") {
				t.Errorf("%q: %s", words, a.Do)
			}
		}
	}
}

// A world that was read whole tells who is there.
func TestAWorldKnowsItsPodsAndWorkloads(t *testing.T) {
	w := world(index(), pvc.OfStatefulSet(statefulSet("db", 1)))
	w.Links = map[types.UID]pvc.Link{"uid-shell": {}}
	if !w.Knows("uid-db") || !w.Knows("uid-shell") || w.Knows("uid-other") {
		t.Errorf("db %t, shell %t, other %t", w.Knows("uid-db"), w.Knows("uid-shell"), w.Knows("uid-other"))
	}
}

// When a claim was given to a StatefulSet is known as long as nobody wrote onto it since,
// in memory as well, and nobody can make it seem longer ago than the claim is.
func TestWhenAClaimWasGivenAwayIsKnownForCertainOrNotAtAll(t *testing.T) {
	llama := pvc.OfLeaderWorkerSet(set("llama", 2, 2), 0)
	llama.Since = noon
	for name, tt := range map[string]struct {
		edit func(*corev1.PersistentVolumeClaim)
		want pvc.State
	}{
		"before":             {func(c *corev1.PersistentVolumeClaim) { given(c, "before", noon.Add(-time.Hour)) }, pvc.Cooling},
		"since":              {func(c *corev1.PersistentVolumeClaim) { given(c, "before", noon.Add(time.Minute)) }, pvc.Held},
		"in the same second": {func(c *corev1.PersistentVolumeClaim) { given(c, "before", noon) }, pvc.Held},
		"in the same minute": {func(c *corev1.PersistentVolumeClaim) { given(c, "before", noon.Add(-30*time.Second)) }, pvc.Held},
		"nobody knows":       {func(c *corev1.PersistentVolumeClaim) { c.CreationTimestamp = metav1.NewTime(noon.Add(-time.Hour)) }, pvc.Held},
		"another, before":    {func(c *corev1.PersistentVolumeClaim) { given(c, "other", noon.Add(-time.Hour)) }, pvc.Held},
		"before, and since": {func(c *corev1.PersistentVolumeClaim) {
			given(c, "before", noon.Add(time.Minute))
			given(c, "before", noon.Add(-time.Hour))
		}, pvc.Held},
		"before it was made": {func(c *corev1.PersistentVolumeClaim) {
			given(c, "before", noon.Add(-time.Hour))
			c.CreationTimestamp = metav1.NewTime(noon)
		}, pvc.Held},
		"at a time not noted": {func(c *corev1.PersistentVolumeClaim) {
			given(c, "before", noon.Add(-time.Hour))
			c.ManagedFields[0].Time = nil
		}, pvc.Held},
		"before, as in memory": {func(c *corev1.PersistentVolumeClaim) {
			given(c, "before", noon.Add(-time.Hour))
			c.ManagedFields = pvc.Giving(c)
		}, pvc.Cooling},
	} {
		v := holdView(claim("data-llama-1", annotated(pvc.HoldersAnnotation, "LeaderWorkerSet/llama")), llama)
		controlledBy("StatefulSet", "before")(v.Claim)
		v.World.GoneOwner = &identity.Ref{Kind: identity.KindStatefulSet, Name: "llama", UID: "before"}
		tt.edit(v.Claim)
		if d := pvc.DecideHold(v); d.State != tt.want {
			t.Errorf("%s: %s, want %s", name, d.State, tt.want)
		}
	}
}

// Who restarts knows no more whose a StatefulSet was that is gone. A set that took it over
// is younger than its claims, which say that they were held for this very life; one that
// cools was found to be of another.
func TestAClaimThatWasHeldForThisVeryLifeIsHeldOn(t *testing.T) {
	llama := pvc.OfLeaderWorkerSet(set("llama", 2, 2), 0)
	llama.Since = noon
	former := llama
	former.Workload.UID = "former"
	digestOf := func(want pvc.Want) string {
		return pvc.DecideHold(holdView(claim("data-llama-1"), want)).Annotations[pvc.DigestAnnotation]
	}
	for name, tt := range map[string]struct {
		words, digest string
		wasOf         []types.UID
		want          pvc.State
	}{
		"held for this life":                           {"LeaderWorkerSet/llama", digestOf(llama), nil, pvc.Held},
		"held for the life before":                     {"LeaderWorkerSet/llama", digestOf(former), nil, pvc.Cooling},
		"held for this life, and cooling":              {"cooling until " + noon.Add(time.Minute).Format(time.RFC3339) + ": LeaderWorkerSet/llama", digestOf(llama), nil, pvc.Cooling},
		"held for this life, seen to be of another":    {"LeaderWorkerSet/llama", digestOf(llama), []types.UID{"former"}, pvc.Cooling},
		"held for the life before, seen to be of this": {"LeaderWorkerSet/llama", digestOf(former), []types.UID{"former", llama.Workload.UID}, pvc.Held},
	} {
		v := holdView(claim("data-llama-1", annotated(pvc.HoldersAnnotation, tt.words), annotated(pvc.DigestAnnotation, tt.digest)), llama)
		v.World.GoneOwner, v.World.OwnerWasOf = &identity.Ref{Kind: identity.KindStatefulSet, Name: "llama", UID: "before"}, tt.wasOf
		given(v.Claim, "before", noon.Add(-time.Hour))
		if d := pvc.DecideHold(v); d.State != tt.want {
			t.Errorf("%s: %s, want %s", name, d.State, tt.want)
		}
	}
}
