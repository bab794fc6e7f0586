// Package e2e runs the built binary as a user does. It knows commands, output and files, and
// refuses to import the code that it tests.
package e2e

import (
	"bytes"
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"lockstep.dev/lockstep/test/expect"
)

// binary returns the path of lockstep-local, which make builds before: a build takes minutes, and the
// test must use the same binary as users.
func binary(t *testing.T) string {
	t.Helper()
	path := os.Getenv("LOCKSTEP_LOCAL")
	if path == "" {
		t.Fatal("LOCKSTEP_LOCAL is not set: build the binary with `make build`, then set LOCKSTEP_LOCAL to the absolute path of bin/lockstep-local")
	}
	expect.Must(t, filepath.IsAbs(path), "LOCKSTEP_LOCAL is %q: give an absolute path", path)
	return path
}

// call is the result of one command.
type call struct {
	code           int
	stdout, stderr string
}

func run(t *testing.T, name string, args ...string) call {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	expect.Must(t, err == nil || cmd.ProcessState != nil, "%v", err)
	return call{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

// must runs a command that must succeed, and returns its standard output.
func must(t *testing.T, name string, args ...string) string {
	t.Helper()
	c := run(t, name, args...)
	expect.Must(t, c.code == 0,
		"%s %s: exit %d\n%s%s", filepath.Base(name), strings.Join(args, " "), c.code, c.stdout, c.stderr)
	return c.stdout
}

// refused runs a command that must fail and print all of says.
func refused(t *testing.T, says []string, args ...string) {
	t.Helper()
	c := run(t, binary(t), args...)
	expect.Equalf(t, 1, c.code, "the exit code of %s", strings.Join(args, " "))
	for _, part := range says {
		expect.Says(t, c.stderr, part, strings.Join(args, " "))
	}
}

// cluster is a cluster in a directory.
type cluster struct{ dir string }

// newCluster returns a cluster that is ended when the test ends.
func newCluster(t *testing.T) *cluster {
	c := &cluster{filepath.Join(t.TempDir(), "cluster")}
	t.Cleanup(func() {
		out, err := exec.Command(binary(t), "down", "--dir", c.dir).CombinedOutput()
		expect.That(t, err == nil, "down: %v\n%s", err, out)
	})
	return c
}

// port returns the API server's port, or 0 before there is one.
func (c *cluster) port() int {
	var state struct{ Ports struct{ KubeAPIServer int } }
	if data, err := os.ReadFile(filepath.Join(c.dir, "cluster.json")); err != nil || json.Unmarshal(data, &state) != nil {
		return 0
	}
	return state.Ports.KubeAPIServer
}

// portsFree reports whether the six ports from base have no listener.
func portsFree(base int) bool {
	for port := base; port < base+6; port++ {
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			return false
		}
		l.Close()
	}
	return true
}

func (c *cluster) up(t *testing.T, flags ...string) string {
	t.Helper()
	args := append([]string{"up", "--dir", c.dir}, flags...)
	return must(t, binary(t), args...)
}

func (c *cluster) do(t *testing.T, command ...string) string {
	t.Helper()
	return must(t, binary(t), append(command, "--dir", c.dir)...)
}

func (c *cluster) kubectl(t *testing.T, args ...string) string {
	t.Helper()
	return must(t, binary(t), append([]string{"kubectl", "--kubeconfig", filepath.Join(c.dir, "kubeconfig")}, args...)...)
}

// status is the part of status -o json that the tests read.
type status struct {
	Components []struct {
		Name, State string
		PID         int
	}
	Nodes *struct{ Ready, Total int }
}

func (c *cluster) status(t *testing.T) (s status, code int) {
	t.Helper()
	out := run(t, binary(t), "status", "--dir", c.dir, "-o", "json")
	err := json.Unmarshal([]byte(out.stdout), &s)
	expect.Must(t, err == nil, "status: %v\n%s%s", err, out.stdout, out.stderr)
	return s, out.code
}

func (s status) state(component string) string {
	for _, c := range s.Components {
		if c.Name == component {
			return c.State
		}
	}
	return "not listed"
}

// eventually calls ask until it returns true. Only the timeout of go test limits it.
func eventually(t *testing.T, what string, ask func() bool) {
	t.Helper()
	for !ask() {
		select {
		case <-t.Context().Done():
			t.Fatalf("never happened: %s", what)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// TestCluster runs all that a user does with one cluster. The steps run in order, and each needs the
// steps before it.
func TestCluster(t *testing.T) {
	c := newCluster(t)
	out := c.up(t, "--nodes", "4", "--audit", "--kcm-qps", "40", "--feature-gates", "MaxUnavailableStatefulSet=true", "--disable-admission", "DefaultTolerationSeconds")
	expect.Equalf(t, filepath.Join(c.dir, "kubeconfig"), strings.TrimSpace(out), "up prints the path of the kubeconfig")
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
		expect.Must(t, t.Run(step.name, func(t *testing.T) { step.run(t, c) }),
			"%q failed: the later steps need it", step.name)
	}
}

func everythingIsReady(t *testing.T, c *cluster) {
	s, code := c.status(t)
	expect.That(t, code == 0 && len(s.Components) == 5 && s.Nodes != nil && s.Nodes.Ready == 4 && s.Nodes.Total == 4,
		"status: exit %d, %+v", code, s)
	version := c.kubectl(t, "version")
	for _, want := range []string{"Client Version: v1.37.1", "Server Version: v1.37.1"} {
		expect.Says(t, version, want)
	}
	c.kubectl(t, "get", "serviceaccount", "default")
}

func directoryInUse(t *testing.T, c *cluster) {
	refused(t, []string{"in use", "kube-apiserver", "lockstep-local down --dir " + c.dir}, "up", "--dir", c.dir)
}

func pvcsBindAndPodsRun(t *testing.T, c *cluster) {
	c.kubectl(t, "apply", "-f", "testdata/workload.yaml")
	c.kubectl(t, "rollout", "status", "statefulset/web", "--timeout=5m")
	c.kubectl(t, "wait", "pvc", "--all", "--for=jsonpath={.status.phase}=Bound", "--timeout=5m")
	claims := strings.Fields(c.kubectl(t, "get", "pvc", "-o", "name"))
	expect.Equalf(t, 7, len(claims), "PVCs: %v", claims)
}

func settingsReachTheComponents(t *testing.T, c *cluster) {
	gates := c.kubectl(t, "get", "--raw", "/metrics")
	expect.Says(t, gates, `kubernetes_feature_enabled{name="MaxUnavailableStatefulSet",stage="BETA"} 1`)
	// The disabled plugin would add tolerations to every pod.
	expect.Equalf(t, "", c.kubectl(t, "get", "pod", "web-0", "-o", "jsonpath={.spec.tolerations}"), "tolerations")
}

func requestsAreAudited(t *testing.T, c *cluster) {
	data := expect.Value(os.ReadFile(filepath.Join(c.dir, "audit.log")))(t)
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
	got := created["system:serviceaccount:kube-system:statefulset-controller"]
	expect.Equalf(t, 3, got, "pods created by the StatefulSet controller, of %v", created)
}

func podsStayTerminating(t *testing.T, c *cluster) {
	c.kubectl(t, "apply", "-f", "testdata/reluctant.yaml")
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
	expect.That(t, out.code != 0 && strings.Contains(out.stderr, "successor of the same name"),
		"delete of a live pod as kwok: exit %d, %s", out.code, out.stderr)
	patch := `{"metadata":{"uid":"of-the-pod-before"},"status":{"phase":"Failed"}}`
	out = run(t, binary(t), "kubectl", "--kubeconfig", kwok, "patch", "pod", "web-0", "--subresource=status", "-p", patch)
	expect.That(t, out.code != 0, "a status for another UID was accepted")
	phase := c.kubectl(t, "get", "pod", "web-0", "-o", "jsonpath={.status.phase}")
	expect.Equal(t, "Running", phase)
}

func killAndRestart(t *testing.T, c *cluster) {
	for _, component := range []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok"} {
		c.do(t, "kill", component)
		s, code := c.status(t)
		got := s.state(component)
		expect.That(t, code == 1 && got == "killed", "after kill: status exits %d and reports %s as %s", code, component, got)
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
	s, _ := c.status(t)
	expect.That(t, s.Nodes != nil && s.Nodes.Ready == 4, "nodes: %+v, want 4 ready", s.Nodes)
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
		expect.That(t, syscall.Kill(component.PID, 0) != nil || zombie(component.PID),
			"%s still runs as %d", component.Name, component.PID)
	}
	if !portsFree(c.port()) {
		t.Errorf("ports from %d are still taken", c.port())
	}
	_, err := os.Stat(filepath.Join(c.dir, "kubeconfig"))
	expect.That(t, os.IsNotExist(err), "the kubeconfig is still there: %v", err)
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
	expect.Equalf(t, "", c.kubectl(t, "get", "deployments,pvc", "-o", "name"), "objects of the earlier cluster")
	_, err := os.Stat(filepath.Join(c.dir, "audit.log"))
	expect.That(t, os.IsNotExist(err), "an audit log without --audit: %v", err)
}

// An interrupted up ends the processes that it started. After SIGKILL, down ends them.
func TestUpCutShortLeavesNothing(t *testing.T) {
	for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGKILL} {
		t.Run(signal.String(), func(t *testing.T) {
			c := newCluster(t)
			up := exec.Command(binary(t), "up", "--dir", c.dir)
			var stderr strings.Builder
			up.Stderr = &stderr
			expect.OK(t, up.Start())
			eventually(t, "the API server listens", func() bool { return c.port() != 0 && !portsFree(c.port()) })
			expect.OK(t, up.Process.Signal(signal))
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
