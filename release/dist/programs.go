package dist

import (
	"debug/buildinfo"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"lockstep.dev/lockstep/release/sbom"
)

// plugin is the program that kubectl runs for "kubectl lockstep".
const plugin = "kubectl-lockstep"

// programs are archived one by one.
var programs = []string{"lockstep", plugin}

// Options are what the files of a release are made of.
type Options struct {
	Version string
	// Created is the time of everything in the archives.
	Created time.Time
	// Programs are directories named OS_ARCHITECTURE with the programs for that platform.
	Programs []string
	// Image is the directory of the image layout.
	Image string
	// License is the file with the license, which every archive holds.
	License string
	// URL is where the files of the release are published.
	URL string
}

// Write writes the archives of the programs with their bills of materials, the image layout as one
// file, and the manifest of the plugin.
func (o Options) Write(dir string) error {
	var platforms []platform
	for _, from := range o.Programs {
		for _, program := range programs {
			file, digest, err := o.program(dir, from, program)
			if err != nil {
				return fmt.Errorf("archive of %s in %s: %w", program, from, err)
			}
			if program == plugin {
				platforms = append(platforms, o.platform(filepath.Base(from), file, digest))
			}
		}
	}
	layout, err := tree(o.Image)
	if err != nil {
		return err
	}
	if err := archive(filepath.Join(dir, "lockstep_"+o.Version+"_image.tar"), o.Created, layout); err != nil {
		return err
	}
	manifest, err := o.manifest(platforms)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, manifestName), manifest, 0o644)
}

// program writes the archive of one program, and returns its name and digest.
func (o Options) program(dir, from, program string) (file, digest string, err error) {
	path := filepath.Join(from, program)
	build, err := buildinfo.ReadFile(path)
	if err != nil {
		return "", "", err
	}
	system, architecture, _ := strings.Cut(filepath.Base(from), "_")
	for key, want := range map[string]string{"GOOS": system, "GOARCH": architecture} {
		i := slices.IndexFunc(build.Settings, func(s debug.BuildSetting) bool { return s.Key == key })
		if i < 0 || build.Settings[i].Value != want {
			return "", "", fmt.Errorf("it is not built with %s=%s", key, want)
		}
	}
	name := program + "_" + o.Version + "_" + filepath.Base(from)
	file = name + ".tar.gz"
	err = archive(filepath.Join(dir, file), o.Created, []entry{{"LICENSE", o.License, 0o644}, {program, path, 0o755}})
	if err != nil {
		return "", "", err
	}
	if digest, err = sum(filepath.Join(dir, file)); err != nil {
		return "", "", err
	}
	text, err := sbom.Write(sbom.Subject{
		Name: program + "-" + system + "-" + architecture, Version: o.Version, File: file, SHA256: digest, Created: o.Created,
	}, build)
	if err != nil {
		return "", "", err
	}
	return file, digest, os.WriteFile(filepath.Join(dir, name+".spdx.json"), text, 0o644)
}
