package fakeapi

import (
	"fmt"
	"maps"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/test/expect"
)

// Ptr points at a copy of value.
func Ptr[T any](value T) *T { return &value }

// Set builds a set of groups of the given size, as the API server stores it after
// defaulting, but with restart policy None.
func Set(name string, replicas, size int32, edits ...func(*lwsv1.LeaderWorkerSet)) *lwsv1.LeaderWorkerSet {
	return Edited(&lwsv1.LeaderWorkerSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: name},
		Spec: lwsv1.LeaderWorkerSetSpec{
			Replicas: &replicas,
			LeaderWorkerTemplate: lwsv1.LeaderWorkerTemplate{
				Size:           &size,
				RestartPolicy:  lwsv1.NoneRestartPolicy,
				WorkerTemplate: Template("worker", "image:1"),
			},
			RolloutStrategy: lwsv1.RolloutStrategy{Type: lwsv1.RollingUpdateStrategyType},
			StartupPolicy:   lwsv1.LeaderCreatedStartupPolicy,
			NetworkConfig:   &lwsv1.NetworkConfig{SubdomainPolicy: Ptr(lwsv1.SubdomainShared)},
		},
	}, edits...)
}

// Each returns what a function makes of each value.
func Each[T, M any](all []T, of func(T) M) (made []M) {
	for _, one := range all {
		made = append(made, of(one))
	}
	return made
}

// Edited returns an object after some edits.
func Edited[T any](object T, edits ...func(T)) T {
	for _, edit := range edits {
		edit(object)
	}
	return object
}

// Image sets the image of the worker template.
func Image(image string) func(*lwsv1.LeaderWorkerSet) {
	return func(set *lwsv1.LeaderWorkerSet) {
		set.Spec.LeaderWorkerTemplate.WorkerTemplate.Spec.Containers[0].Image = image
	}
}

// Leader gives leaders a template of their own.
func Leader(image string) func(*lwsv1.LeaderWorkerSet) {
	return func(set *lwsv1.LeaderWorkerSet) {
		set.Spec.LeaderWorkerTemplate.LeaderTemplate = Ptr(Template("leader", image))
	}
}

// UniquePerReplica gives every group a Service of its own.
func UniquePerReplica(set *lwsv1.LeaderWorkerSet) {
	set.Spec.NetworkConfig = &lwsv1.NetworkConfig{SubdomainPolicy: Ptr(lwsv1.SubdomainUniquePerReplica)}
}

// LeaderReady starts workers after their leader is ready.
func LeaderReady(set *lwsv1.LeaderWorkerSet) { set.Spec.StartupPolicy = lwsv1.LeaderReadyStartupPolicy }

// Policy gives the set a restart policy.
func Policy(policy lwsv1.RestartPolicyType) func(*lwsv1.LeaderWorkerSet) {
	return func(set *lwsv1.LeaderWorkerSet) { set.Spec.LeaderWorkerTemplate.RestartPolicy = policy }
}

// Parallel ends the pods of each group together.
func Parallel(set *lwsv1.LeaderWorkerSet) {
	set.Spec.PodTerminationPolicy = lwsv1.ParallelPodTermination
}

// Annotation sets an annotation of the set.
func Annotation(key, value string) func(*lwsv1.LeaderWorkerSet) {
	return func(set *lwsv1.LeaderWorkerSet) { metav1.SetMetaDataAnnotation(&set.ObjectMeta, key, value) }
}

// Template builds a pod template of one container.
func Template(container, image string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: container, Image: image}}}}
}

// Pod builds a pod with the labels of the set and a worker index.
func Pod(name, set string, index int) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: Namespace, Name: name,
		Labels: map[string]string{lwsv1.SetNameLabelKey: set, lwsv1.WorkerIndexLabelKey: strconv.Itoa(index)},
	}}
}

// OwnedBy makes the incarnation the controller of an object.
func OwnedBy(object metav1.Object, apiVersion string, owner identity.Ref) {
	object.SetOwnerReferences([]metav1.OwnerReference{{
		APIVersion: apiVersion, Kind: string(owner.Kind), Name: owner.Name, UID: owner.UID,
		Controller: Ptr(true), BlockOwnerDeletion: Ptr(true),
	}})
}

// Former returns an incarnation that no longer exists.
func Former(kind identity.Kind, name string) identity.Ref {
	return identity.Ref{Kind: kind, Namespace: Namespace, Name: name, UID: types.UID("former-" + name)}
}

// Resources returns a list of one resource.
func Resources(name corev1.ResourceName, quantity string) corev1.ResourceList {
	return corev1.ResourceList{name: resource.MustParse(quantity)}
}

// Using returns the volumes of a pod that uses PVCs, each named as its PVC.
func Using(claims ...string) (volumes []corev1.Volume) {
	for _, name := range claims {
		source := &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}
		volumes = append(volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: source}})
	}
	return volumes
}

// Untyped converts an object to its unstructured form. It panics if a test passes one without JSON.
func Untyped(object any) *unstructured.Unstructured {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		panic(err)
	}
	return &unstructured.Unstructured{Object: fields}
}

// Metrics returns the values of collectors, by name and labels.
func Metrics(t testing.TB, all ...prometheus.Collector) map[string]float64 {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(all...)
	families := expect.Value(registry.Gather())(t)
	values := map[string]float64{}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			name := strings.TrimPrefix(family.GetName(), "lockstep_")
			for _, label := range m.GetLabel() {
				name += " " + label.GetValue()
			}
			if value := m.GetGauge().GetValue() + m.GetCounter().GetValue(); value != 0 {
				values[name] = value
			}
		}
	}
	return values
}

const laterPrefix = "ofALaterVersion"

// WithLater adds fields that no type of this version has to some of the objects within raw. The
// metadata, whose maps have keys of users, stays as it is.
func WithLater(t *rapid.T, raw []byte) []byte {
	var whole map[string]any
	decode(raw, &whole)
	count := 0
	inEach(whole, func(object map[string]any) {
		if rapid.Bool().Draw(t, "extend") {
			count++
			object[fmt.Sprint(laterPrefix, count)] = rapid.SampledFrom([]any{"x", 7.0, false, []any{"y"}, map[string]any{"z": "1"}}).Draw(t, "value")
		}
	})
	return encoded(whole)
}

// LaterOf returns the fields that WithLater added, by name, wherever they are now.
func LaterOf(raw []byte) map[string]any {
	var whole map[string]any
	decode(raw, &whole)
	found := map[string]any{}
	inEach(whole, func(object map[string]any) {
		for name, value := range object {
			if strings.HasPrefix(name, laterPrefix) {
				found[name] = value
			}
		}
	})
	return found
}

// inEach calls visit with value and each object within it, but for metadata.
func inEach(value any, visit func(map[string]any)) {
	switch value := value.(type) {
	case map[string]any:
		within := maps.Clone(value)
		visit(value)
		for name, field := range within {
			if name != "metadata" {
				inEach(field, visit)
			}
		}
	case []any:
		for _, element := range value {
			inEach(element, visit)
		}
	}
}
