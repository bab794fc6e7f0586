package workloads

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

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

func replicas(n *int32) int { return int(ptr.Deref(n, 1)) }

func (w *Want) idleAt(n int) {
	if n == 0 {
		w.Idle = scaledToZero
	}
}

func (w *Want) suspendedIf(suspend *bool) {
	if ptr.Deref(suspend, false) {
		w.Idle = suspended
	}
}

// BuiltIn is what a workload of a built-in kind wants.
func BuiltIn(object any) Want {
	switch o := object.(type) {
	case *appsv1.StatefulSet:
		return ofStatefulSet(o)
	case *appsv1.Deployment:
		w := named("Deployment", "apps/v1", o, o.Spec.Template.Spec.Volumes, "scale it to zero, or delete it")
		w.idleAt(replicas(o.Spec.Replicas))
		return w
	case *appsv1.ReplicaSet:
		return ofReplicaSet(o)
	case *appsv1.DaemonSet:
		return named("DaemonSet", "apps/v1", o, o.Spec.Template.Spec.Volumes, "delete it")
	case *batchv1.Job:
		return ofJob(o)
	case *batchv1.CronJob:
		w := newWant(cronJob, "batch/v1", o)
		w.template("spec.jobTemplate.spec.template", o.Spec.JobTemplate.Spec.Template.Spec.Volumes)
		w.suspendedIf(o.Spec.Suspend)
		w.Released = "suspend it, or delete it"
		return w
	}
	panic(fmt.Sprintf("%T is not a workload", object))
}

// named is the PVCs that the pods of a workload name, and what ends its use.
func named(kind identity.Kind, apiVersion string, workload metav1.Object, volumes []corev1.Volume, released string) Want {
	w := newWant(kind, apiVersion, workload)
	w.template("spec.template", volumes)
	w.Released = released
	return w
}

// ofStatefulSet is one PVC for each template and ordinal, and those that its pods name.
func ofStatefulSet(set *appsv1.StatefulSet) Want {
	w := named(identity.KindStatefulSet, "apps/v1", set, set.Spec.Template.Spec.Volumes, "scale it down below the ordinal, or delete it")
	n, start := replicas(set.Spec.Replicas), 0
	w.idleAt(n)
	if set.Spec.Ordinals != nil {
		start = int(set.Spec.Ordinals.Start)
	}
	policy := set.Spec.PersistentVolumeClaimRetentionPolicy
	w.DeleteWhenScaled = policy != nil && policy.WhenScaled == appsv1.DeletePersistentVolumeClaimRetentionPolicyType
	for i := range set.Spec.VolumeClaimTemplates {
		name := set.Spec.VolumeClaimTemplates[i].Name
		w.Series = append(w.Series, Series{
			Prefix: name + "-" + set.Name, Spans: []Span{{start, start + n}}, Path: fmt.Sprintf("spec.volumeClaimTemplates[%s]", name),
		})
	}
	return w
}

// ofReplicaSet is the PVCs that its pods name. An old revision of a Deployment wants none.
func ofReplicaSet(r *appsv1.ReplicaSet) Want {
	w := named("ReplicaSet", "apps/v1", r, r.Spec.Template.Spec.Volumes, "scale it to zero, or delete it")
	w.idleAt(replicas(r.Spec.Replicas))
	if w.Idle != "" && w.Controller.UID != "" {
		w.Named = nil
	}
	return w
}

// ofJob is the PVCs that its pods name, until it is complete or has failed. Then its pods hold.
func ofJob(job *batchv1.Job) Want {
	w := named("Job", "batch/v1", job, job.Spec.Template.Spec.Volumes, "suspend it, or delete it")
	w.idleAt(replicas(job.Spec.Parallelism))
	w.suspendedIf(job.Spec.Suspend)
	for _, c := range job.Status.Conditions {
		if (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed) && c.Status == corev1.ConditionTrue {
			w.Idle = Finished
		}
	}
	return w
}
