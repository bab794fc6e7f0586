package inquiry

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"lockstep.dev/lockstep/api/config/v1alpha1"
	"lockstep.dev/lockstep/internal/pvc"
	"lockstep.dev/lockstep/internal/pvc/workloads"
)

// ServedAs finds the resource of a kind in the version that is served. The resource is
// empty if no version is.
type ServedAs func(ctx context.Context, kind schema.GroupVersionKind) (schema.GroupVersionResource, error)

// configuration is what the operator's configuration in the cluster says of PVCs.
type configuration struct {
	kinds []workloads.Kind
	// unread is why it could not be read, or empty.
	unread string
	// settings are nil where no configuration was read.
	settings *pvc.Settings
	// served are the kinds whose version is known.
	served map[schema.GroupVersionKind]schema.GroupVersionResource
}

func (i *Inquirer) configuration(ctx context.Context) *configuration {
	if i.config != nil {
		return i.config
	}
	i.config = &configuration{served: map[schema.GroupVersionKind]schema.GroupVersionResource{}}
	var described []v1alpha1.WorkloadKind
	for _, namespace := range []string{v1alpha1.InstalledNamespace, v1alpha1.InstalledProtectionNamespace} {
		found, parsed := &corev1.ConfigMap{}, &v1alpha1.Configuration{}
		err := i.reader.Get(ctx, client.ObjectKey{Namespace: namespace, Name: v1alpha1.InstalledName}, found)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err == nil {
			err = yaml.Unmarshal([]byte(found.Data[v1alpha1.InstalledKey]), parsed)
		}
		if err != nil {
			i.config.unread = why(err)
			continue
		}
		described = append(described, parsed.Protection.Kinds...)
		i.config.settings = settingsOf(&parsed.Protection, namespace)
	}
	i.config.kinds = workloads.KindsOf(described)
	return i.config
}

// settingsOf are the mode and the exempt namespaces; the operator's own is one of them.
func settingsOf(p *v1alpha1.Protection, namespace string) *pvc.Settings {
	mode, ok := pvc.ParseMode(strings.ToLower(string(cmp.Or(p.Mode, v1alpha1.DefaultProtectionMode))))
	if !ok {
		return nil
	}
	exempt := p.ExemptNamespaces
	if exempt == nil {
		exempt = []string{v1alpha1.DefaultExemptNamespace}
	}
	return &pvc.Settings{Mode: mode, Exempt: append(slices.Clone(exempt), namespace)}
}

// servedAs asks for each kind once.
func (i *Inquirer) servedAs(ctx context.Context, kind schema.GroupVersionKind) (schema.GroupVersionResource, error) {
	served := i.configuration(ctx).served
	if resource, ok := served[kind]; ok {
		return resource, nil
	}
	resource, err := i.ServedAs(ctx, kind)
	if err != nil {
		return resource, fmt.Errorf("read the served versions: %w", err)
	}
	if resource.Resource != "" {
		i.mapper.AddSpecific(resource.GroupVersion().WithKind(kind.Kind), resource, resource, meta.RESTScopeNamespace)
	}
	served[kind] = resource
	return resource, nil
}

// modeOf is the mode of a PVC and where it was read. Without a configuration, what the PVC
// bears shows the mode.
func modeOf(claim *corev1.PersistentVolumeClaim, labels map[string]string, settings *pvc.Settings) (pvc.Mode, string) {
	from := "configuration"
	if settings == nil {
		settings, from = seenOn(claim), "the annotations and finalizers of the PVC"
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

func seenOn(claim *corev1.PersistentVolumeClaim) *pvc.Settings {
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
