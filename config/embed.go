// Package config carries the manifests of an installation inside the binary, so
// that what is installed is always of the version that installs it.
//
// It knows the files beside it and refuses to know what is in them. The
// CustomResourceDefinitions, which are generated, are in config/crd.
package config

import "embed"

// Files holds the manifests by directory: rbac has the operator's service account and every role. deployment has the
// operator itself, as it runs inside a cluster, and the Services in front of it. protection has the admission policies
// that protect PVCs in use, and policy those that protect labels and ownerReferences, and bound the operator. webhook
// has the webhook configurations, in the form that calls a Service.
//
//go:embed rbac/*.yaml deployment/*.yaml protection/*.yaml webhook/*.yaml policy/*.yaml
var Files embed.FS
