//go:build linux

package node

import (
	"context"
	"errors"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	clusterDomain = "cluster.local"
	// dnsUser is the account of CoreDNS. It has its own rights, not those of the node.
	dnsUser = "system:serviceaccount:kube-system:coredns"
)

// corefile answers names of Services and of their pods, from a watch and without a cache. It forwards nothing.
const corefile = `%[3]s:53 {
  bind %[2]s
  errors
  kubernetes %[3]s {
    kubeconfig %[1]s/dns.kubeconfig
  }
}
`

// startDNS starts CoreDNS at the address of the node, which the kubelet writes into pods.
func (n *realNode) startDNS() error {
	return n.stage.start("coredns", n.log("coredns"), n.dns, "-conf", filepath.Join(n.dir, "Corefile"))
}

// allowDNS lets CoreDNS read what it answers.
func (b *testbed) allowDNS(ctx context.Context) error {
	named, read := metav1.ObjectMeta{Name: "coredns"}, []string{"list", "watch"}
	return errors.Join(
		b.Client.Create(ctx, &rbacv1.ClusterRole{ObjectMeta: named, Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{corev1.GroupName}, Resources: []string{"namespaces", "services"}, Verbs: read},
			{APIGroups: []string{discoveryv1.GroupName}, Resources: []string{"endpointslices"}, Verbs: read},
		}}),
		b.Client.Create(ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: named,
			RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: named.Name},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: dnsUser}},
		}),
	)
}
