// Package identity sorts objects by the incarnation that they belong to.
//
// A name outlives its object, so a name alone does not say which incarnation an object belongs to. This package knows
// how to follow the chain of controller owners by UID and how to sort objects into owned, previous, orphan and foreign
// ones. It refuses to know how objects are read, what time it is, and what is done about any of them.
package identity

import (
	"cmp"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	dsv1 "lockstep.dev/lockstep/api/disaggregatedset/v1"
	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
)

// Kind names a kind that Lockstep reads or writes, as it is spelled in an owner reference.
type Kind string

// The kinds that take part in a chain of owners or stand at its end.
const (
	KindLeaderWorkerSet    Kind = "LeaderWorkerSet"
	KindStatefulSet        Kind = "StatefulSet"
	KindDeployment         Kind = "Deployment"
	KindReplicaSet         Kind = "ReplicaSet"
	KindPod                Kind = "Pod"
	KindService            Kind = "Service"
	KindControllerRevision Kind = "ControllerRevision"

	KindDisaggregatedSet           Kind = "DisaggregatedSet"
	KindDisaggregatedSetRoleScaler Kind = "DisaggregatedSetRoleScaler"

	KindPersistentVolumeClaim Kind = "PersistentVolumeClaim"
	KindPodDisruptionBudget   Kind = "PodDisruptionBudget"
	KindNamespace             Kind = "Namespace"
	KindPersistentVolume      Kind = "PersistentVolume"

	// KindPodGroup is what gang schedulers know a group by.
	KindPodGroup Kind = "PodGroup"
	// KindWorkload is what Kubernetes' own scheduler knows a set by.
	KindWorkload Kind = "Workload"
)

// Ref is one incarnation of one object, as it was when it was looked at. A
// bare name is never passed around: a name may have changed hands meanwhile.
type Ref struct {
	Kind            Kind      `json:"kind"`
	Namespace       string    `json:"namespace"`
	Name            string    `json:"name"`
	UID             types.UID `json:"uid,omitempty"`
	ResourceVersion string    `json:"-"`
	// APIVersion is set where the kind may be a foreign one: two groups may have kinds of the same name.
	APIVersion string `json:"-"`
}

// RefOf returns the incarnation that obj was read as.
func RefOf(kind Kind, obj metav1.Object) Ref {
	ref := Ref{
		Kind:            kind,
		Namespace:       obj.GetNamespace(),
		Name:            obj.GetName(),
		UID:             obj.GetUID(),
		ResourceVersion: obj.GetResourceVersion(),
	}
	if foreign, ok := obj.(runtime.Unstructured); ok {
		ref.APIVersion = foreign.GetObjectKind().GroupVersionKind().GroupVersion().String()
	}
	return ref
}

// OwnerRef returns the incarnation that an owner reference in namespace names.
func OwnerRef(namespace string, owner metav1.OwnerReference) Ref {
	return Ref{Kind: Kind(owner.Kind), Namespace: namespace, Name: owner.Name, UID: owner.UID, APIVersion: owner.APIVersion}
}

// String is how a person would name the object: "pod llama-0".
func (r Ref) String() string {
	return fmt.Sprintf("%s %s", strings.ToLower(string(r.Kind)), r.Name)
}

// apiVersions are the groups and versions of kinds outside the core.
var apiVersions = map[Kind]string{
	KindLeaderWorkerSet:  lwsv1.GroupVersion.String(),
	KindDisaggregatedSet: dsv1.GroupVersion.String(), KindDisaggregatedSetRoleScaler: dsv1.GroupVersion.String(),
	KindStatefulSet: "apps/v1", KindDeployment: "apps/v1", KindReplicaSet: "apps/v1", KindControllerRevision: "apps/v1",
	KindPodDisruptionBudget: "policy/v1",
}

// APIVersion returns the group and version of a kind that every API server serves, or of our own.
func (k Kind) APIVersion() string { return cmp.Or(apiVersions[k], "v1") }
