package version

import (
	"runtime/debug"
	"testing"

	"lockstep.dev/lockstep/test/expect"
)

func TestLinkerWinsOverBuildInfo(t *testing.T) {
	build := &debug.BuildInfo{
		Main:     debug.Module{Version: "v9.9.9"},
		Settings: []debug.BuildSetting{{Key: "vcs.revision", Value: "abc"}, {Key: "vcs.time", Value: "then"}},
	}
	for name, c := range map[string]struct {
		linked Info
		build  *debug.BuildInfo
		want   Info
	}{
		"nothing known":      {want: Info{"v0.1.0-dev", "unknown", "unknown"}},
		"a plain go build":   {build: &debug.BuildInfo{Main: debug.Module{Version: "(devel)"}}, want: Info{"v0.1.0-dev", "unknown", "unknown"}},
		"recorded by go":     {build: build, want: Info{"v9.9.9", "abc", "then"}},
		"linked, as a whole": {linked: Info{"v1.0.0", "def", "now"}, build: build, want: Info{"v1.0.0", "def", "now"}},
		"linked, in part":    {linked: Info{Version: "v1.0.0"}, build: build, want: Info{"v1.0.0", "abc", "then"}},
	} {
		expect.Equalf(t, c.want, resolve(c.linked, c.build), "%s", name)
	}
}
