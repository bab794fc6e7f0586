package lws_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/test/fakeapi"
)

const claimsDiffer = lws.CodeVolumeClaimsDiffer

// otherClaims are what another implementation took in the spec of a set whose pods
// have a claim called data.
var otherClaims = map[string]func(*lwsv1.LeaderWorkerSetSpec){
	"of another class": func(spec *lwsv1.LeaderWorkerSetSpec) {
		spec.LeaderWorkerTemplate.VolumeClaimTemplates = []corev1.PersistentVolumeClaim{{
			ObjectMeta: metav1.ObjectMeta{Name: "data"}, Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: fakeapi.Ptr("fast")},
		}}
	},
	"under another name": func(spec *lwsv1.LeaderWorkerSetSpec) {
		spec.LeaderWorkerTemplate.VolumeClaimTemplates = []corev1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: "cache"}}}
	},
	"one more": func(spec *lwsv1.LeaderWorkerSetSpec) {
		more := corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "cache"}}
		spec.LeaderWorkerTemplate.VolumeClaimTemplates = append(spec.LeaderWorkerTemplate.VolumeClaimTemplates, more)
	},
	"none": func(spec *lwsv1.LeaderWorkerSetSpec) { spec.LeaderWorkerTemplate.VolumeClaimTemplates = nil },
}

// changedUnderOthers is a set whose claims were changed under an implementation that
// took that, and whose every write was refused since. It has a revision of the spec.
func changedUnderOthers(t *testing.T, change func(*lwsv1.LeaderWorkerSetSpec)) *cluster {
	t.Helper()
	c := running(t, 2, 3, fakeapi.Volumes(deleteClaims, retainClaims))
	asOthersMade(c)
	fakeapi.Edit(c.Server, "w", func(sts *appsv1.StatefulSet) { delete(sts.Annotations, lws.AppliedAnnotationKey) })
	c.spec(change)
	set := find[*lwsv1.LeaderWorkerSet](c, "w")
	refused := revisions(c)[0].DeepCopy()
	refused.Data.Raw, refused.Revision, refused.UID = data(t, set), 2, "refused"
	refused.Labels[lwsv1.RevisionKey] = lws.RevisionKey(refused.Data.Raw)
	refused.Name = "w-" + lws.RevisionKey(refused.Data.Raw) + "-2"
	fakeapi.Add(c.Server, refused)
	c.awake()
	return c
}

func podsAndTemplates(c *cluster) map[string]any {
	all := map[string]any{}
	for _, pod := range fakeapi.All[*corev1.Pod](c.Objects) {
		all["pod "+pod.Name] = pod.UID
	}
	for _, sts := range fakeapi.All[*appsv1.StatefulSet](c.Objects) {
		all["template of "+sts.Name] = *sts.Spec.Template.DeepCopy()
	}
	return all
}

// Such a set is in step: no pod is restarted, no revision made, and its user told.
func TestClaimsChangedUnderOthersRestartNothing(t *testing.T) {
	for name, change := range otherClaims {
		t.Run(name, func(t *testing.T) {
			c := changedUnderOthers(t, change)
			before, kept, known := podsAndTemplates(c), claimsOf(c), len(revisions(c))
			c.settleAll()
			if diff := cmp.Diff(before, podsAndTemplates(c)); diff != "" {
				t.Errorf("(-before +after)\n%s", diff)
			}
			sameClaims(t, "after the takeover", kept, claimsOf(c))
			if now := len(revisions(c)); now != known {
				t.Errorf("%d revisions became %d", known, now)
			}
			if leadersOf(c).Annotations[lws.AppliedAnnotationKey] == "" {
				t.Error("it was not taken over")
			}
			told := condition(c.status(), claimsDiffer)
			if told.Status != metav1.ConditionTrue || !strings.Contains(told.Message, "those of the StatefulSet (data)") || !strings.Contains(told.Message, "--cascade=orphan") {
				t.Errorf("told %+v", told)
			}
			if got := brief(c.status())[available]; got != isAvailable {
				t.Errorf("available: %s", got)
			}
			if owner := ownerOf(c, "data-w-0-1"); owner != "LeaderWorkerSet w" {
				t.Errorf("the claim of a worker belongs to %q", owner)
			}
		})
	}
}

// All else goes on: scaling, rollouts and restarts, with the claims that stand, old and new.
func TestClaimsChangedUnderOthersHoldNothingUp(t *testing.T) {
	for name, change := range otherClaims {
		t.Run(name, func(t *testing.T) {
			c := changedUnderOthers(t, change)
			kept := claimsOf(c)
			c.spec(func(spec *lwsv1.LeaderWorkerSetSpec) { spec.Replicas = fakeapi.Ptr[int32](3) })
			image(c, "image:2")
			c.settleAll()
			c.Remove(find[*corev1.Pod](c, "w-1"), metav1.DeletePropagationBackground)
			c.settleAll()
			if ready := c.status().ReadyReplicas; ready != 3 || c.status().UpdatedReplicas != 3 {
				t.Errorf("ready %d, updated %d", ready, c.status().UpdatedReplicas)
			}
			for _, pod := range fakeapi.All[*corev1.Pod](c.Objects) {
				if pod.Spec.Containers[0].Image != "image:2" {
					t.Errorf("pod %s runs %s", pod.Name, pod.Spec.Containers[0].Image)
				}
			}
			now := claimsOf(c)
			for _, claim := range []string{"data-w-2", "data-w-2-1", "data-w-2-2"} {
				kept[claim] = now[claim]
			}
			sameClaims(t, "after a rollout, a scaling up and a restart", kept, now)
			c.awake()
			c.settleAll()
			for range 2 {
				if again := spelled(c.decideSet()); len(again) > 0 {
					t.Errorf("never in step: %s", again)
				}
			}
		})
	}
}

// Pods cannot mount claims that no StatefulSet makes for them: such a template would
// cost a group, and waits with the claims it came with.
func TestATemplateThatMountsClaimsOfTheSpecAloneWaits(t *testing.T) {
	c := changedUnderOthers(t, func(spec *lwsv1.LeaderWorkerSetSpec) {
		otherClaims["one more"](spec)
		pod := &spec.LeaderWorkerTemplate.WorkerTemplate.Spec
		pod.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "cache", MountPath: "/cache"}}
	})
	before := podsAndTemplates(c)
	c.settleAll()
	if diff := cmp.Diff(before, podsAndTemplates(c)); diff != "" {
		t.Errorf("(-before +after)\n%s", diff)
	}
	if told := condition(c.status(), claimsDiffer); !strings.Contains(told.Message, `the template waits, since it mounts "cache"`) {
		t.Errorf("told %+v", told)
	}
	if stands := lws.Stand(c.set("w")); !stands.Pending || condition(c.status(), available).Status == metav1.ConditionTrue {
		t.Errorf("told done: %+v", stands)
	}
	c.spec(func(spec *lwsv1.LeaderWorkerSetSpec) { spec.Replicas = fakeapi.Ptr[int32](3) })
	c.settleAll()
	if workers := find[*appsv1.StatefulSet](c, "w-2"); len(workers.Spec.VolumeClaimTemplates) != 1 || c.status().ReadyReplicas != 3 {
		t.Errorf("scaled up: %d ready, claims %v", c.status().ReadyReplicas, workers.Spec.VolumeClaimTemplates)
	}
	c.spec(func(spec *lwsv1.LeaderWorkerSetSpec) {
		spec.LeaderWorkerTemplate.WorkerTemplate.Spec.Volumes = []corev1.Volume{{Name: "cache"}}
	})
	c.settleAll()
	if len(leadersOf(c).Spec.Template.Spec.Volumes) != 1 || c.status().UpdatedReplicas != 3 {
		t.Errorf("a template that can run is not rolled: %v", brief(c.status()))
	}
}

// A webhook that rewrites the claims of StatefulSets is no reason for another revision.
func TestClaimsThatAWebhookRewroteAreThoseOfTheSpec(t *testing.T) {
	c := running(t, 1, 2, fakeapi.Volumes(retainClaims, retainClaims))
	fakeapi.Edit(c.Server, "w", func(sts *appsv1.StatefulSet) {
		sts.Spec.VolumeClaimTemplates[0].Spec.StorageClassName = fakeapi.Ptr("fast")
	})
	if plan := c.decideSet(); len(plan.Actions) > 0 || len(plan.Waits) > 0 {
		t.Errorf("got %s, %v", spelled(plan), plan.Waits)
	}
}

// What is told ends: the set is deleted and leaves all it made, and comes again with
// the claims that stand.
func TestClaimsArePutBackByMakingTheSetAgain(t *testing.T) {
	c := changedUnderOthers(t, otherClaims["under another name"])
	c.settleAll()
	before, kept := podsAndTemplates(c), claimsOf(c)
	again := find[*lwsv1.LeaderWorkerSet](c, "w").DeepCopy()
	c.Remove(find[*lwsv1.LeaderWorkerSet](c, "w"), metav1.DeletePropagationOrphan)
	c.collect()
	again.ObjectMeta = metav1.ObjectMeta{Namespace: again.Namespace, Name: again.Name, UID: types.UID("again"), Generation: 1}
	again.Status = lwsv1.LeaderWorkerSetStatus{}
	again.Spec.LeaderWorkerTemplate.VolumeClaimTemplates[0].Name = "data"
	fakeapi.Add(c.Server, again)
	c.settleAll()
	if diff := cmp.Diff(before, podsAndTemplates(c)); diff != "" {
		t.Errorf("(-before +after)\n%s", diff)
	}
	sameClaims(t, "after the set was made again", kept, claimsOf(c))
	if told := condition(c.status(), claimsDiffer); told.Type != "" {
		t.Errorf("told %+v", told)
	}
}
