package drill

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
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

// RightsFile names the file to which runs add the rights that the operator used.
const RightsFile = "LOCKSTEP_RIGHTS"

// Right is a right that the operator's account used. Name is kept for objects of the
// cluster and of the operator's namespace: only there a role names objects.
type Right struct {
	Verb, Group, Resource, Name string
	// Denied is set if the account lacked the right.
	Denied bool
}

// use notes the right that a request needed. The caller holds the lock.
func (a *Audit) use(group string, r Request, denied bool) {
	if r.Resource == "" { // discovery and health
		return
	}
	right := Right{Verb: r.Verb, Group: group, Resource: r.Resource, Denied: denied}
	if r.Subresource != "" {
		right.Resource += "/" + r.Subresource
	}
	if r.Namespace == "" || r.Namespace == "lws-system" {
		right.Name = r.Name
	}
	a.rights[right] = true
	if r.Verb == "patch" && r.Code == http.StatusCreated { // an apply that creates is asked for both
		right.Verb = "create"
		a.rights[right] = true
	}
}

// refuse notes a write that a policy about the operator refused. That of the namespaces of the cluster may do so.
// The caller holds the lock.
func (a *Audit) refuse(r Request, failures string) {
	if strings.Contains(failures, "-operator-") && !strings.Contains(failures, "-operator-system") {
		a.refused = append(a.refused, fmt.Errorf("a policy refused the operator: %s: %s", r, failures))
	}
}

// Lacked returns the rights that the operator was denied, and never granted: an API server that starts
// denies what roles grant, until it has read them.
func Lacked(used []Right) (lacked []Right) {
	for _, right := range used {
		granted := right
		granted.Denied = false
		if right.Denied && !slices.Contains(used, granted) {
			lacked = append(lacked, right)
		}
	}
	return lacked
}

// CheckRights returns an error for each right that the operator lacked, and for each of its writes that a policy
// refused. It adds the rights that it used to the file of RightsFile.
func (b *Bed) CheckRights() error {
	if err := b.Audit.Sync(); err != nil {
		return err
	}
	b.Audit.mu.Lock()
	defer b.Audit.mu.Unlock()
	denied := slices.Clone(b.Audit.refused)
	for _, right := range Lacked(slices.Collect(maps.Keys(b.Audit.rights))) {
		denied = append(denied, fmt.Errorf("the operator may not %s %s.%s %s", right.Verb, right.Resource, right.Group, right.Name))
	}
	return errors.Join(errors.Join(denied...), b.Audit.addRights(os.Getenv(RightsFile)))
}

func (a *Audit) addRights(path string) error {
	if path == "" {
		return nil
	}
	all, err := ReadRights(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for right := range a.rights {
		if !slices.Contains(all, right) {
			all = append(all, right)
		}
	}
	text, err := json.Marshal(all)
	if err != nil {
		return err
	}
	return os.WriteFile(path, text, 0o600)
}

// ReadRights reads the rights that the operator used in the runs that wrote a file.
func ReadRights(path string) (all []Right, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return all, json.Unmarshal(text, &all)
}
