//go:build drills

package helm

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/test/drill"
	"lockstep.dev/lockstep/test/expect"
)

const (
	chartDir  = "../../charts/lockstep"
	namespace = "lws-system"
	setsName  = "leaderworkersets.leaderworkerset.x-k8s.io"
)

// bed is the control plane of all tests. Nothing is installed on it before a test.
var bed *drill.Bed

func TestMain(m *testing.M) {
	drill.Main(m, func(dir string, reaper *drill.Reaper) (err error) {
		if bed, err = drill.NewBed(dir, reaper, drill.Plane{Nodes: 5, QPS: 200}); err != nil {
			return err
		}
		return bed.RaisePlane("chart-test", func(drill.Request) bool { return false })
	}, func() error { return nil })
}

// merged are the values of a release whose operator runs here. Its Deployment's pods are simulated.
func merged(more map[string]any) map[string]any {
	all := map[string]any{
		"image":   map[string]any{"repository": "registry.example/lockstep", "tag": "v1"},
		"webhook": map[string]any{"url": webhookURL()},
	}
	for name, value := range more {
		all[name] = value
	}
	return all
}

// asAdministrator are the flags of an operator that runs without the roles of a release.
func asAdministrator() []string { return []string{"--kubeconfig", bed.Plane.Kubeconfig()} }

func webhookURL() string { return "https://127.0.0.1:" + strconv.Itoa(bed.Operator.Webhooks) }

// from is the chart of an earlier commit: this one, if that is not given.
func from(t *testing.T) string {
	dir := os.Getenv("LOCKSTEP_CHART_FROM")
	if dir == "" {
		dir = chartDir
	}
	t.Logf("the former chart is %s", dir)
	return dir
}

// former is the program of that commit: this one, if it is not given.
func former() string { return cmp.Or(os.Getenv("LOCKSTEP_FROM"), bed.Operator.Program) }

// scene has sets that run, of an installation that a test made before.
type scene struct {
	*drill.Scene
	before map[string]types.UID
}

// newScene starts the operator with additional flags, creates a set with PVCs and one without, and
// waits until both are ready.
func newScene(t *testing.T, flags ...string) *scene {
	t.Helper()
	must(t, "start the operator", bed.Operator.Start(flags...))
	t.Cleanup(func() { _ = bed.Operator.Kill() })
	s := &scene{Scene: drill.NewScene(t, bed)}
	pod := corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}
	s.Create(drill.NewSet(s.Namespace, "plain", 2, 2, pod))
	s.Create(drill.NewSet(s.Namespace, "data", 1, 2, pod, func(set *lwsv1.LeaderWorkerSet) {
		set.Spec.LeaderWorkerTemplate.VolumeClaimTemplates = []corev1.PersistentVolumeClaim{{ObjectMeta: s.Meta("disk"), Spec: drill.ClaimSpec()}}
	}))
	s.Eventually("the groups are ready", s.unready)
	s.before = s.objects()
	return s
}

func (s *scene) unready() error {
	for name, want := range map[string]int32{"plain": 2, "data": 1} {
		set := s.Set(name)
		if set == nil || set.Status.ReadyReplicas != want || set.Status.ObservedGeneration != set.Generation {
			return errors.New(name + " is not ready")
		}
	}
	return nil
}

// objects are the sets, pods and PVCs of the scene.
func (s *scene) objects() map[string]types.UID {
	all := map[string]types.UID{}
	for _, list := range []client.ObjectList{&lwsv1.LeaderWorkerSetList{}, &corev1.PodList{}, &corev1.PersistentVolumeClaimList{}} {
		s.Check("list objects", s.Client.List(s.Context(), list, client.InNamespace(s.Namespace)))
		s.Check("read objects", meta.EachListItem(list, func(object runtime.Object) error {
			found := object.(client.Object)
			all[fmt.Sprintf("%T %s", found, found.GetName())] = found.GetUID()
			return nil
		}))
	}
	return all
}

// wantAll checks that every object is the one that it was.
func (s *scene) wantAll(after string) {
	s.Helper()
	now := s.objects()
	for name, uid := range s.before {
		s.Want(after+": "+name, drill.Lacking("UID", uid, now[name]))
	}
}

// wantServed checks that a new set becomes ready, and deletes it.
func (s *scene) wantServed(name string) {
	s.Helper()
	set := drill.NewSet(s.Namespace, name, 1, 2, corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}})
	s.Create(set)
	s.Until(name+" is ready", func() bool {
		now := s.Set(name)
		return now != nil && now.Status.ReadyReplicas == 1
	})
	s.Remove(set)
	s.Until(name+" is gone", func() bool { return s.Set(name) == nil && s.Pod(name+"-0") == nil && s.Pod(name+"-0-1") == nil })
}

// get reads a cluster-scoped object, and returns nil if there is none.
func get(t *testing.T, apiVersion, kind, in, name string) *unstructured.Unstructured {
	t.Helper()
	u := object(apiVersion, kind, in, name)
	err := bed.Client.Get(context.WithoutCancel(t.Context()), client.ObjectKeyFromObject(u), u)
	if apierrors.IsNotFound(err) {
		return nil
	}
	must(t, "read "+name, err)
	return u
}

func crd(t *testing.T, name string) *unstructured.Unstructured {
	t.Helper()
	return get(t, apiextensionsv1.SchemeGroupVersion.String(), "CustomResourceDefinition", "", name)
}

// remove deletes a definition and waits until it is gone, so that the next test begins without.
func remove(t *testing.T, name string) {
	t.Helper()
	u := crd(t, name)
	if u == nil {
		return
	}
	expect.OK(t, bed.Client.Delete(context.WithoutCancel(t.Context()), u))
	for deadline := time.After(drill.Patience); crd(t, name) != nil; {
		select {
		case <-deadline:
			t.Fatalf("%s does not go", name)
		case <-time.After(200 * time.Millisecond):
		}
	}
}

func must(t *testing.T, what string, err error) {
	t.Helper()
	expect.OKf(t, err, "%s", what)
}

// lockstep runs the program against the control plane.
func lockstep(args ...string) error {
	out, err := exec.Command(bed.Operator.Program, append(args, "--kubeconfig", bed.Plane.Kubeconfig())...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("lockstep %v: %w\n%s", args, err, out)
	}
	return nil
}

// clear removes what a test left, so that the next begins without: its releases, what protection left
// on PVCs, and the definitions with all sets.
func clear(t *testing.T, h tool, names ...string) {
	for _, name := range names {
		if err := h.uninstall(name, namespace); err != nil {
			t.Logf("uninstall %s: %v", name, err)
		}
	}
	must(t, "lockstep uninstall", lockstep("uninstall", "--keep-sets"))
	must(t, "delete the authority", client.IgnoreNotFound(bed.Client.Delete(context.WithoutCancel(t.Context()), authoritySecret())))
	remove(t, otherName)
	remove(t, setsName)
}

// options of one command.
type options struct {
	// takes is --take-ownership.
	takes bool
	// forces is --force-conflicts of Helm 4. Helm 3 knows no conflicts.
	forces bool
	// wait is --wait --timeout; zero does not wait.
	wait time.Duration
}

// tool is a program helm of one version. A chart is a directory.
type tool struct {
	program string
	is4     bool
}

// tools are both versions of Helm.
func tools() map[string]tool {
	return map[string]tool{"Helm 3": {os.Getenv("LOCKSTEP_HELM3"), false}, "Helm 4": {os.Getenv("LOCKSTEP_HELM"), true}}
}

// patience bounds a command that waits.
const patience = 3 * time.Minute

func (h tool) install(name, namespace, chart string, values map[string]any, o options) error {
	return h.run(namespace, values, o, "install", name, chart, "--create-namespace", "--values", "-")
}

func (h tool) upgrade(name, namespace, chart string, values map[string]any, o options) error {
	return h.run(namespace, values, o, "upgrade", name, chart, "--reset-values", "--values", "-")
}

func (h tool) rollback(name, namespace string, revision int) error {
	return h.run(namespace, nil, options{wait: patience}, "rollback", name, strconv.Itoa(revision))
}

func (h tool) uninstall(name, namespace string) error {
	return h.run(namespace, nil, options{wait: patience}, "uninstall", name)
}

func (h tool) run(namespace string, values map[string]any, o options, args ...string) error {
	args = append(args, "--kubeconfig", bed.Plane.Kubeconfig(), "--namespace", namespace)
	if o.takes {
		args = append(args, "--take-ownership")
	}
	if o.forces && h.is4 {
		args = append(args, "--force-conflicts")
	}
	if o.wait > 0 {
		args = append(args, "--wait", "--timeout", o.wait.String())
	}
	text, err := yaml.Marshal(values)
	if err != nil {
		return err
	}
	helm := exec.Command(h.program, args...)
	helm.Env, helm.Stdin = append(os.Environ(), "HOME="+bed.Plane.Dir), bytes.NewReader(text)
	if out, err := helm.CombinedOutput(); err != nil {
		return fmt.Errorf("helm %q: %w\n%s", args, err, out)
	}
	return nil
}
