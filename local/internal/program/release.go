package program

import (
	"runtime/debug"
	"strings"
	"sync/atomic"
	_ "unsafe" // go:linkname
)

// The version that Kubernetes reports lives in variables that its own build
// sets with linker flags. They are reached by name here, so that a plain
// `go build` reports the truth too.
//
//go:linkname gitMajor k8s.io/component-base/version.gitMajor
var gitMajor string

//go:linkname gitMinor k8s.io/component-base/version.gitMinor
var gitMinor string

//go:linkname dynamicGitVersion k8s.io/component-base/version.dynamicGitVersion
var dynamicGitVersion atomic.Value

// The version in the user agent of every client.
//
//go:linkname clientVersion k8s.io/client-go/pkg/version.gitVersion
var clientVersion string

//go:linkname clientCommit k8s.io/client-go/pkg/version.gitCommit
var clientCommit string

// Release is the version of k8s.io/kubernetes that is compiled in, as the
// build recorded it, for example "v1.37.1"; empty if it did not.
func Release() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, dep := range info.Deps {
		if dep.Path == "k8s.io/kubernetes" {
			return dep.Version
		}
	}
	return ""
}

// reportRelease makes every Kubernetes program in this process call itself by
// its release instead of "v0.0.0-master+$Format:%H$", which clients cannot
// parse.
func reportRelease() {
	release := Release()
	major, rest, ok := strings.Cut(strings.TrimPrefix(release, "v"), ".")
	if !ok {
		return
	}
	gitMajor = major
	gitMinor, _, _ = strings.Cut(rest, ".")
	dynamicGitVersion.Store(release)
	clientVersion, clientCommit = release, ""
}
