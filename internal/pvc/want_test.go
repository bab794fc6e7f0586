package pvc_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/pvc"
)

func fakeUID(i int) types.UID { return types.UID(fmt.Sprintf("00000000-0000-0000-0000-%012d", i)) }

func meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: ns, Name: name, UID: types.UID("uid-" + name)}
}

func naming(claim string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{Spec: corev1.PodSpec{Volumes: []corev1.Volume{volume(claim)}}}
}

func set(name string, groups, size int32, edits ...func(*lwsv1.LeaderWorkerSet)) *lwsv1.LeaderWorkerSet {
	return edited(&lwsv1.LeaderWorkerSet{
		ObjectMeta: meta(name),
		Spec: lwsv1.LeaderWorkerSetSpec{Replicas: &groups, LeaderWorkerTemplate: lwsv1.LeaderWorkerTemplate{
			Size: &size, WorkerTemplate: naming("models"),
			VolumeClaimTemplates: []corev1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: "data"}}},
		}},
	}, edits)
}

func ptr[T any](v T) *T { return &v }

func jobSet(status map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet",
		"metadata": map[string]any{"namespace": ns, "name": "train", "uid": "uid-train"},
		"spec": map[string]any{
			"volumeClaimPolicies": []any{map[string]any{"templates": []any{map[string]any{"metadata": map[string]any{"name": "ckpt"}}}}},
			"replicatedJobs": []any{map[string]any{"template": map[string]any{"spec": map[string]any{"template": map[string]any{"spec": map[string]any{
				"volumes": []any{map[string]any{"name": "v", "persistentVolumeClaim": map[string]any{"claimName": "shared"}}, map[string]any{"name": "tmp"}},
			}}}}}},
		},
		"status": status,
	}}
}

// TestWhoWants puts every kind to the claims that it wants, and to those that it
// does not, for now or ever.
func TestWhoWants(t *testing.T) {
	lws := pvc.OfLeaderWorkerSet(set("llama", 2, 3), 0)
	leaders := pvc.OfStatefulSet(statefulSet("llama", 3, func(s *appsv1.StatefulSet) { controlledBy("LeaderWorkerSet", "uid-llama-set")(s) }))
	lws.Workload.UID = "uid-llama-set"
	finishedJob := &batchv1.Job{ObjectMeta: meta("job"), Spec: batchv1.JobSpec{Template: naming("data")}, Status: batchv1.JobStatus{
		Conditions: []batchv1.JobCondition{{Type: batchv1.JobComplete, Status: corev1.ConditionTrue}},
	}}
	numbered := pvc.Kind{Templates: nil, ClaimTemplates: []string{"spec.volumeClaimPolicies.*.templates"}, ClaimName: "{name}-{template}-{ordinal}", Replicas: "spec.n"}
	numbered.Kind, numbered.Version = "JobSet", "v1"
	tests := []struct {
		name  string
		wants []pvc.Want
		claim string
		held  string
		idle  string
	}{
		{"statefulset, in range", []pvc.Want{pvc.OfStatefulSet(statefulSet("db", 2))}, "data-db-1", "StatefulSet/db", ""},
		{"statefulset, out of range", []pvc.Want{pvc.OfStatefulSet(statefulSet("db", 2))}, "data-db-2", "", "StatefulSet/db"},
		{"statefulset, another ordinal's spelling", []pvc.Want{pvc.OfStatefulSet(statefulSet("db", 2))}, "data-db-01", "", ""},
		{"statefulset, another template", []pvc.Want{pvc.OfStatefulSet(statefulSet("db", 2))}, "logs-db-0", "", ""},
		{"statefulset of a name that goes on", []pvc.Want{pvc.OfStatefulSet(statefulSet("db", 2))}, "data-db-x-0", "", ""},
		{"statefulset, ordinals from 5", []pvc.Want{pvc.OfStatefulSet(statefulSet("db", 2, func(s *appsv1.StatefulSet) {
			s.Spec.Ordinals = &appsv1.StatefulSetOrdinals{Start: 5}
		}))}, "data-db-6", "StatefulSet/db", ""},
		{"statefulset, scaled to zero", []pvc.Want{pvc.OfStatefulSet(statefulSet("db", 0))}, "data-db-0", "", "StatefulSet/db"},
		{"statefulset, being deleted", []pvc.Want{pvc.OfStatefulSet(statefulSet("db", 2, func(s *appsv1.StatefulSet) {
			s.DeletionTimestamp = &metav1.Time{Time: noon}
		}))}, "data-db-0", "", ""},
		{"statefulset, named in its template", []pvc.Want{pvc.OfStatefulSet(statefulSet("db", 1, func(s *appsv1.StatefulSet) { s.Spec.Template = naming("shared") }))}, "shared", "StatefulSet/db", ""},
		{"set, a leader", []pvc.Want{lws}, "data-llama-1", "LeaderWorkerSet/llama", ""},
		{"set, a worker, its statefulset gone", []pvc.Want{lws}, "data-llama-1-2", "LeaderWorkerSet/llama", ""},
		{"set, no such worker", []pvc.Want{lws}, "data-llama-1-3", "", "LeaderWorkerSet/llama"},
		{"set whose groups were larger, one of them not rolled yet", []pvc.Want{pvc.OfLeaderWorkerSet(set("llama", 2, 3), 5)}, "data-llama-1-4", "LeaderWorkerSet/llama", ""},
		{"set whose groups were never that large", []pvc.Want{pvc.OfLeaderWorkerSet(set("llama", 2, 3), 5)}, "data-llama-1-5", "", "LeaderWorkerSet/llama"},
		{"set whose groups were smaller", []pvc.Want{pvc.OfLeaderWorkerSet(set("llama", 2, 3), 2)}, "data-llama-1-2", "LeaderWorkerSet/llama", ""},
		{"set, worker 0 is the leader", []pvc.Want{lws}, "data-llama-1-0", "", "LeaderWorkerSet/llama"},
		{"set, no such group", []pvc.Want{lws}, "data-llama-2-1", "", "LeaderWorkerSet/llama"},
		{"set, named in its template", []pvc.Want{lws}, "models", "LeaderWorkerSet/llama", ""},
		{"set, a group of a surge, told by the set", []pvc.Want{lws, leaders}, "data-llama-2", "LeaderWorkerSet/llama", "LeaderWorkerSet/llama"},
		{"set, a worker of a surge, whose statefulset is gone", []pvc.Want{pvc.OfLeaderWorkerSet(set("llama", 2, 3, func(s *lwsv1.LeaderWorkerSet) {
			s.Status.Replicas = 3
		}), 0)}, "data-llama-2-1", "LeaderWorkerSet/llama", ""},
		{"set, scaled to zero, a group still there", []pvc.Want{pvc.OfLeaderWorkerSet(set("llama", 0, 3, func(s *lwsv1.LeaderWorkerSet) {
			s.Status.Replicas = 1
		}), 0)}, "data-llama-0-1", "", "LeaderWorkerSet/llama"},
		{"set of one, whose workers there are none of", []pvc.Want{pvc.OfLeaderWorkerSet(set("llama", 1, 1, func(s *lwsv1.LeaderWorkerSet) {
			s.Spec.LeaderWorkerTemplate.LeaderTemplate = ptr(naming("other"))
		}), 0)}, "models", "", ""},
		{"set of one, where a group not rolled yet has workers", []pvc.Want{pvc.OfLeaderWorkerSet(set("llama", 1, 1, func(s *lwsv1.LeaderWorkerSet) {
			s.Spec.LeaderWorkerTemplate.LeaderTemplate = ptr(naming("other"))
		}), 4)}, "models", "LeaderWorkerSet/llama", ""},
		{"set, being deleted, and its statefulset not yet", []pvc.Want{ending(lws), leaders}, "data-llama-0", "", ""},
		{"deployment", []pvc.Want{pvc.OfDeployment(&appsv1.Deployment{ObjectMeta: meta("web"), Spec: appsv1.DeploymentSpec{Template: naming("data")}})}, "data", "Deployment/web", ""},
		{"deployment, scaled to zero", []pvc.Want{pvc.OfDeployment(&appsv1.Deployment{ObjectMeta: meta("web"), Spec: appsv1.DeploymentSpec{Replicas: ptr[int32](0), Template: naming("data")}})}, "data", "", "Deployment/web"},
		{"replicaset", []pvc.Want{pvc.OfReplicaSet(&appsv1.ReplicaSet{ObjectMeta: meta("web"), Spec: appsv1.ReplicaSetSpec{Template: naming("data")}})}, "data", "ReplicaSet/web", ""},
		{"replicaset, an old revision of a deployment", []pvc.Want{pvc.OfReplicaSet(oldRevision())}, "data", "", ""},
		{"daemonset", []pvc.Want{pvc.OfDaemonSet(&appsv1.DaemonSet{ObjectMeta: meta("web"), Spec: appsv1.DaemonSetSpec{Template: naming("data")}})}, "data", "DaemonSet/web", ""},
		{"job", []pvc.Want{pvc.OfJob(&batchv1.Job{ObjectMeta: meta("job"), Spec: batchv1.JobSpec{Template: naming("data")}})}, "data", "Job/job", ""},
		{"job, suspended", []pvc.Want{pvc.OfJob(&batchv1.Job{ObjectMeta: meta("job"), Spec: batchv1.JobSpec{Suspend: ptr(true), Template: naming("data")}})}, "data", "", "Job/job"},
		{"job, complete", []pvc.Want{pvc.OfJob(finishedJob)}, "data", "", "Job/job"},
		{"cron job", []pvc.Want{pvc.OfCronJob(&batchv1.CronJob{ObjectMeta: meta("cron"), Spec: batchv1.CronJobSpec{JobTemplate: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Template: naming("data")}}}})}, "data", "CronJob/cron", ""},
		{"cron job, suspended", []pvc.Want{pvc.OfCronJob(&batchv1.CronJob{ObjectMeta: meta("cron"), Spec: batchv1.CronJobSpec{Suspend: ptr(true), JobTemplate: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Template: naming("data")}}}})}, "data", "", "CronJob/cron"},
		{"another kind, its template", []pvc.Want{pvc.JobSet.Of(jobSet(nil))}, "shared", "JobSet/train", ""},
		{"another kind, its claims", []pvc.Want{pvc.JobSet.Of(jobSet(nil))}, "ckpt-train", "JobSet/train", ""},
		{"another kind, over", []pvc.Want{pvc.JobSet.Of(jobSet(map[string]any{"conditions": []any{map[string]any{"type": "Completed", "status": "True"}}}))}, "ckpt-train", "", "JobSet/train"},
		{"another kind, numbered", []pvc.Want{numbered.Of(jobSet(nil))}, "train-ckpt-0", "JobSet/train", ""},
		{"another kind, a condition that is no map", []pvc.Want{pvc.JobSet.Of(jobSet(map[string]any{"conditions": []any{7}}))}, "ckpt-train", "JobSet/train", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			held, idle := world(index(), tt.wants...).Holders(claim(tt.claim))
			if got := theNames(held); got != tt.held {
				t.Errorf("held by %q, want %q", got, tt.held)
			}
			if got := theNames(idle); got != tt.idle {
				t.Errorf("idle are %q, want %q", got, tt.idle)
			}
		})
	}
}

// Who orphans what it owns, or goes before it, waits for nothing.
func TestAWorkloadWaitsForWhatItOwnsInTheForegroundAlone(t *testing.T) {
	for finalizer, want := range map[string]bool{"foregroundDeletion": true, "orphan": false, "": false} {
		w := pvc.OfStatefulSet(statefulSet("db", 1, func(s *appsv1.StatefulSet) {
			s.DeletionTimestamp, s.Finalizers = &metav1.Time{Time: noon}, []string{finalizer}
		}))
		if !w.Ending || w.Foreground != want {
			t.Errorf("%q: %+v", finalizer, w)
		}
	}
	if w := pvc.OfStatefulSet(statefulSet("db", 1, func(s *appsv1.StatefulSet) { s.Finalizers = []string{"foregroundDeletion"} })); w.Foreground {
		t.Error("one that is not being deleted waits for what it owns")
	}
}

func oldRevision() *appsv1.ReplicaSet {
	old := &appsv1.ReplicaSet{ObjectMeta: meta("web-1"), Spec: appsv1.ReplicaSetSpec{Replicas: ptr[int32](0), Template: naming("data")}}
	controlledBy("Deployment", "uid-web")(old)
	return old
}

func ending(w pvc.Want) pvc.Want {
	w.Ending = true
	return w
}

func theNames(holders []pvc.Holder) string {
	var s string
	for i, h := range holders {
		if i > 0 {
			s += " "
		}
		s += h.Name
	}
	return s
}

// The workers' StatefulSet hangs from a pod: the chain goes on behind it.
func TestTheTopIsFoundThroughAPod(t *testing.T) {
	lws := pvc.OfLeaderWorkerSet(set("llama", 1, 2), 0)
	leaders := pvc.OfStatefulSet(statefulSet("leaders", 1, func(s *appsv1.StatefulSet) { controlledBy("LeaderWorkerSet", "uid-llama")(s) }))
	workers := pvc.OfStatefulSet(statefulSet("llama-0", 2, func(s *appsv1.StatefulSet) { controlledBy("Pod", "uid-leader")(s) }))
	w := world(index(), lws, leaders, workers)
	w.Links = map[types.UID]pvc.Link{"uid-leader": {Object: identity.Ref{Kind: identity.KindPod, Name: "llama-0"}, Controller: "uid-leaders"}}
	held, _ := w.Holders(claim("data-llama-0-0"))
	if got, want := theNames(held), "LeaderWorkerSet/llama"; got != want {
		t.Errorf("held by %q, want %q", got, want)
	}
	if diff := cmp.Diff("statefulset llama-0 spec.volumeClaimTemplates[data]", held[0].Proof); diff != "" {
		t.Error(diff)
	}
}

func TestARingOfControllersEnds(t *testing.T) {
	a := pvc.OfStatefulSet(statefulSet("a", 1, func(s *appsv1.StatefulSet) { controlledBy("StatefulSet", "uid-b")(s) }))
	bb := pvc.OfStatefulSet(statefulSet("b", 1, func(s *appsv1.StatefulSet) { controlledBy("StatefulSet", "uid-a")(s) }))
	if held, _ := world(index(), a, bb).Holders(claim("data-a-0")); len(held) != 1 {
		t.Errorf("held by %q", theNames(held))
	}
}

func TestCronJobsThatBeginEachOtherHoldAllTheSame(t *testing.T) {
	ring := func(name, by string) pvc.Want {
		cron := &batchv1.CronJob{ObjectMeta: meta(name)}
		cron.Spec.JobTemplate.Spec.Template = naming("data")
		controlledBy("CronJob", types.UID("uid-"+by))(cron)
		return pvc.OfCronJob(cron)
	}
	if d := pvc.DecideHold(holdView(claim("data"), ring("a", "b"), ring("b", "a"))); d.Annotations[pvc.HoldersAnnotation] != "CronJob/a, CronJob/b" {
		t.Errorf("held by %v", d.Annotations)
	}
}

// A pod that completed stays as long as its Job does, and each run leaves another.
func TestTheRunsOfACronJobAreNotNamedBesideIt(t *testing.T) {
	cron := &batchv1.CronJob{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "nightly", UID: "uid-nightly"}}
	cron.Spec.JobTemplate.Spec.Template.Spec.Volumes = []corev1.Volume{volume("data")}
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "nightly-1", UID: "uid-nightly-1"}}
	job.Spec.Template.Spec.Volumes = []corev1.Volume{volume("data")}
	controlledBy("CronJob", "uid-nightly")(job)
	run := pod("nightly-1-a", []string{"data"})
	named := func() string {
		v := holdView(claim("data"), pvc.OfCronJob(cron), pvc.OfJob(job))
		v.World.Pods = index(run)
		v.World.Links = map[types.UID]pvc.Link{run.UID: {Controller: job.UID}}
		return pvc.DecideHold(v).Annotations[pvc.HoldersAnnotation]
	}
	if got := named(); got != "CronJob/nightly" {
		t.Errorf("while it runs: held by %q", got)
	}
	run.Status.Phase = corev1.PodSucceeded
	job.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobComplete, Status: corev1.ConditionTrue}}
	if got := named(); got != "CronJob/nightly" {
		t.Errorf("once it has completed: held by %q", got)
	}
	cron.Spec.Suspend = new(true)
	if got := named(); got != "Pod/nightly-1-a" {
		t.Errorf("once no other will run: held by %q", got)
	}
}

func TestCheckKind(t *testing.T) {
	if err := pvc.JobSet.Check(); err != nil {
		t.Error(err)
	}
	for name, spoil := range map[string]func(*pvc.Kind){
		"no kind":           func(k *pvc.Kind) { k.Kind = "" },
		"no paths":          func(k *pvc.Kind) { k.Templates, k.ClaimTemplates = nil, nil },
		"no template":       func(k *pvc.Kind) { k.ClaimName = "{name}" },
		"ordinal in midway": func(k *pvc.Kind) { k.ClaimName = "{template}-{ordinal}-{name}" },
		"another word":      func(k *pvc.Kind) { k.ClaimName = "{template}-{Name}" },
		"no name":           func(k *pvc.Kind) { k.ClaimName = "{template}_{name}" },
		"no replicas":       func(k *pvc.Kind) { k.ClaimName = "{template}-{name}-{ordinal}" },
	} {
		k := pvc.JobSet
		spoil(&k)
		if k.Check() == nil {
			t.Errorf("%s: passes", name)
		}
	}
}
