package plane

import (
	"context"
	"fmt"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/workqueue"

	"lockstep.dev/lockstep/local/stages"
)

// provisioner creates volumes; stages/volume.yaml has its name.
const provisioner = "local.lockstep.dev/kwok"

// seed puts into an empty cluster what a user finds in it: storage classes,
// nodes, and a guard against kwok.
func seed(ctx context.Context, client kubernetes.Interface, settings Settings) error {
	for _, class := range storageClasses() {
		if _, err := client.StorageV1().StorageClasses().Create(ctx, class, metav1.CreateOptions{}); existsNot(err) {
			return err
		}
	}
	if settings.Stages != stages.Stock { // stock stages delete by name, unguarded
		if err := seedGuard(ctx, client); err != nil {
			return err
		}
	}
	return seedNodes(ctx, client, settings.Nodes)
}

// existsNot is an error other than "already there": a create may have been
// carried out although its answer was lost.
func existsNot(err error) bool { return err != nil && !apierrors.IsAlreadyExists(err) }

// storageClasses are the default one, which binds a claim at once, and one that
// waits for the pod, as most real ones do.
func storageClasses() []*storagev1.StorageClass {
	immediate, wait := storagev1.VolumeBindingImmediate, storagev1.VolumeBindingWaitForFirstConsumer
	reclaim := corev1.PersistentVolumeReclaimDelete
	return []*storagev1.StorageClass{{
		ObjectMeta: metav1.ObjectMeta{
			Name:        "local",
			Annotations: map[string]string{"storageclass.kubernetes.io/is-default-class": "true"},
		},
		Provisioner: provisioner, VolumeBindingMode: &immediate, ReclaimPolicy: &reclaim,
	}, {
		ObjectMeta:  metav1.ObjectMeta{Name: "local-wait"},
		Provisioner: provisioner, VolumeBindingMode: &wait, ReclaimPolicy: &reclaim,
	}}
}

// seedGuard makes up for a difference between kwok and a kubelet. A kubelet
// deletes a pod by its UID; kwok by its name, and may so hit the next pod of
// that name. Admission sees the exact object that would be deleted, and lets
// kwok delete only pods that are terminating.
func seedGuard(ctx context.Context, client kubernetes.Interface) error {
	const name = "local.lockstep.dev-kwok-ends-only-deleted-pods"
	policy := &admissionv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionv1.MatchResources{
				ResourceRules: []admissionv1.NamedRuleWithOperations{{
					RuleWithOperations: admissionv1.RuleWithOperations{
						Operations: []admissionv1.OperationType{admissionv1.Delete},
						Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
					},
				}},
			},
			MatchConditions: []admissionv1.MatchCondition{{
				Name: "by-kwok", Expression: fmt.Sprintf("request.userInfo.username == %q", kwokUser),
			}},
			Validations: []admissionv1.Validation{{
				Expression: "has(oldObject.metadata.deletionTimestamp)",
				Message:    "this is not the pod that was deleted, but its successor of the same name",
			}},
		},
	}
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName:        name,
			ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
		},
	}
	admission := client.AdmissionregistrationV1()
	if _, err := admission.ValidatingAdmissionPolicies().Create(ctx, policy, metav1.CreateOptions{}); existsNot(err) {
		return err
	}
	if _, err := admission.ValidatingAdmissionPolicyBindings().Create(ctx, binding, metav1.CreateOptions{}); existsNot(err) {
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
