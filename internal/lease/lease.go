// Package lease knows who runs the controllers of a cluster: of all that compete
// for one lease, whatever implementation they are of, one at a time.
//
// It reads and never writes: taking the lease is the election's. It refuses to
// judge whether somebody else's being there is right.
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

// mark begins the identity of every replica of Lockstep. Other implementations
// call themselves by their host alone.
const mark = "lockstep_"

// Identity is what a replica on the host calls itself in the lease.
func Identity(host string) string { return mark + host + "_" + string(uuid.NewUUID()) }

// Holder holds a lease at present.
type Holder struct {
	// Namespace is that of the lease, and so of who holds it.
	Namespace string
	// Identity is what the holder calls itself.
	Identity string
}

// Of returns the holder of a lease, unless nobody holds it now.
func Of(lease *coordinationv1.Lease, now time.Time) (Holder, bool) {
	holder := ptr.Deref(lease.Spec.HolderIdentity, "")
	if holder == "" || lease.Spec.RenewTime == nil {
		return Holder{}, false
	}
	expires := lease.Spec.RenewTime.Add(time.Duration(ptr.Deref(lease.Spec.LeaseDurationSeconds, 0)) * time.Second)
	return Holder{Namespace: lease.Namespace, Identity: holder}, !now.After(expires)
}

// Holders returns who holds leases of the name at present, in all namespaces or,
// where not all may be read, in own.
func Holders(ctx context.Context, client kubernetes.Interface, name, own string, now time.Time) ([]Holder, error) {
	named := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", name).String()}
	list, err := client.CoordinationV1().Leases(metav1.NamespaceAll).List(ctx, named)
	if apierrors.IsForbidden(err) {
		list, err = one(ctx, client, name, own)
	}
	if err != nil {
		return nil, fmt.Errorf("look for leases %s: %w", name, err)
	}
	var holders []Holder
	for i := range list.Items {
		if holder, held := Of(&list.Items[i], now); held {
			holders = append(holders, holder)
		}
	}
	slices.SortFunc(holders, func(a, b Holder) int { return cmp.Compare(a.Namespace, b.Namespace) })
	return holders, nil
}

func one(ctx context.Context, client kubernetes.Interface, name, namespace string) (*coordinationv1.LeaseList, error) {
	lease, err := client.CoordinationV1().Leases(namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		return &coordinationv1.LeaseList{}, nil
	}
	if err != nil {
		return nil, err
	}
	return &coordinationv1.LeaseList{Items: []coordinationv1.Lease{*lease}}, nil
}

// Ours tells whether the holder is a replica of Lockstep.
func (h Holder) Ours() bool { return strings.HasPrefix(h.Identity, mark) }

// ofDeployment is the name of a Deployment's pod, followed by what makes a holder
// unique.
var ofDeployment = regexp.MustCompile(`^(.+)-[a-z0-9]+-[a-z0-9]{5}_[^_]+$`)

// Deployment is the one that the holder is, by its name, a pod of, or empty.
func (h Holder) Deployment() string {
	if match := ofDeployment.FindStringSubmatch(strings.TrimPrefix(h.Identity, mark)); match != nil {
		return match[1]
	}
	return ""
}

// Stop says how to end the holder.
func (h Holder) Stop() string {
	name := cmp.Or(h.Deployment(), "NAME")
	return fmt.Sprintf("kubectl --namespace %s scale deployment %s --replicas=0", h.Namespace, name)
}
