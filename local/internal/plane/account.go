package plane

import (
	"context"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// seedAccounts creates the service accounts that the API server's own policy
// gives the controllers' rights to. The controller manager would create them
// too, one after the other under its client limit, for five seconds.
func seedAccounts(ctx context.Context, client kubernetes.Interface) error {
	bindings, err := client.RbacV1().ClusterRoleBindings().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, binding := range bindings.Items {
		if !strings.HasPrefix(binding.Name, "system:controller:") {
			continue
		}
		for _, subject := range binding.Subjects { // service accounts
			account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: subject.Namespace, Name: subject.Name}}
			if _, err := client.CoreV1().ServiceAccounts(subject.Namespace).Create(ctx, account, metav1.CreateOptions{}); existsNot(err) {
				return err
			}
		}
	}
	return nil
}

// accountReady returns nil when pods can be created in the default namespace.
func accountReady(ctx context.Context, client kubernetes.Interface) error {
	_, err := client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
	return err
}
