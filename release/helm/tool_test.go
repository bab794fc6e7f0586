//go:build drills

package helm

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"time"

	"sigs.k8s.io/yaml"
)

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
