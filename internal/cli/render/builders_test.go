package render

import (
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	clilws "lockstep.dev/lockstep/internal/cli/lws"
	clipvc "lockstep.dev/lockstep/internal/cli/pvc"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
	lwsrevision "lockstep.dev/lockstep/internal/lws/revision"
	"lockstep.dev/lockstep/internal/pvc"
	"lockstep.dev/lockstep/internal/pvc/workloads"
	"lockstep.dev/lockstep/test/fakeapi"
)

var now = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

const key = "7bdcf6cbd6"

// newSurvey is a set with a leader StatefulSet and no pod.
func newSurvey(replicas, size int32) clilws.Survey {
	set := &lwsv1.LeaderWorkerSet{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: "llama", UID: "set", Generation: 1, CreationTimestamp: metav1.NewTime(now.Add(-5 * time.Minute)),
	}}
	set.Spec.Replicas, set.Spec.LeaderWorkerTemplate.Size = &replicas, &size
	set.Status.Conditions = []metav1.Condition{{
		Type: "Progressing", Status: metav1.ConditionTrue, Reason: "GroupsProgressing", Message: "Replicas are progressing",
		LastTransitionTime: metav1.NewTime(now.Add(-90 * time.Second)),
	}}
	s := clilws.Survey{Standing: lws.Standing{Key: key}}
	s.Set.Set = set
	s.Set.StatefulSet.Owned = []*appsv1.StatefulSet{{ObjectMeta: metav1.ObjectMeta{Name: "llama", UID: "leaders"}}}
	return s
}

// with adds a group of pods, the leader first: "+" is ready, "-" is not ready, "?" has no node, and "."
// is missing.
func with(s clilws.Survey, index int, pods string) clilws.Survey {
	name := identity.LeaderName("llama", index)
	g := clilws.Group{}
	g.Set, g.Index, g.LeaderName = s.Set.Set, index, name
	labels := map[string]string{lwsv1.RevisionKey: key}
	g.Leader = newPod(name, rune(pods[0]))
	g.Leader.Labels = labels
	g.Leader.Annotations = map[string]string{lwsv1.SizeAnnotationKey: fmt.Sprint(len(pods))}
	workers := int32(len(pods) - 1)
	g.Workers.Owned = []*appsv1.StatefulSet{{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		Spec:       appsv1.StatefulSetSpec{Replicas: &workers},
		Status:     appsv1.StatefulSetStatus{AvailableReplicas: int32(strings.Count(pods[1:], "+"))},
	}}
	for i, state := range pods[1:] {
		if state != '.' {
			g.Pods.Owned = append(g.Pods.Owned, newPod(identity.LeaderName(identity.LeaderName("llama", index), i+1), state))
		}
	}
	s.Groups = append(s.Groups, g)
	return s
}

func newPod(name string, state rune) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), CreationTimestamp: metav1.NewTime(now.Add(-2 * time.Minute))},
		Spec:       corev1.PodSpec{NodeName: "node-" + name + ".example.com"},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{{RestartCount: 1}, {RestartCount: 2}}},
	}
	switch state {
	case '+':
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	case '-':
		pod.Status.ContainerStatuses[0].State.Waiting = &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}
	case '?':
		pod.Spec.NodeName, pod.Status.Phase, pod.Status.ContainerStatuses = "", corev1.PodPending, nil
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "0/2 nodes are available"}}
	}
	return pod
}

// terminating is a pod that was deleted so long ago.
func terminating(name string, ago time.Duration, finalizers ...string) *corev1.Pod {
	pod := newPod(name, '+')
	at := metav1.NewTime(now.Add(-ago))
	pod.DeletionTimestamp, pod.Finalizers = &at, finalizers
	return pod
}

// without adds a group without a leader.
func without(s clilws.Survey, index int) clilws.Survey {
	g := clilws.Group{}
	g.Set, g.Index, g.LeaderName = s.Set.Set, index, identity.LeaderName("llama", index)
	s.Groups = append(s.Groups, g)
	return s
}

func template(image string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{
		{Name: "serve", Image: image}, {Name: "watch", Image: "watcher"},
	}}}
}

func revisions() []*appsv1.ControllerRevision {
	first, second := newRevision(1, "older", "image:1"), newRevision(2, key, "image:2")
	second.Annotations = map[string]string{lwsrevision.ChangeCauseAnnotationKey: "a better image"}
	return []*appsv1.ControllerRevision{first, second}
}

// twoGroups is a set whose group 0 runs the current revision, and group 1 that
// before it.
func twoGroups() clilws.Survey {
	s := with(with(newSurvey(2, 1), 0, "+"), 1, "+")
	s.Groups[1].Leader.Labels = map[string]string{lwsv1.RevisionKey: "older"}
	s.Set.Set.Spec.LeaderWorkerTemplate = lwsv1.LeaderWorkerTemplate{WorkerTemplate: template("image:2")}
	return s
}

func reasonFor(code, sentence string) action.Reason {
	return action.Reason{Code: code, Sentence: sentence}
}

// planned is a survey with one action of each form and a wait.
func planned() clilws.Survey {
	s := newSurvey(1, 2)
	set := identity.Ref{Kind: identity.KindLeaderWorkerSet, Namespace: "ns", Name: "llama", UID: "set", ResourceVersion: "7"}
	gone := identity.Ref{Kind: identity.KindStatefulSet, Namespace: "ns", Name: "llama", UID: "old"}
	s.Plan.Actions = []action.Action{
		action.Create{Kind: identity.KindService, Object: &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "llama"}},
			Owner: set, Because: reasonFor("Missing", "there is none")},
		action.Apply{Onto: identity.Ref{Kind: identity.KindStatefulSet, Namespace: "ns", Name: "llama", UID: "sts", ResourceVersion: "8"},
			Adopter: &set, Because: reasonFor("Orphan", "it has no controller")},
		action.Delete{Object: identity.Ref{Kind: identity.KindPod, Namespace: "ns", Name: "llama-0", UID: "pod", ResourceVersion: "9"},
			OwnerGone: &gone, Because: reasonFor("Garbage", "its owner is gone")},
		action.WriteStatus{Set: set, Because: reasonFor("Changed", "0 of 1 groups are ready")},
	}
	g := clilws.Group{}
	g.Plan.Waits = []lws.Wait{{Reason: reasonFor("WaitingForLeaderReady", "the leader is not ready"), Until: now.Add(10 * time.Second)}}
	s.Groups = []clilws.Group{g}
	return s
}

// foundClaim is a terminating PVC that a pod on a lost node holds.
func foundClaim() *clipvc.Found {
	deleted := metav1.NewTime(now.Add(-3 * time.Hour))
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "prod", Name: "data-db-0", UID: "u-claim", DeletionTimestamp: &deleted,
			Finalizers: []string{pvc.PodsFinalizer, pvc.BarrierFinalizer},
		},
		Spec:   corev1.PersistentVolumeClaimSpec{VolumeName: "pv-1"},
		Status: corev1.PersistentVolumeClaimStatus{Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "prod", Name: "db-0", UID: "u-pod", DeletionTimestamp: &deleted, CreationTimestamp: metav1.NewTime(now.Add(-48 * time.Hour)),
		},
		Spec:   corev1.PodSpec{NodeName: "n7", Volumes: fakeapi.Using("data-db-0")},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
	world := pvc.World{Pods: pvc.NewIndex(), Desire: workloads.NewDesire("prod", nil)}
	world.Pods.See(pod)
	return &clipvc.Found{ModeFrom: "label of the namespace", Case: pvc.Case{
		HoldView: pvc.HoldView{Claim: claim, Mode: pvc.Hold, World: world, Now: now}, Pods: map[types.UID]*corev1.Pod{pod.UID: pod},
		Nodes:  map[string]*corev1.Node{"n7": {ObjectMeta: metav1.ObjectMeta{Name: "n7"}}},
		Volume: &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv-1"}, Spec: corev1.PersistentVolumeSpec{PersistentVolumeReclaimPolicy: "Delete"}},
		Unread: []pvc.Unread{{What: "nodes", Why: "you may not read it"}},
	}}
}

// heldClaim is a PVC whose deletion is refused for a workload of an unknown kind.
func heldClaim() *clipvc.Found {
	f := foundClaim()
	f.Claim.DeletionTimestamp = nil
	f.Claim.Annotations = map[string]string{
		pvc.HoldersAnnotation: "RayCluster/x", pvc.VerifiedAnnotation: now.Add(-time.Hour).Format(time.RFC3339),
	}
	f.Pods["u-pod"].DeletionTimestamp = nil
	f.Nodes = nil
	return f
}

func freeClaim() *clipvc.Found {
	f := heldClaim()
	f.Claim.Annotations = nil
	f.World.Pods = pvc.NewIndex()
	return f
}

func newRevision(number int64, key, image string) *appsv1.ControllerRevision {
	set := &lwsv1.LeaderWorkerSet{}
	set.Spec.LeaderWorkerTemplate.WorkerTemplate = template(image)
	data, err := lwsrevision.Data(set)
	if err != nil {
		panic(err)
	}
	r := &appsv1.ControllerRevision{Revision: number}
	r.Name, r.Labels, r.Data.Raw = "llama-"+key, map[string]string{lwsv1.RevisionKey: key}, data
	r.CreationTimestamp = metav1.NewTime(now.Add(-time.Duration(10-number) * time.Hour))
	return r
}

func paused(s *clilws.Survey) {
	s.Set.Set.Annotations = map[string]string{lwsv1.PausedAnnotationKey: "true"}
}
