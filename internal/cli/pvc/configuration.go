package pvc

import (
	"context"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"lockstep.dev/lockstep/api/config/v1alpha1"
	"lockstep.dev/lockstep/internal/pvc"
	"lockstep.dev/lockstep/internal/pvc/workloads"
)

const configurationName = "configmap " + v1alpha1.InstalledNamespace + "/" + v1alpha1.InstalledName

// configuration is what the operator's configuration in the cluster says of PVCs.
type configuration struct {
	kinds []workloads.Kind
	// unread is why it could not be read, or empty.
	unread string
	// settings are nil where no configuration was read.
	settings *pvc.Settings
}

// configuration reads the configuration once. The operator's own namespace is exempt.
func (r *Reader) configuration(ctx context.Context) *configuration {
	if r.config != nil {
		return r.config
	}
	r.config = &configuration{}
	var described []v1alpha1.WorkloadKind
	for _, namespace := range []string{v1alpha1.InstalledNamespace, v1alpha1.InstalledProtectionNamespace} {
		found, parsed := &corev1.ConfigMap{}, &v1alpha1.Configuration{}
		err := r.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: v1alpha1.InstalledName}, found)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err == nil {
			err = yaml.Unmarshal([]byte(found.Data[v1alpha1.InstalledKey]), parsed)
		}
		if err != nil {
			r.config.unread = why(err)
			continue
		}
		v1alpha1.SetDefaults(parsed)
		described = append(described, parsed.Protection.Kinds...)
		mode, _ := pvc.ParseMode(strings.ToLower(string(parsed.Protection.Mode)))
		r.config.settings = &pvc.Settings{Mode: mode, Exempt: append(parsed.Protection.ExemptNamespaces, namespace)}
	}
	r.config.kinds = workloads.KindsOf(described)
	return r.config
}

// modeOf is the mode of a PVC and where it was read. Without a configuration, the annotations and
// finalizers of the PVC show the mode.
func (c *configuration) modeOf(claim *corev1.PersistentVolumeClaim, labels map[string]string) (pvc.Mode, string) {
	settings, from := c.settings, "configuration"
	if settings == nil {
		settings, from = shownBy(claim), "the annotations and finalizers of the PVC"
	}
	mode, chosen := settings.ModeOf(claim, labels), settings.Mode
	if m, ok := pvc.ParseMode(labels[pvc.ModeKey]); ok {
		chosen, from = m, "label of the namespace"
	}
	if m, ok := pvc.ParseMode(claim.Annotations[pvc.ModeKey]); ok {
		chosen, from = m, "annotation of the PVC"
	}
	switch {
	case slices.Contains(settings.Exempt, claim.Namespace):
		from = "exempt namespace"
	case mode != chosen:
		from = "ephemeral volume of a pod"
	}
	return mode, from
}

func shownBy(claim *corev1.PersistentVolumeClaim) *pvc.Settings {
	switch {
	case claim.Annotations[pvc.HoldersAnnotation] != "":
		return &pvc.Settings{Mode: pvc.Hold}
	case slices.Contains(claim.Finalizers, pvc.BarrierFinalizer):
		return &pvc.Settings{Mode: pvc.Barrier}
	case claim.Annotations[pvc.ObservedAnnotation] != "":
		return &pvc.Settings{Mode: pvc.Observe}
	}
	return &pvc.Settings{Exempt: []string{v1alpha1.DefaultExemptNamespace}}
}
