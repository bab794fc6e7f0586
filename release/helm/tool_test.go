//go:build drills

package helm

import (
	"time"

	action3 "helm.sh/helm/v3/pkg/action"
	loader3 "helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v4/pkg/action"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/kube"
	"k8s.io/cli-runtime/pkg/genericclioptions"
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

// tool is one version of Helm. A chart is a directory.
type tool interface {
	install(name, namespace, chart string, values map[string]any, o options) error
	upgrade(name, namespace, chart string, values map[string]any, o options) error
	rollback(name, namespace string, revision int) error
	uninstall(name, namespace string) error
}

// patience bounds a command that waits.
const patience = 3 * time.Minute

func flags(kubeconfig, namespace string) *genericclioptions.ConfigFlags {
	f := genericclioptions.NewConfigFlags(true)
	f.KubeConfig, f.Namespace = &kubeconfig, &namespace
	return f
}

// helm4 has its default options: server-side apply, and kstatus for --wait.
type helm4 struct{ kubeconfig string }

func (h helm4) configuration(namespace string) (*action.Configuration, error) {
	c := action.NewConfiguration()
	return c, c.Init(flags(h.kubeconfig, namespace), namespace, "secret")
}

func strategy(o options) kube.WaitStrategy {
	if o.wait > 0 {
		return kube.StatusWatcherStrategy
	}
	return kube.HookOnlyStrategy
}

func (h helm4) install(name, namespace, chart string, values map[string]any, o options) error {
	c, err := h.configuration(namespace)
	if err != nil {
		return err
	}
	loaded, err := loader.Load(chart)
	if err != nil {
		return err
	}
	a := action.NewInstall(c)
	a.ReleaseName, a.Namespace, a.CreateNamespace, a.TakeOwnership, a.ForceConflicts = name, namespace, true, o.takes, o.forces
	a.WaitStrategy, a.Timeout = strategy(o), o.wait
	_, err = a.Run(loaded, values)
	return err
}

func (h helm4) upgrade(name, namespace, chart string, values map[string]any, o options) error {
	c, err := h.configuration(namespace)
	if err != nil {
		return err
	}
	loaded, err := loader.Load(chart)
	if err != nil {
		return err
	}
	a := action.NewUpgrade(c)
	a.Namespace, a.TakeOwnership, a.ForceConflicts, a.ResetValues = namespace, o.takes, o.forces, true
	a.WaitStrategy, a.Timeout = strategy(o), o.wait
	_, err = a.Run(name, loaded, values)
	return err
}

func (h helm4) rollback(name, namespace string, revision int) error {
	c, err := h.configuration(namespace)
	if err != nil {
		return err
	}
	a := action.NewRollback(c)
	a.Version, a.WaitStrategy, a.Timeout = revision, kube.StatusWatcherStrategy, patience
	return a.Run(name)
}

func (h helm4) uninstall(name, namespace string) error {
	c, err := h.configuration(namespace)
	if err != nil {
		return err
	}
	a := action.NewUninstall(c)
	a.WaitStrategy, a.Timeout = kube.StatusWatcherStrategy, patience
	_, err = a.Run(name)
	return err
}

// helm3 has its default options.
type helm3 struct{ kubeconfig string }

func (h helm3) configuration(namespace string) (*action3.Configuration, error) {
	c := &action3.Configuration{}
	return c, c.Init(flags(h.kubeconfig, namespace), namespace, "secret", func(string, ...any) {})
}

func (h helm3) install(name, namespace, chart string, values map[string]any, o options) error {
	c, err := h.configuration(namespace)
	if err != nil {
		return err
	}
	loaded, err := loader3.Load(chart)
	if err != nil {
		return err
	}
	a := action3.NewInstall(c)
	a.ReleaseName, a.Namespace, a.CreateNamespace, a.TakeOwnership = name, namespace, true, o.takes
	a.Wait, a.Timeout = o.wait > 0, o.wait
	_, err = a.Run(loaded, values)
	return err
}

func (h helm3) upgrade(name, namespace, chart string, values map[string]any, o options) error {
	c, err := h.configuration(namespace)
	if err != nil {
		return err
	}
	loaded, err := loader3.Load(chart)
	if err != nil {
		return err
	}
	a := action3.NewUpgrade(c)
	a.Namespace, a.TakeOwnership, a.ResetValues = namespace, o.takes, true
	a.Wait, a.Timeout = o.wait > 0, o.wait
	_, err = a.Run(name, loaded, values)
	return err
}

func (h helm3) rollback(name, namespace string, revision int) error {
	c, err := h.configuration(namespace)
	if err != nil {
		return err
	}
	a := action3.NewRollback(c)
	a.Version, a.Wait, a.Timeout = revision, true, patience
	return a.Run(name)
}

func (h helm3) uninstall(name, namespace string) error {
	c, err := h.configuration(namespace)
	if err != nil {
		return err
	}
	a := action3.NewUninstall(c)
	a.Wait, a.Timeout = true, patience
	_, err = a.Run(name)
	return err
}
