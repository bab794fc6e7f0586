package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestInterruptedUpLeavesNothing(t *testing.T) {
	c := newCluster(t)
	up := exec.Command(binary(t), "up", "--dir", c.dir)
	var stderr strings.Builder
	up.Stderr = &stderr
	if err := up.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the API server listens", func() bool { return c.port() != 0 && !portsFree(c.port()) })
	if err := up.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if err := up.Wait(); err == nil || up.ProcessState.ExitCode() != 1 {
		t.Errorf("an interrupted up: %v\n%s", err, stderr.String())
	}
	if !portsFree(c.port()) {
		t.Errorf("ports from %d are still taken", c.port())
	}
}

// TestKilledUpIsFoundByDown: not even SIGKILL lets anything escape.
func TestKilledUpIsFoundByDown(t *testing.T) {
	c := newCluster(t)
	up := exec.Command(binary(t), "up", "--dir", c.dir)
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
	if !portsFree(c.port()) {
		t.Errorf("ports from %d are still taken", c.port())
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
