package program

import (
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	_ "k8s.io/kubernetes/pkg/features" // registers every feature gate
	"k8s.io/kubernetes/pkg/kubeapiserver/options"
)

// Catalog answers what the programs inside understand.
type Catalog struct{}

// Release is the version of Kubernetes compiled in.
func (Catalog) Release() string { return Release() }

// Names lists the programs inside.
func (Catalog) Names() []string { return Names() }

// CheckFeatureGates tries the gates out on a copy, which refuses unknown names
// and values that a gate is locked against.
func (Catalog) CheckFeatureGates(gates map[string]bool) error {
	return utilfeature.DefaultMutableFeatureGate.DeepCopy().SetFromMap(gates)
}

// Controllers lists the controller manager's controllers, without their
// deprecated aliases.
func (Catalog) Controllers() []string { return controllers.KnownControllers() }

// AdmissionPlugins lists the API server's admission plugins.
func (Catalog) AdmissionPlugins() []string { return options.AllOrderedPlugins }
