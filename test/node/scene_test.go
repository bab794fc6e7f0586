//go:build linux

package node

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/test/drill"
)

// scene is a namespace of one test.
type scene struct {
	*testing.T
	client.Client
	namespace string
	began     time.Time
	audited   int // where the audit log stood when the scene began
	pods      *ledger
}

func newScene(t *testing.T) *scene {
	t.Helper()
	bed.scenes++
	s := &scene{T: t, Client: bed.client, namespace: fmt.Sprintf("scene-%d", bed.scenes), began: time.Now(), audited: bed.audit.Position()}
	s.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.namespace}})
	watching, stop := context.WithCancel(context.Background())
	t.Cleanup(stop)
	var err error
	s.pods, err = keepLedger(watching, s.namespace)
	s.check("watch pods", err)
	t.Cleanup(s.strike)
	s.eventually("the namespace's default service account exists", func() error {
		return s.Get(t.Context(), s.key("default"), &corev1.ServiceAccount{})
	})
	return s
}

// strike deletes what is in the scene and waits until it is gone: the node has room for
// the next.
func (s *scene) strike() {
	if s.Failed() {
		s.dump()
	}
	ctx, cancel := context.WithTimeout(context.Background(), drill.Patience)
	defer cancel()
	in := client.InNamespace(s.namespace)
	errs := []error{
		s.DeleteAllOf(ctx, &lwsv1.LeaderWorkerSet{}, in),
		s.DeleteAllOf(ctx, &corev1.Pod{}, in, client.GracePeriodSeconds(1)),
	}
	namespace := &corev1.Namespace{}
	namespace.Name = s.namespace
	errs = append(errs, s.Delete(ctx, namespace))
	if err := errors.Join(errs...); client.IgnoreNotFound(err) != nil {
		s.Logf("clear namespace %s: %v", s.namespace, err)
	}
}

func (s *scene) key(name string) client.ObjectKey {
	return client.ObjectKey{Namespace: s.namespace, Name: name}
}

func (s *scene) create(o client.Object) {
	s.Helper()
	if err := s.Create(s.Context(), o); err != nil {
		s.Fatalf("create %T %s: %v", o, o.GetName(), err)
	}
}

func (s *scene) remove(o client.Object, options ...client.DeleteOption) {
	s.Helper()
	if err := s.Delete(s.Context(), o, options...); err != nil {
		s.Fatalf("delete %T %s: %v", o, o.GetName(), err)
	}
}

func (s *scene) check(what string, err error) {
	s.Helper()
	if err != nil {
		s.Fatalf("%s: %v", what, err)
	}
}

// tell logs when something was seen, counted from the beginning of the scene.
func (s *scene) tell(form string, values ...any) {
	s.Helper()
	s.Logf("%6.1fs  %s", time.Since(s.began).Seconds(), fmt.Sprintf(form, values...))
}

// eventually waits until lacks returns nil, and tells when it did.
func (s *scene) eventually(what string, lacks func() error) {
	s.Helper()
	deadline := time.Now().Add(drill.Patience)
	for {
		err := lacks()
		if err == nil {
			s.tell("%s", what)
			return
		}
		if time.Now().After(deadline) {
			s.Fatalf("never came true: %s\nlast: %v", what, err)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// pod reads a pod.
func (s *scene) pod(name string) (*corev1.Pod, error) {
	pod := &corev1.Pod{}
	return pod, s.Get(s.Context(), s.key(name), pod)
}

// mustPod reads a pod that is there.
func (s *scene) mustPod(name string) *corev1.Pod {
	s.Helper()
	pod, err := s.pod(name)
	s.check("pod "+name, err)
	return pod
}

// uids are those of the pods that are there, by name.
func (s *scene) uids() map[string]types.UID {
	s.Helper()
	pods := &corev1.PodList{}
	s.check("list pods", s.List(s.Context(), pods, client.InNamespace(s.namespace)))
	found := map[string]types.UID{}
	for _, pod := range pods.Items {
		found[pod.Name] = pod.UID
	}
	return found
}

// claim reads a claim.
func (s *scene) claim(name string) (*corev1.PersistentVolumeClaim, error) {
	claim := &corev1.PersistentVolumeClaim{}
	return claim, s.Get(s.Context(), s.key(name), claim)
}

// plugin runs kubectl-lockstep in the scene's namespace.
func (s *scene) plugin(args ...string) string {
	s.Helper()
	path, err := drill.Program("kubectl-lockstep")
	s.check("kubectl-lockstep", err)
	out, err := exec.Command(path, append(args, "-n", s.namespace, "--kubeconfig", bed.plane.Kubeconfig())...).CombinedOutput()
	if err != nil {
		s.Fatalf("kubectl-lockstep %v: %v\n%s", args, err, out)
	}
	return string(out)
}

// created counts the pods of each name that were ever created in the scene.
func (s *scene) created() map[string]int {
	s.Helper()
	count := map[string]int{}
	for _, life := range s.pods.lives() {
		count[life.name]++
	}
	return count
}

// events are what was told in the scene, by reason and about an object.
func (s *scene) events(reason, about string) []string {
	s.Helper()
	list := &corev1.EventList{}
	s.check("list events", s.List(s.Context(), list, client.InNamespace(s.namespace)))
	var found []string
	for _, e := range list.Items {
		if e.Reason == reason && e.InvolvedObject.Name == about {
			found = append(found, e.Message)
		}
	}
	slices.Sort(found)
	return found
}

// dump tells what was there when a test failed.
func (s *scene) dump() {
	kubectl := exec.Command(bed.plane.Program, "kubectl", "--kubeconfig", bed.plane.Kubeconfig(), "-n", s.namespace,
		"get", "lws,sts,pods,pvc,events", "-o", "wide")
	out, err := kubectl.CombinedOutput()
	s.Logf("%s\n%v\noperator:\n%s\nkubelet:\n%s", out, err, drill.LastLines(bed.operator.Log, 15), drill.LastLines(bed.node.log("kubelet"), 15))
}
