//go:build linux

package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/test/drill"
	"lockstep.dev/lockstep/test/expect"
)

const (
	// layoutEnv names the directory with the image layout of "make image".
	layoutEnv = "LOCKSTEP_IMAGE"
	// helmEnv names the program helm.
	helmEnv = "LOCKSTEP_HELM"
	// chart is the directory of the chart.
	chart = "../../charts/lockstep"
)

// imageName is the repository under which containerd keeps the image.
const imageName = "lockstep.local/lockstep"

// operatorKey is the operator's Deployment, and operatorPods are its pods.
var (
	operatorKey  = client.ObjectKey{Namespace: "lws-system", Name: "lws-controller-manager"}
	operatorPods = client.MatchingLabels{"control-plane": "controller-manager"}
)

// The released image runs under containerd as it is deployed, by the program and then by the chart. The API
// server calls its webhooks behind their Service, also while the Deployment replaces its pods: no set that is
// created meanwhile is refused.
func TestTheImageIsInstalled(t *testing.T) {
	s := newScene(t)
	image := s.importImage()
	s.Check("stop the operator of the other drills", bed.Operator.Kill())
	t.Cleanup(s.restoreOperator)
	out, err := exec.Command(bed.Operator.Program, "install", "--kubeconfig", bed.Operator.Kubeconfig, "--image", image).CombinedOutput()
	s.Check("install: "+string(out), err)
	for _, pod := range s.awaitOperator() {
		s.checkSealed(pod)
	}
	s.checkService()

	set := s.newSet("a", 1, 2)
	s.Eventually("the API server reaches the webhooks behind their new Service", func() error {
		return bed.Client.Create(s.Context(), set.DeepCopy(), client.DryRunAll)
	})
	s.Create(set)
	s.awaitAvailable(set)
	before := s.UIDs()

	s.makeRoom()
	s.installChart(image)
	s.checkService()
	old := s.awaitOperator()
	for _, pod := range old {
		s.checkSealed(pod)
	}
	s.checkReport()
	stop, done := make(chan struct{}), make(chan error)
	created := 0
	go func() { done <- s.createSets(stop, &created) }()
	s.patchOperator(`{"spec":{"template":{"metadata":{"annotations":{"drill":"roll"}}}}}`)
	s.Eventually("the operator's pods are replaced", func() error {
		for uid := range s.operatorPods() {
			if _, ok := old[uid]; ok {
				return fmt.Errorf("pod %s runs still", uid)
			}
		}
		return nil
	})
	s.awaitOperator()
	close(stop)
	s.Check("sets are created while the operator is replaced", <-done)
	s.tell("%d sets were created while the operator was replaced", created)
	expect.That(t, created >= 10, "only %d sets were created while the operator was replaced", created)
	for name, uid := range s.UIDs() {
		expect.Equalf(t, uid, before[name], "pod %s was recreated", name)
	}
	s.killContainerOf("a-0-1") // the new operator works
	s.awaitAnother(set, before, "a-0", "a-0-1")
}

// helm runs helm against the cluster.
func (s *scene) helm(args ...string) {
	out, err := exec.Command(os.Getenv(helmEnv), append(args, "--kubeconfig", bed.Operator.Kubeconfig, "--namespace", operatorKey.Namespace)...).CombinedOutput()
	s.Check(fmt.Sprintf("helm %v: %s", args, out), err)
}

// installChart installs the chart over what the program installed, and waits as Helm does. Helm 4 has to be told to take
// the fields of the program.
func (s *scene) installChart(image string) {
	repository, tag, _ := strings.Cut(image, ":")
	deployment := &appsv1.Deployment{}
	s.Check("read the operator's Deployment", bed.Client.Get(s.Context(), operatorKey, deployment))
	s.helm("install", "lockstep", chart, "--take-ownership", "--force-conflicts", "--wait", "--set", "image.repository="+repository, "--set", "image.tag="+tag,
		"--set", fmt.Sprint("replicas=", *deployment.Spec.Replicas))
	s.Cleanup(func() { s.helm("uninstall", "lockstep", "--wait") })
	s.awaitOperator()
}

// checkReport checks that a report has the log of the operator, and its metrics.
func (s *scene) checkReport() {
	path := filepath.Join(bed.node.dir, "report.tar.gz")
	s.say("report", "a", "-o", path)
	files, err := exec.Command("tar", "-tzf", path).Output()
	s.Check("list the report", err)
	page, err := exec.Command("tar", "-xzOf", path, "report.md").Output()
	s.Check("read the report", err)
	if !strings.Contains(string(files), "logs/"+operatorKey.Name) || !strings.Contains(string(files), "metrics/"+operatorKey.Name) {
		s.Errorf("the report has no log, or no metrics:\n%s\n%s", files, page)
	}
}

// importImage imports the image layout into containerd, and returns the name of the image.
func (s *scene) importImage() string {
	dir := os.Getenv(layoutEnv)
	text, err := os.ReadFile(filepath.Join(dir, "index.json"))
	s.Check("read the image layout; make node builds it", err)
	var index struct {
		Manifests []struct{ Annotations map[string]string }
	}
	s.Check("read the index of the layout", json.Unmarshal(text, &index))
	path := filepath.Join(bed.node.dir, "lockstep.tar")
	s.Check("archive the layout", archive(path, dir))
	out, err := bed.node.ctr("images", "import", "--base-name", imageName, path)
	s.Check("import the image: "+string(out), err)
	return imageName + ":" + index.Manifests[0].Annotations["org.opencontainers.image.ref.name"]
}

// patchOperator patches the operator's Deployment.
func (s *scene) patchOperator(document string) {
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: operatorKey.Namespace, Name: operatorKey.Name}}
	s.Check("patch the operator's Deployment", bed.Client.Patch(s.Context(), deployment, drill.Merge(document)))
}

// operatorPods returns the pods of the operator, by UID.
func (s *scene) operatorPods() map[types.UID]corev1.Pod {
	list := &corev1.PodList{}
	s.Check("list the operator's pods", bed.Client.List(s.Context(), list, client.InNamespace(operatorKey.Namespace), operatorPods))
	pods := map[types.UID]corev1.Pod{}
	for _, pod := range list.Items {
		pods[pod.UID] = pod
	}
	return pods
}

// awaitOperator waits until the Deployment is complete and its former pods are gone, and returns its pods.
func (s *scene) awaitOperator() (pods map[types.UID]corev1.Pod) {
	s.Eventually("the operator runs", func() error {
		deployment := &appsv1.Deployment{}
		if err := bed.Client.Get(s.Context(), operatorKey, deployment); err != nil {
			return err
		}
		pods = s.operatorPods()
		status, want := deployment.Status, *deployment.Spec.Replicas
		if status.ObservedGeneration != deployment.Generation || status.UpdatedReplicas != want || status.AvailableReplicas != want || len(pods) != int(want) {
			return fmt.Errorf("got %d pods of %d, %+v", len(pods), want, status)
		}
		return nil
	})
	return pods
}

// makeRoom leaves a processor for the pod that a rolling update adds: each pod of the operator requests one.
func (s *scene) makeRoom() {
	node := &corev1.Node{}
	s.Check("read the node", bed.Client.Get(s.Context(), client.ObjectKey{Name: nodeName}, node))
	if node.Status.Allocatable.Cpu().Value() < 3 {
		s.patchOperator(`{"spec":{"replicas":1}}`)
	}
}

// checkSealed checks what containerd runs: a user without rights, and nothing to write to.
func (s *scene) checkSealed(pod corev1.Pod) {
	id := pod.Status.ContainerStatuses[0].ContainerID
	out, err := bed.node.ctr("containers", "info", filepath.Base(id))
	s.Check("read the container: "+string(out), err)
	var container struct {
		Spec struct {
			Process struct {
				User struct{ UID int64 }
				Args []string
			}
			Root struct{ Readonly bool }
		}
	}
	s.Check("read the container's spec", json.Unmarshal(out, &container))
	if spec := container.Spec; spec.Process.User.UID != 65532 || !spec.Root.Readonly || spec.Process.Args[0] != "/lockstep" {
		s.Errorf("container %s of %s: %+v", id, pod.Name, spec)
	}
}

// checkService checks that every webhook of the operator is called behind its Service.
func (s *scene) checkService() {
	list := &admissionv1.ValidatingWebhookConfigurationList{}
	s.Check("list webhooks", bed.Client.List(s.Context(), list))
	services := 0
	for _, configuration := range list.Items {
		for _, webhook := range configuration.Webhooks {
			if service := webhook.ClientConfig.Service; service == nil || service.Namespace != operatorKey.Namespace {
				s.Errorf("webhook %s is called at %+v", webhook.Name, webhook.ClientConfig)
				continue
			}
			services++
		}
	}
	expect.That(s, services != 0, "there is no webhook")
}

// createSets creates sets without groups, one after the other, until stop is closed. It returns the first refusal.
func (s *scene) createSets(stop chan struct{}, created *int) error {
	for {
		select {
		case <-stop:
			return nil
		case <-time.After(100 * time.Millisecond):
		}
		set := s.newSet(fmt.Sprintf("roll-%d", *created), 0, 1)
		if err := bed.Client.Create(context.Background(), set); err != nil {
			return fmt.Errorf("after %d sets: %w", *created, err)
		}
		*created++
	}
}

// restoreOperator puts the operator of the other drills back.
func (s *scene) restoreOperator() {
	if s.Failed() {
		logs, _ := filepath.Glob(filepath.Join(bed.node.dir, "pods", operatorKey.Namespace+"_*", "*", "*.log"))
		for _, log := range logs {
			s.Logf("%s:\n%s", log, drill.LastLines(log, 30))
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), drill.Patience)
	defer cancel()
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: operatorKey.Namespace, Name: operatorKey.Name}}
	err := bed.Client.Delete(ctx, deployment, client.PropagationPolicy(metav1.DeletePropagationForeground))
	for err == nil {
		time.Sleep(100 * time.Millisecond)
		err = bed.Client.Get(ctx, operatorKey, deployment)
	}
	expect.That(s.T, apierrors.IsNotFound(err), "delete the operator's Deployment: %v", err)
	if err := errors.Join(bed.Operator.Install(), bed.Operator.Start()); err != nil {
		s.T.Errorf("put the operator of the other drills back: %v", err)
	}
}
