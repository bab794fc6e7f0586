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
func resolve(linked Info, build *debug.BuildInfo) Info {
	recorded := Info{Version: unreleased, Commit: unknown, BuildDate: unknown}
	if build != nil && build.Main.Version != "(devel)" {
		recorded.Version = cmp.Or(build.Main.Version, unreleased)
	}
	if build != nil {
		for _, s := range build.Settings {
			switch s.Key {
			case "vcs.revision":
				recorded.Commit = s.Value
			case "vcs.time":
				recorded.BuildDate = s.Value
			}
		}
	}
	return Info{
		Version:   cmp.Or(linked.Version, recorded.Version),
		Commit:    cmp.Or(linked.Commit, recorded.Commit),
		BuildDate: cmp.Or(linked.BuildDate, recorded.BuildDate),
	}
}

// String returns the text of "lockstep version".
func (i Info) String() string {
	return fmt.Sprintf("Version: %s\nBuild Date: %s\nGit Commit: %s", i.Version, i.BuildDate, i.Commit)
}

// UserAgent returns the user agent of all requests to the API server.
func UserAgent() string { return "lockstep/" + Get().Version }
