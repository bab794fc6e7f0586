// Package config carries the manifests of an installation inside the binary, so
// that what is installed is always of the version that installs it.
//
// It knows the files beside it and refuses to know what is in them. The
// CustomResourceDefinitions, which are generated, are in config/crd.
package config

import "embed"

// Files holds, by directory: rbac, the service accounts and every role; deployment, the operator as it runs inside a
// cluster, and the Services in front of it; protection, the admission policies that protect PVCs in use; webhook, the
// configurations in the form that calls a Service; policy, those that protect labels and owners, and bound the operator.
//
//go:embed rbac/*.yaml deployment/*.yaml protection/*.yaml webhook/*.yaml policy/*.yaml
var Files embed.FS
