package plane

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// freeLeases lets a new kwok take its nodes at once. It would wait for the leases of the former
// one to run out otherwise, for 40 s, and look dead meanwhile. A kubelet creates its lease again.
func freeLeases(ctx context.Context, client kubernetes.Interface) error {
	return client.CoordinationV1().Leases(corev1.NamespaceNodeLease).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
}

// leasesHeld returns nil when kwok stands for every simulated node.
func leasesHeld(ctx context.Context, client kubernetes.Interface) error {
	nodes, err := simulatedNodes(ctx, client)
	if err != nil {
		return err
	}
	leases, err := client.CoordinationV1().Leases(corev1.NamespaceNodeLease).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	held := map[string]bool{}
	for _, lease := range leases.Items {
		held[lease.Name] = true
	}
	for _, name := range nodes {
		if !held[name] {
			return fmt.Errorf("the lease of node %q has no holder", name)
		}
	}
	return nil
}
