// Package crd carries the generated CustomResourceDefinitions inside the
// binary, so that an installation is always of the version that runs.
//
// It knows the files beside it, byte for byte, and refuses to know what is in
// them.
package crd

import "embed"

// Files holds one CustomResourceDefinition, in YAML, per file.
//
//go:embed *.yaml
var Files embed.FS
