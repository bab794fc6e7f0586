// Package lease reads which process holds the lease of the controllers, of this or another implementation.
//
// It knows how holders are named. It refuses to know what another holder means, and never writes: leader election does.
package lease

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
)

// mark is the prefix of the identity of each replica of Lockstep. Other implementations use the name of their host.
const mark = "lockstep_"

// Identity returns the identity of a replica in the lease.
func Identity(host string) string { return mark + host + "_" + string(uuid.NewUUID()) }

// versionLabel names the version of the leader on its lease.
const versionLabel = "app.kubernetes.io/version"

// Labels returns the labels of a lease that a version of Lockstep holds.
func Labels(version string) map[string]string {
	return map[string]string{versionLabel: VersionLabel(version)}
}

// VersionLabel returns a version as a label names it: it may have no plus sign.
func VersionLabel(version string) string { return strings.ReplaceAll(version, "+", "_") }

// Holder holds a lease now.
type Holder struct {
	// Namespace is that of the lease and of its holder.
	Namespace string
	// Identity is the holder's in the lease.
	Identity string
}

// VersionOf returns the version of the leader that wrote a lease, or nothing.
func VersionOf(lease *coordinationv1.Lease) string { return lease.Labels[versionLabel] }

// HolderOf returns the holder of a lease. It reports false if the lease has none now.
func HolderOf(lease *coordinationv1.Lease, now time.Time) (Holder, bool) {
	holder := ptr.Deref(lease.Spec.HolderIdentity, "")
	if holder == "" || lease.Spec.RenewTime == nil {
		return Holder{}, false
	}
	expires := lease.Spec.RenewTime.Add(time.Duration(ptr.Deref(lease.Spec.LeaseDurationSeconds, 0)) * time.Second)
	return Holder{Namespace: lease.Namespace, Identity: holder}, !now.After(expires)
}

// IsHeld reports whether a lease has a holder now.
func IsHeld(lease *coordinationv1.Lease, now time.Time) bool {
	_, isHeld := HolderOf(lease, now)
	return isHeld
}

// Holders returns the holders of leases with a name, in all namespaces or, if the client may not list these, in own.
func Holders(ctx context.Context, client kubernetes.Interface, name, own string, now time.Time) ([]Holder, error) {
	named := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", name).String()}
	leases, err := client.CoordinationV1().Leases(metav1.NamespaceAll).List(ctx, named)
	if apierrors.IsForbidden(err) {
		var one *coordinationv1.Lease
		one, err = client.CoordinationV1().Leases(own).Get(ctx, name, metav1.GetOptions{})
		leases = &coordinationv1.LeaseList{Items: []coordinationv1.Lease{*one}} // one that was not read has no holder
	}
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err) {
		return nil, fmt.Errorf("list leases %s: %w", name, err)
	}
	var holders []Holder
	for i := range leases.Items {
		if holder, held := HolderOf(&leases.Items[i], now); held {
			holders = append(holders, holder)
		}
	}
	slices.SortFunc(holders, func(a, b Holder) int { return cmp.Compare(a.Namespace, b.Namespace) })
	return holders, nil
}

// Ours reports whether the holder is a replica of Lockstep.
func (h Holder) Ours() bool { return strings.HasPrefix(h.Identity, mark) }

// ofDeployment matches the name of a Deployment's pod and a unique suffix.
var ofDeployment = regexp.MustCompile(`^(.+)-[a-z0-9]+-[a-z0-9]{5}_[^_]+$`)

// Deployment returns the Deployment that has the holder's pod, by its name, or nothing.
func (h Holder) Deployment() string {
	if match := ofDeployment.FindStringSubmatch(strings.TrimPrefix(h.Identity, mark)); match != nil {
		return match[1]
	}
	return ""
}

// Stop returns a command that ends the holder.
func (h Holder) Stop() string {
	name := cmp.Or(h.Deployment(), "NAME")
	return fmt.Sprintf("kubectl --namespace %s scale deployment %s --replicas=0", h.Namespace, name)
}
