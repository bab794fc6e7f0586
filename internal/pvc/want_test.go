package pvc_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/pvc"
	"lockstep.dev/lockstep/internal/pvc/workloads"
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

// A chain of controllers has one holder: its top.
func TestTheTopOfAChainHolds(t *testing.T) {
	lws := workloads.OfLeaderWorkerSet(set("llama", 2, 3), 0)
	leaders := wantOf(statefulSet("llama", 3, func(s *appsv1.StatefulSet) { controlledBy("LeaderWorkerSet", "uid-llama-set")(s) }))
	lws.Workload.UID = "uid-llama-set"
	for name, tt := range map[string]struct {
		wants      []workloads.Want
		claim      string
		held, idle string
	}{
		"a leader":                         {[]workloads.Want{lws, leaders}, "data-llama-1", "LeaderWorkerSet/llama", ""},
		"a group of a surge":               {[]workloads.Want{lws, leaders}, "data-llama-2", "LeaderWorkerSet/llama", "LeaderWorkerSet/llama"},
		"a set that is being deleted":      {[]workloads.Want{ending(lws), leaders}, "data-llama-0", "", ""},
		"a workload that is being deleted": {[]workloads.Want{ending(leaders)}, "data-llama-0", "", ""},
	} {
		held, idle := world(index(), tt.wants...).Holders(claim(tt.claim))
		if theNames(held) != tt.held || theNames(idle) != tt.idle {
			t.Errorf("%s: held by %q, idle %q", name, theNames(held), theNames(idle))
		}
	}
}

func ending(w workloads.Want) workloads.Want {
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
	lws := workloads.OfLeaderWorkerSet(set("llama", 1, 2), 0)
	leaders := wantOf(statefulSet("leaders", 1, func(s *appsv1.StatefulSet) { controlledBy("LeaderWorkerSet", "uid-llama")(s) }))
	workers := wantOf(statefulSet("llama-0", 2, func(s *appsv1.StatefulSet) { controlledBy("Pod", "uid-leader")(s) }))
	w := world(index(), lws, leaders, workers)
	w.Links = map[types.UID]workloads.Link{"uid-leader": {Object: identity.Ref{Kind: identity.KindPod, Name: "llama-0"}, Controller: "uid-leaders"}}
	held, _ := w.Holders(claim("data-llama-0-0"))
	if got, want := theNames(held), "LeaderWorkerSet/llama"; got != want {
		t.Errorf("held by %q, want %q", got, want)
	}
	if diff := cmp.Diff("statefulset llama-0 spec.volumeClaimTemplates[data]", held[0].Proof); diff != "" {
		t.Error(diff)
	}
}

func TestARingOfControllersEnds(t *testing.T) {
	a := wantOf(statefulSet("a", 1, func(s *appsv1.StatefulSet) { controlledBy("StatefulSet", "uid-b")(s) }))
	bb := wantOf(statefulSet("b", 1, func(s *appsv1.StatefulSet) { controlledBy("StatefulSet", "uid-a")(s) }))
	if held, _ := world(index(), a, bb).Holders(claim("data-a-0")); len(held) != 1 {
		t.Errorf("held by %q", theNames(held))
	}
}

func TestCronJobsThatBeginEachOtherHoldAllTheSame(t *testing.T) {
	ring := func(name, by string) workloads.Want {
		cron := &batchv1.CronJob{ObjectMeta: meta(name)}
		cron.Spec.JobTemplate.Spec.Template = naming("data")
		controlledBy("CronJob", types.UID("uid-"+by))(cron)
		return wantOf(cron)
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
		v := holdView(claim("data"), wantOf(cron), wantOf(job))
		v.World.Pods = index(run)
		v.World.Links = map[types.UID]workloads.Link{run.UID: {Controller: job.UID}}
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
