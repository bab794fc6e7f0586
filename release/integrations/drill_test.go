//go:build drills

package integrations

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/test/drill"
	"lockstep.dev/lockstep/test/expect"
)

// bed is a control plane with Lockstep.
var bed *drill.Bed

func TestMain(m *testing.M) {
	drill.Main(m, func(dir string, reaper *drill.Reaper) (err error) {
		if bed, err = drill.NewBed(dir, reaper, drill.Plane{Nodes: 5, QPS: 200}); err != nil {
			return err
		}
		return bed.Raise("integrations-test", func(drill.Request) bool { return false })
	}, func() error { return nil })
}

const first, second = "registry.example/model:1", "registry.example/model:2"

func newSet(s *drill.Scene, name string, replicas, size int32) *lwsv1.LeaderWorkerSet {
	return drill.NewSet(s.Namespace, name, replicas, size, corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: first}}})
}

// followed is every version of a set that the API server showed.
type followed struct {
	mu       sync.Mutex
	versions []*unstructured.Unstructured
}

// follow records every version of the sets of a scene from now on.
func follow(s *drill.Scene) *followed {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(lwsv1.GroupVersion.WithKind("LeaderWorkerSetList"))
	watch, err := s.Client.Watch(s.Context(), list, client.InNamespace(s.Namespace))
	s.Check("watch sets", err)
	s.Cleanup(watch.Stop)
	f := &followed{}
	go func() {
		for event := range watch.ResultChan() {
			if set, is := event.Object.(*unstructured.Unstructured); is {
				f.mu.Lock()
				f.versions = append(f.versions, set)
				f.mu.Unlock()
			}
		}
	}()
	return f
}

// until waits until the watch has seen a generation of a set become current, as kubectl did, and returns what kstatus
// found before.
func (f *followed) until(s *drill.Scene, t *testing.T, name string, generation int64) (found []status.Status) {
	s.Helper()
	s.Eventually("the watch sees that set "+name+" is current", func() error {
		if found = f.of(t, name, generation); len(found) == 0 || found[len(found)-1] != status.CurrentStatus {
			return fmt.Errorf("kstatus found %v", found)
		}
		return nil
	})
	return found
}

// of returns what kstatus found of each version of a generation of a set, and each change of that once.
func (f *followed) of(t *testing.T, name string, generation int64) (found []status.Status) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, set := range f.versions {
		if set.GetName() != name || set.GetGeneration() != generation {
			continue
		}
		got := judged(t, set)
		expect.Equalf[any](t, healths[got], run(t, "health.lua", set)["status"], "Argo CD, beside kstatus %s", got)
		if len(found) == 0 || found[len(found)-1] != got {
			found = append(found, got)
		}
	}
	return found
}

// kubectl is what a command of kubectl prints.
func kubectl(s *drill.Scene, args ...string) (string, error) {
	args = append([]string{"kubectl", "--kubeconfig", bed.Plane.Kubeconfig(), "--namespace", s.Namespace}, args...)
	out, err := exec.CommandContext(s.Context(), bed.Plane.Program, args...).CombinedOutput()
	return string(out), err
}

func waitReady(s *drill.Scene, name string) {
	s.Helper()
	out, err := kubectl(s, "wait", "lws/"+name, "--for=condition=Ready", "--timeout=3m")
	expect.Must(s, err == nil, "kubectl wait: %v\n%s", err, out)
}

// allRun checks that every pod of a set is ready and runs an image.
func allRun(s *drill.Scene, image string, pods int) {
	s.Helper()
	list := &corev1.PodList{}
	s.Check("list pods", s.Client.List(s.Context(), list, client.InNamespace(s.Namespace)))
	for i := range list.Items {
		pod := &list.Items[i]
		expect.That(s, pod.Spec.Containers[0].Image == image && pod.DeletionTimestamp == nil && drill.PodReady(pod),
			"pod %s runs %s: %+v", pod.Name, pod.Spec.Containers[0].Image, pod.Status.Conditions)
	}
	expect.Equalf(s, pods, len(list.Items), "pods")
}

func want(s *drill.Scene, what string, got []status.Status, want ...status.Status) {
	s.Helper()
	expect.That(s, fmt.Sprint(got) == fmt.Sprint(want), "%s: kstatus found %v, want %v", what, got, want)
}

// A set is in progress from its creation, and from each change, until all its groups are ready and run
// the template. It is never current in between.
func TestToolsFollowARollout(t *testing.T) {
	s := drill.NewScene(t, bed)
	f := follow(s)
	set := newSet(s, "a", 3, 2)
	s.Create(set)
	waitReady(s, "a")
	allRun(s, first, 6)
	s.Patch(set, fmt.Sprintf(`{"spec":{"leaderWorkerTemplate":{"workerTemplate":{"spec":{"containers":[{"name":"c","image":%q}]}}}}}`, second))
	waitReady(s, "a")
	allRun(s, second, 6)
	want(s, "creation", f.until(s, t, "a", 1), status.InProgressStatus, status.CurrentStatus)
	want(s, "rollout", f.until(s, t, "a", 2), status.InProgressStatus, status.CurrentStatus)

	out, err := kubectl(s, "get", "lws", "-o", "wide")
	expect.That(t, err == nil && strings.Contains(out, "AllGroupsReady"), "kubectl get: %v\n%s", err, out)
	fmt.Fprint(os.Stderr, out)
}

// A set that a quota refuses has failed, and is current once the quota allows it.
func TestToolsSeeAQuota(t *testing.T) {
	s := drill.NewScene(t, bed)
	f := follow(s)
	quota := &corev1.ResourceQuota{ObjectMeta: s.Meta("few"), Spec: corev1.ResourceQuotaSpec{
		Hard: corev1.ResourceList{"count/statefulsets.apps": resource.MustParse("0")},
	}}
	s.Create(quota)
	s.Eventually("the quota is counted", func() error {
		now := &corev1.ResourceQuota{}
		if err := s.Client.Get(s.Context(), s.Key("few"), now); err != nil || len(now.Status.Used) == 0 {
			return errors.Join(err, drill.ErrStill)
		}
		return nil
	})
	s.Create(newSet(s, "b", 1, 1))
	out, err := kubectl(s, "wait", "lws/b", "--for=condition=Stalled", "--timeout=3m")
	expect.Must(t, err == nil, "kubectl wait: %v\n%s", err, out)
	s.Patch(quota, `{"spec":{"hard":{"count/statefulsets.apps":"9"}}}`)
	waitReady(s, "b")
	found := f.until(s, t, "b", 1)
	expect.That(t, len(found) >= 3 && found[0] == status.InProgressStatus && found[1] == status.FailedStatus,
		"kstatus found %v", found)
}
