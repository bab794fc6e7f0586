package lws_test

import (
	"fmt"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
)

// BenchmarkDecideSet is what one event costs the set core when all groups stand.
func BenchmarkDecideSet(b *testing.B) {
	for _, groups := range []int{10, 100, 1000} {
		b.Run(fmt.Sprintf("groups=%d", groups), func(b *testing.B) {
			world := standingSet(b, groups)
			b.ReportAllocs()
			for b.Loop() {
				lws.DecideSet(world)
			}
		})
	}
}

// BenchmarkDecideGroup is what one event costs the group core: the same for any
// number of groups.
func BenchmarkDecideGroup(b *testing.B) {
	world := standingSet(b, 1)
	group := lws.GroupSnapshot{Now: world.Now, Set: world.Set, Group: world.Groups[0], Revisions: world.Revisions}
	b.ReportAllocs()
	for b.Loop() {
		lws.DecideGroup(group)
	}
}

// standingSet is a set of the given number of ready groups of four, made by
// carrying out what DecideSet and DecideGroup themselves ask for.
func standingSet(b *testing.B, groups int) lws.SetSnapshot {
	b.Helper()
	replicas, size := int32(groups), int32(4)
	set := &lwsv1.LeaderWorkerSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "llama", UID: "set", ResourceVersion: "1", Generation: 1}}
	set.Spec.Replicas = &replicas
	set.Spec.LeaderWorkerTemplate.Size = &size
	set.Spec.LeaderWorkerTemplate.WorkerTemplate.Spec.Containers = []corev1.Container{{Name: "w", Image: "w:1"}}
	world := lws.SetSnapshot{Now: time.Unix(1_800_000_000, 0), Set: set}
	for _, a := range lws.DecideSet(world).Actions {
		create, ok := a.(action.Create)
		if !ok {
			continue
		}
		create.Object.SetUID(types.UID(create.Kind))
		switch object := create.Object.(type) {
		case *appsv1.StatefulSet:
			object.Status = appsv1.StatefulSetStatus{Replicas: replicas, UpdateRevision: "r", CurrentRevision: "r"}
			world.StatefulSet.Owned = append(world.StatefulSet.Owned, object)
		case *appsv1.ControllerRevision:
			world.Revisions.Owned = append(world.Revisions.Owned, object)
		case *corev1.Service:
			world.Service.Owned = append(world.Service.Owned, object)
		}
	}
	for i := range groups {
		world.Groups = append(world.Groups, standingGroup(world, i))
		world.Leaders.Owned = append(world.Leaders.Owned, world.Groups[i].Leader)
		set.Status.Started = append(set.Status.Started, lwsv1.StartedGroup{Index: int32(i), Leader: world.Groups[i].Leader.UID, Pods: "AIXMhbkAhcyFugA"})
	}
	set.Status.RestartsSince = &metav1.Time{Time: world.Now}
	return world
}

func standingGroup(world lws.SetSnapshot, index int) lws.Group {
	sts := world.StatefulSet.Own()
	name := identity.LeaderName(world.Set.Name, index)
	leader := &corev1.Pod{
		ObjectMeta: *sts.Spec.Template.ObjectMeta.DeepCopy(),
		Status: corev1.PodStatus{
			Phase:      corev1.PodRunning,
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
		},
	}
	leader.Namespace, leader.Name, leader.UID = "default", name, types.UID(name)
	group := lws.Group{Index: index, LeaderName: name, Leader: leader}
	made := lws.DecideGroup(lws.GroupSnapshot{Now: world.Now, Set: world.Set, Group: group, Revisions: world.Revisions})
	for _, a := range made.Actions {
		if create, ok := a.(action.Create); ok {
			var object runtime.Object = create.Object
			if workers, ok := object.(*appsv1.StatefulSet); ok {
				workers.Status = appsv1.StatefulSetStatus{AvailableReplicas: 3, CurrentRevision: "r", UpdateRevision: "r"}
				group.Workers.Owned = []*appsv1.StatefulSet{workers}
			}
		}
	}
	return group
}
