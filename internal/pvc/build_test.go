package pvc_test

import (
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"lockstep.dev/lockstep/internal/pvc"
	"lockstep.dev/lockstep/internal/pvc/workloads"
	"lockstep.dev/lockstep/test/fakeapi"
)

const (
	ns = "ns"
	p  = pvc.PodsFinalizer
	b  = pvc.BarrierFinalizer
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func edited[T any](object T, edits []func(T)) T {
	for _, edit := range edits {
		edit(object)
	}
	return object
}

// claim is a living claim with both finalizers.
func claim(name string, edits ...func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
	return edited(&corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: ns, Name: name, UID: types.UID("uid-" + name), ResourceVersion: "7",
			Finalizers: []string{p, b}, Annotations: map[string]string{},
		},
		Spec: corev1.PersistentVolumeClaimSpec{VolumeName: "pv-" + name},
	}, edits)
}

func dying(c *corev1.PersistentVolumeClaim) { c.DeletionTimestamp = &metav1.Time{Time: noon} }

func finalizers(f ...string) func(*corev1.PersistentVolumeClaim) {
	return func(c *corev1.PersistentVolumeClaim) { c.Finalizers = f }
}

func annotated(key, value string) func(*corev1.PersistentVolumeClaim) {
	return func(c *corev1.PersistentVolumeClaim) { c.Annotations[key] = value }
}

func controlledBy(kind string, uid types.UID) func(metav1.Object) {
	yes := true
	return func(o metav1.Object) {
		version := "apps/v1"
		if kind == "Pod" {
			version = "v1"
		}
		o.SetOwnerReferences(append(o.GetOwnerReferences(), metav1.OwnerReference{APIVersion: version, Kind: kind, Name: "owner", UID: uid, Controller: &yes}))
	}
}

// pod is a running pod on node n1 that names the claims.
func pod(name string, claims []string, edits ...func(*corev1.Pod)) *corev1.Pod {
	return edited(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, UID: types.UID("uid-" + name), ResourceVersion: "3"},
		Spec:       corev1.PodSpec{NodeName: "n1", Volumes: fakeapi.Using(claims...)},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning},
	}, edits)
}

func unbound(o *corev1.Pod) { o.Spec.NodeName, o.Status.Phase = "", corev1.PodPending }

func phase(phase corev1.PodPhase) func(*corev1.Pod) {
	return func(o *corev1.Pod) { o.Status.Phase = phase }
}

func leaving(grace int64) func(*corev1.Pod) {
	return func(o *corev1.Pod) {
		o.DeletionTimestamp, o.DeletionGracePeriodSeconds = &metav1.Time{Time: noon}, &grace
	}
}

func index(pods ...*corev1.Pod) *pvc.Index {
	x := pvc.NewIndex()
	for _, o := range pods {
		x.See(o)
	}
	return x
}

// reading hands out the pods, and then the error.
func reading(err error, pods ...*corev1.Pod) pvc.Read {
	return func(_ string, see func(*corev1.Pod)) error {
		for _, o := range pods {
			see(o)
		}
		return err
	}
}

// statefulSet wants data-NAME-0 to data-NAME-(n-1).
func statefulSet(name string, n int32, edits ...func(*appsv1.StatefulSet)) *appsv1.StatefulSet {
	return edited(&appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, UID: types.UID("uid-" + name), ResourceVersion: "5"},
		Spec: appsv1.StatefulSetSpec{
			Replicas:             &n,
			VolumeClaimTemplates: []corev1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: "data"}}},
		},
	}, edits)
}

func world(pods *pvc.Index, wants ...workloads.Want) pvc.World {
	return pvc.World{Pods: pods, Desire: workloads.NewDesire(ns, wants)}
}

func wantOf(object any) workloads.Want { return workloads.BuiltIn(object) }

func fakeUID(i int) types.UID { return types.UID(fmt.Sprintf("00000000-0000-0000-0000-%012d", i)) }

func meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: ns, Name: name, UID: types.UID("uid-" + name)}
}

func naming(claim string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{Spec: corev1.PodSpec{Volumes: fakeapi.Using(claim)}}
}

func theNames(holders []pvc.Holder) string {
	var all []string
	for _, h := range holders {
		all = append(all, h.Name)
	}
	return strings.Join(all, " ")
}
