package delay

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strings"
)

// Request is what one request asks of the API server.
type Request struct {
	User string
	// Verb is Kubernetes': get, list, watch, create, update, patch, delete or
	// deletecollection.
	Verb        string
	Resource    string
	Namespace   string
	Name        string
	Subresource string
	Path        string
}

func (r Request) String() string { return r.User + " " + r.Verb + " " + r.Path }

// parse reads a request by its path: /api/v1/namespaces/NS/pods/NAME/binding.
func parse(r *http.Request) Request {
	asked := Request{User: user(r), Path: r.URL.Path}
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	switch {
	case len(parts) > 2 && parts[0] == "api":
		parts = parts[2:]
	case len(parts) > 3 && parts[0] == "apis":
		parts = parts[3:]
	default:
		asked.Verb = strings.ToLower(r.Method) // no resource
		return asked
	}
	if len(parts) > 2 && parts[0] == "namespaces" && parts[2] != "status" && parts[2] != "finalize" {
		asked.Namespace, parts = parts[1], parts[2:]
	}
	for i, field := range []*string{&asked.Resource, &asked.Name, &asked.Subresource} {
		if i < len(parts) {
			*field = parts[i]
		}
	}
	asked.Verb = verb(r, asked.Name != "")
	return asked
}

func verb(r *http.Request, named bool) string {
	watched := r.URL.Query().Get("watch")
	switch {
	case r.Method == http.MethodGet && watched != "" && watched != "0" && watched != "false":
		return "watch"
	case r.Method == http.MethodGet && named:
		return "get"
	case r.Method == http.MethodGet:
		return "list"
	case r.Method == http.MethodPost:
		return "create"
	case r.Method == http.MethodPut:
		return "update"
	case r.Method == http.MethodDelete && !named:
		return "deletecollection"
	}
	return strings.ToLower(r.Method)
}

// user is whose token or certificate a request bears. The API server judges it;
// here it only tells one asker from another.
func user(r *http.Request) string {
	if token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); ok {
		return subject(token)
	}
	if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
		return r.TLS.PeerCertificates[0].Subject.CommonName
	}
	return ""
}

// subject is who a service account's token is for.
func subject(token string) string {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return ""
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return ""
	}
	var claims struct {
		Subject string `json:"sub"`
	}
	if json.Unmarshal(payload, &claims) != nil {
		return ""
	}
	return claims.Subject
}
