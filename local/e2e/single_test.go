package e2e

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestInterruptedUpLeavesNothing(t *testing.T) {
	c := newCluster(t)
	up := exec.Command(binary(t), "up", "--dir", c.dir, "--port", strconv.Itoa(c.port))
	var stderr strings.Builder
	up.Stderr = &stderr
	if err := up.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the API server listens", func() bool { return !blockFree(c.port) })
	if err := up.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if err := up.Wait(); err == nil || up.ProcessState.ExitCode() != 1 {
		t.Errorf("an interrupted up: %v\n%s", err, stderr.String())
	}
	if !blockFree(c.port) {
		t.Errorf("ports from %d are still taken", c.port)
	}
}

// TestKilledUpIsFoundByDown: not even SIGKILL lets anything escape.
func TestKilledUpIsFoundByDown(t *testing.T) {
	c := newCluster(t)
	up := exec.Command(binary(t), "up", "--dir", c.dir, "--port", strconv.Itoa(c.port))
	if err := up.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "two components are written down", func() bool {
		state, err := os.ReadFile(filepath.Join(c.dir, "cluster.json"))
		return err == nil && strings.Contains(string(state), `"kube-apiserver": {`)
	})
	if err := up.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	up.Wait()
	c.do(t, "down")
	if !blockFree(c.port) {
		t.Errorf("ports from %d are still taken", c.port)
	}
}

// TestUpReportsAComponentThatDies takes the controller manager's port away
// between the look at the ports and its start.
func TestUpReportsAComponentThatDies(t *testing.T) {
	c := newCluster(t)
	thief := make(chan net.Listener)
	go func() {
		defer close(thief)
		for {
			if _, err := os.Stat(filepath.Join(c.dir, "cluster.json")); err == nil {
				break
			}
			time.Sleep(time.Millisecond)
		}
		if l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(c.port+3))); err == nil {
			thief <- l
		}
	}()
	done := make(chan struct{})
	go func() {
		defer close(done)
		refused(t, []string{
			"kube-controller-manager ended while it was to become ready", "exit status 1", "address already in use",
			filepath.Join(c.dir, "control-plane", "log", "kube-controller-manager.log"),
		}, "up", "--dir", c.dir, "--port", strconv.Itoa(c.port))
	}()
	l, stolen := <-thief
	if !stolen {
		t.Fatal("the port could not be taken")
	}
	<-done
	l.Close()
	if !blockFree(c.port) {
		t.Errorf("ports from %d are still taken", c.port)
	}
}

func TestBadFlagsAreRefused(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "never-made")
	for flag, says := range map[string]string{
		"--nodes=-1":                     "--nodes -1",
		"--feature-gates=Bogus=true":     "unrecognized feature gate: Bogus",
		"--feature-gates=AllBeta=maybe":  "NAME=true or NAME=false",
		"--disable-admission=Bogus":      `unknown admission plugin "Bogus"`,
		"--kcm-controllers=*,-bogus":     `unknown controller "bogus"`,
		"--feature-gates=Pods=true,A=no": "NAME=true",
	} {
		refused(t, []string{says}, "up", "--dir", dir, flag)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("a refused call made its directory: %v", err)
	}
}

func TestAssetsServeEnvtest(t *testing.T) {
	dir := strings.TrimSpace(must(t, binary(t), "assets", filepath.Join(t.TempDir(), "assets")))
	for program, c := range map[string]struct{ flag, says string }{
		"etcd":           {"--version", "etcd Version: 3.7.3"},
		"kube-apiserver": {"--version", "Kubernetes v1.37.1"},
		"kubectl":        {"version", "Client Version: v1.37.1"},
	} {
		args := []string{c.flag}
		if program == "kubectl" {
			args = append(args, "--client")
		}
		if got := must(t, filepath.Join(dir, program), args...); !strings.Contains(got, c.says) {
			t.Errorf("%s says %q, want %q in it", program, got, c.says)
		}
	}
}
