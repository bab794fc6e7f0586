package workloads_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"lockstep.dev/lockstep/api/config/v1alpha1"
	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/pvc/workloads"
	"lockstep.dev/lockstep/test/expect"
	"lockstep.dev/lockstep/test/fakeapi"
)

func meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: "ns", Name: name, UID: "uid"}
}

func naming(pvc string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{Spec: corev1.PodSpec{Volumes: fakeapi.Using(pvc)}}
}

var dataTemplate = []corev1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: "data"}}}

func db(replicas int32, edits ...func(*appsv1.StatefulSetSpec)) *appsv1.StatefulSet {
	set := &appsv1.StatefulSet{ObjectMeta: meta("db"), Spec: appsv1.StatefulSetSpec{Replicas: &replicas, VolumeClaimTemplates: dataTemplate}}
	fakeapi.Edited(&set.Spec, edits...)
	return set
}

func llama(groups, size int32, edits ...func(*lwsv1.LeaderWorkerSet)) *lwsv1.LeaderWorkerSet {
	set := &lwsv1.LeaderWorkerSet{ObjectMeta: meta("llama"), Spec: lwsv1.LeaderWorkerSetSpec{
		Replicas:             &groups,
		LeaderWorkerTemplate: lwsv1.LeaderWorkerTemplate{Size: &size, WorkerTemplate: naming("models"), VolumeClaimTemplates: dataTemplate},
	}}
	return fakeapi.Edited(set, edits...)
}

func ran(groups int32) func(*lwsv1.LeaderWorkerSet) {
	return func(set *lwsv1.LeaderWorkerSet) { set.Status.Replicas = groups }
}

func ownLeader(set *lwsv1.LeaderWorkerSet) {
	set.Spec.LeaderWorkerTemplate.LeaderTemplate = new(naming("other"))
}

func job(status batchv1.JobConditionType, suspend bool) *batchv1.Job {
	return &batchv1.Job{
		ObjectMeta: meta("job"), Spec: batchv1.JobSpec{Template: naming("data"), Suspend: &suspend},
		Status: batchv1.JobStatus{Conditions: []batchv1.JobCondition{{Type: status, Status: corev1.ConditionTrue}}},
	}
}

func cron(suspend bool) *batchv1.CronJob {
	return &batchv1.CronJob{ObjectMeta: meta("cron"), Spec: batchv1.CronJobSpec{
		Suspend: &suspend, JobTemplate: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Template: naming("data")}},
	}}
}

func replicaSet(controlled bool) *appsv1.ReplicaSet {
	set := &appsv1.ReplicaSet{ObjectMeta: meta("web"), Spec: appsv1.ReplicaSetSpec{Replicas: new(int32(0)), Template: naming("data")}}
	if controlled {
		set.OwnerReferences = []metav1.OwnerReference{{UID: "deployment", Controller: new(true)}}
	}
	return set
}

const uses, idle, no = "uses", "idle", "no"

// wants is how a workload wants a PVC.
func wants(want workloads.Want, pvc string) string {
	answer := no
	for _, match := range workloads.NewDesire("ns", []workloads.Want{want}).Of(pvc) {
		if match.Idle == "" {
			return uses
		}
		answer = idle
	}
	return answer
}

// largest is the size of groups whose record has one letter for each pod.
var largest workloads.GroupSize = func(set *lwsv1.LeaderWorkerSet) (size int) {
	for _, group := range set.Status.Started {
		size = max(size, len(group.Pods))
	}
	return size
}

func TestWorkloadsWantPVCs(t *testing.T) {
	from5 := func(spec *appsv1.StatefulSetSpec) { spec.Ordinals = &appsv1.StatefulSetOrdinals{Start: 5} }
	shared := func(spec *appsv1.StatefulSetSpec) { spec.Template = naming("shared") }
	for _, tt := range []struct {
		name     string
		workload any
		started  int
		pvc      string
		want     string
	}{
		{"in range", db(2), 0, "data-db-1", uses},
		{"out of range", db(2), 0, "data-db-2", idle},
		{"another spelling of the ordinal", db(2), 0, "data-db-01", no},
		{"another template", db(2), 0, "logs-db-0", no},
		{"a longer name", db(2), 0, "data-db-x-0", no},
		{"no ordinal", db(2), 0, "data-db", no},
		{"ordinals from 5", db(2, from5), 0, "data-db-6", uses},
		{"below ordinals from 5", db(2, from5), 0, "data-db-4", idle},
		{"scaled to zero", db(0), 0, "data-db-0", idle},
		{"named in the template", db(1, shared), 0, "shared", uses},

		{"a leader", llama(2, 3), 0, "data-llama-1", uses},
		{"a worker", llama(2, 3), 0, "data-llama-1-2", uses},
		{"a worker beyond the size", llama(2, 3), 0, "data-llama-1-3", idle},
		{"a worker of a larger size that still runs", llama(2, 3), 5, "data-llama-1-4", uses},
		{"a worker beyond every size", llama(2, 3), 5, "data-llama-1-5", idle},
		{"a worker of a size that grew", llama(2, 3), 2, "data-llama-1-2", uses},
		{"worker 0 is the leader", llama(2, 3), 0, "data-llama-1-0", idle},
		{"a group beyond the replicas", llama(2, 3), 0, "data-llama-2-1", idle},
		{"a group of a surge", llama(2, 3, ran(3)), 0, "data-llama-2-1", uses},
		{"a group that still runs at zero replicas", llama(0, 3, ran(1)), 0, "data-llama-0-1", idle},
		{"named in the set's template", llama(2, 3), 0, "models", uses},
		{"named by workers that do not exist", llama(1, 1, ownLeader), 0, "models", no},
		{"named by workers of a larger size", llama(1, 1, ownLeader), 4, "models", uses},

		{"deployment", &appsv1.Deployment{ObjectMeta: meta("web"), Spec: appsv1.DeploymentSpec{Template: naming("data")}}, 0, "data", uses},
		{"deployment at zero", &appsv1.Deployment{ObjectMeta: meta("web"), Spec: appsv1.DeploymentSpec{Replicas: new(int32(0)), Template: naming("data")}}, 0, "data", idle},
		{"replicaset at zero", replicaSet(false), 0, "data", idle},
		{"old revision of a deployment", replicaSet(true), 0, "data", no},
		{"daemonset", &appsv1.DaemonSet{ObjectMeta: meta("web"), Spec: appsv1.DaemonSetSpec{Template: naming("data")}}, 0, "data", uses},
		{"job", job(batchv1.JobSuspended, false), 0, "data", uses},
		{"suspended job", job("", true), 0, "data", idle},
		{"complete job", job(batchv1.JobComplete, false), 0, "data", idle},
		{"failed job", job(batchv1.JobFailed, false), 0, "data", idle},
		{"cronjob", cron(false), 0, "data", uses},
		{"suspended cronjob", cron(true), 0, "data", idle},
	} {
		wanting := workloads.BuiltIn
		if set, is := tt.workload.(*lwsv1.LeaderWorkerSet); is {
			set.Status.Started = []lwsv1.StartedGroup{{Pods: "A"}, {Pods: strings.Repeat("A", tt.started)}}
			wanting, tt.workload = largest.OfLeaderWorkerSet, fakeapi.Untyped(set)
		}
		expect.Equalf(t, tt.want, wants(wanting(tt.workload), tt.pvc), "%s", tt.name)
	}
}

// Another implementation may admit sets that our types cannot hold. Such a set is read, and blocks
// no other one.
func TestASetThatCannotBeDecodedIsRead(t *testing.T) {
	type fields = map[string]any
	const template, leader, digits = "spec.leaderWorkerTemplate", "spec.leaderWorkerTemplate.leaderTemplate.spec.", "1e-2147483647"
	const claims, policy = template + ".volumeClaimTemplates", template + ".persistentVolumeClaimRetentionPolicy"
	container := func(field string, value any) any { return []any{fields{"name": "c", field: value}} }
	source := fields{"claimName": int64(7), "readOnly": "yes"}
	plain := largest.OfLeaderWorkerSet(fakeapi.Untyped(llama(2, 3, ownLeader)))
	for name, tt := range map[string]struct {
		path  string
		value any
		same  bool // it wants the same PVCs
		every bool // it wants PVCs of every ordinal
	}{
		"an amount of many digits": {leader + "containers", container("resources", fields{"limits": fields{"cpu": digits}}), true, false},
		"an amount that is none":   {leader + "containers", container("resources", fields{"limits": fields{"cpu": "1e1.5"}}), true, false},
		"a port that is none":      {leader + "containers", container("ports", []any{fields{"containerPort": int64(1) << 40}}), true, false},
		"a claim's amount":         {claims, []any{fields{"metadata": fields{"name": "data"}, "spec": fields{"storage": digits}}}, true, false},
		"a policy of another type": {policy, "Delete", true, false},
		"its parts":                {policy + ".whenScaled", true, true, false},
		"a claim's name":           {claims, []any{fields{"metadata": fields{"name": int64(1)}}}, false, false},
		"a volume":                 {leader + "volumes", []any{fields{"name": int64(1), "persistentVolumeClaim": source}, "none"}, false, false},
		"the template":             {template, "none", false, false},
		"the record of groups":     {"status.started", []any{fields{"pods": int64(5)}, "none"}, true, false},
		"a number as text":         {"spec.replicas", "2", false, true},
		"a number with a fraction": {template + ".size", 1.5, false, true},
		"a number too large":       {"status.replicas", int64(1) << 40, false, true},
	} {
		set := fakeapi.Untyped(llama(2, 3, ownLeader))
		expect.OK(t, unstructured.SetNestedField(set.Object, tt.value, strings.Split(tt.path, ".")...))
		got := largest.OfLeaderWorkerSet(set)
		diff := cmp.Diff(plain, got)
		expect.That(t, !tt.same || diff == "", "%s (-want +got):\n%s", name, diff)
		if tt.every && !slices.ContainsFunc(got.Series[1].Spans, func(s workloads.Span) bool { return s.To > 1<<30 }) {
			t.Errorf("%s: %v", name, got.Series)
		}
	}
}

// A workload waits for what it owns only in foreground deletion.
func TestForegroundDeletion(t *testing.T) {
	for finalizer, want := range map[string]bool{metav1.FinalizerDeleteDependents: true, metav1.FinalizerOrphanDependents: false, "": false} {
		set := db(1)
		set.Finalizers = []string{finalizer}
		w := workloads.BuiltIn(set)
		expect.That(t, !w.Ending && !w.Foreground, "%q, living: %+v", finalizer, w)
		set.DeletionTimestamp = &metav1.Time{}
		if w := workloads.BuiltIn(set); !w.Ending || w.Foreground != want {
			t.Errorf("%q, terminating: %+v", finalizer, w)
		}
	}
}

func object(spec, status map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"metadata": map[string]any{"name": "s", "namespace": "ns", "uid": "uid"}, "spec": spec, "status": status,
	}}
}

func named(name string) any { return map[string]any{"metadata": map[string]any{"name": name}} }

// template is a pod template that names the PVC shared.
func template() any {
	return map[string]any{"spec": map[string]any{
		"containers": []any{map[string]any{"name": "c"}},
		"volumes":    []any{map[string]any{"persistentVolumeClaim": map[string]any{"claimName": "shared"}}, map[string]any{"name": "tmp"}},
	}}
}

func jobSet(conditions ...any) *unstructured.Unstructured {
	return object(map[string]any{
		"volumeClaimPolicies": []any{map[string]any{"templates": []any{named("ckpt")}}},
		"replicatedJobs":      []any{map[string]any{"template": map[string]any{"spec": map[string]any{"template": template()}}}},
	}, map[string]any{"conditions": conditions})
}

// cluster has one part for each map.
func cluster(parts ...map[string]any) *unstructured.Unstructured {
	var groups []any
	for _, part := range parts {
		part["claims"], part["template"] = []any{named("data")}, template()
		groups = append(groups, part)
	}
	return object(map[string]any{"groups": groups}, nil)
}

type part = map[string]any

// Many parts make one workload: it is idle only if all are, and its size is that of the largest.
func TestDescribedKindsWantPVCs(t *testing.T) {
	clusters := workloads.KindOf(v1alpha1.WorkloadKind{
		APIVersion: "example.com/v1", Kind: "Cluster", PodTemplates: []string{"spec.groups.*.template"}, ClaimTemplates: []string{"spec.groups.*.claims"},
		ClaimName: "{template}-{name}-{ordinal}", Replicas: "spec.groups.*.replicas", Suspend: "spec.groups.*.suspend",
	})
	const numbered = "data-s-2"
	size := func(n int64) part { return part{"replicas": n} }
	for _, tt := range []struct {
		name     string
		kind     workloads.Kind
		workload *unstructured.Unstructured
		pvc      string
		want     string
	}{
		{"jobset, its template", workloads.JobSet, jobSet(), "shared", uses},
		{"jobset, its claims", workloads.JobSet, jobSet(), "ckpt-s", uses},
		{"jobset, completed", workloads.JobSet, jobSet(map[string]any{"type": "Completed", "status": "True"}), "ckpt-s", idle},
		{"jobset, not completed", workloads.JobSet, jobSet(map[string]any{"type": "Completed", "status": "False"}), "ckpt-s", uses},
		{"jobset, a condition of another type", workloads.JobSet, jobSet(7), "ckpt-s", uses},
		{"the first part at zero", clusters, cluster(size(0), size(3)), numbered, uses},
		{"the last part at zero", clusters, cluster(size(3), size(0)), numbered, uses},
		{"one part is smaller", clusters, cluster(size(1), size(3)), numbered, uses},
		{"all are smaller", clusters, cluster(size(1), size(2)), numbered, idle},
		{"all are smaller, the template", clusters, cluster(size(1), size(2)), "shared", uses},
		{"negative", clusters, cluster(size(-1)), "shared", uses},
		{"all at zero", clusters, cluster(size(0), size(0)), "shared", idle},
		{"one without the field", clusters, cluster(size(0), part{}), "shared", uses},
		{"not a number", clusters, cluster(part{"replicas": "two"}), "data-s-77", uses},
		{"no parts", clusters, cluster(), "shared", no},
		{"one is suspended", clusters, cluster(part{"replicas": int64(3), "suspend": true}, size(3)), numbered, uses},
		{"all are suspended", clusters, cluster(part{"replicas": int64(3), "suspend": true}, part{"suspend": true}), numbered, idle},
	} {
		expect.Equalf(t, tt.want, wants(tt.kind.Of(tt.workload), tt.pvc), "%s", tt.name)
	}
}

func TestCheck(t *testing.T) {
	for name, tt := range map[string]struct {
		spoil func(*v1alpha1.WorkloadKind)
		fails bool
	}{
		"jobset":                 {func(*v1alpha1.WorkloadKind) {}, false},
		"no kind":                {func(k *v1alpha1.WorkloadKind) { k.Kind = "" }, true},
		"no paths":               {func(k *v1alpha1.WorkloadKind) { k.PodTemplates, k.ClaimTemplates = nil, nil }, true},
		"no claims, no name":     {func(k *v1alpha1.WorkloadKind) { k.ClaimTemplates, k.ClaimName = nil, "" }, false},
		"no template":            {func(k *v1alpha1.WorkloadKind) { k.ClaimName = "{name}" }, true},
		"an ordinal in between":  {func(k *v1alpha1.WorkloadKind) { k.ClaimName = "{template}-{ordinal}-{name}" }, true},
		"another word":           {func(k *v1alpha1.WorkloadKind) { k.ClaimName = "{template}-{Name}" }, true},
		"no name of a PVC":       {func(k *v1alpha1.WorkloadKind) { k.ClaimName = "{template}_{name}" }, true},
		"ordinals, no replicas":  {func(k *v1alpha1.WorkloadKind) { k.ClaimName = "{template}-{name}-{ordinal}" }, true},
		"ordinals, and replicas": {func(k *v1alpha1.WorkloadKind) { k.ClaimName, k.Replicas = "{template}-{ordinal}", "spec.n" }, false},
	} {
		fields := workloads.JobSet.Fields
		tt.spoil(&fields)
		err := workloads.KindOf(fields).Check()
		expect.That(t, (err != nil) == tt.fails, "%s: %v", name, err)
	}
}

func TestKindsOfAddsThoseThatNeedNoDescription(t *testing.T) {
	own, roles := workloads.JobSet.Fields, workloads.DisaggregatedSet.Fields
	own.Suspend, roles.Suspend = "spec.pause", "spec.hold"
	for want, described := range map[string][]v1alpha1.WorkloadKind{"spec.suspend,": nil, "spec.pause,": {own}, "spec.hold,spec.suspend": {roles}} {
		kinds := workloads.KindsOf(described)
		got := strings.Join(fakeapi.Each(kinds, func(k workloads.Kind) string { return k.Fields.Suspend }), ",")
		expect.Equal(t, want, got)
		for _, kind := range kinds {
			expect.OK(t, kind.Check())
		}
	}
}
