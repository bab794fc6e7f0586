package drill

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/rest"
)

// Request is what the audit log tells of one finished request.
type Request struct {
	Verb, Resource, Subresource, Namespace, Name, Agent, URI string
	Code                                                     int
	// Begun and Done are when the API server took the request and when it answered.
	Begun, Done time.Time
}

func (r Request) String() string {
	resource := r.Resource
	if r.Subresource != "" {
		resource += "/" + r.Subresource
	}
	return fmt.Sprintf("%s %s %s/%s → %d", r.Verb, resource, r.Namespace, r.Name, r.Code)
}

// ByLockstep tells the operator's requests from everybody else's.
func ByLockstep(r Request) bool { return strings.HasPrefix(r.Agent, "lockstep/") }

// Audit remembers requests of a run. A position in it is a number of lines kept.
type Audit struct {
	keep   func(Request) bool
	path   string
	rest   *rest.Config
	http   *http.Client
	mu     sync.Mutex
	kept   []Request
	marker int // the highest marker seen
	asked  int // the highest marker sent
}

// FollowAudit reads an audit log from now on for as long as the process lives, and
// remembers what is to be kept.
func FollowAudit(path string, config *rest.Config, keep func(Request) bool) (*Audit, error) {
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	a := &Audit{keep: keep, path: path, rest: config, http: client}
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	go a.follow(file)
	return a, nil
}

// follow reads lines as they come. A restarted API server appends to the same file.
func (a *Audit) follow(file *os.File) {
	in, begun := bufio.NewReader(file), ""
	for {
		line, err := in.ReadString('\n')
		begun += line
		switch {
		case err == nil:
			a.take(begun)
			begun = ""
		case errors.Is(err, io.EOF):
			time.Sleep(20 * time.Millisecond) // a file has no way to tell that it grew
		default:
			return
		}
	}
}

// take keeps a line if it is of the kind that is kept.
func (a *Audit) take(line string) {
	var event struct {
		Stage, Verb, UserAgent, RequestURI string
		ObjectRef                          struct{ Resource, Subresource, Namespace, Name string }
		ResponseStatus                     struct{ Code int }
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
	a.mu.Lock()
	defer a.mu.Unlock()
	marker := 0
	if _, err := fmt.Sscanf(r.URI, "/version?marker=%d", &marker); err == nil {
		a.marker = max(a.marker, marker) // markers sent at the same time are logged in any order
		return
	}
	if a.keep(r) {
		a.kept = append(a.kept, r)
	}
}

// IsWrite reports whether a request is a write.
func IsWrite(r Request) bool {
	switch r.Verb {
	case "create", "update", "patch", "delete", "deletecollection":
		return true
	}
	return false
}

// CreatesPod reports whether a request created a pod.
func CreatesPod(r Request) bool {
	return r.Verb == "create" && r.Resource == "pods" && r.Subresource == "" && r.Code == http.StatusCreated
}

// Sync returns once every request that was answered before is in memory.
func (a *Audit) Sync() error {
	a.mu.Lock()
	a.asked++
	marker := a.asked
	a.mu.Unlock()
	deadline := time.Now().Add(Patience)
	for sent := false; ; {
		if !sent {
			sent = a.send(marker) == nil
		}
		a.mu.Lock()
		seen := a.marker >= marker
		a.mu.Unlock()
		if seen {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("marker %d does not appear in the audit log %s", marker, a.path)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func (a *Audit) send(marker int) error {
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	url := fmt.Sprintf("%s/version?marker=%d", strings.TrimRight(a.rest.Host, "/"), marker)
	ask, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	answer, err := a.http.Do(ask)
	if err != nil {
		return err
	}
	return answer.Body.Close()
}

// Position is where the log stands now.
func (a *Audit) Position() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.kept)
}

// Kept returns the requests kept from a position on that match.
func (a *Audit) Kept(from int, match func(Request) bool) []Request {
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
