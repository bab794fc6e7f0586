package plane

import (
	"context"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	admissionclient "k8s.io/client-go/kubernetes/typed/admissionregistration/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/yaml"

	"lockstep.dev/lockstep/local/stages"
)

// seed puts into an empty cluster what a user finds in it: storage classes, nodes, and a guard against kwok. A class
// binds a claim at once, and another waits for the pod.
func seed(ctx context.Context, client kubernetes.Interface, settings Settings) error {
	for _, name := range []string{"class-local.yaml", "class-wait.yaml"} {
		class := decoded[storagev1.StorageClass](name)
		if _, err := client.StorageV1().StorageClasses().Create(ctx, class, metav1.CreateOptions{}); existsNot(err) {
			return err
		}
	}
	if settings.Stages != stages.Stock { // stock stages delete by name, unguarded
		if err := seedGuard(ctx, client.AdmissionregistrationV1()); err != nil {
			return err
		}
	}
	return seedNodes(ctx, client, settings.Nodes)
}

// existsNot is an error other than "already there": a create may have been
// carried out although its answer was lost.
func existsNot(err error) bool { return err != nil && !apierrors.IsAlreadyExists(err) }

// decoded returns the object of a manifest. It panics on a mistake in one, which is compiled in.
func decoded[T any](name string) *T {
	object := new(T)
	if err := yaml.UnmarshalStrict([]byte(manifest(name)), object); err != nil {
		panic(err)
	}
	return object
}

// seedGuard makes up for a difference between kwok and a kubelet: see its manifest.
func seedGuard(ctx context.Context, admission admissionclient.AdmissionregistrationV1Interface) error {
	policy := decoded[admissionv1.ValidatingAdmissionPolicy]("guard.yaml")
	if _, err := admission.ValidatingAdmissionPolicies().Create(ctx, policy, metav1.CreateOptions{}); existsNot(err) {
		return err
	}
	binding := decoded[admissionv1.ValidatingAdmissionPolicyBinding]("guard-binding.yaml")
	_, err := admission.ValidatingAdmissionPolicyBindings().Create(ctx, binding, metav1.CreateOptions{})
	if existsNot(err) {
		return err
	}
	return nil
}

// seedNodes creates nodes 16 at a time, so that hundreds take seconds.
func seedNodes(ctx context.Context, client kubernetes.Interface, count int) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	workqueue.ParallelizeUntil(ctx, 16, count, func(i int) {
		if err := createNode(ctx, client, i); err != nil {
			cancel(err)
		}
	})
	return context.Cause(ctx)
}

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
