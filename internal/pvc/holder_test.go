package pvc_test

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/pvc"
	"lockstep.dev/lockstep/internal/pvc/workloads"
	"lockstep.dev/lockstep/test/fakeapi"
)

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
		if theNames(held) != tt.held || theNames(idle) != tt.idle {
			t.Errorf("%s: held by %q, idle %q", tt.name, theNames(held), theNames(idle))
		}
		if len(held) > 0 && held[0].Proof != tt.proof && tt.name != "a ring" {
			t.Errorf("%s: proof %q", tt.name, held[0].Proof)
		}
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
		if got := pvc.DecideHold(v).Annotations[pvc.HoldersAnnotation]; got != tt.want {
			t.Errorf("%s: %q", tt.name, got)
		}
	}
	ring := holdView(claim("data"), cron("a", "b", false), cron("b", "a", false))
	if got := pvc.DecideHold(ring).Annotations[pvc.HoldersAnnotation]; got != "CronJob/a, CronJob/b" {
		t.Errorf("a ring of CronJobs: %q", got)
	}
}
