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
)

// ServedAs finds the resource of a kind in whatever version it is served, without a
// name if in none.
type ServedAs func(ctx context.Context, kind schema.GroupVersionKind) (schema.GroupVersionResource, error)

// registry is what is known of kinds that are not built in, read once.
type registry struct {
	kinds []pvc.Kind
	// unread says why nothing may be left out that the configuration describes, or is
	// empty.
	unread string
	// modes are what the configuration says of them, or nil where there is none.
	modes *pvc.Settings
	// served is in which versions, of the kinds that were asked for.
	served map[schema.GroupVersionKind]schema.GroupVersionResource
}

// registry are the kinds of the configuration that an installation keeps in the
// cluster. An operator that was given another one elsewhere cannot be asked.
func (i *Inquirer) registry(ctx context.Context) *registry {
	if i.known == nil {
		i.known = i.readRegistry(ctx)
	}
	return i.known
}

func (i *Inquirer) readRegistry(ctx context.Context) *registry {
	read := &registry{served: map[schema.GroupVersionKind]schema.GroupVersionResource{}}
	var described []v1alpha1.WorkloadKind
	for _, namespace := range []string{v1alpha1.InstalledNamespace, v1alpha1.InstalledProtectionNamespace} {
		config := &corev1.ConfigMap{}
		err := i.get(ctx, client.ObjectKey{Namespace: namespace, Name: v1alpha1.InstalledName}, config)
		if apierrors.IsNotFound(err) {
			continue
		}
		parsed := &v1alpha1.Configuration{}
		if err == nil {
			err = yaml.Unmarshal([]byte(config.Data[v1alpha1.InstalledKey]), parsed)
		}
		if err != nil {
			read.unread = why(err)
			continue
		}
		described = append(described, parsed.Protection.Kinds...)
		read.modes = modesOf(&parsed.Protection, namespace)
	}
	read.kinds = pvc.KindsOf(described)
	return read
}

// modesOf is what a configuration says of modes, where it is installed in a namespace,
// which is exempt; or nil if it says none that there is.
func modesOf(p *v1alpha1.Protection, namespace string) *pvc.Settings {
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

// servedAs asks for a kind once: an overview has many namespaces.
func (i *Inquirer) servedAs(ctx context.Context, kind schema.GroupVersionKind) (schema.GroupVersionResource, error) {
	served := i.registry(ctx).served
	if resource, ok := served[kind]; ok {
		return resource, nil
	}
	resource, err := i.ServedAs(ctx, kind)
	if err != nil {
		return resource, fmt.Errorf("whether it is served: %w", err)
	}
	if resource.Resource != "" {
		i.mapper.AddSpecific(resource.GroupVersion().WithKind(kind.Kind), resource, resource, meta.RESTScopeNamespace)
	}
	served[kind] = resource
	return resource, nil
}

// unconfigured notes on a claim that bears something of Lockstep that kinds may be
// missing which only the configuration knows. The words of the operator stand for them.
func (f *Found) unconfigured() {
	if f.World.unconfigured == "" || !bearsOurs(f.Claim) {
		return
	}
	f.Unread = append(f.Unread, pvc.Unread{
		What: fmt.Sprintf("kinds of workloads that the configuration describes (configmap %s/%s)", v1alpha1.InstalledNamespace, v1alpha1.InstalledName),
		Why:  f.World.unconfigured,
	})
}

func bearsOurs(claim *corev1.PersistentVolumeClaim) bool {
	for key := range claim.Annotations {
		if strings.HasPrefix(key, pvc.Prefix) {
			return true
		}
	}
	for _, finalizer := range claim.Finalizers {
		if finalizer == pvc.BarrierFinalizer {
			return true
		}
	}
	return false
}
