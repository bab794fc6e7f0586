package main

import (
	"errors"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/test/drill"
)

// Images that pods are told apart by. No node pulls them.
const (
	imageA = "registry.example/serve:a"
	imageB = "registry.example/serve:b"
)

// Labels of the floor's pods: one that all bear, and one that tells their group.
const (
	floorLabel = "bench/floor"
	groupLabel = "bench/group"
)

// load is so many groups of so many pods, as one set or as bare StatefulSets.
type load struct {
	groups, size   int
	bare           bool
	create, remove func(*stage) error
	policy         lwsv1.RestartPolicyType
}

// own is the load as a LeaderWorkerSet.
func own(groups, size int) load {
	return load{groups: groups, size: size, policy: lwsv1.NoneRestartPolicy,
		create: func(s *stage) error { return s.Client.Create(s.ctx, s.newSet()) },
		remove: func(s *stage) error { return s.Client.Delete(s.ctx, s.newSet(), background) },
	}
}

// floor is the load as one StatefulSet of leaders and one of workers a group.
func floor(groups, size int) load {
	return load{groups: groups, size: size, bare: true, create: createBare, remove: removeBare}
}

const background = client.PropagationPolicy(metav1.DeletePropagationBackground)

func (s *stage) newSet() *lwsv1.LeaderWorkerSet {
	return drill.NewSet(s.namespace, "a", int32(s.groups), int32(s.size), podSpec(), func(set *lwsv1.LeaderWorkerSet) {
		set.Spec.LeaderWorkerTemplate.RestartPolicy = s.policy
		set.Spec.RolloutStrategy = lwsv1.RolloutStrategy{
			Type:                       lwsv1.RollingUpdateStrategyType,
			RollingUpdateConfiguration: &lwsv1.RollingUpdateConfiguration{MaxUnavailable: intstr.FromInt32(10)},
		}
	})
}

func podSpec() corev1.PodSpec {
	return corev1.PodSpec{Containers: []corev1.Container{{Name: "serve", Image: imageA, Env: []corev1.EnvVar{{Name: "MODEL", Value: "llama"}}}}}
}

// createBare makes the StatefulSets and the headless Service that governs them, as a
// set has one: its endpoints are work for the control plane, too.
func createBare(s *stage) error {
	return errors.Join(s.Client.Create(s.ctx, s.governing()), drill.Together(s.statefulSets(), func(sts *appsv1.StatefulSet) error {
		return s.Client.Create(s.ctx, sts)
	}))
}

func removeBare(s *stage) error {
	err := client.IgnoreNotFound(s.Client.Delete(s.ctx, s.governing()))
	return errors.Join(err, drill.Together(s.statefulSets(), func(sts *appsv1.StatefulSet) error {
		return client.IgnoreNotFound(s.Client.Delete(s.ctx, sts, background))
	}))
}

func (s *stage) governing() *corev1.Service {
	return &corev1.Service{ObjectMeta: s.meta("a"), Spec: corev1.ServiceSpec{
		ClusterIP: corev1.ClusterIPNone, PublishNotReadyAddresses: true, Selector: map[string]string{floorLabel: "a"},
	}}
}

// statefulSets is the leaders' StatefulSet and one of workers for each group.
func (s *stage) statefulSets() []*appsv1.StatefulSet {
	all := []*appsv1.StatefulSet{s.statefulSet("a", s.groups)}
	for i := range s.groups {
		if s.size > 1 {
			all = append(all, s.statefulSet(fmt.Sprintf("a-%d", i), s.size-1))
		}
	}
	return all
}

func (s *stage) statefulSet(name string, pods int) *appsv1.StatefulSet {
	replicas, all := int32(pods), intstr.FromString("100%")
	labels := map[string]string{floorLabel: "a", groupLabel: name}
	sts := &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name, Labels: labels},
		Spec: appsv1.StatefulSetSpec{
			Replicas: &replicas, ServiceName: "a", PodManagementPolicy: appsv1.ParallelPodManagement,
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			UpdateStrategy: appsv1.StatefulSetUpdateStrategy{
				Type: appsv1.RollingUpdateStatefulSetStrategyType, RollingUpdate: &appsv1.RollingUpdateStatefulSetStrategy{MaxUnavailable: &all},
			},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: podSpec()},
		},
	}
	if name != "a" {
		sts.Spec.Ordinals = &appsv1.StatefulSetOrdinals{Start: 1}
	}
	return sts
}
