package delay

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
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

// Watches matches watches of a resource.
func Watches(resource string) func(Request) bool {
	return func(r Request) bool { return r.Verb == "watch" && r.Resource == resource }
}

// ListsPods matches lists of the pods of a namespace.
func ListsPods(namespace string) func(Request) bool {
	return func(r Request) bool {
		return r.Verb == "list" && r.Resource == "pods" && r.Namespace == namespace
	}
}

// WritesPVC matches requests that can change the finalizers of a PVC.
func WritesPVC(namespace, name string) func(Request) bool {
	return func(r Request) bool {
		return (r.Verb == "update" || r.Verb == "patch") && r.Resource == "persistentvolumeclaims" &&
			r.Namespace == namespace && r.Name == name && r.Subresource == ""
	}
}

var paths = apirequest.RequestInfoFactory{
	APIPrefixes:          sets.NewString("api", "apis"),
	GrouplessAPIPrefixes: sets.NewString("api"),
}

// parse reads a request as the API server does.
func parse(r *http.Request) Request {
	asked := Request{User: user(r), Path: r.URL.Path}
	info, err := paths.NewRequestInfo(r)
	if err != nil {
		return asked
	}
	asked.Verb, asked.Resource, asked.Namespace, asked.Name, asked.Subresource = info.Verb, info.Resource, info.Namespace, info.Name, info.Subresource
	if asked.Resource == "namespaces" {
		asked.Namespace = ""
	}
	return asked
}

// user returns the user of a token or certificate. The API server authenticates it; here it
// only distinguishes clients.
func user(r *http.Request) string {
	if token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); ok {
		return subject(token)
	}
	if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
		return r.TLS.PeerCertificates[0].Subject.CommonName
	}
	return ""
}

// subject returns the user of a service account's token.
func subject(token string) string {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return ""
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	var claims struct {
		Subject string `json:"sub"`
	}
	if err != nil || json.Unmarshal(payload, &claims) != nil {
		return ""
	}
	return claims.Subject
}
