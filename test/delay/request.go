package delay

import (
	"net/http"

	"k8s.io/apimachinery/pkg/util/sets"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
)

// Request is what one request asks of the API server.
type Request struct {
	// Verb is Kubernetes': get, list, watch, create, update, patch, delete or
	// deletecollection.
	Verb        string
	Resource    string
	Namespace   string
	Name        string
	Subresource string
	Path        string
}

func (r Request) String() string { return r.Verb + " " + r.Path }

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
	asked := Request{Path: r.URL.Path}
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
