// Package config carries the manifests of an installation inside the binary, so
// that what is installed is always of the version that installs it.
//
// It knows the files beside it and refuses to know what is in them. The
// CustomResourceDefinitions, which are generated, are in config/crd.
package config

import "embed"

// Access holds the operator's service account and every role.
//
//go:embed rbac/*.yaml
var Access embed.FS

// Webhooks holds the webhook configurations, in the form that calls a Service.
//
//go:embed webhook/*.yaml
var Webhooks embed.FS

// Deployment holds the operator itself, as it runs inside a cluster, and the Services in front of it.
//
//go:embed deployment/*.yaml
var Deployment embed.FS

// Policy holds the admission policies that protect labels and ownerReferences, and bound the operator.
//
//go:embed policy/*.yaml
var Policy embed.FS

// Protection holds the admission policies that protect claims in use.
//
//go:embed protection/*.yaml
var Protection embed.FS
