package workloads

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"lockstep.dev/lockstep/internal/identity"
)

// Why a workload uses no PVC now.
const (
	scaledToZero = "scaled to zero"
	suspended    = "suspended"
	// Finished workloads will not use a PVC again.
	Finished = "finished"
)

const cronJob identity.Kind = "CronJob"

// template adds the PVCs that a pod template names.
func (w *Want) template(path string, volumes []corev1.Volume) {
	for i := range volumes {
		if source := volumes[i].PersistentVolumeClaim; source != nil {
			w.Named[source.ClaimName] = fmt.Sprintf("%s.spec.volumes[%s]", path, volumes[i].Name)
		}
	}
}

func replicas(n *int32) int {
	if n == nil {
		return 1
	}
	return int(*n)
}

func (w *Want) idleAt(n int) {
	if n == 0 {
		w.Idle = scaledToZero
	}
}

// BuiltIn is what a workload of a built-in kind wants.
func BuiltIn(object any) Want {
	switch o := object.(type) {
	case *appsv1.StatefulSet:
		return ofStatefulSet(o)
	case *appsv1.Deployment:
		return ofReplicas("Deployment", o, o.Spec.Replicas, o.Spec.Template.Spec.Volumes)
	case *appsv1.ReplicaSet:
		return ofReplicaSet(o)
	case *appsv1.DaemonSet:
		return ofDaemonSet(o)
	case *batchv1.Job:
		return ofJob(o)
	case *batchv1.CronJob:
		return ofCronJob(o)
	}
	panic(fmt.Sprintf("%T is not a workload", object))
}

// ofStatefulSet is one PVC for each template and ordinal, and those that its pods name.
func ofStatefulSet(set *appsv1.StatefulSet) Want {
	w := newWant(identity.KindStatefulSet, "apps/v1", set)
	n, start := replicas(set.Spec.Replicas), 0
	if set.Spec.Ordinals != nil {
		start = int(set.Spec.Ordinals.Start)
	}
	w.idleAt(n)
	w.template("spec.template", set.Spec.Template.Spec.Volumes)
	w.DeleteWhenScaled = deletesWhenScaled(set.Spec.PersistentVolumeClaimRetentionPolicy)
	for i := range set.Spec.VolumeClaimTemplates {
		name := set.Spec.VolumeClaimTemplates[i].Name
		w.Series = append(w.Series, Series{
			Prefix: name + "-" + set.Name, Spans: []Span{{start, start + n}}, Path: fmt.Sprintf("spec.volumeClaimTemplates[%s]", name),
		})
	}
	w.Released = "scale it down below the ordinal, or delete it"
	return w
}

func deletesWhenScaled(policy *appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy) bool {
	return policy != nil && policy.WhenScaled == appsv1.DeletePersistentVolumeClaimRetentionPolicyType
}

// ofReplicaSet is the PVCs that its pods name. An old revision of a Deployment wants none.
func ofReplicaSet(r *appsv1.ReplicaSet) Want {
	w := ofReplicas("ReplicaSet", r, r.Spec.Replicas, r.Spec.Template.Spec.Volumes)
	if w.Idle != "" && w.Controller != "" {
		w.Named = nil
	}
	return w
}

func ofReplicas(kind identity.Kind, workload metav1.Object, n *int32, volumes []corev1.Volume) Want {
	w := newWant(kind, "apps/v1", workload)
	w.idleAt(replicas(n))
	w.template("spec.template", volumes)
	w.Released = "scale it to zero, or delete it"
	return w
}

// ofDaemonSet is the PVCs that its pods name, on any number of nodes.
func ofDaemonSet(d *appsv1.DaemonSet) Want {
	w := newWant("DaemonSet", "apps/v1", d)
	w.template("spec.template", d.Spec.Template.Spec.Volumes)
	w.Released = "delete it"
	return w
}

// ofJob is the PVCs that its pods name, until it is complete or has failed.
func ofJob(job *batchv1.Job) Want {
	w := newWant("Job", "batch/v1", job)
	w.template("spec.template", job.Spec.Template.Spec.Volumes)
	w.idleAt(replicas(job.Spec.Parallelism))
	if job.Spec.Suspend != nil && *job.Spec.Suspend {
		w.Idle = suspended
	}
	for _, c := range job.Status.Conditions {
		if (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed) && c.Status == corev1.ConditionTrue {
			w.Idle = Finished
		}
	}
	w.Released = "suspend it, or delete it" // once it is finished, its pods hold
	return w
}

// ofCronJob is the PVCs that its next pods name.
func ofCronJob(job *batchv1.CronJob) Want {
	w := newWant(cronJob, "batch/v1", job)
	w.template("spec.jobTemplate.spec.template", job.Spec.JobTemplate.Spec.Template.Spec.Volumes)
	if job.Spec.Suspend != nil && *job.Spec.Suspend {
		w.Idle = suspended
	}
	w.Released = "suspend it, or delete it"
	return w
}
