// Package version names the build of Lockstep. It refuses to know what the build does.
package version

import (
	"cmp"
	"fmt"
	"runtime/debug"
	"sync"
)

// Set by the linker, for example -X lockstep.dev/lockstep/internal/version.Version=v0.1.0.
// If empty, they are read from what the Go tool recorded.
var (
	Version   string
	Commit    string
	BuildDate string
)

const (
	unreleased = "v0.1.0-dev"
	unknown    = "unknown"
)

// Info names one build.
type Info struct {
	Version   string `json:"version"`
	Commit    string `json:"gitCommit"`
	BuildDate string `json:"buildDate"`
}

// Get returns the build of this program.
var Get = sync.OnceValue(func() Info {
	build, _ := debug.ReadBuildInfo()
	return resolve(Info{Version: Version, Commit: Commit, BuildDate: BuildDate}, build)
})

// resolve fills what the linker left empty from what the Go tool recorded.
func resolve(info Info, build *debug.BuildInfo) Info {
	if build != nil && build.Main.Version != "(devel)" {
		info.Version = cmp.Or(info.Version, build.Main.Version)
	}
	if build != nil {
		for _, s := range build.Settings {
			switch s.Key {
			case "vcs.revision":
				info.Commit = cmp.Or(info.Commit, s.Value)
			case "vcs.time":
				info.BuildDate = cmp.Or(info.BuildDate, s.Value)
			}
		}
	}
	return Info{cmp.Or(info.Version, unreleased), cmp.Or(info.Commit, unknown), cmp.Or(info.BuildDate, unknown)}
}

// String returns the text of "lockstep version".
func (i Info) String() string {
	return fmt.Sprintf("Version: %s\nBuild Date: %s\nGit Commit: %s", i.Version, i.BuildDate, i.Commit)
}

// UserAgent returns the user agent of all requests to the API server.
func UserAgent() string { return "lockstep/" + Get().Version }
