package e2e

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

const workload = `
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: "123"}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: web}
spec:
  replicas: 3
  serviceName: web
  podManagementPolicy: Parallel
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      initContainers: [{name: init, image: busybox}]
      containers: [{name: main, image: nginx, resources: {limits: {nvidia.com/gpu: 8}}}]
  volumeClaimTemplates:
  - metadata: {name: data}
    spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
  - metadata: {name: wait}
    spec: {storageClassName: local-wait, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
`

// TestCluster runs all that a user does with one cluster. The steps run in order, and each needs the
// steps before it.
func TestCluster(t *testing.T) {
	c := newCluster(t)
	out := c.up(t, "--nodes", "4", "--audit", "--kcm-qps", "40", "--feature-gates", "MaxUnavailableStatefulSet=true", "--disable-admission", "DefaultTolerationSeconds")
	if got, want := strings.TrimSpace(out), filepath.Join(c.dir, "kubeconfig"); got != want {
		t.Errorf("up prints %q, want the path of the kubeconfig, %q", got, want)
	}
	for _, step := range []struct {
		name string
		run  func(*testing.T, *cluster)
	}{
		{"everything is ready", everythingIsReady},
		{"directory in use", directoryInUse},
		{"PVCs bind and pods run", pvcsBindAndPodsRun},
		{"settings reach the components", settingsReachTheComponents},
		{"requests are audited", requestsAreAudited},
		{"pods stay terminating", podsStayTerminating},
		{"kwok ends only deleted pods", kwokEndsOnlyDeletedPods},
		{"every component can be killed and restarted", killAndRestart},
		{"kwok takes over at once", kwokTakesOver},
		{"garbage collector off and on", garbageCollectorOffAndOn},
		{"down leaves nothing", downLeavesNothing},
		{"up again is a fresh cluster", upAgainIsFresh},
	} {
		if !t.Run(step.name, func(t *testing.T) { step.run(t, c) }) {
			t.Fatalf("%q failed: the later steps need it", step.name)
		}
	}
}

func everythingIsReady(t *testing.T, c *cluster) {
	s, code := c.status(t)
	if code != 0 || len(s.Components) != 5 || s.Nodes == nil || s.Nodes.Ready != 4 || s.Nodes.Total != 4 {
		t.Errorf("status: exit %d, %+v", code, s)
	}
	version := c.kubectl(t, "version")
	for _, want := range []string{"Client Version: v1.37.1", "Server Version: v1.37.1"} {
		if !strings.Contains(version, want) {
			t.Errorf("kubectl version lacks %q:\n%s", want, version)
		}
	}
	c.kubectl(t, "get", "serviceaccount", "default")
}

func directoryInUse(t *testing.T, c *cluster) {
	refused(t, []string{"in use", "kube-apiserver", "lockstep-local down --dir " + c.dir}, "up", "--dir", c.dir)
}

func pvcsBindAndPodsRun(t *testing.T, c *cluster) {
	c.apply(t, workload)
	c.kubectl(t, "rollout", "status", "statefulset/web", "--timeout=5m")
	c.kubectl(t, "wait", "pvc", "--all", "--for=jsonpath={.status.phase}=Bound", "--timeout=5m")
	claims := strings.Fields(c.kubectl(t, "get", "pvc", "-o", "name"))
	if len(claims) != 7 {
		t.Errorf("PVCs: %v, want 7", claims)
	}
}

func settingsReachTheComponents(t *testing.T, c *cluster) {
	gates := c.kubectl(t, "get", "--raw", "/metrics")
	if !strings.Contains(gates, `kubernetes_feature_enabled{name="MaxUnavailableStatefulSet",stage="BETA"} 1`) {
		t.Error("the API server does not report the feature gate as enabled")
	}
	// The disabled plugin would add tolerations to every pod.
	if got := c.kubectl(t, "get", "pod", "web-0", "-o", "jsonpath={.spec.tolerations}"); got != "" {
		t.Errorf("tolerations %s, want none without DefaultTolerationSeconds", got)
	}
}

func requestsAreAudited(t *testing.T, c *cluster) {
	data, err := os.ReadFile(filepath.Join(c.dir, "audit.log"))
	if err != nil {
		t.Fatal(err)
	}
	created := map[string]int{}
	for line := range strings.Lines(string(data)) {
		var e struct {
			Stage, Level, Verb string
			User               struct{ Username string }
			ObjectRef          struct{ Resource string }
		}
		if err := json.Unmarshal([]byte(line), &e); err != nil || e.Stage != "ResponseComplete" || e.Level != "Metadata" {
			t.Fatalf("want lines of level Metadata for finished requests, have %q: %v", line, err)
		}
		if e.Verb == "create" && e.ObjectRef.Resource == "pods" {
			created[e.User.Username]++
		}
	}
	if got := created["system:serviceaccount:kube-system:statefulset-controller"]; got != 3 {
		t.Errorf("pods created by the StatefulSet controller: %d, want 3 (all: %v)", got, created)
	}
}

const reluctant = `
apiVersion: v1
kind: Pod
metadata: {name: hangs, annotations: {local.lockstep.dev/hang-on-delete: "true"}}
spec: {containers: [{name: main, image: nginx}]}
---
apiVersion: v1
kind: Pod
metadata: {name: held, finalizers: [example.com/hold]}
spec: {containers: [{name: main, image: nginx}]}
`

func podsStayTerminating(t *testing.T, c *cluster) {
	c.apply(t, reluctant)
	c.kubectl(t, "wait", "pod/hangs", "pod/held", "--for=condition=Ready", "--timeout=5m")
	c.kubectl(t, "delete", "pod", "hangs", "held", "--wait=false")
	eventually(t, "kwok has done its part for the held pod", func() bool {
		return c.kubectl(t, "get", "pod", "held", "-o", "jsonpath={.metadata.deletionGracePeriodSeconds}") == "0"
	})
	// A pod that was deleted later and is gone shows that kwok has seen the others.
	c.kubectl(t, "run", "quick", "--image=nginx")
	c.kubectl(t, "delete", "pod", "quick")
	c.kubectl(t, "get", "pod", "hangs", "held")
	c.kubectl(t, "annotate", "pod", "hangs", "local.lockstep.dev/hang-on-delete-")
	c.kubectl(t, "patch", "pod", "held", "--type=merge", "-p", `{"metadata":{"finalizers":null}}`)
	c.kubectl(t, "wait", "pod/hangs", "pod/held", "--for=delete", "--timeout=5m")
}

// kwokEndsOnlyDeletedPods sends the writes of a late kwok, with its credentials.
func kwokEndsOnlyDeletedPods(t *testing.T, c *cluster) {
	kwok := filepath.Join(c.dir, "control-plane", "config", "kwok.kubeconfig")
	out := run(t, binary(t), "kubectl", "--kubeconfig", kwok, "delete", "pod", "web-0", "--grace-period=0")
	if out.code == 0 || !strings.Contains(out.stderr, "successor of the same name") {
		t.Errorf("delete of a live pod as kwok: exit %d, %s", out.code, out.stderr)
	}
	patch := `{"metadata":{"uid":"of-the-pod-before"},"status":{"phase":"Failed"}}`
	out = run(t, binary(t), "kubectl", "--kubeconfig", kwok, "patch", "pod", "web-0", "--subresource=status", "-p", patch)
	if out.code == 0 {
		t.Error("a status for another UID was accepted")
	}
	if phase := c.kubectl(t, "get", "pod", "web-0", "-o", "jsonpath={.status.phase}"); phase != "Running" {
		t.Errorf("phase %s, want Running", phase)
	}
}

func killAndRestart(t *testing.T, c *cluster) {
	for _, component := range []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok"} {
		c.do(t, "kill", component)
		s, code := c.status(t)
		if got := s.state(component); code != 1 || got != "killed" {
			t.Errorf("after kill: status exits %d and reports %s as %s", code, component, got)
		}
		refused(t, []string{component + " does not run", "lockstep-local restart " + component}, "kill", component, "--dir", c.dir)
		c.do(t, "restart", component)
		eventually(t, "all are ready after the restart of "+component, func() bool {
			s, code := c.status(t)
			return code == 0 && s.state(component) == "ready"
		})
	}
	c.kubectl(t, "get", "statefulset", "web") // etcd has kept the data
	c.kubectl(t, "scale", "statefulset", "web", "--replicas=4")
	c.kubectl(t, "rollout", "status", "statefulset/web", "--timeout=5m")
}

// kwokTakesOver checks that a new kwok does not wait for the leases of the old one.
func kwokTakesOver(t *testing.T, c *cluster) {
	c.do(t, "kill", "kwok")
	c.kubectl(t, "run", "waits", "--image=nginx")
	c.kubectl(t, "delete", "pod", "web-3", "--wait=false")
	c.do(t, "restart", "kwok")
	c.kubectl(t, "wait", "pod/waits", "--for=condition=Ready", "--timeout=20s")
	c.kubectl(t, "rollout", "status", "statefulset/web", "--timeout=20s")
	if s, _ := c.status(t); s.Nodes == nil || s.Nodes.Ready != 4 {
		t.Errorf("nodes: %+v, want 4 ready", s.Nodes)
	}
}

func garbageCollectorOffAndOn(t *testing.T, c *cluster) {
	c.do(t, "restart", "kube-controller-manager", "--kcm-controllers", "*,-garbage-collector-controller")
	c.kubectl(t, "delete", "statefulset", "web", "--cascade=background")
	c.kubectl(t, "create", "deployment", "other", "--image=nginx") // other controllers work
	c.kubectl(t, "rollout", "status", "deployment/other", "--timeout=5m")
	c.kubectl(t, "get", "pod", "web-0", "web-1", "web-2", "web-3")   // the garbage collector does not
	c.do(t, "restart", "kube-controller-manager", "--kcm-qps", "20") // keeps the rest of its settings
	c.kubectl(t, "get", "pod", "web-0")
	c.do(t, "restart", "kube-controller-manager", "--kcm-controllers", "*")
	c.kubectl(t, "wait", "pod", "-l", "app=web", "--for=delete", "--timeout=5m")
}

func downLeavesNothing(t *testing.T, c *cluster) {
	s, _ := c.status(t)
	c.do(t, "down")
	for _, component := range s.Components {
		if err := syscall.Kill(component.PID, 0); err == nil && !zombie(component.PID) {
			t.Errorf("%s still runs as %d", component.Name, component.PID)
		}
	}
	if !portsFree(c.port()) {
		t.Errorf("ports from %d are still taken", c.port())
	}
	if _, err := os.Stat(filepath.Join(c.dir, "kubeconfig")); !os.IsNotExist(err) {
		t.Errorf("the kubeconfig is still there: %v", err)
	}
	c.do(t, "down") // a second down succeeds too
	refused(t, []string{"no cluster", "lockstep-local up"}, "status", "--dir", c.dir)
}

// zombie reports whether a process has ended and keeps its PID, because its parent does not wait.
func zombie(pid int) bool {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err == nil && bytes.Contains(stat, []byte(") Z "))
}

func upAgainIsFresh(t *testing.T, c *cluster) {
	c.up(t, "--nodes", "1")
	if got := c.kubectl(t, "get", "deployments,pvc", "-o", "name"); got != "" {
		t.Errorf("objects of the earlier cluster: %s", got)
	}
	if _, err := os.Stat(filepath.Join(c.dir, "audit.log")); !os.IsNotExist(err) {
		t.Errorf("an audit log without --audit: %v", err)
	}
}

// An interrupted up ends the processes that it started. After SIGKILL, down ends them.
func TestUpCutShortLeavesNothing(t *testing.T) {
	for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGKILL} {
		t.Run(signal.String(), func(t *testing.T) {
			c := newCluster(t)
			up := exec.Command(binary(t), "up", "--dir", c.dir)
			var stderr strings.Builder
			up.Stderr = &stderr
			if err := up.Start(); err != nil {
				t.Fatal(err)
			}
			eventually(t, "the API server listens", func() bool { return c.port() != 0 && !portsFree(c.port()) })
			if err := up.Process.Signal(signal); err != nil {
				t.Fatal(err)
			}
			err := up.Wait()
			if signal == syscall.SIGKILL {
				c.do(t, "down")
			} else if err == nil || up.ProcessState.ExitCode() != 1 {
				t.Errorf("an interrupted up: %v\n%s", err, stderr.String())
			}
			if !portsFree(c.port()) {
				t.Errorf("ports from %d are still taken", c.port())
			}
		})
	}
}

func TestAssetsServeEnvtest(t *testing.T) {
	dir := strings.TrimSpace(must(t, binary(t), "assets", filepath.Join(t.TempDir(), "assets")))
	for _, c := range []struct {
		says string
		call []string
	}{
		{"etcd Version: 3.7.3", []string{"etcd", "--version"}},
		{"Kubernetes v1.37.1", []string{"kube-apiserver", "--version"}},
		{"Client Version: v1.37.1", []string{"kubectl", "version", "--client"}},
	} {
		if got := must(t, filepath.Join(dir, c.call[0]), c.call[1:]...); !strings.Contains(got, c.says) {
			t.Errorf("%s says %q, want %q in it", c.call[0], got, c.says)
		}
	}
}
