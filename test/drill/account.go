package drill

import (
	"context"
	"errors"
	"fmt"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Account is the user that the operator is: its service account, with the rights that install
// grants. An administrator impersonates it, so that it outlives an uninstall.
const Account = "system:serviceaccount:lws-system:lws-controller-manager"

// groups are those of every service account of the namespace.
var groups = []string{"system:serviceaccounts", "system:serviceaccounts:lws-system", "system:authenticated"}

// AsAccount returns a configuration that acts as the operator's account.
func AsAccount(admin *rest.Config) *rest.Config {
	config := rest.CopyConfig(admin)
	config.Impersonate = rest.ImpersonationConfig{UserName: Account, Groups: groups}
	return config
}

// accountKubeconfig writes the operator's kubeconfig beside its log, and returns the path.
func (o *Operator) accountKubeconfig() (string, error) {
	path := o.Log + ".kubeconfig"
	config, err := clientcmd.LoadFromFile(o.Kubeconfig)
	if err != nil {
		return "", err
	}
	for _, user := range config.AuthInfos {
		user.Impersonate, user.ImpersonateGroups = Account, groups
	}
	return path, clientcmd.WriteToFile(*config, path)
}

// AwaitRoles returns when the API server applies what an installation granted: one right of each role.
func (o *Operator) AwaitRoles() error {
	admin, err := clientcmd.BuildConfigFromFlags("", o.Kubeconfig)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(AsAccount(admin))
	if err != nil {
		return err
	}
	for _, right := range []authorizationv1.ResourceAttributes{
		{Verb: "get", Resource: "secrets", Namespace: "lws-system", Name: "lws-webhook-server-cert"},
		{Verb: "create", Group: "coordination.k8s.io", Resource: "leases", Namespace: "lws-system"},
		{Verb: "list", Group: "apps", Resource: "controllerrevisions"},
		{Verb: "list", Group: "batch", Resource: "cronjobs"},
		{Verb: "create", Group: "authentication.k8s.io", Resource: "tokenreviews"},
	} {
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &right}}
		err := wait.PollUntilContextTimeout(context.Background(), 20*time.Millisecond, Patience, true, func(ctx context.Context) (bool, error) {
			answer, err := client.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
			return err == nil && answer.Status.Allowed, nil
		})
		if err != nil {
			return errors.Join(fmt.Errorf("the operator's account may not %s %s", right.Verb, right.Resource), err)
		}
	}
	return nil
}
