// Package version knows which build of Lockstep this is, and nothing about what
// the build does.
package version

import (
	"fmt"
	"runtime/debug"
	"sync"
)

// Set by the linker: -X lockstep.dev/lockstep/internal/version.Version=v0.1.0
// and so on. Left empty they are read from what the Go tool recorded.
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

// Get returns the build this program comes from. It never changes while the
// program runs.
var Get = sync.OnceValue(func() Info {
	build, _ := debug.ReadBuildInfo()
	return resolve(Info{Version: Version, Commit: Commit, BuildDate: BuildDate}, build)
})

// resolve fills what the linker left empty from what the Go tool recorded.
func resolve(linked Info, build *debug.BuildInfo) Info {
	recorded := Info{Version: unreleased, Commit: unknown, BuildDate: unknown}
	if build != nil {
		recorded = recordedIn(build, recorded)
	}
	return Info{
		Version:   first(linked.Version, recorded.Version),
		Commit:    first(linked.Commit, recorded.Commit),
		BuildDate: first(linked.BuildDate, recorded.BuildDate),
	}
}

func recordedIn(build *debug.BuildInfo, info Info) Info {
	if v := build.Main.Version; v != "" && v != "(devel)" {
		info.Version = v
	}
	for _, s := range build.Settings {
		switch s.Key {
		case "vcs.revision":
			info.Commit = s.Value
		case "vcs.time":
			info.BuildDate = s.Value
		}
	}
	return info
}

func first(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// String is the text "lockstep version" prints.
func (i Info) String() string {
	return fmt.Sprintf("Version: %s\nBuild Date: %s\nGit Commit: %s", i.Version, i.BuildDate, i.Commit)
}

// UserAgent is how every request of the program names itself to the API server.
func UserAgent() string { return "lockstep/" + Get().Version }
