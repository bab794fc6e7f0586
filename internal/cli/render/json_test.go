package render

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/cli/diff"
	clilws "lockstep.dev/lockstep/internal/cli/lws"
	"lockstep.dev/lockstep/internal/cli/page"
	clipvc "lockstep.dev/lockstep/internal/cli/pvc"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
	lwsrevision "lockstep.dev/lockstep/internal/lws/revision"
	"lockstep.dev/lockstep/internal/pvc"
	"lockstep.dev/lockstep/internal/pvc/workloads"
	"lockstep.dev/lockstep/test/expect"
	"lockstep.dev/lockstep/test/fakeapi"
)

// paths adds the paths of all fields of a value, elements of lists under the path of the list.
func paths(path string, value any, into map[string]any) {
	switch value := value.(type) {
	case map[string]any:
		for key, inner := range value {
			paths(strings.TrimPrefix(path+"."+key, "."), inner, into)
		}
	case []any:
		for _, inner := range value {
			paths(path, inner, into)
		}
	}
	into[path] = value
}

// Programs read the names of the file: they are never changed or removed.
func TestFieldsForPrograms(t *testing.T) {
	status := with(newSurvey(1, 2), 0, "+-")
	status.Groups[0].Pods.Previous = []*corev1.Pod{terminating("llama-0-1", time.Second, "example.com/hold")}
	tried := Claim(heldClaim())
	tried.Deletion = &Deletion{Outcome: Refused, Message: "in use"}
	history, broken := twoGroups(), newRevision(3, "broken", "image:3")
	history.Set.Set.Spec.LeaderWorkerTemplate.WorkerTemplate = template("image:4")
	broken.Data.Raw = []byte("{")
	text := expect.Value(os.ReadFile("testdata/fields.txt"))(t)
	for name, reports := range map[string][]page.Report{
		"SetStatus":  {Status(status)},
		"SetPlan":    {Plan(planned())},
		"SetHistory": {History(history, append(revisions(), broken))},
		"ClaimWhy":   {Claim(foundClaim()), tried},
	} {
		have := map[string]any{}
		for _, report := range reports {
			raw := expect.Value(json.Marshal(report))(t)
			fields := map[string]any{}
			expect.OK(t, json.Unmarshal(raw, &fields))
			paths("", fields, have)
		}
		wanted := 0
		for line := range strings.Lines(string(text)) {
			kind, want, _ := strings.Cut(strings.TrimSpace(line), " ")
			if kind != name {
				continue
			}
			wanted++
			_, ok := have[want]
			expect.That(t, ok, "%s: no field %s", name, want)
		}
		expect.That(t, wanted != 0, "%s: the list has no field of it", name)
		expect.Equalf[any](t, name, have["kind"], "%s", name)
		expect.Equalf[any](t, "cli.lockstep.dev/v1", have["apiVersion"], "%s", name)
	}
}

func TestChangesBetweenRevisions(t *testing.T) {
	s := twoGroups()
	s.Set.Set.Spec.LeaderWorkerTemplate.WorkerTemplate = template("image:4")
	h := History(s, revisions())
	const path = "leaderWorkerTemplate.workerTemplate.spec.containers[serve].image"
	want := []diff.Change{{Path: path, From: "image:1", To: "image:2"}, {Path: path, From: "image:2", To: "image:4"}}
	expect.Equal(t, want, slices.Concat(h.Revisions[1].Changes, h.Waiting))
	if h.Revisions[0].Groups != 1 || h.Revisions[1].Groups != 1 || h.Revisions[0].Current || !h.Revisions[1].Current {
		t.Errorf("got %+v", h.Revisions)
	}
}

func TestDifferences(t *testing.T) {
	set := twoGroups().Set.Set
	got, err := Compare(set, revisions(), Comparison{From: 1, To: 2})
	for _, line := range []string{"--- llama revision 1 (older)\n", "+++ llama revision 2 (" + key + ")\n", "\n-      - image: image:1\n+      - image: image:2\n", "\n         name: serve\n"} {
		expect.That(t, err == nil && strings.Contains(got, line), "got %v, without %q\n%s", err, line, got)
	}
	same := expect.Value(Compare(set, revisions(), Comparison{From: 2, To: Live}))(t)
	expect.Equalf(t, "", same, "between revision 2 and the equal spec")
}

func TestTheUsualDifference(t *testing.T) {
	for name, tt := range map[string]struct {
		image string
		of    []*appsv1.ControllerRevision
		want  Comparison
		fails bool
	}{
		"the last rollout":          {"image:2", revisions(), Comparison{From: 1, To: 2}, false},
		"a change that waits":       {"image:3", revisions(), Comparison{From: 2, To: Live}, false},
		"no revision":               {"image:1", nil, Comparison{}, true},
		"nothing but the first one": {"image:1", revisions()[:1], Comparison{From: 1, To: Live}, false},
	} {
		set := twoGroups().Set.Set
		set.Spec.LeaderWorkerTemplate.WorkerTemplate = template(tt.image)
		got, err := UsualComparison(set, tt.of)
		expect.Equalf(t, tt.want, got, "%s", name)
		expect.Equalf(t, tt.fails, err != nil, "%s: %v", name, err)
	}
}

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
		action.WriteStatus{Object: set, Because: reasonFor("Changed", "0 of 1 groups are ready")},
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
