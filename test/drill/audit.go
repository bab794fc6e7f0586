package drill

import (
	"bufio"
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
	"sync"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Request is one finished request in the audit log.
type Request struct {
	Verb, Resource, Subresource, Namespace, Name, Agent, URI string
	Code                                                     int
	// Begun and Done are when the API server received the request and when it answered.
	Begun, Done time.Time
}

func (r Request) String() string {
	resource := r.Resource
	if r.Subresource != "" {
		resource += "/" + r.Subresource
	}
	return fmt.Sprintf("%s %s %s/%s → %d", r.Verb, resource, r.Namespace, r.Name, r.Code)
}

// ByLockstep reports whether the operator sent a request.
func ByLockstep(r Request) bool { return strings.HasPrefix(r.Agent, "lockstep/") }

// Audit keeps requests of a run. A position is a number of requests kept.
type Audit struct {
	keep    func(Request) bool
	path    string
	host    string
	http    *http.Client
	mu      sync.Mutex
	file    *bufio.Reader
	begun   string // the beginning of a line that the API server has not finished
	kept    []Request
	rights  map[Right]bool
	refused []error // writes of the operator that a policy refused
	marker  int     // the highest marker seen
	asked   int     // the highest marker sent
}

// FollowAudit reads an audit log from now on, and keeps the requests for which keep is true.
func FollowAudit(path string, config *rest.Config, keep func(Request) bool) (*Audit, error) {
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	client.Timeout = Patience
	file, err := os.Open(path)
	return &Audit{keep: keep, path: path, host: strings.TrimRight(config.Host, "/"), http: client, file: bufio.NewReader(file), rights: map[Right]bool{}}, err
}

// readOn reads the new lines, and reports whether a marker was seen. A restarted API server
// appends to the same file.
func (a *Audit) readOn(marker int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for {
		line, err := a.file.ReadString('\n')
		a.begun += line
		if err != nil {
			return a.marker >= marker
		}
		a.take(a.begun)
		a.begun = ""
	}
}

// take keeps the request of a line, or notes a marker. The caller holds the lock.
func (a *Audit) take(line string) {
	var event struct {
		Stage, Verb, UserAgent, RequestURI string
		ImpersonatedUser                   struct{ Username string }
		ObjectRef                          struct{ APIGroup, Resource, Subresource, Namespace, Name string }
		ResponseStatus                     struct{ Code int }
		Annotations                        map[string]string
		RequestReceivedTimestamp           time.Time
		StageTimestamp                     time.Time
	}
	if json.Unmarshal([]byte(line), &event) != nil || event.Stage != "ResponseComplete" {
		return
	}
	ref := event.ObjectRef
	r := Request{Verb: event.Verb, Resource: ref.Resource, Subresource: ref.Subresource, Namespace: ref.Namespace,
		Name: ref.Name, Agent: event.UserAgent, URI: event.RequestURI, Code: event.ResponseStatus.Code,
		Begun: event.RequestReceivedTimestamp, Done: event.StageTimestamp}
	marker := 0
	if _, err := fmt.Sscanf(r.URI, "/version?marker=%d", &marker); err == nil {
		a.marker = max(a.marker, marker) // markers sent at the same time are logged in any order
		return
	}
	if event.ImpersonatedUser.Username == Account && ByLockstep(r) {
		a.use(ref.APIGroup, r, event.Annotations["authorization.k8s.io/decision"] == "forbid")
		a.refuse(r, event.Annotations["validation.policy.admission.k8s.io/validation_failure"])
	}
	if a.keep(r) {
		a.kept = append(a.kept, r)
	}
}

// IsWrite reports whether a request is a write that is stored.
func IsWrite(r Request) bool {
	switch r.Verb {
	case "create", "update", "patch", "delete", "deletecollection":
		return !IsDryRun(r)
	}
	return false
}

// IsDryRun reports whether a request stores nothing.
func IsDryRun(r Request) bool { return strings.Contains(r.URI, "dryRun=All") }

// CreatesPod reports whether a request created a pod.
func CreatesPod(r Request) bool {
	return r.Verb == "create" && r.Resource == "pods" && r.Subresource == "" && r.Code == http.StatusCreated
}

// Sync returns when every request that was answered before the call is in memory.
func (a *Audit) Sync() error {
	a.mu.Lock()
	a.asked++
	marker := a.asked
	a.mu.Unlock()
	deadline := time.Now().Add(Patience)
	for sent := false; ; time.Sleep(10 * time.Millisecond) {
		sent = sent || a.send(marker) == nil
		if a.readOn(marker) {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("marker %d does not appear in the audit log %s", marker, a.path)
		}
	}
}

func (a *Audit) send(marker int) error {
	answer, err := a.http.Get(fmt.Sprintf("%s/version?marker=%d", a.host, marker))
	if err != nil {
		return err
	}
	return answer.Body.Close()
}

// Position returns the number of requests kept so far.
func (a *Audit) Position() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.kept)
}

// Kept returns the matching requests from a position on.
func (a *Audit) Kept(from int, match func(Request) bool) []Request {
	a.readOn(0)
	a.mu.Lock()
	defer a.mu.Unlock()
	var found []Request
	for _, r := range a.kept[from:] {
		if match(r) {
			found = append(found, r)
		}
	}
	return found
}

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
// denies what roles grant, until it has read them. A client whose watch is denied lists once, and then watches again.
func Lacked(used []Right) (lacked []Right) {
	for _, right := range used {
		granted := right
		granted.Denied = false
		watched, denied := granted, right
		watched.Verb, denied.Verb = "watch", "watch"
		fellBack := right.Verb == "list" && slices.Contains(used, denied) && slices.Contains(used, watched)
		if right.Denied && !slices.Contains(used, granted) && !fellBack {
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
