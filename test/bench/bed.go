package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	dsv1 "lockstep.dev/lockstep/api/disaggregatedset/v1"
	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/test/drill"
)

// benchAgent is the user agent of the bench's own requests.
const benchAgent = "bench"

// bed is the control plane and the operator that scenarios measure.
type bed struct {
	*drill.Bed
	ctx     context.Context // of the whole run
	flags   []string        // of the operator
	against string          // the program of another version, or empty
	stages  int
	last    bool // nothing is measured after this
	turn    int  // number of the run of a scenario, from 0

	scenario string
	figures  figures
	left     error // an error of the restore step of a scenario
}

// raise starts the control plane and the operator, and warms them up unless all scenarios are cold.
func raise(ctx context.Context, dir string, reaper *drill.Reaper, s settings, cold bool) (b *bed, err error) {
	b = &bed{ctx: ctx, against: s.against}
	if s.pprof != "" {
		b.flags = []string{"--pprof-bind-address", s.pprof}
	}
	if s.config != "" {
		b.flags = append(b.flags, "--config", s.config)
	}
	if b.Bed, err = drill.NewBed(dir, reaper, drill.Plane{Nodes: s.nodes, QPS: s.qps}); err != nil {
		return nil, err
	}
	if err := b.Raise(benchAgent, kept, b.flags...); err != nil || cold {
		return b, err
	}
	if err := attempt(b.warmUp); err != nil {
		return nil, fmt.Errorf("warm up: %w\n%s", err, drill.LastLines(b.Operator.Log, 20))
	}
	return b, nil
}

// kept keeps the operator's requests, and all creations and deletions of pods and writes to
// PVCs.
func kept(r drill.Request) bool {
	switch {
	case drill.ByLockstep(r):
		return true
	case r.Subresource != "":
		return false
	case r.Resource == "pods":
		return r.Verb == "create" || r.Verb == "delete"
	}
	return r.Resource == "persistentvolumeclaims" && drill.IsWrite(r)
}

// warmUp creates and deletes a set and bare StatefulSets, so that the garbage collector knows all
// kinds and no scenario measures a first request of a component.
func (b *bed) warmUp() {
	for _, load := range []load{own(3, 3), floor(3, 3)} {
		s := b.standing(load)
		must(s.remove(s))
		s.await("all pods are gone", s.empty)
		s.strike()
	}
}

// place is a namespace in which a scenario measures.
type place struct {
	*bed
	namespace string
	mark      int // position in the audit log
}

// newPlace creates a namespace in which pods can be created.
func (b *bed) newPlace(labels map[string]string) *place {
	b.stages++
	p := &place{bed: b, namespace: fmt.Sprintf("bench-%d", b.stages)}
	must(b.Client.Create(b.ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: p.namespace, Labels: labels}}))
	for b.Client.Get(b.ctx, client.ObjectKey{Namespace: p.namespace, Name: "default"}, &corev1.ServiceAccount{}) != nil {
		pause(b.ctx, 50*time.Millisecond)
	}
	p.remark()
	return p
}

// remark moves the mark to the end of the audit log.
func (p *place) remark() {
	must(p.Audit.Sync())
	p.mark = p.Audit.Position()
}

// since returns the matching requests in the namespace since the mark.
func (p *place) since(match func(drill.Request) bool) []drill.Request {
	return p.Audit.Kept(p.mark, func(r drill.Request) bool { return r.Namespace == p.namespace && match(r) })
}

func (p *place) meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: p.namespace, Name: name}
}

// kill deletes a pod without a grace period: its first event is its removal.
func (p *place) kill(pod string) error {
	return p.Client.Delete(p.ctx, &corev1.Pod{ObjectMeta: p.meta(pod)}, client.GracePeriodSeconds(0))
}

// stage is the namespace of a load.
type stage struct {
	*place
	load
	*census
	stop context.CancelFunc
}

// standing creates a load.
func (b *bed) standing(l load) *stage {
	s, _ := b.creation(l)
	return s
}

// creation creates a load, and measures its creation.
func (b *bed) creation(l load) (s *stage, c cost) {
	s = &stage{place: b.newPlace(nil), load: l, census: newCensus(l.groups, l.size)}
	watching, stop := context.WithCancel(b.ctx)
	s.stop = stop
	must(drill.Watch(watching, b.Client, s.namespace, counted, s.see))
	if err := attempt(func() { c = s.spend("all groups are there", func() error { return s.create(s) }, s.complete) }); err != nil {
		s.strike()
		must(err)
	}
	return s, c
}

// strike deletes the stage.
func (s *stage) strike() {
	s.stop()
	ctx := context.Background()
	_ = s.Client.DeleteAllOf(ctx, &dsv1.DisaggregatedSet{}, client.InNamespace(s.namespace))
	_ = s.Client.DeleteAllOf(ctx, &lwsv1.LeaderWorkerSet{}, client.InNamespace(s.namespace))
	_ = s.Client.DeleteAllOf(ctx, &appsv1.StatefulSet{}, client.InNamespace(s.namespace))
	_ = s.Client.Delete(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.namespace}})
}

// leave deletes the load and waits until its pods are gone, so that they do not slow the next
// scenario.
func (s *stage) leave() {
	_ = attempt(func() {
		_ = s.remove(s)
		s.await("all pods are gone", s.empty)
	})
	s.strike()
	_ = attempt(s.rest)
}

// Images that tell pods apart. No node pulls them.
const (
	imageA = "registry.example/serve:a"
	imageB = "registry.example/serve:b"
)

// Labels of the pods of the floor: all have the first, and the second names their group.
const (
	floorLabel = "bench/floor"
	groupLabel = "bench/group"
)

// load is a number of groups of one size, as one set or as bare StatefulSets.
type load struct {
	groups, size   int
	bare           bool
	create, remove func(*stage) error
	policy         lwsv1.RestartPolicyType
	edit           func(*lwsv1.LeaderWorkerSet) // changes the set, or is nil
	told           func(*stage) bool            // reports whether the status of several sets says that all are ready, or is nil
}

// own is the load as a LeaderWorkerSet.
func own(groups, size int) load {
	return load{groups: groups, size: size, policy: lwsv1.NoneRestartPolicy,
		create: func(s *stage) error { return s.Client.Create(s.ctx, s.newSet()) },
		remove: func(s *stage) error { return s.Client.Delete(s.ctx, s.newSet(), background) },
	}
}

// floor is the load as one StatefulSet of leaders and one StatefulSet of workers for each group.
func floor(groups, size int) load {
	return load{groups: groups, size: size, bare: true, create: createBare, remove: removeBare}
}

// swap has another program run the operator. What this version installed stays: its definitions, roles and policies.
func (b *bed) swap(program string) error {
	if err := b.Operator.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	b.Operator.Program = program
	return b.Operator.Start(b.flags...)
}

const background = client.PropagationPolicy(metav1.DeletePropagationBackground)

func (s *stage) newSet() *lwsv1.LeaderWorkerSet {
	return drill.NewSet(s.namespace, "a", int32(s.groups), int32(s.size), podSpec(), func(set *lwsv1.LeaderWorkerSet) {
		set.Spec.LeaderWorkerTemplate.RestartPolicy = s.policy
		set.Spec.RolloutStrategy = lwsv1.RolloutStrategy{
			Type:                       lwsv1.RollingUpdateStrategyType,
			RollingUpdateConfiguration: &lwsv1.RollingUpdateConfiguration{MaxUnavailable: intstr.FromInt32(10)},
		}
		if s.edit != nil {
			s.edit(set)
		}
	})
}

func podSpec() corev1.PodSpec {
	return corev1.PodSpec{Containers: []corev1.Container{{Name: "serve", Image: imageA, Env: []corev1.EnvVar{{Name: "MODEL", Value: "llama"}}}}}
}

// createBare creates the StatefulSets and their headless Service. A set has such a Service as well,
// and its endpoints cost the control plane time.
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
