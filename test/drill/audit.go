package drill

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/rest"
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
